"""Kueue's and Volcano's queues: flavors, cohorts, cluster queues, local queues, gang queues.

Each class rejects values that the API server, Kueue or Volcano would reject, or accept but ignore.

With `fairness: hierarchical` each group is a Cohort. With `even`, Kueue compares the shares of a Cohort's children
(pkg/scheduler/preemption/fairsharing/least_common_ancestor.go of v0.19.2), and the share of a Cohort counts only its
borrowing beyond the quota of its whole subtree (pkg/cache/scheduler/fair_sharing.go). So a Cohort borrows as one, and
the unused guarantee of a team is for the Cohort's other teams first. For teams that share evenly whatever their group,
a group is a Cohort only if it adds something to its teams: a limit that binds, a guarantee above theirs, or a weight.
Guarantee and limit of any other group follow from its teams.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from gpu_tenancy import kueue
from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts
from gpu_tenancy.model.plan.environment import Flavor, gang_amounts
from gpu_tenancy.model.plan.fabric import claimed_on
from gpu_tenancy.model.plan.pools import NodeTaint, Provisioning
from gpu_tenancy.model.plan.shares import Tree, cohorts_downwards
from gpu_tenancy.model.spec.teams import Gang


@dataclass(frozen=True, slots=True)
class ResourceFlavor:
    """A Kueue ResourceFlavor; it tolerates the taints of CPU nodes only. Pods with GPUs tolerate those of GPU nodes.

    So CPU workloads never run on GPU nodes, even if the CPU nodes are full. And Kueue replaces all tolerations of a
    TrainJob by those of its flavor, if the flavor has any (before Kueue 0.19.4):
    https://github.com/kubernetes-sigs/kueue/issues/15195.
    """

    name: str
    node_labels: dict[str, str]
    taints: tuple[NodeTaint, ...]
    tolerated: tuple[NodeTaint, ...]
    topology: tuple[str, ...] = ()  # node labels of the levels of its Topology, which has the flavor's name


@dataclass(frozen=True, slots=True)
class ProvisioningCheck:
    """Delays a workload until the autoscaler has provisioned all of its nodes; only for requests of `resource`.

    https://kueue.sigs.k8s.io/docs/concepts/admission_check/provisioning_request/
    """

    name: str
    flavor: str
    resource: str
    provisioning: Provisioning


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A team's ClusterQueue.

    `claimed`: flavors by claimable resource, such as channels of ComputeDomains. Its quota never binds, so it is not
    part of `spec`, and neither reports nor the simulation have it.
    """

    spec: kueue.ClusterQueue
    namespaces: tuple[str, ...]  # whose workloads it accepts
    checks: tuple[ProvisioningCheck, ...] = ()  # provisioning checks, for some of its flavors
    dispatches: bool = False  # whether its workloads run in the clusters of MultiKueue's workers
    by_usage: bool = False  # whether past usage decides which of its namespaces is next
    claimed: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def __post_init__(self) -> None:
        title, rule = f"ClusterQueue {self.name}", None
        if self.spec.cohort is None and _borrows(self.spec):
            rule = "Kueue rejects a borrowingLimit without a cohort; set cohort"
        elif self.spec.cohort is None and self.spec.preemption.reclaim is not kueue.Policy.NEVER:
            rule = "reclaimWithinCohort needs a cohort; set it to Never"
        elif not self.namespaces:
            rule = "no namespace can use it; set one or more namespaces"
        if rule:
            raise ValueError(f"{title}: {rule}")
        _refuse_lending_more(title, self.spec)

    @property
    def name(self) -> str:
        """The name of its team."""
        return self.spec.name


def checked_cohort(cohort: kueue.Cohort) -> kueue.Cohort:
    """A Cohort that Kueue accepts. Raises ValueError for a root with a borrowingLimit, which has no parent."""
    if cohort.parent is None and _borrows(cohort):
        raise ValueError(f"Cohort {cohort.name}: Kueue rejects a borrowingLimit for a root cohort; remove it")
    _refuse_lending_more(f"Cohort {cohort.name}", cohort)
    return cohort


