"""Guarantees and limits of each node of the cohort tree, by resource.

A guarantee is a vector of GPUs, CPU and memory; by default a GPU has its share of the machine. A cohort's own quota is
its guarantee minus its children's; the root's own quota is everything that is not guaranteed.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.guarantee import Guarantee
from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts, add
from gpu_tenancy.model.plan.environment import Environment, Flavor, gang_amounts
from gpu_tenancy.model.plan.object_storage import sidecars
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.tenancy import CpuShare, MemoryShare, Shares

DEFAULT_ROOT = "org"  # name of the root cohort of a stack without cohorts


@dataclass(frozen=True, slots=True)
class Share:
    """Guarantee and limit of one resource of one flavor, in the resource's base unit; limit None: unlimited."""

    guaranteed: int = 0
    limit: int | None = None

    @property
    def effective_limit(self) -> int:
        """The limit of a team, whose default is its guarantee."""
        return self.guaranteed if self.limit is None else self.limit


FlavorShares: TypeAlias = Mapping[str, Share]  # shares by resource
NodeShares: TypeAlias = Mapping[str, FlavorShares]  # shares by flavor and resource


@dataclass(frozen=True, eq=False)
class Tree(Environment):
    """An environment with its cohort tree, and all shares."""

    @cached_property
    def root(self) -> str:
        """Name of the root cohort."""
        return next((name for name, cohort in self.stack.cohorts.items() if cohort.parent is None), DEFAULT_ROOT)

    @cached_property
    def parents(self) -> dict[str, str | None]:
        """Each cohort's parent; None for the root's."""
        return {name: cohort.parent for name, cohort in self.stack.cohorts.items()} or {self.root: None}

    def cohort_of(self, team: str) -> str:
        """The cohort that a team's queue belongs to."""
        return self.stack.teams[team].cohort or self.root

    def queue_of(self, team: str) -> str:
        """The team whose queue a team uses: itself, or the team in `queue`."""
        return self.stack.teams[team].queue or team

    @cached_property
    def users(self) -> dict[str, list[str]]:
        """The teams that use each queue, by its owner."""
        return grouped((self.queue_of(team), team) for team in self.stack.teams)

    def by_usage(self, queue: str) -> bool:
        """Whether past usage decides which team of a queue is next: Kueue's AdmissionFairSharing.

        Kueue sums the usage of a LocalQueue, each resource by its weight and whatever the flavor, lets the sum decay,
        and admits first from the LocalQueue with the smallest sum. It compares LocalQueues of the same ClusterQueue
        only. https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/keps/4136-admission-fair-sharing
        """
        return self.stack.fairness.usage is not None and len(self.users.get(queue, ())) > 1

    def usage_weight(self, team: str) -> float | None:
        """Weight of a team's LocalQueue; None if usage does not count in its queue."""
        return (self.stack.teams[team].usage_weight or 1.0) if self.by_usage(self.queue_of(team)) else None

    @cached_property
    def queue_owners(self) -> list[str]:
        """Teams with their own queue."""
        return [name for name, team in self.stack.teams.items() if team.queue is None]

    @cached_property
    def team_shares(self) -> dict[str, NodeShares]:
        """The shares of each team with its own queue, with all limits set."""
        return {name: self._team(self.stack.teams[name]) for name in self.queue_owners}

    @cached_property
    def stated(self) -> dict[str, NodeShares]:
        """The stack's shares of each cohort below the root, with the machine's share of CPU and memory."""
        return {
            name: {
                flavor: {**_follows(self.flavors[flavor], shares), **shares}
                for flavor, shares in self._said(cohort).items()
            }
            for name, cohort in self.stack.cohorts.items()
            if cohort.parent is not None
        }

    def shares_of(self, team: str) -> NodeShares:
        """The shares of the queue that a team uses; empty if that queue does not exist."""
        return self.team_shares.get(self.queue_of(team), {})

    def share(self, queue: str, flavor: str, resource: str) -> Share:
        """A queue's share of a resource; empty if it has none."""
        return _of(self.team_shares.get(queue, {}), flavor, resource)

    def key(self, queue: str, flavor: str, resource: str, bound: str) -> str:
        """The key of the stack that sets a bound of a queue's share: `guaranteed` or `limit`."""
        if resource in {CPU, MEMORY}:
            return f"teams.{queue}.quota.{flavor}.{resource}.{bound}"
        quota = self.stack.teams[queue].quota.get(flavor)
        section = "gpus" if quota is None or quota.model_fields_set.isdisjoint(_OF_GPUS) else "quota"
        return f"teams.{queue}.{section}.{flavor}.{bound}"

    def above(self, cohort: str | None) -> Iterator[str]:
        """A cohort and its ancestors, up to the root."""
        while cohort is not None:
            yield cohort
            cohort = self.parents.get(cohort)

    def guarantee(self, queue: str, flavor: str) -> Guarantee:
        """The largest job of a flavor for which a queue reclaims what it lent."""
        shares = self.team_shares.get(queue, {}).get(flavor, {})
        amounts = {resource: share.guaranteed for resource, share in shares.items()}
        return Guarantee(flavor, self.flavors[flavor].resource or CPU, amounts)

    def lends(self, team: str) -> bool:
        """Whether others may borrow a team's guarantee; default: if no team of its queue has servers."""
        spec, users = self.stack.teams[team], self.users.get(team, [team])
        return spec.lends if spec.lends is not None else not any(self.stack.teams[user].serving for user in users)

    def supply(self, flavor: str) -> dict[str, int]:
        """The supply of a flavor for Kueue: the maximum of its pools, minus Volcano's gangs and caches of datasets."""
        found = self.flavors[flavor]
        return {
            resource: amount - found.gangs.get(resource, 0) - found.caches.total.get(resource, 0)
            for resource, amount in found.capacity.items()
        }

    def children(self, cohort: str) -> tuple[list[str], list[str]]:
        """The child cohorts and the teams of a cohort."""
        return self._below[cohort]

    @cached_property
    def _below(self) -> dict[str | None, tuple[list[str], list[str]]]:
        found = defaultdict[str | None, tuple[list[str], list[str]]](lambda: ([], []))
        for name, parent in self.parents.items():
            found[parent][0].append(name)
        for name in self.queue_owners:
            found[self.cohort_of(name)][1].append(name)
        return found

    def children_guaranteed(self, cohort: str, flavor: str, resource: str) -> dict[str, int]:
        """The guarantees of a cohort's children, without zeros."""
        groups, teams = self.children(cohort)
        amounts = {name: self.guaranteed(name, flavor, resource) for name in groups}
        for name in teams:  # A team and a cohort may have the same name.
            key = f"team {name}" if name in amounts else name
            amounts[key] = self.share(name, flavor, resource).guaranteed
        return {name: amount for name, amount in amounts.items() if amount}

    def guaranteed(self, group: str, flavor: str, resource: str) -> int:
        """The guarantee of a cohort: as set in the stack, or the sum of its children's."""
        children = sum(self.children_guaranteed(group, flavor, resource).values())
        own = _of(self.stated.get(group, {}), flavor, resource).guaranteed
        return own if self.is_stated(group, flavor, resource) else max(own, children)

    def is_stated(self, group: str, flavor: str, resource: str) -> bool:
        """Whether the stack sets the amount, in contrast to the GPUs' share of the machine."""
        cohort = self.stack.cohorts[group]
        quota = cohort.quota.get(flavor)
        if resource in {CPU, MEMORY}:
            return quota is not None and getattr(quota, resource) is not None
        return flavor in cohort.gpus or (quota is not None and not quota.model_fields_set.isdisjoint(_OF_GPUS))

    def cohort_nominal(self, cohort: str, flavor: str, resource: str) -> int:
        """A cohort's own quota: its guarantee (the root: the supply) minus its children's. Negative is an error."""
        children = sum(self.children_guaranteed(cohort, flavor, resource).values())
        if cohort == self.root:
            return self.supply(flavor).get(resource, 0) - children
        return self.guaranteed(cohort, flavor, resource) - children

    def cohort_limit(self, group: str, flavor: str, resource: str) -> int | None:
        """The limit of a cohort; None: unlimited."""
        return _of(self.stated.get(group, {}), flavor, resource).limit

    def _said(self, shares: Shares) -> NodeShares:
        """Shares as set in the stack, in the flavors' order; default for CPU and memory: the GPUs' share."""
        return {
            name: _flavor_shares(shares, flavor)
            for name, flavor in self.flavors.items()
            if name in shares.gpus or name in shares.quota
        }

    def _team(self, team: Team) -> NodeShares:
        # The default limit is the guarantee.
        said = {
            name: {resource: Share(share.guaranteed, share.effective_limit) for resource, share in shares.items()}
            for name, shares in self._said(team).items()
        }
        # What its flavors, gangs and sidecars leave of the budget; None without a budget.
        follows = {name: _follows(flavor, said.get(name, {})) for name, flavor in self.flavors.items()}
        following = [{resource: share.guaranteed for resource, share in each.items()} for each in follows.values()]
        used = add(admitted(said, gangs_of(team, self.flavors)), sidecars(self.stack.datasets, team), *following)
        budget = {CPU: team.compute.requests.cpu, MEMORY: team.compute.requests.memory}
        left = {r: None if amount is None else amount - used.get(r, 0) for r, amount in budget.items()}
        open_flavors = {
            name: self._borrowed(flavor, said.get(name, {}), follows[name], left)
            for name, flavor in self.flavors.items()
            if flavor.resource is None
        }
        return {name: (said | open_flavors)[name] for name in self.flavors if name in said or name in open_flavors}

    def _borrowed(
        self, flavor: Flavor, said: FlavorShares, follows: FlavorShares, left: dict[str, int | None]
    ) -> FlavorShares:
        """CPU flavors: the default is a guarantee that follows the other resource's, and all that is left as limit."""
        shares: dict[str, Share] = {}
        for resource, amount in flavor.capacity.items():
            if resource in said:
                shares[resource] = said[resource]
                continue
            guaranteed = follows.get(resource, Share()).guaranteed
            limit, room = max(0, amount - flavor.caches.total.get(resource, 0)), left.get(resource)
            if room is not None:
                limit = max(0, min(limit, guaranteed + room))
                left[resource] = room - max(0, limit - guaranteed)
            shares[resource] = Share(min(guaranteed, limit), limit)
        return shares


