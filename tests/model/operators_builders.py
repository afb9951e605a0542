"""Valid stacks with operators, and what is planned of them."""

from pathlib import Path
from typing import Any, cast

import yaml
from builders import AKS, EKS, Data, job, planned, pool, stack, team
from repository import ROOT

from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.plan.operators import ReleasePlan
from gpu_tenancy.model.source import read_file

STACKS = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))
GANG = {"l4": {"guaranteed": 4}}
AMD_POOL = {"cpu": 90, "memory": "1800Gi", "gpu": "MI300X", "gpusPerNode": 8, "resource": "amd.com/gpu", "nodes": 1}
HERE = ["kube-prometheus-stack", "gpu-operator", "kueue", "keda"]
"""What a stack with NVIDIA's GPUs and a team has where its nodes are made here."""


def made_here(**sections: Any) -> Data:
    """A cluster on EKS with CPU nodes and H100s, and a team."""
    return stack(cluster=EKS, **sections)


def with_gangs(**sections: Any) -> Data:
    """A team whose gangs are guaranteed GPUs."""
    pools = {"cpu": pool("m7i.8xlarge", 3), "l4": pool("g6.12xlarge", 4)}
    return made_here(pools=pools, teams={"a": team(gangs=GANG)}, **sections)


def with_jobs(**fields: Any) -> Data:
    """A team with one job."""
    return made_here(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, training={"fit": job(**fields)})})


def amd(**sections: Any) -> Data:
    """A described AMD pool beside CPU nodes, in an existing cluster."""
    pools = {"cpu": pool("m7i.8xlarge", 3), "mi": AMD_POOL}
    return stack(pools=pools, teams={"a": team(gpus={"mi": {"guaranteed": 8}})}, **sections)


def amd_made_here(**sections: Any) -> Data:
    """MI300X nodes beside CPU nodes, made on AKS."""
    pools = {"cpu": pool("Standard_D32s_v5", 3), "mi": pool("Standard_ND96isr_MI300X_v5", 1)}
    return stack(cluster=AKS, pools=pools, teams={"a": team(gpus={"mi": {"guaranteed": 8}})}, **sections)


def names(sections: Data) -> list[str]:
    """The releases of a stack, in their order."""
    return [release.name for release in planned(sections).operators]


def release(sections: Data, name: str) -> ReleasePlan:
    """One release of a stack."""
    (release,) = (release for release in planned(sections).operators if release.name == name)
    return release


def kueue(sections: Data) -> Data:
    """Kueue's own configuration."""
    text = release(sections, "kueue").values["managerConfig"]["controllerManagerConfigYaml"]
    return cast("Data", yaml.safe_load(text))


def plan_of(file: Path) -> Plan:
    """What a stack of the repository becomes."""
    return plan(load(read_file(file)))
