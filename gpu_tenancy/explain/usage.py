"""Quota and usage of a cluster: guaranteed, limit, used, borrowed, lent and pending, by team, flavor and resource."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gpu_tenancy.base import quantity
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.guarantee import Guarantee
from gpu_tenancy.base.json import text_at
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.budgets import Budget, budgets
from gpu_tenancy.cluster.cluster_queues import holds_of, reported_usage
from gpu_tenancy.cluster.gangs import GangQueue, gang_queues
from gpu_tenancy.cluster.pods import name_of, namespace_of
from gpu_tenancy.cluster.queueing import judge_queue
from gpu_tenancy.cluster.queues import KUEUE_NOT_RUNNING, Queues
from gpu_tenancy.cluster.reading import Kind, Missing, State, require_team, teams_of
from gpu_tenancy.cluster.supply import unusable
from gpu_tenancy.cluster.workloads import Interrupted, Workload, interrupted, waiting
from gpu_tenancy.explain.coverage import guarantee_of
from gpu_tenancy.kueue import FlavorResource

KINDS: Final[tuple[Kind, ...]] = (
    "ClusterQueue", "Cohort", "LocalQueue", "Namespace", "Node", "Pod", "PodGroup", "Queue", "ResourceFlavor",
    "ResourceQuota", "Workload",
)  # fmt: skip
# Kinds without which numbers are unknown.
_NEEDED: Final[tuple[Kind, ...]] = ("ClusterQueue", "LocalQueue", "Workload", "Queue", "PodGroup", "ResourceQuota")

_SPENT: Final = 0.8  # part of a quota from which it is shown without being asked for


@dataclass(frozen=True, slots=True)
class Row:
    """One resource of one flavor of one queue; amounts in base units, None if not readable."""

    team: str  # queue, or one of several namespaces that share it
    flavor: str
    resource: str
    scheduler: Literal["Kueue", "Volcano"]
    guaranteed: int | None
    limit: int | None
    used: int
    borrowed: int | None  # used beyond the guarantee
    lent: int | None  # upper bound of the idle guarantee that others use
    waiting: int | None  # requests of pending workloads, at the first flavor that they could get
    workloads: int  # number of pending workloads that request it
    part_of: str = ""  # queue that several namespaces share
    guarantee: Guarantee | None = None  # of its GPUs, or CPUs in a flavor without; None for other resources

    @property
    def title(self) -> str:
        """First column; a namespace that shares a queue is indented."""
        return f"  namespace {self.team}" if self.part_of else self.team

    @property
    def with_up_to(self) -> str:
        """The most CPU and memory of a job for which the guarantee is reclaimed; empty without a guarantee."""
        return self.guarantee.bound if self.guarantee else ""

    @property
    def amounts(self) -> list[str]:
        """Guaranteed, limit, used, borrowed, lent and pending amounts as texts."""
        numbers = (self.guaranteed, self.limit, self.used, self.borrowed, self.lent, self.waiting)
        return ["?" if number is None else quantity.amount_text(self.resource, number) for number in numbers]


@dataclass(frozen=True, slots=True)
class TeamBudget:
    """One resource of a namespace's ResourceQuota."""

    team: str
    budget: Budget

    @property
    def cells(self) -> tuple[str, ...]:
        """Namespace, quota, resource, usage and limit."""
        own = self.budget
        used, hard = (quantity.amount_text(own.resource, value) for value in (own.used, own.hard))
        return self.team, own.quota, own.resource, used, hard


@dataclass(frozen=True, slots=True)
class ResourceTotal:
    """Sums of one resource."""

    resource: str
    sums: Mapping[str, int | None]  # by column, such as `guaranteed`; None if a summand is unknown
    beside_gpus: bool  # CPU or memory of flavors without GPUs, in a cluster with GPUs

    @property
    def text(self) -> str:
        """All sums in one line."""
        listed = (
            f"{'unknown' if amount is None else quantity.amount_text(self.resource, amount)} {name}"
            for name, amount in self.sums.items()
        )
        return f"{self.resource}{' without GPUs' if self.beside_gpus else ''}: {', '.join(listed)}"