def _borrows(owner: kueue.ClusterQueue | kueue.Cohort) -> bool:
    return any(quota.borrowing_limit is not None for quota in owner.quotas.values())


def _refuse_lending_more(title: str, owner: kueue.ClusterQueue | kueue.Cohort) -> None:
    for (flavor, resource), quota in owner.quotas.items():
        if quota.lending_limit is not None and quota.lending_limit > quota.nominal:
            exceeds = f"lendingLimit {quota.lending_limit} exceeds nominalQuota {quota.nominal}"
            raise ValueError(f"{title}: {flavor} {resource}: {exceeds}, which Kueue rejects; lower lendingLimit")


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
    """The flavors, CPU nodes first. A MultiKueue manager's have no taints: Kueue compares them in the worker."""
    of_nodes = not tree.stack.dispatches
    return tuple(
        ResourceFlavor(
            name=flavor.name,
            node_labels=dict(flavor.node_labels),
            taints=flavor.taints if of_nodes else (),
            tolerated=flavor.taints if of_nodes and not flavor.resource else (),
            topology=tuple(level.label for level in flavor.levels),
        )
        for flavor in tree.flavors.values()
    )


def provisioning_checks(tree: Tree) -> tuple[ProvisioningCheck, ...]:
    """A check for each flavor whose nodes are provisioned only on request of the queue."""
    return tuple(
        ProvisioningCheck(f"provision-{flavor.name}", flavor.name, flavor.resource or CPU, provisioning)
        for flavor in tree.flavors.values()
        if (provisioning := flavor.pools[0].provisioning)
    )


def cohorts(tree: Tree) -> tuple[kueue.Cohort, ...]:
    """The cohorts, each after its parent."""
    return tuple(checked_cohort(_cohort(tree, name)) for name in cohort_parents(tree))


def _cohort(tree: Tree, name: str) -> kueue.Cohort:
    def quota(flavor: str, resource: str) -> kueue.Quota:
        limit = None if name == tree.root else tree.cohort_limit(name, flavor, resource)
        borrowed = None if limit is None else limit - tree.guaranteed(name, flavor, resource)
        return kueue.Quota(_own_quota(tree, name, flavor, resource), borrowed)

    quotas = {
        flavor: {resource: quota(flavor, resource) for resource in supply.capacity}
        for flavor, supply in tree.flavors.items()
        if supply.capacity
    }
    if name != tree.root:
        quotas = {
            flavor: by_resource
            for flavor, by_resource in quotas.items()
            if any(quota.nominal or quota.borrowing_limit is not None for quota in by_resource.values())
        }
    return kueue.Cohort(name, cohort_parents(tree)[name], _groups(quotas), cohort_weight(tree, name))


def _groups(quotas: Mapping[str, Mapping[str, kueue.Quota]]) -> tuple[kueue.ResourceGroup, ...]:
    """One group for all flavors, so that a pod gets its CPU, memory and GPUs from the same flavor.

    Every flavor has every resource, in the same order, as Kueue requires.
    """
    given = [(resource, quota) for by_resource in quotas.values() for resource, quota in by_resource.items()]
    covered = dict.fromkeys([CPU, MEMORY, *(resource for resource, _ in given)])
    none = kueue.Quota(0, 0 if any(quota.borrowing_limit is not None for _, quota in given) else None)
    flavors = tuple(
        kueue.FlavorQuotas(flavor, {resource: by_resource.get(resource, none) for resource in covered})
        for flavor, by_resource in quotas.items()
    )
    return (kueue.ResourceGroup(flavors),) if flavors else ()


def cluster_queues(tree: Tree) -> tuple[ClusterQueue, ...]:
    """A ClusterQueue for each team that does not use another team's."""
    checks, claimed = provisioning_checks(tree), claimed_on(tree)
    return tuple(
        ClusterQueue(
            _spec(tree, name),
            tuple(sorted(tree.users[name])),
            tuple(check for check in checks if check.flavor in tree.team_shares[name]),
            tree.stack.dispatches,
            tree.by_usage(name),
            {
                resource: own
                for resource, flavors in claimed.items()
                if (own := tuple(flavor for flavor in tree.team_shares[name] if flavor in flavors))
            },
        )
        for name in tree.queue_owners
    )


