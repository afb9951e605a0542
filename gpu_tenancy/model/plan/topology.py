"""The levels of a pool's network, and what a job or server asks of them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.kueue.api import GROUP, PREFERRED, REQUIRED, UNCONSTRAINED
from gpu_tenancy.model.catalogue.clouds import CloudRules, TopologyRule
from gpu_tenancy.model.spec.pools import HOSTNAME, Level, Pool
from gpu_tenancy.model.spec.workloads import Server, Training, Workload


@dataclass(frozen=True, slots=True)
class TopologyLevel:
    """One level of the network.

    Attributes:
        label: node label whose value names the part of the network.
        level: what a stack calls the level; None for one that jobs cannot ask for.
    """

    label: str
    level: Level | None = None


Levels = tuple[TopologyLevel, ...]
"""Levels, the largest first; the last is the node. Empty without a topology."""

_GROUP: Final = {GROUP: "job"}
_NODE: Final = TopologyLevel(HOSTNAME, "node")


def levels_of(pool: Pool, rules: CloudRules) -> Levels:
    """The levels of a pool's nodes: only the node where the cloud has no labels, which `model.checks` reports."""
    topology = pool.topology
    if topology is None:
        return ()
    rule = cloud_labels(pool, rules) if topology.source == "cloud" else None
    if rule:
        names: Mapping[str, Level] = {rule.block: "block", rule.rack: "rack"}
        return (*(TopologyLevel(label, names.get(label)) for label in rule.labels), _NODE)
    block = (TopologyLevel(topology.block, "block"),) if topology.block else ()
    rack = (TopologyLevel(topology.rack, "rack"),) if topology.rack else ()
    return (*block, *rack, _NODE)


def cloud_labels(pool: Pool, rules: CloudRules) -> TopologyRule | None:
    """The labels that the cloud sets on nodes of a pool's machine type; None where none are known."""
    return next((rule for rule in rules.topologies if (pool.machine or "").startswith(rule.machines)), None)


def topology_request(levels: Levels, workload: Workload) -> dict[str, str]:
    """Annotations of a workload's pods on a flavor with these levels.

    Pods without a condition have one, too: in a queue with other flavors that have no topology, Kueue does not admit
    pods without any of the annotations to this flavor ("supports only TopologyAwareScheduling").
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/tas_flavorassigner.go
    """
    if not levels or (isinstance(workload, Training) and workload.scheduler == "volcano"):
        return {}
    together = workload.together if isinstance(workload, (Server, Training)) else None
    if together is None or together.level is None:
        return {UNCONSTRAINED: "true"}
    label = next((item.label for item in levels if item.level == together.level), None)
    return {REQUIRED if together.required else PREFERRED: label} if label else {UNCONSTRAINED: "true"}


def placed_roles(roles: Mapping[str, Workload]) -> tuple[str, ...]:
    """The roles of a workload that `together` applies to: those with GPUs, or all if none has any."""
    return tuple(name for name, part in roles.items() if part.gpus) or tuple(roles)


def grouped(requests: Mapping[str, Mapping[str, str]], placed: Collection[str]) -> dict[str, dict[str, str]]:
    """Annotations by role, so that Kueue selects one part of the network for both of two placed roles.

    Pods of other roles run on any nodes. `model.checks` refuses what Kueue cannot group:
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/tas_validation.go
    """
    made = {name: dict(request) for name, request in requests.items()}
    for name, request in made.items():
        if request and name not in placed:
            made[name] = {UNCONSTRAINED: "true"}
        elif request and len(placed) > 1 and UNCONSTRAINED not in request:
            request.update(_GROUP)
    return made
