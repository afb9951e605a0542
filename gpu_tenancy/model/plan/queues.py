"""Kueue's and Volcano's queues: flavors, cohorts, cluster queues, local queues, gang queues.

Each class rejects what the API server, Kueue or Volcano would reject, or accept but never act on.
"""

from dataclasses import dataclass
from typing import Literal

from gpu_tenancy.model.plan.shares import NodeShares, Tree, cohorts_downwards
from gpu_tenancy.model.plan.supply import Flavor, NodeTaint, Provisioning, gang_amounts
from gpu_tenancy.model.quantity import CPU, MEMORY, Amounts
from gpu_tenancy.model.spec.teams import Gang, Preemption


@dataclass(frozen=True, slots=True)
class ResourceFlavor:
    """A Kueue ResourceFlavor: node labels, taints and tolerations.

    The flavor does not tolerate the GPU taint; pods that request GPUs do so themselves. So CPU workloads never run on
    GPU nodes, even if the CPU nodes are full. The flavor adds tolerations for all other taints of its nodes.
    """

    name: str
    node_labels: dict[str, str]
    taints: tuple[NodeTaint, ...]
    tolerated: tuple[NodeTaint, ...]


@dataclass(frozen=True, slots=True)
class ProvisioningCheck:
    """An AdmissionCheck that delays a workload until the autoscaler has provisioned all of its nodes.

    https://kueue.sigs.k8s.io/docs/concepts/admission_check/provisioning_request/

    Attributes:
        resource: the check ignores workloads that do not request it.
    """

    name: str
    flavor: str
    resource: str
    provisioning: Provisioning


@dataclass(frozen=True, slots=True)
class ResourceLine:
    """The quota of one resource of one flavor, in the resource's base unit; None: unlimited."""

    resource: str
    nominal: int
    borrowing: int | None = None
    lending: int | None = None

    def __post_init__(self) -> None:
        if self.lending is not None and self.lending > self.nominal:
            exceeds = f"lendingLimit {self.lending} exceeds nominalQuota {self.nominal}"
            msg = f"{self.resource}: {exceeds}, which Kueue rejects; lower lendingLimit"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class FlavorQuota:
    """A flavor's quotas in a queue or cohort, in the order of the covered resources."""

    flavor: str
    lines: tuple[ResourceLine, ...]


@dataclass(frozen=True, slots=True)
class CohortQueue:
    """A Kueue Cohort. Raises `ValueError` for a root with a borrowingLimit, which has no parent to borrow from."""

    name: str
    parent: str | None
    quotas: tuple[FlavorQuota, ...]
    weight: float | None = None

    def __post_init__(self) -> None:
        if self.parent is None and any(line.borrowing is not None for quota in self.quotas for line in quota.lines):
            msg = f"Cohort {self.name}: Kueue rejects a borrowingLimit for a root cohort; remove it"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A team's ClusterQueue: its quota by flavor, and its preemption policy.

    Attributes:
        namespaces: whose workloads it accepts.
        checks: provisioning checks, for some of its flavors.
        weight: the team's weight under fair sharing; None without fair sharing.
    """

    name: str
    cohort: str | None
    namespaces: tuple[str, ...]
    quotas: tuple[FlavorQuota, ...]
    preemption: Preemption
    weight: float | None = None
    strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    checks: tuple[ProvisioningCheck, ...] = ()

    def __post_init__(self) -> None:
        if self.cohort is None and any(line.borrowing is not None for quota in self.quotas for line in quota.lines):
            msg = f"ClusterQueue {self.name}: Kueue rejects a borrowingLimit without a cohort; set cohort"
            raise ValueError(msg)
        if self.cohort is None and self.preemption.reclaim_within_cohort != "Never":
            msg = f"ClusterQueue {self.name}: reclaimWithinCohort needs a cohort; set it to Never"
            raise ValueError(msg)
        if not self.namespaces:
            msg = f"ClusterQueue {self.name}: no namespace can use it; set one or more namespaces"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class GangQueue:
    """A Volcano queue: GPUs of one flavor for a team's gangs, with the GPUs' share of CPU and memory."""

    name: str
    team: str
    flavor: str
    guarantee: Amounts
    capability: Amounts


def gang_queue_name(team: str, flavor: str) -> str:
    """Name of the Volcano queue of a team's gangs on a flavor."""
    return f"{team}-{flavor}"


def resource_flavors(tree: Tree) -> tuple[ResourceFlavor, ...]:
    """The flavors, CPU nodes first."""
    return tuple(_resource_flavor(flavor) for flavor in tree.flavors.values())


def _resource_flavor(flavor: Flavor) -> ResourceFlavor:
    own = tuple(taint for pool in flavor.pools for taint in pool.taints[1 if pool.resource else 0 :])
    return ResourceFlavor(
        name=flavor.name,
        node_labels=dict(flavor.node_labels),
        taints=flavor.taints,
        tolerated=tuple(dict.fromkeys(own)),
    )


