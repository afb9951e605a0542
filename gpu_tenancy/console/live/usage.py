"""Who uses what: guaranteed, limit, used, borrowed, lent and waiting, for each team, flavor and resource."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.live.amounts import gpus, listed, many, ordered, plain, said
from gpu_tenancy.console.live.budgets import Budget, budgets
from gpu_tenancy.console.live.gangs import GangQueue, gang_queues
from gpu_tenancy.console.live.pods import called, home
from gpu_tenancy.console.live.queueing import VERDICTS, judge_queue
from gpu_tenancy.console.live.queues import Queues
from gpu_tenancy.console.live.reading import Kind, State, teams_of
from gpu_tenancy.console.live.tree import Line, usage
from gpu_tenancy.console.live.workloads import Workload, waiting
from gpu_tenancy.console.offline.wire import text_at
from gpu_tenancy.model.problems import nearest
from gpu_tenancy.model.quantity import add, is_extended

KINDS: Final[tuple[Kind, ...]] = (
    "ClusterQueue", "Cohort", "LocalQueue", "Namespace", "Node", "Pod", "PodGroup", "Queue", "ResourceFlavor",
    "ResourceQuota", "Workload",
)  # fmt: skip
_TELLING: Final[tuple[Kind, ...]] = ("ClusterQueue", "LocalQueue", "Workload", "Queue", "PodGroup", "ResourceQuota")
"""Kinds that numbers here come from; the others only help."""


@dataclass(frozen=True, slots=True)
class Row:
    """One resource of one flavor of one queue; amounts in base units, None where the user may not see them.

    Attributes:
        team: the queue's name; for a namespace that shares it, that namespace.
        scheduler: `Kueue`, or `Volcano` for gangs.
        borrowed: used beyond what is guaranteed.
        lent: at most so much of what is guaranteed and idle is in others' hands.
        waiting: what workloads in the queue wait for; they have no flavor yet, this is the first that they could get.
        workloads: how many these are.
    """

    team: str
    flavor: str
    resource: str
    scheduler: Literal["Kueue", "Volcano"]
    guaranteed: int | None
    limit: int | None
    used: int
    borrowed: int | None
    lent: int | None
    waiting: int
    workloads: int


@dataclass(frozen=True, slots=True)
class TeamBudget:
    """One line of a namespace's quota."""

    team: str
    budget: Budget


@dataclass(frozen=True, slots=True)
class Usage:
    """The whole of it.

    Attributes:
        total: one line.
        notes: what the numbers mean, and which are missing and why.
    """

    rows: tuple[Row, ...]
    budgets: tuple[TeamBudget, ...]
    total: str
    notes: tuple[str, ...]


def measure(state: State, team: str = "") -> Usage:
    """Sums a cluster up, or what one team has of it.

    Raises:
        ConsoleError: there is no such team, or which teams there are may not be seen.
    """
    _require(state, team)
    queues = Queues(state)
    rows = (
        (*_kueue_rows(queues, team), *_gang_rows(queues, team))
        if state.knows("ClusterQueue")
        else _local_rows(queues, team)
    )
    if not state.knows("ClusterQueue"):
        rows = (*rows, *_gang_rows(queues, team))
    spent = tuple(_budgets(state, team))
    return Usage(tuple(rows), spent, _total(rows, queues, team), tuple(_notes(queues, rows, spent, team)))


def _require(state: State, team: str) -> None:
    known = teams_of(state)
    hidden = state.refused("LocalQueue")
    if team:
        seen = known or not (hidden or state.refused("Namespace"))
        if seen and not state.refused("LocalQueue", "Namespace") and team not in known:
            raise ConsoleError(
                f"there is no team {team}", nearest(team, known) if known else "no namespace has a queue"
            )
    elif hidden and not known:
        raise ConsoleError(f"which teams there are may not be seen: {hidden[0].why}", "name yours: tenancy usage TEAM")


def _kueue_rows(queues: Queues, team: str) -> Iterator[Row]:
    tree = queues.tree
    wanted = set(queues.homes.get(team, {}).values()) if team else set(tree.queues)
    for name in sorted(wanted & set(tree.queues)):
        queue = tree.queues[name]
        waits = _waiting_lines(queues, name, queues.waiting_in(name))
        for line in _sorted({*queue.quotas, *queue.used, *waits}):
            quota, limit = queue.quotas.get(line), tree.limit(name, line)
            nominal, used = quota.nominal if quota else 0, queue.used.get(line, 0)
            much, count = waits.get(line, (0, 0))
            if nominal or limit or used or much:
                lent = tree.lent(name, line)
                yield Row(name, *line, "Kueue", nominal, limit, used, tree.borrowed(name, line), lent, much, count)
        users = queues.users(name)
        if len(users) > 1:
            yield from (row for user in users if team in {"", user} for row in _part(queues, user, name))


def _part(queues: Queues, namespace: str, queue: str) -> Iterator[Row]:
    """What one of several namespaces uses of their queue; guarantee and limit are the queue's."""
    local = [name for name, target in queues.homes[namespace].items() if target == queue]
    return _local(queues, namespace, local, f"  of it {namespace}")


def _local_rows(queues: Queues, team: str) -> tuple[Row, ...]:
    """What a team sees that may not read ClusterQueues."""
    names = [team] if team else sorted(queues.homes)
    return tuple(row for name in names for row in _local(queues, name, queues.homes.get(name, {}), name))