@dataclass(frozen=True, slots=True)
class Total:
    """Sums of all GPU resources, and of CPU and memory of flavors without GPUs."""

    resources: tuple[ResourceTotal, ...]
    workloads: int  # number of pending workloads
    requested: tuple[Mapping[str, int], ...]  # by pending workloads with GPUs, then without; empty if none is pending

    @property
    def text(self) -> str:
        """The sums and the pending workloads in one line."""
        requested = f" ({'; '.join(quantity.leading_text(part) for part in self.requested)})" if self.requested else ""
        sums = "; ".join(resource.text for resource in self.resources) or "no quota"
        return f"total {sums}; {plural(self.workloads, 'workload')} pending{requested}"


# Notes on the numbers.
LENT: Final = (
    "lent: upper bound of the idle guarantee that others use; Kueue records who borrows, not from whom:"
    " quota without a guarantee counts as borrowed first, and near cohorts before far ones"
)
NO_FLAVOR: Final = "flavor -: no flavor of the queue can ever provide it; see `tenancy why`"
UNCOUNTED: Final = f"{KUEUE_NOT_RUNNING}; used: requests of pods on the flavors' nodes"


@dataclass(frozen=True, slots=True)
class Usage:
    """The result of `tenancy usage`."""

    rows: tuple[Row, ...]
    budgets: tuple[TeamBudget, ...]
    total: Total
    notes: tuple[str, ...]
    holds: tuple[str, ...] = ()  # queues and flavors held for maintenance
    unusable: tuple[str, ...] = ()  # guaranteed GPUs that no pod can use now
    interrupted: tuple[Interrupted, ...] = ()  # evicted workloads with GPUs, by namespace
    unreadable: tuple[Missing, ...] = ()  # kinds whose numbers are unknown
    breaches: tuple[str, ...] = ()  # more GPUs on nodes than a queue counts

    @property
    def spent(self) -> tuple[TeamBudget, ...]:
        """Namespace quotas that are used for the most part."""
        return tuple(one for one in self.budgets if one.budget.used and one.budget.used >= _SPENT * one.budget.hard)

    @property
    def others(self) -> str:
        """The number of other namespace quotas as a text; empty for none."""
        rest = len(self.budgets) - len(self.spent)
        noun = "other namespace quota" if self.spent else "namespace quota"
        return f"{plural(rest, noun)} below {_SPENT:.0%}" if rest else ""

    @property
    def remarks(self) -> list[str]:
        """The notes as texts, with unknown numbers."""
        partly = [missing.kinds for missing in self.unreadable if missing.partly]
        return [
            *self.breaches,
            *self.holds,
            *self.unusable,
            *(f"{one.team}: {one.text}, of {plural(one.workloads, 'workload')}" for one in self.interrupted),
            *self.notes,
            *(missing.text for missing in self.unreadable if not missing.partly),
            *([f"read in your namespace only: {', '.join(partly)}"] if partly else []),
        ]


def measure(state: State, team: str = "", queues: Queues | None = None) -> Usage:
    """Usage of a cluster, or of the namespace `team`; `queues` avoids a second read of the state, which has `KINDS`.

    Raises ConsoleError if the team does not exist, or the user may not list teams.
    """
    _require(state, team)
    queues = queues or Queues(state)
    rows = rows_of(queues, team)
    shown = {name for row in rows for name in (row.team, row.part_of, row.flavor)}
    kinds: tuple[Kind, ...] = ("ClusterQueue", "ResourceFlavor")
    holds = [hold for kind in kinds for hold in holds_of(state.of(kind)) if not team or hold.name in shown]
    return Usage(
        rows,
        tuple(team_budgets(state, [team] if team else teams_of(state))),
        _total(rows, queues, team),
        tuple(_notes(queues, rows)),
        holds=tuple(hold.sentence for hold in holds),
        unusable=tuple(unusable(state, {row.flavor for row in rows} if team else None, gone=True)),
        interrupted=tuple(one for one in interrupted(queues.every_workload) if team in {"", one.team}),
        unreadable=state.unread(team, *_NEEDED),
        breaches=tuple(one.text for one in state.breaches),
    )


def rows_of(queues: Queues, team: str = "") -> tuple[Row, ...]:
    """Rows of all queues or of a team's queues; of its LocalQueues if ClusterQueues are not readable."""
    if queues.state.knows("ClusterQueue"):
        queued = _kueue_rows(queues, team)
    else:
        names = [team] if team else sorted(queues.homes)
        queued = (row for name in names for row in _local(queues, name, queues.homes.get(name, {})))
    return (*queued, *_gang_rows(queues, team))


