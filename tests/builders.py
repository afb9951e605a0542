"""Valid stacks as plain data, of which each test breaks one part."""

from collections.abc import Iterable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml

from gpu_tenancy.base.problems import StackError
from gpu_tenancy.kueue import Cohort, Quota
from gpu_tenancy.model.catalogue.preflight import needs
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.queues import ClusterQueue
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.simulation.stage import JobStep, Moment, play

Data: TypeAlias = dict[str, Any]
GPU = "nvidia.com/gpu"
PROVIDED: Data = {"provides": list(needs())}  # a cluster that has all that a stack may need
EXISTING: Data = {"cloud": "existing", **PROVIDED}  # copied where a test changes it
EKS: Data = {
    "cloud": "aws",
    "name": "ml",
    "region": "eu-central-1",
    "subnets": {"eu-central-1a": "subnet-0123456789abcdef0"},
}
GKE: Data = {"cloud": "gcp", "name": "ml", "project": "ml-platform", "location": "us-central1-a"}
_GROUP = "/subscriptions/5a1d2c3b-0e4f-4a6b-9c8d-7e6f5a4b3c2d/resourceGroups/network"
AKS: Data = {
    "cloud": "azure",
    "name": "ml",
    "subscription": "5a1d2c3b-0e4f-4a6b-9c8d-7e6f5a4b3c2d",
    "resourceGroup": "ml",
    "location": "eastus",
    "subnet": f"{_GROUP}/providers/Microsoft.Network/virtualNetworks/ml/subnets/nodes",
}
# A cluster on EKS that is created, with all that a stack may need.
CREATED: Data = {
    **EKS,
    **PROVIDED,
    "subnets": {"eu-central-1a": "subnet-0123456789abcdef0", "eu-central-1b": "subnet-0123456789abcdef1"},
    "create": {
        "version": "1.35",
        "admins": ["arn:aws:iam::111122223333:role/deploy"],
        "system": {"machine": "m7i.4xlarge"},
    },
}


def pool(machine: str = "p5.48xlarge", nodes: int | str | Data = 2, **rest: Any) -> Data:
    """Two nodes of eight H100s."""
    return {"machine": machine, "nodes": nodes, **rest}


def team(**sections: Any) -> Data:
    return {"owner": "research", "costCenter": "rd-001", **sections}


def h100(guaranteed: int, limit: int) -> Data:
    return {"h100": {"guaranteed": guaranteed, "limit": limit}}


FEW_CPUS: Data = {"cpu": {"cpu": {"guaranteed": 8}}}  # for pods without GPUs of jobs whose GPUs are guaranteed


def server(**fields: Any) -> Data:
    """A server of one pod on one GPU."""
    return {"image": "registry.example.com/serve:1.0", "replicas": 1, **fields}


def job(**fields: Any) -> Data:
    """A job of one pod on one GPU."""
    return {"image": "registry.example.com/train:1.0", **fields}


def stack(**sections: Any) -> Data:
    """CPU nodes, 16 H100s and 32 A100s, and a team that is guaranteed half of the H100s."""
    cluster: Data = sections.pop("cluster", {"cloud": "existing"})
    return {
        "cluster": {**PROVIDED, **cluster},
        "pools": {"cpu": pool("m7i.8xlarge", 3), "h100": pool(), "a100": pool("p4de.24xlarge", 4)},
        "teams": {"a": team(gpus={"h100": {"guaranteed": 8}})},
        **sections,
    }


def patched(target: Any, patch: Any) -> Any:
    """A JSON merge patch, https://www.rfc-editor.org/rfc/rfc7386, which also changes items of lists by number."""
    if not isinstance(patch, dict):
        return patch
    changes = cast("dict[Any, Any]", patch)
    if isinstance(target, list):
        entries = cast("list[Any]", target)
        return [patched(one, changes[number]) if number in changes else one for number, one in enumerate(entries)]
    merged: Data = {**target} if isinstance(target, dict) else {}
    for key, value in changes.items():
        merged[key] = patched(merged.get(key), value)
    return {key: value for key, value in merged.items() if value is not None}


def stack_of(sections: Data) -> Stack:
    return load(Source(sections))


def tree_of(sections: Data) -> Tree:
    return Tree(stack_of(sections))


def environment_of(sections: Data) -> Environment:
    return Environment(stack_of(sections))


@cache
def refusals() -> Data:
    """`refused.yaml`: valid stacks by name, and changes of them that are refused or accepted."""
    file = Path(__file__).parent / "model" / "refused.yaml"
    return yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def base(name: str) -> Data:
    sections = deepcopy(refusals()[name]["stack"])
    return {**sections, "cluster": {**PROVIDED, **sections["cluster"]}}


def planned(sections: Data) -> Plan:
    return plan(stack_of(sections))


def errors(sections: Data) -> list[str]:
    """The problems of a stack, each as the user reads it."""
    try:
        stack_of(sections)
    except StackError as error:
        return [str(problem) for problem in error.problems]
    return []


def queue_of(made: Plan, name: str) -> ClusterQueue:
    return next(queue for queue in made.queues.cluster_queues if queue.name == name)


def cohort_of(made: Plan, name: str) -> Cohort:
    return next(cohort for cohort in made.queues.cohorts if cohort.name == name)


def line(node: ClusterQueue | Cohort, flavor: str, resource: str = GPU) -> Quota:
    owner = node.spec if isinstance(node, ClusterQueue) else node
    return owner.quotas[flavor, resource]


def amounts(node: ClusterQueue | Cohort, flavor: str, resource: str = GPU) -> tuple[int, int | None, int | None]:
    """Nominal quota, borrowing limit and lending limit; None if unset."""
    quota = line(node, flavor, resource)
    return quota.nominal, quota.borrowing_limit, quota.lending_limit


def play_scenario(tree: Tree, scenario: Iterable[JobStep]) -> tuple[Moment, ...]:
    return play(tree, [(step.label, step.step) for step in scenario])