def _of(shares: NodeShares, flavor: str, resource: str) -> Share:
    return shares.get(flavor, {}).get(resource, Share())


_OF_GPUS: Final = ("guaranteed", "limit")


def _flavor_shares(shares: Shares, flavor: Flavor) -> FlavorShares:
    quota = shares.quota.get(flavor.name)
    gpus = shares.gpus.get(flavor.name) or quota
    guaranteed, limit = (gpus.guaranteed, gpus.limit) if gpus else (0, None)
    of_machine = {
        resource: Share(part * guaranteed, None if limit is None else part * limit)
        for resource, part in flavor.per_gpu.items()
    }
    said = {CPU: quota.cpu, MEMORY: quota.memory} if quota else {}
    given = {resource: _amount_share(said.get(resource), of_machine.get(resource)) for resource in (CPU, MEMORY)}
    found = {resource: share for resource, share in given.items() if share}
    return found | ({flavor.resource: Share(guaranteed, limit)} if flavor.resource else {})


def _amount_share(said: CpuShare | MemoryShare | None, of_machine: Share | None) -> Share | None:
    if said is None or of_machine is None or "guaranteed" in said.model_fields_set:
        return Share(said.guaranteed, said.limit) if said else of_machine
    guaranteed = of_machine.guaranteed
    return Share(guaranteed if said.limit is None else min(guaranteed, said.limit), said.limit)