def _require(state: State, team: str) -> None:
    require_team(state, team, "quotas", "LocalQueue")
    known, unread = teams_of(state), state.refused("LocalQueue")
    if team and team not in known and not state.refused("LocalQueue", "Namespace"):
        raise ConsoleError(f"team {team} not found", nearest(team, known) if known else "no namespace has a LocalQueue")
    if not team and unread and not known and not state.knows("ClusterQueue"):
        raise ConsoleError(f"teams not readable: {unread[0].why}", "specify your team: `tenancy usage TEAM`")


def _kueue_rows(queues: Queues, team: str) -> Iterator[Row]:
    quotas, known = queues.quotas, queues.cluster_queues
    wanted = set(queues.homes.get(team, {}).values()) if team else set(known)
    for name in sorted(wanted & set(known)):
        queue = known[name]
        pending = _pending_lines(queues, name, queues.waiting_in(name))
        unseen = queues.unseen(name)
        for line in _sorted({*queue.spec.quotas, *queue.usage, *pending}):
            nominal, limit, used = (of(name, line) for of in (quotas.nominal, quotas.potential_available, quotas.usage))
            requested, count = pending.get(line, (0, 0))
            if nominal or limit or used or requested:
                borrowed, lent = quotas.borrowed(name, line), quotas.lent(name, line)
                waits = None if unseen else requested
                guarantee = guarantee_of(queue.spec, line[0])
                own = guarantee if guarantee.resource == line[1] else None
                yield Row(name, *line, "Kueue", nominal, limit, used, borrowed, lent, waits, count, guarantee=own)
        users = queues.users(name)
        for user in users if len(users) > 1 else ():
            if team in {"", user}:
                local = [local for local, target in queues.homes[user].items() if target == name]
                yield from _local(queues, user, local, part_of=name)


def _local(queues: Queues, namespace: str, local: Iterable[str], part_of: str = "") -> Iterator[Row]:
    """Usage of a namespace in its LocalQueues; only whole ClusterQueues have guarantee and limit."""
    names = set(local)
    used: dict[FlavorResource, int] = {}
    for queue in queues.state.of("LocalQueue", namespace):
        if name_of(queue) in names:
            for line, value in reported_usage(queue, "flavorsReservation").items():
                used[line] = used.get(line, 0) + value
    own = waiting(one for one in queues.workloads if one.namespace == namespace and one.queue in names)
    target = next((queues.homes[namespace][name] for name in names), "")
    pending = _pending_lines(queues, target, own)
    for line in _sorted({*used, *pending}):
        requested, count = pending.get(line, (0, 0))
        if used.get(line) or requested:
            yield Row(namespace, *line, "Kueue", None, None, used.get(line, 0), None, None, requested, count, part_of)


def _pending_lines(queues: Queues, queue: str, workloads: Sequence[Workload]) -> dict[FlavorResource, tuple[int, int]]:
    """Requests and number of pending workloads, at the first flavor that they could get; `-` for none."""
    lines: dict[FlavorResource, tuple[int, int]] = {}
    target = queues.cluster_queues.get(queue)
    flavors = queues.state.of("ResourceFlavor")
    for workload in workloads:
        amounts: dict[FlavorResource, int] = {}
        for pods in workload.sets:
            offer = judge_queue(queues.quotas, target.spec, flavors, [pods])[0] if target else None
            if offer and offer.requests and offer.source.verdict != "never":
                own = {(part.flavor, part.resource): pods.total.get(part.resource, 0) for part in offer.requests}
            else:
                held = offer.held.held if offer and offer.held else "-"
                nowhere = held if target else "?"
                own = {(nowhere, name): value for name, value in pods.total.items() if value}
            for line, value in own.items():
                amounts[line] = amounts.get(line, 0) + value
        for line, value in amounts.items():
            requested, count = lines.get(line, (0, 0))
            lines[line] = (requested + value, count + 1)
    return lines


def _sorted(all_lines: Iterable[FlavorResource]) -> list[FlavorResource]:
    # Without lines of claims, whose quota never binds.
    lines = [line for line in all_lines if line[1] not in quantity.CLAIMED]
    order = {name: at for at, name in enumerate(quantity.ordered({resource for _, resource in lines}))}
    return sorted(
        lines, key=lambda line: (not quantity.is_extended(line[1]), line[0] in {"-", "?"}, line[0], order[line[1]])
    )


