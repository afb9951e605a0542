"""Content of the page: results of `tenancy usage`, `queue` and `jobs`, the quota tree, and the nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.quantity import amount_text, gpus, is_extended, leading_text
from gpu_tenancy.cluster.bound import read_checked
from gpu_tenancy.cluster.nodes import read_nodes
from gpu_tenancy.cluster.pods import name_of
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.reading import Kind, Missing, State
from gpu_tenancy.explain import usage
from gpu_tenancy.jobs import listing
from gpu_tenancy.jobs.jobs import read_jobs
from gpu_tenancy.jobs.overview import JobRow, rows
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.kueue import Cohort
from gpu_tenancy.pages.bars import HUES, Bar, Branch, Scale

KINDS: Final[tuple[Kind, ...]] = tuple(dict.fromkeys((*usage.KINDS, *listing.KINDS)))


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node with GPUs, or of a flavor."""

    name: str
    flavor: str
    gpus: dict[str, int]  # by resource
    used: dict[str, int]  # by readable pods
    state: str  # `ready`, or what excludes pods


@dataclass(frozen=True, slots=True)
class Board:
    """State of a cluster at one time."""

    team: str  # namespace; empty for all
    at: datetime
    usage: usage.Usage
    queue: listing.Listing
    tree: tuple[Branch, ...]  # of all teams; empty if ClusterQueues are not readable
    jobs: tuple[JobRow, ...] | None  # of the team, including ended ones; None for all teams
    nodes: tuple[NodeRow, ...] | None  # None if not readable
    missing: Mapping[Kind, Missing]  # kinds that are not readable


def read_board(cluster: Cluster, own: str, team: str) -> Board:
    """Reads a cluster with the rights of the user, or only the namespace `own`.

    Raises ConsoleError if the team does not exist or the API server does not answer, ApiError if it rejects a request
    for another reason than a missing right.
    """
    state = read_checked(cluster, KINDS, own, team)
    return board_of(state, team, rows(read_jobs(cluster, team, queued=True)) if team else None)


def board_of(state: State, team: str, jobs: tuple[JobRow, ...] | None) -> Board:
    """Builds the board of a state; raises ConsoleError if the team does not exist."""
    queues = Queues(state)
    measured = usage.measure(state, team, queues)
    return Board(
        team=team,
        at=datetime.now().astimezone(),
        usage=measured,
        queue=listing.listing(state, team, queues),
        tree=_tree(queues, usage.rows_of(queues) if team else measured.rows) if state.knows("ClusterQueue") else (),
        jobs=jobs,
        nodes=tuple(_nodes(queues)) if state.knows("Node") else None,
        missing=state.missing,
    )


def _nodes(queues: Queues) -> Iterable[NodeRow]:
    state, flavors = queues.state, queues.flavor_by_node
    manifests = {name_of(node): node for node in state.of("Node")}
    found: list[NodeRow] = []
    for node in read_nodes(manifests.values(), state.of("Pod")):
        whole = gpus(node.whole)
        if not whole and node.name not in flavors:
            continue
        ready = is_true(manifests[node.name], "Ready")
        stands = "not ready" if not ready else "ready" if node.open else "unschedulable"
        used = {name: amount - node.free[name] for name, amount in whole.items()}
        found.append(NodeRow(node.name, flavors.get(node.name, ""), dict(whole), used, stands))
    return sorted(found, key=lambda row: (row.flavor or "~", row.name))


ALONE: Final = "without a cohort"  # branch of queues without a cohort


def _tree(queues: Queues, all_rows: Iterable[usage.Row]) -> tuple[Branch, ...]:
    """Trees of all queues from their roots, without cohorts that have no queue.

    Rows of GPUs have a bar; rows of flavors without GPUs have one for each guaranteed or used resource.
    """
    whole = [row for row in all_rows if not row.part_of and (is_extended(row.resource) or row.guaranteed or row.used)]
    with_gpus = {row.flavor for row in whole if is_extended(row.resource)}
    bars = _bars([row for row in whole if is_extended(row.resource) or row.flavor not in with_gpus])
    cohorts = {cohort.name: cohort for cohort in queues.tenancy.cohorts}
    parents: dict[str, str] = {name: cohort.parent or "" for name, cohort in cohorts.items()}
    of_queue = {queue.name: queue.cohort or "" for queue in queues.tenancy.queues}
    below = grouped((of_queue[name], name) for name in bars if name in of_queue)
    needed: set[str] = set()
    for name in below:
        cohort = name
        while cohort not in needed:  # A cycle, which an API server accepts, ends.
            needed.add(cohort)
            cohort = parents.get(cohort, "") or cohort

    def branch(name: str, depth: int) -> Branch:
        own = sorted(child for child in needed if child and parents.get(child) == name and child != name)
        groups = tuple(branch(child, depth + 1) for child in own) if name else ()
        teams = tuple((team, tuple(bars[team])) for team in below.get(name, ()))
        nobody = _own(cohorts[name]) if name in cohorts else ""
        count = len(teams) + sum(group.count for group in groups)
        return Branch(name or ALONE, depth, nobody, "", (), groups, teams, count)

    roots = sorted(name for name in needed if parents.get(name, "") not in needed or not name)
    return tuple(branch(name, 0) for name in roots if name or below.get(""))


def _own(cohort: Cohort) -> str:
    amounts = {line: quota.nominal for line, quota in cohort.quotas.items() if quota.nominal}
    drawn = {line: amount for line, amount in amounts.items() if is_extended(line[1])} or amounts
    return ", ".join(f"{leading_text({resource: amount})} {flavor}" for (flavor, resource), amount in drawn.items())


def _bars(drawn: Sequence[usage.Row]) -> dict[str, list[Bar]]:
    longest: dict[str, int] = {}
    for row in drawn:
        longest[_label(row)] = max(longest.get(_label(row), 0), row.limit or 0, row.used)
    scale = Scale(longest)
    flavors = list(dict.fromkeys(row.flavor for row in drawn))
    bars: dict[str, list[Bar]] = {}
    for row in drawn:
        label = _label(row)
        solid, end = (scale.percent(label, amount or 0) for amount in (row.guaranteed, row.limit))
        parts = {"borrowed": row.borrowed, "lent": row.lent, "pending": row.waiting}
        remark = ", ".join(f"{amount_text(row.resource, amount)} {part}" for part, amount in parts.items() if amount)
        guaranteed, limit, used, *_ = row.amounts
        bar = Bar(
            name=row.team,
            flavor=label,
            scheduler=row.scheduler,
            hue=flavors.index(row.flavor) % HUES,
            rail=scale.percent(label, longest[label]),
            solid=solid,
            hatch=(solid, round(max(0.0, end - solid), 2)),
            tick=None if row.limit is None else end,
            used=scale.percent(label, row.used),
            ring=row.guaranteed == 0,
            numbers=f"{used} of {guaranteed} → {limit}",
            remark=remark,
            says=f"{row.team}, {label}: {used} used of {guaranteed}, limit {limit}; {remark or 'none pending'}",
        )
        bars.setdefault(row.team, []).append(bar)
    return bars


def _label(row: usage.Row) -> str:
    """The flavor, with the resource unless it is GPUs; gangs have their own row."""
    label = row.flavor if is_extended(row.resource) else f"{row.flavor} {row.resource}"
    return label if row.scheduler == "Kueue" else f"{label} ({row.scheduler})"