def _follows(flavor: Flavor, said: FlavorShares) -> FlavorShares:
    """Without GPUs, the guaranteed memory of guaranteed CPU if only CPU is set, or the CPU of memory."""
    if flavor.resource is not None or len(said) != 1:
        return {}
    ((resource, share),) = said.items()
    return {name: Share(amount) for name, amount in flavor.follows(resource, share.guaranteed).items()}


def gangs_of(team: Team, known: Mapping[str, Flavor]) -> dict[str, Amounts]:
    """Limits of a team's gangs, by flavor."""
    return {name: gang_amounts(known[name], gang) for name, gang in team.gangs.items() if name in known}


def admitted(shares: NodeShares, gangs: Mapping[str, Amounts]) -> dict[str, int]:
    """Maximum that a team's queues can admit at once, by resource: all limits plus all gangs."""
    limits = [{resource: share.limit or 0 for resource, share in each.items()} for each in shares.values()]
    return add(*limits, *gangs.values())


def cohorts_downwards(tree: Tree) -> Iterator[str]:
    """The cohorts, each after its parent."""
    todo = [tree.root]
    while todo:
        cohort = todo.pop(0)
        yield cohort
        todo += tree.children(cohort)[0]


@dataclass(frozen=True, slots=True, order=True)
class Measure:
    """One resource of one flavor that is counted: its GPUs' resource, or `cpu` or `memory` of a flavor without GPUs."""

    flavor: str
    resource: str

    @property
    def label(self) -> str:
        """The flavor's name, and the resource if it has no GPUs: `a100`, `general CPUs`, or `CPUs` of flavor `cpu`."""
        noun = {CPU: "CPUs", MEMORY: "memory"}.get(self.resource)
        if noun is None:
            return self.flavor
        return noun if self.flavor == CPU else f"{self.flavor} {noun}"


def flavor_of(label: str, resource: str) -> str:
    """The flavor that a `Measure.label` of a resource names."""
    return label.rpartition(" ")[0] or CPU if resource in (CPU, MEMORY) else label


def measures(tree: Tree) -> tuple[Measure, ...]:
    """Counted resources by flavor, GPUs first; without GPUs only if a team's share matters (`measures_of`)."""
    used = {measure.flavor for queue in tree.team_shares for measure in measures_of(tree, queue)}
    with_gpus = [Measure(name, flavor.resource) for name, flavor in tree.flavors.items() if flavor.resource]
    without = [name for name, flavor in tree.flavors.items() if flavor.resource is None and name in used]
    return (*with_gpus, *(Measure(name, resource) for name in without for resource in (CPU, MEMORY)))


def measures_of(tree: Tree, queue: str) -> Iterator[Measure]:
    """Counted resources of a queue: GPUs, and flavors without GPUs if it has quota there or no GPUs at all.

    Queues with GPUs may use all CPU nodes by default, so a default share of them is not reported.
    """
    shares, spec = tree.team_shares[queue], tree.stack.teams[queue]
    gpus = [(name, tree.flavors[name].resource) for name in shares]
    own = [Measure(name, resource) for name, resource in gpus if resource and resource in shares[name]]
    yield from own
    for name, resource in gpus:
        if resource is None and (name in spec.quota or not own):
            yield from (Measure(name, resource) for resource in (CPU, MEMORY) if resource in shares[name])


def supply_of(tree: Tree, measure: Measure) -> int:
    """The supply that queues share: the maximum of the flavor's pools, without the quota of Volcano's gangs."""
    return tree.supply(measure.flavor).get(measure.resource, 0)