def _spec(tree: Tree, name: str) -> kueue.ClusterQueue:
    team, lent = tree.stack.teams[name], None if tree.lends(name) else 0
    quotas = {
        flavor: {
            resource: kueue.Quota(share.guaranteed, (share.limit or 0) - share.guaranteed, lent)
            for resource, share in shares.items()
        }
        for flavor, shares in tree.team_shares[name].items()
    }
    return kueue.ClusterQueue(
        name=name,
        groups=_groups(quotas),
        cohort=cohort_of_queue(tree, name),
        preemption=kueue.Preemption(
            within=kueue.Policy(team.preemption.within_cluster_queue),
            reclaim=kueue.Policy(team.preemption.reclaim_within_cohort),
            borrow=kueue.BorrowWithinCohort() if team.preemption.borrow_within_cohort == "LowerPriority" else None,
        ),
        weight=team.weight if tree.stack.fairness.even else None,
    )


def tenancy(tree: Tree) -> kueue.Tenancy:
    """All ClusterQueues and Cohorts of a stack, for Kueue's arithmetic and its simulation."""
    return kueue.Tenancy(
        tuple(_spec(tree, name) for name in tree.queue_owners),
        tuple(_cohort(tree, name) for name in cohort_parents(tree)),
        tuple(kueue.FairStrategy(strategy) for strategy in tree.stack.fairness.preemption_strategies) or None,
    )


def unlimited_queue(tree: Tree, name: str) -> kueue.ClusterQueue:
    """A queue without quota and limit in the root cohort, which can borrow all that is lent of every resource."""
    resources = sorted({CPU, MEMORY, *(name for flavor in tree.flavors.values() for name in flavor.capacity)})
    flavors = tuple(kueue.FlavorQuotas(flavor, dict.fromkeys(resources, kueue.Quota())) for flavor in tree.flavors)
    return kueue.ClusterQueue(name, (kueue.ResourceGroup(flavors),), tree.root)


@lru_cache(maxsize=4)
def _unused_quotas(tree: Tree) -> kueue.Quotas:
    return kueue.Quotas(kueue.without_cycles(tenancy(tree)))


def potential_available(tree: Tree, team: str, flavor: str, resource: str) -> int:
    """The amount that a team's queue could use if all others used nothing; 0 if its queue does not exist."""
    queue = tree.queue_of(team)
    return _unused_quotas(tree).potential_available(queue, (flavor, resource)) if queue in tree.team_shares else 0


def preemption_times(tree: Tree, team: str, flavor: str, resource: str) -> dict[str, tuple[str, ...]]:
    """Queues that can preempt a team's workloads while its queue borrows, by when; empty without its queue."""
    queue = tree.queue_of(team)
    if queue not in tree.team_shares:
        return {}
    found = kueue.preemptors(_unused_quotas(tree), queue, (flavor, resource), ever=True)
    return {when: tuple(names) for when, names in kueue.by_time(found).items()}