def _local(queues: Queues, namespace: str, local: Iterable[str], title: str) -> Iterator[Row]:
    names = set(local)
    used: dict[Line, int] = {}
    for each in queues.state.of("LocalQueue", namespace):
        if called(each) in names:
            for line, value in usage(each, "flavorsReservation").items():
                used[line] = used.get(line, 0) + value
    mine = waiting(each for each in queues.workloads if each.namespace == namespace and each.queue in names)
    target = next((queues.homes[namespace][name] for name in names), "")
    waits = _waiting_lines(queues, target, mine)
    for line in _sorted({*used, *waits}):
        much, count = waits.get(line, (0, 0))
        if used.get(line) or much:
            yield Row(title, *line, "Kueue", None, None, used.get(line, 0), None, None, much, count)


def _waiting_lines(queues: Queues, queue: str, found: Sequence[Workload]) -> dict[Line, tuple[int, int]]:
    """What workloads wait for and how many do, at the first flavor that could give it; without one at flavor `-`."""
    lines: dict[Line, tuple[int, int]] = {}
    target = queues.tree.queues.get(queue)
    for workload in found:
        shares: dict[Line, int] = {}
        for pods in workload.sets:
            taken = judge_queue(queues.tree, target, queues.state.of("ResourceFlavor"), [pods])[0] if target else None
            if taken and taken.shares and VERDICTS[taken.leave] != "never":
                own = {(share.flavor, share.resource): pods.total.get(share.resource, 0) for share in taken.shares}
            else:
                nowhere = "-" if target else "?"
                own = {(nowhere, name): value for name, value in pods.total.items() if value}
            for line, value in own.items():
                shares[line] = shares.get(line, 0) + value
        for line, value in shares.items():
            much, count = lines.get(line, (0, 0))
            lines[line] = (much + value, count + 1)
    return lines


def _sorted(lines: Iterable[Line]) -> list[Line]:
    order = {name: at for at, name in enumerate(ordered({resource for _, resource in lines}))}
    return sorted(lines, key=lambda line: (line[0] in {"-", "?"}, line[0], order[line[1]]))


def _gang_rows(queues: Queues, team: str) -> Iterator[Row]:
    state = queues.state
    for queue in gang_queues(state.of("Queue"), state.of("PodGroup"), state.of("Pod")):
        owner = _owner(queue, state)
        if team not in {"", owner}:
            continue
        flavor = queue.name.removeprefix(f"{owner}-") if owner else "-"
        for name in ordered({*queue.guarantee, *queue.capability, *queue.used}):
            own, used = queue.guarantee.get(name, 0), queue.used.get(name, 0)
            limit = queue.capability.get(name)
            waits = queue.waiting.get(name, 0)
            yield Row(
                owner or queue.name,
                flavor,
                name,
                "Volcano",
                own,
                limit,
                used,
                max(0, used - own),
                0,
                waits,
                len(queue.pending),
            )


def _owner(queue: GangQueue, state: State) -> str:
    """The team of a gang queue, which is named team-flavor; else the one namespace whose gangs are in it."""
    named = [each for each in teams_of(state) if queue.name.startswith(f"{each}-")]
    if named:
        return max(named, key=len)
    homes = {home(each) for each in state.of("PodGroup") if text_at(each, "spec", "queue") == queue.name}
    return homes.pop() if len(homes) == 1 else ""


def _budgets(state: State, team: str) -> Iterator[TeamBudget]:
    """All lines of one team's quotas; of all teams only GPUs, and what is full."""
    for namespace in [team] if team else teams_of(state):
        for quota in state.of("ResourceQuota", namespace):
            for line in budgets(quota):
                full = line.hard > 0 and line.left <= 0
                if team or is_extended(plain(line.resource)) or full:
                    yield TeamBudget(namespace, line)


def _total(rows: Iterable[Row], queues: Queues, team: str) -> str:
    """One line: of each GPU resource what is guaranteed, used, borrowed and waited for."""
    found = [each for each in rows if not each.team.startswith(" ")]
    parts = [
        f"{name}: {_sum(found, name, 'guaranteed')} guaranteed, {_sum(found, name, 'used')} used,"
        f" {_sum(found, name, 'borrowed')} borrowed, {_sum(found, name, 'waiting')} waited for"
        for name in ordered({each.resource for each in found})
        if is_extended(name)
    ]
    mine = [each for each in queues.workloads if team in {"", each.namespace} and each.stage == "waiting"]
    asked = listed(gpus(add(*(each.total for each in mine)))) if mine else ""
    waits = f"; {many(len(mine), 'workload waits', 'workloads wait')} for {asked}" if mine else "; no workload waits"
    return f"total {'; '.join(parts) or 'no GPUs'}{waits}"


def _sum(rows: Iterable[Row], resource: str, what: Literal["guaranteed", "used", "borrowed", "waiting"]) -> str:
    mine = [each for each in rows if each.resource == resource]
    numbers = {
        "guaranteed": [each.guaranteed for each in mine],
        "used": [each.used for each in mine],
        "borrowed": [each.borrowed for each in mine],
        "waiting": [each.waiting for each in mine],
    }[what]
    known = [each for each in numbers if each is not None]
    return said(resource, sum(known)) if len(known) == len(numbers) else "unknown"


def _notes(queues: Queues, rows: Iterable[Row], spent: Sequence[TeamBudget], team: str) -> Iterator[str]:
    if any(each.lent for each in rows):
        yield (
            "lent: of what is guaranteed and idle, at most so much is in others' hands; Kueue notes who borrows,"
            " not from whom: what is near in the tree counts as borrowed first, and there what nobody is guaranteed"
        )
    if any(each.flavor == "-" and each.waiting for each in rows):
        yield "flavor -: no flavor of the queue could ever give it; tenancy why says more"
    if queues.uncounted:
        yield "Kueue does not run here: used is what pods on the flavors' nodes ask for"
    if spent and not team:
        yield "quotas: GPUs, and what is full; tenancy usage TEAM shows all of one team"
    yield from (str(each) for each in queues.state.refused(*_TELLING) if not (team and each.partly))
