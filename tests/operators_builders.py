"""Valid stacks with operators, and their plans."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import yaml
from builders import AKS, EKS, EXISTING, FEW_CPUS, Data, job, planned, pool, stack, team
from pydantic.alias_generators import to_camel
from repository import ROOT

from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.plan.operators import ReleasePlan
from gpu_tenancy.model.source import Source, read_file

STACKS = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))
GANG = {"l4": {"guaranteed": 4}}
AMD_POOL = {"cpu": 90, "memory": "1800Gi", "gpu": "MI300X", "gpusPerNode": 8, "resource": "amd.com/gpu", "nodes": 1}
# Operators of a stack with NVIDIA's GPUs and a team on created nodes.
HERE = ["kube-prometheus-stack", "gpu-operator", "kueue", "keda"]


def made_here(**sections: Any) -> Data:
    """A cluster on EKS with CPU nodes and H100s, and a team."""
    return stack(cluster=EKS, **sections)


def with_gangs(**sections: Any) -> Data:
    pools = {"cpu": pool("m7i.8xlarge", 3), "l4": pool("g6.12xlarge", 4)}
    return made_here(pools=pools, teams={"a": team(gangs=GANG)}, **sections)


def with_jobs(**fields: Any) -> Data:
    fit = {"fit": job(**fields)}
    return made_here(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, quota=FEW_CPUS, training=fit)})


def amd(**sections: Any) -> Data:
    """A described AMD pool beside CPU nodes, in an existing cluster."""
    pools = {"cpu": pool("m7i.8xlarge", 3), "mi": AMD_POOL}
    return stack(pools=pools, teams={"a": team(gpus={"mi": {"guaranteed": 8}})}, **sections)


def intel(**sections: Any) -> Data:
    """A described pool of Intel GPUs beside CPU nodes, in an existing cluster."""
    label = {"intel.feature.node.kubernetes.io/gpu": "true"}
    flex = {**AMD_POOL, "gpu": "Flex_170", "resource": "gpu.intel.com/i915", "labels": label}
    return stack(pools={"cpu": pool("m7i.8xlarge", 3), "flex": flex}, teams={"a": team()}, **sections)


def amd_made_here(**sections: Any) -> Data:
    """Created MI300X nodes beside CPU nodes, on AKS."""
    pools = {"cpu": pool("Standard_D32s_v5", 3), "mi": pool("Standard_ND96isr_MI300X_v5", 1)}
    return stack(cluster=AKS, pools=pools, teams={"a": team(gpus={"mi": {"guaranteed": 8}})}, **sections)


def names(sections: Data) -> list[str]:
    return [release.name for release in planned(sections).operators]


def release(sections: Data, name: str) -> ReleasePlan:
    (release,) = (release for release in planned(sections).operators if release.name == name)
    return release


def kueue(sections: Data) -> Data:
    text = release(sections, "kueue").values["managerConfig"]["controllerManagerConfigYaml"]
    return cast("Data", yaml.safe_load(text))


def plan_of(file: Path) -> Plan:
    return plan(load(read_file(file)))


def every_release() -> Iterator[ReleasePlan]:
    """Each release of each operator, with values that depend on much of a stack; most are there twice."""
    intel = {**AMD_POOL, "gpu": "Flex_170", "resource": "gpu.intel.com/i915"}
    pools = {
        "cpu": pool("m7i.8xlarge", 3),
        "h100": pool(),
        "mi": AMD_POOL,
        "flex": {**intel, "labels": {"intel.feature.node.kubernetes.io/gpu": "true"}},
    }
    work = {"gangs": {"h100": {"guaranteed": 8}}, "training": {"fit": job(framework="pytorch", flavor="h100")}}
    teams = {"a": team(gpus={"h100": {"guaranteed": 8}}, **work)}
    every = {to_camel(name): "here" for name in operators()}
    dra = {"install": "here", "values": {"resources": {"gpus": {"enabled": False}}}}
    for other in ("keda", "prometheusAdapter"):
        installed: Data = {**every, "draDriver": dra, other: "off"}
        sections = {"cluster": EXISTING, "pools": pools, "teams": teams, "fairness": "even", "operators": installed}
        yield from plan(load(Source(sections))).operators