def provisioning_checks(tree: Tree) -> tuple[ProvisioningCheck, ...]:
    """A check for each flavor whose nodes are provisioned only on request of the queue."""
    return tuple(
        ProvisioningCheck(f"provision-{flavor.name}", flavor.name, flavor.resource or CPU, provisioning)
        for flavor in tree.flavors.values()
        if (provisioning := flavor.pools[0].provisioning)
    )


def cohorts(tree: Tree) -> tuple[CohortQueue, ...]:
    """The cohorts, each after its parent; with `fairness: even` only the root."""
    names = cohorts_downwards(tree) if tree.stack.fairness == "hierarchical" else [tree.root]
    return tuple(_cohort(tree, name) for name in names)


def _cohort(tree: Tree, name: str) -> CohortQueue:
    lines = {
        flavor: {
            resource: ResourceLine(resource, _own(tree, name, flavor, resource), _above(tree, name, flavor, resource))
            for resource in most
        }
        for flavor, found in tree.flavors.items()
        if (most := found.most)
    }
    if name != tree.root:
        lines = {
            flavor: by_resource
            for flavor, by_resource in lines.items()
            if any(line.nominal or line.borrowing is not None for line in by_resource.values())
        }
    spec = tree.stack.cohorts.get(name)
    weight = spec.weight if spec and spec.weight != 1 else None
    return CohortQueue(name, tree.parents[name], _quotas(lines), weight)


def _own(tree: Tree, cohort: str, flavor: str, resource: str) -> int:
    if tree.stack.fairness == "hierarchical":
        return tree.own(cohort, flavor, resource)
    # One flat cohort: cohorts must not have quota of their own there, so the root has all that teams do not have.
    teams = (shares.get(flavor, {}).get(resource) for shares in tree.team_shares.values())
    return tree.supply(flavor)[resource] - sum(share.guaranteed for share in teams if share)


def _above(tree: Tree, cohort: str, flavor: str, resource: str) -> int | None:
    most = None if cohort == tree.root else tree.most(cohort, flavor, resource)
    return None if most is None else most - tree.guaranteed(cohort, flavor, resource)


def _quotas(lines: dict[str, dict[str, ResourceLine]]) -> tuple[FlavorQuota, ...]:
    """Every flavor with every resource, in the same order, as Kueue requires."""
    covered = list(dict.fromkeys([CPU, MEMORY, *(resource for of_flavor in lines.values() for resource in of_flavor)]))
    bounded = any(line.borrowing is not None for of_flavor in lines.values() for line in of_flavor.values())
    return tuple(
        FlavorQuota(flavor, tuple(of_flavor.get(name) or _none_of(name, bounded=bounded) for name in covered))
        for flavor, of_flavor in lines.items()
    )


def _none_of(resource: str, *, bounded: bool) -> ResourceLine:
    return ResourceLine(resource, 0, 0 if bounded else None)


def cluster_queues(tree: Tree) -> tuple[ClusterQueue, ...]:
    """A ClusterQueue for each team that does not use another team's."""
    return tuple(_cluster_queue(tree, name) for name in tree.queue_owners)


def _cluster_queue(tree: Tree, name: str) -> ClusterQueue:
    team = tree.stack.teams[name]
    even = tree.stack.fairness == "even"
    return ClusterQueue(
        name=name,
        cohort=tree.root if even else tree.cohort_of(name),
        namespaces=tuple(sorted(tree.users[name])),
        quotas=_quotas(_lines(tree.team_shares[name], lends=tree.lends(name))),
        preemption=team.preemption,
        weight=team.weight if even else None,
        checks=tuple(check for check in provisioning_checks(tree) if check.flavor in tree.team_shares[name]),
    )


def _lines(shares: NodeShares, *, lends: bool) -> dict[str, dict[str, ResourceLine]]:
    return {
        flavor: {
            resource: ResourceLine(
                resource,
                share.guaranteed,
                (share.limit or 0) - share.guaranteed,
                None if lends else 0,
            )
            for resource, share in of_flavor.items()
        }
        for flavor, of_flavor in shares.items()
    }


def _part_of(flavor: Flavor, gang: Gang) -> dict[str, int]:
    """The guaranteed part of a gang's amounts: GPUs, with CPU and memory in proportion."""
    most = gang_amounts(flavor, gang)
    return {resource: amount * gang.guaranteed // max(1, gang.most) for resource, amount in most.items()}


def gang_queues(tree: Tree) -> tuple[GangQueue, ...]:
    """A Volcano queue for each flavor of a team's gangs."""
    return tuple(
        GangQueue(
            name=gang_queue_name(name, flavor),
            team=name,
            flavor=flavor,
            guarantee=_part_of(tree.flavors[flavor], gang),
            capability=gang_amounts(tree.flavors[flavor], gang),
        )
        for name, team in tree.stack.teams.items()
        for flavor, gang in team.gangs.items()
    )