def gang_guarantee(flavor: Flavor, gang: Gang) -> Amounts:
    """The guarantee of a team's gangs: GPUs, and CPU and memory in proportion."""
    limit = max(1, gang.effective_limit)
    return {name: amount * gang.guaranteed // limit for name, amount in gang_amounts(flavor, gang).items()}


def gang_queues(tree: Tree) -> tuple[GangQueue, ...]:
    """A Volcano queue for each flavor of a team's gangs."""
    return tuple(
        GangQueue(gang_queue_name(team, name), team, name, gang_guarantee(flavor, gang), gang_amounts(flavor, gang))
        for team, spec in tree.stack.teams.items()
        for name, gang in spec.gangs.items()
        if (flavor := tree.flavors[name])
    )


@dataclass(frozen=True, slots=True)
class Members:
    """The children of a Cohort object: other Cohorts, and teams with a ClusterQueue."""

    cohorts: tuple[str, ...]
    teams: tuple[str, ...]


@lru_cache(maxsize=4)
def cohort_parents(tree: Tree) -> dict[str, str | None]:
    """The groups that are Cohorts, each after its parent, with the parent; None for the root's."""
    names = list(cohorts_downwards(tree))
    if tree.stack.fairness.even:
        names = [name for name in names if name == tree.root or _adds_bounds(tree, name)]
    kept = set(names)
    return {name: None if name == tree.root else _nearest(tree, tree.parents[name], kept) for name in names}


def cohort_of_queue(tree: Tree, team: str) -> str:
    """The Cohort of a team's ClusterQueue: its group's, or the nearest one above."""
    return _nearest(tree, tree.cohort_of(team), cohort_parents(tree))


def members(tree: Tree, cohort: str) -> Members:
    """The children of a Cohort."""
    return _members(tree).get(cohort, Members((), ()))


def _own_quota(tree: Tree, cohort: str, flavor: str, resource: str) -> int:
    """A Cohort's `nominalQuota`: its guarantee (the root: the supply) minus its children's."""
    below = members(tree, cohort)
    whole = tree.supply(flavor).get(resource, 0) if cohort == tree.root else tree.guaranteed(cohort, flavor, resource)
    of_cohorts = sum(tree.guaranteed(name, flavor, resource) for name in below.cohorts)
    return whole - of_cohorts - sum(tree.share(team, flavor, resource).guaranteed for team in below.teams)


def cohort_weight(tree: Tree, cohort: str) -> float | None:
    """A Cohort's weight: as set or, with `even`, the sum of its children's, so that its teams share like all others."""
    if cohort != tree.root and tree.stack.fairness.even:
        return _weight(tree, cohort)
    spec = tree.stack.cohorts.get(cohort)
    return spec.weight if spec else None


def reach(tree: Tree, cohort: str, flavor: str, resource: str) -> int:
    """The most that a group's teams could use together by their limits and the limits of groups in it."""
    groups, teams = tree.children(cohort)
    below = 0
    for group in groups:
        limit, together = tree.cohort_limit(group, flavor, resource), reach(tree, group, flavor, resource)
        below += together if limit is None else min(limit, together)
    return below + sum(tree.share(team, flavor, resource).effective_limit for team in teams)


def borrowable(tree: Tree, cohort: str, flavor: str, resource: str) -> int:
    """How far a group can exceed its guarantee."""
    most = min(reach(tree, cohort, flavor, resource), tree.supply(flavor).get(resource, 0))
    limit = tree.cohort_limit(cohort, flavor, resource)
    most = most if limit is None else min(limit, most)
    return max(0, most - tree.guaranteed(cohort, flavor, resource))


def _adds_bounds(tree: Tree, group: str) -> bool:
    """Whether a group has a weight, a guarantee above its children's, or a limit below its teams' reach."""
    if tree.stack.cohorts[group].weight is not None:
        return True
    for flavor, shares in tree.stated.get(group, {}).items():
        for resource, share in shares.items():
            if tree.is_stated(group, flavor, resource) and tree.cohort_nominal(group, flavor, resource) > 0:
                return True
            most = min(reach(tree, group, flavor, resource), tree.supply(flavor).get(resource, 0))
            if share.limit is not None and share.limit < most:
                return True
    return False


def _nearest(tree: Tree, name: str | None, kept: Container[str]) -> str:
    return next((cohort for cohort in tree.above(name) if cohort in kept), tree.root)


@lru_cache(maxsize=4)
def _members(tree: Tree) -> dict[str, Members]:
    cohorts = grouped((parent, name) for name, parent in cohort_parents(tree).items())
    teams = grouped((cohort_of_queue(tree, team), team) for team in tree.queue_owners)
    return {name: Members(tuple(cohorts.get(name, ())), tuple(teams.get(name, ()))) for name in cohort_parents(tree)}


def _weight(tree: Tree, cohort: str) -> float:
    own = tree.stack.cohorts[cohort].weight
    if own is not None:
        return own
    below = members(tree, cohort)
    return sum(_weight(tree, name) for name in below.cohorts) + sum(
        tree.stack.teams[team].weight for team in below.teams
    )
