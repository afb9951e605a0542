"""Which Pulumi stack of an environment has a resource."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from gpu_tenancy.model.plan.parts import CLUSTER, OPERATORS, TENANCY, Part

Entry: TypeAlias = Mapping[str, Any]
"""A resource in the state of a Pulumi stack."""
Home: TypeAlias = Callable[[list[Entry]], str | None]
"""The name of the stack that has a resource, given it and the resources around it, the nearest first; None if the
stacks have no place for it, such as for a team that is removed."""

ROOT: Final = "pulumi:pulumi:Stack"
"""Type of the resource that represents a stack: its state begins with it."""
_PROVIDER: Final = "pulumi:providers:"
_TENANCY: Final = "gpu-tenancy:tenancy:Tenancy"
_QUEUES: Final = "gpu-tenancy:tenancy:Queues"
_TEAM: Final = "gpu-tenancy:tenancy:Team"
_OPERATORS: Final = ("gpu-tenancy:operators:", "gpu-tenancy:tenancy:Observability")
_CLUSTER_QUEUE: Final = "kubernetes:kueue.x-k8s.io/"
_GANG_QUEUE: Final = "kubernetes:scheduling.volcano.sh/"


def name_of(entry: Entry) -> str:
    """The name that the program gave a resource."""
    return str(entry["urn"]).rpartition("::")[2]


def is_scaffold(entry: Entry) -> bool:
    """Whether each stack has such a resource of its own, as far as it needs it: nothing of a cluster or cloud."""
    at_top = f"::{ROOT}::" in str(entry.get("parent", ""))
    provided = at_top and (entry["type"].startswith(_PROVIDER) or bool(entry.get("external")))
    return provided or entry["type"] in {ROOT, _TENANCY, _QUEUES}


def homes(environment: str, parts: tuple[Part, ...]) -> Home:
    """Where the resources of an environment belong.

    Args:
        environment: name of the environment, which is also that of its only stack if it is not divided.
        parts: of the environment; empty for one stack.
    """
    if not parts:
        return lambda _: environment
    known = {part.name for part in parts}
    of_team = {team: part.name for part in parts for team in part.teams}
    of_queue = {f"queues-{queue}": part.name for part in parts for queue in part.cluster_queues}
    of_gangs = {f"queues-gangs-{queue}": part.name for part in parts for queue in part.gang_queues}

    def part_of(chain: list[Entry]) -> str | None:
        entry, top = chain[0], chain[-1]
        if team := next((each for each in chain if each["type"] == _TEAM), None):
            return of_team.get(name_of(team))
        if entry["type"].startswith(_CLUSTER_QUEUE) and entry["type"].endswith(":ClusterQueue"):
            return of_queue.get(name_of(entry))
        if entry["type"].startswith(_GANG_QUEUE):
            return of_gangs.get(name_of(entry))
        if top["type"] == _TENANCY:
            return TENANCY
        return OPERATORS if top["type"].startswith(_OPERATORS) else CLUSTER

    def home(chain: list[Entry]) -> str | None:
        part = part_of(chain)
        return f"{environment}.{part}" if part in known else None

    return home