def _gang_rows(queues: Queues, team: str) -> Iterator[Row]:
    state = queues.state
    for queue in gang_queues(state.of("Queue"), state.of("PodGroup"), state.of("Pod")):
        owner = _owner(queue, state)
        if team not in {"", owner}:
            continue
        flavor = queue.name.removeprefix(f"{owner}-") if owner else "-"
        bounded = {*queue.guarantee, *queue.capability}
        # Volcano counts the pods of each queue, whether or not something bounds them.
        for name in quantity.ordered(bounded | (queue.used.keys() - {"pods"})):
            own, used = queue.guarantee.get(name, 0), queue.used.get(name, 0)
            limit = queue.capability.get(name)
            waits = queue.waiting.get(name, 0)
            amounts = own, limit, used, max(0, used - own), 0, waits
            yield Row(owner or queue.name, flavor, name, "Volcano", *amounts, len(queue.pending))


def _owner(queue: GangQueue, state: State) -> str:
    """The team of a gang queue named team-flavor; else the only namespace with gangs in it."""
    named = [each for each in teams_of(state) if queue.name.startswith(f"{each}-")]
    if named:
        return max(named, key=len)
    homes = {namespace_of(each) for each in state.of("PodGroup") if text_at(each, "spec", "queue") == queue.name}
    return homes.pop() if len(homes) == 1 else ""


def team_budgets(state: State, teams: Iterable[str]) -> Iterator[TeamBudget]:
    """Each resource of the ResourceQuotas of some namespaces."""
    for namespace in teams:
        for quota in state.of("ResourceQuota", namespace):
            yield from (TeamBudget(namespace, line) for line in budgets(quota))


def _total(rows: Sequence[Row], queues: Queues, team: str) -> Total:
    """Sums, and requests of pending workloads: GPUs of workloads with GPUs, CPU and memory of others."""
    whole = [row for row in rows if not row.part_of]
    names = [name for name in quantity.ordered({row.resource for row in whole}) if quantity.is_extended(name)]
    totals = [_resource_total(name, [row for row in whole if row.resource == name]) for name in names]
    pending = [each for each in queues.workloads if team in {"", each.namespace} and each.stage == "waiting"]
    with_gpus = [quantity.gpus(each.total) for each in pending if quantity.gpus(each.total)]
    without = [each.total for each in pending if not quantity.gpus(each.total)]
    requested = tuple(quantity.add(*totals) for totals in (with_gpus, without) if totals)
    unseen = 0 if team else sum(map(queues.unseen, queues.cluster_queues))
    return Total((*totals, *_cpu_totals(whole)), len(pending) + unseen, requested)


def _cpu_totals(rows: Sequence[Row]) -> Iterator[ResourceTotal]:
    """CPU and memory of flavors without GPUs; in a cluster with GPUs, only if a team has a guarantee of them."""
    with_gpus = {row.flavor for row in rows if quantity.is_extended(row.resource)}
    for resource in (quantity.CPU, quantity.MEMORY):
        cpu_rows = [row for row in rows if row.resource == resource and row.flavor not in with_gpus]
        if cpu_rows and (not with_gpus or any(row.guaranteed for row in cpu_rows)):
            yield _resource_total(resource, cpu_rows, beside_gpus=bool(with_gpus))


def _resource_total(resource: str, rows: Sequence[Row], *, beside_gpus: bool = False) -> ResourceTotal:
    numbers = {
        "guaranteed": [row.guaranteed for row in rows],
        "used": [row.used for row in rows],
        "borrowed": [row.borrowed for row in rows],
        "pending": [row.waiting for row in rows],
    }
    sums = {name: None if None in summands else sum(filter(None, summands)) for name, summands in numbers.items()}
    return ResourceTotal(resource, sums, beside_gpus)


def _notes(queues: Queues, rows: Iterable[Row]) -> Iterator[str]:
    if any(row.lent for row in rows):
        yield LENT
    if any(row.flavor == "-" and row.waiting for row in rows):
        yield NO_FLAVOR
    if queues.uncounted:
        yield UNCOUNTED
