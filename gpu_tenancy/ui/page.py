"""The page as HTML: the whole of it once, then each section again when it changes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.quantity import amount_text, leading_text
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.reading import Kind
from gpu_tenancy.explain.running import Why
from gpu_tenancy.explain.usage import Usage
from gpu_tenancy.jobs.listing import QueuedJob, age
from gpu_tenancy.jobs.overview import JobRow
from gpu_tenancy.pages.bars import Branch
from gpu_tenancy.pages.tables import FOLD, Table, Tone, columns, environment, policy, row
from gpu_tenancy.ui.board import Board, by_flavor

MOST: Final = 100
"""Rows of a table, of which a cluster may have ten thousands."""
SECTIONS: Final = {
    "numbers": "Summary",
    "pending": "Pending",
    "admitted": "Admitted",
    "tree": "Quota tree",
    "usage": "Usage",
    "jobs": "Jobs",
    "nodes": "Nodes",
}
_TEMPLATES: Final = environment("gpu_tenancy.ui")
_TONES: Final[dict[str, Tone]] = {"running": "good", "admitted": "good", "pending": "notice", "failed": "bad"}


@dataclass(frozen=True, slots=True)
class Line:
    """A row about a job, whose name asks why it is pending.

    Attributes:
        place: namespace, kind and name of its object, in which the page finds it again.
        cells: after its name.
        tone: of the cell in the column `state`.
    """

    name: str
    place: tuple[str, str, str]
    cells: tuple[str, ...]
    tone: Tone | None


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows about jobs, at most `MOST`.

    Attributes:
        more: how many others there are.
        rest: the command that shows them.
    """

    title: str
    heads: tuple[str, ...]
    lines: tuple[Line, ...]
    more: int
    rest: str


def sections(board: Board) -> dict[str, str]:
    """The HTML of each section by its id."""
    parts = {
        "numbers": {"figures": list(_figures(board.usage)), "total": board.usage.total.text},
        "pending": {"listed": _queued(board, pending=True), "notes": board.queue.notes},
        "admitted": {"listed": _queued(board, pending=False)},
        "tree": {"trees": board.tree, "unread": _unread(board, "ClusterQueue"), "folded": _folded, "fold": FOLD},
        "usage": {"tables": [*_tables(board.usage)], "remarks": board.usage.remarks, "fold": FOLD},
        "jobs": {"listed": None if board.jobs is None else _submitted(board, board.jobs)},
        "nodes": {**_nodes(board), "unread": _unread(board, "Node"), "partly": _unread(board, "Pod"), "fold": FOLD},
    }  # fmt: skip
    template = _TEMPLATES.get_template("sections.html.j2")
    return {name: template.render(part=name, title=SECTIONS[name], **values) for name, values in parts.items()}


def page(team: str, server: str, found: dict[str, str], at: str) -> tuple[str, str]:
    """The whole page and its Content Security Policy.

    Args:
        team: namespace; empty for all.
        server: address of the API server.
        found: HTML of the sections.
        at: when they were read.
    """
    script = _TEMPLATES.get_template("live.js").render()
    text = _TEMPLATES.get_template("live.html.j2").render(
        team=team, server=server, sections=found, titles=SECTIONS, at=at, script=script
    )
    return text, policy(script, "connect-src 'self'", "frame-ancestors 'none'")


def explained(why: Why, at: str) -> str:
    """Why a job is pending, as `tenancy why` says it."""
    return _TEMPLATES.get_template("why.html.j2").render(why=why, at=at)


def failed(what: str, fix: str) -> str:
    """A problem in the place of an answer."""
    return _TEMPLATES.from_string("<h2>{{ what }}</h2><p>fix: {{ fix }}</p>").render(what=what, fix=fix)


def _unread(board: Board, kind: Kind) -> str:
    missing = board.missing.get(kind)
    return missing.text if missing else ""


def _folded(branch: Branch, whole: int) -> bool:
    return whole > FOLD and bool(branch.depth)


def _figures(usage: Usage) -> Iterator[tuple[str, str, str]]:
    """Label, number and unit of what is guaranteed, used, borrowed and pending."""
    for total in usage.total.resources[:1]:
        for name, amount in total.sums.items():
            yield name, "?" if amount is None else amount_text(total.resource, amount), total.resource


def _queued(board: Board, *, pending: bool) -> Lines:
    jobs = [job for job in board.queue.jobs if (job.state in {"admitted", "reserved"}) != pending]
    states = Counter(job.state for job in jobs)
    counts = ", ".join(f"{count} {state}" for state, count in states.items() if len(states) > 1)
    waits = ("expected wait",) if pending and any(job.wait for job in jobs) else ()
    heads = ("job", "requests", *(() if pending else ("flavor",)), "state", "for", "user", "priority", *waits)
    lines = (_queued_line(board, job, pending=pending, waits=bool(waits)) for job in jobs[:MOST])
    title = f"{SECTIONS['pending' if pending else 'admitted']}: {counts or plural(len(jobs), 'job')}"
    return Lines(title, heads, tuple(lines), max(0, len(jobs) - MOST), f"tenancy queue {board.team or '--all'}")


def _queued_line(board: Board, job: QueuedJob, *, pending: bool, waits: bool) -> Line:
    flavors = () if pending else (", ".join(job.flavors),)
    wait = (job.wait.short if job.wait else "",) if waits else ()
    cells = (leading_text(job.requests), *flavors, job.stands, age(job.since, board.at), job.user, str(job.priority))
    name = job.name if board.team else f"{job.namespace}/{job.name}"
    return Line(name, (job.namespace, _kind(job.kind), job.name), (*cells, *wait), _TONES.get(job.state))


def _kind(kind: str) -> str:
    """The kind by which an object is looked up; empty for pods of a group, and for gangs."""
    return kind if kind.isalpha() and kind != "Workload" else ""


def _submitted(board: Board, jobs: Iterable[JobRow]) -> Lines:
    found = list(jobs)
    lines = [
        Line(
            job.name,
            (board.team, job.kind, job.name),
            (
                job.kind,
                job.state,
                f"{job.running} of {job.pods}" if job.pods else "",
                leading_text(job.requests) if job.requests else "",
                age(job.since, board.at),
                job.user,
            ),
            _TONES.get(job.state),
        )
        for job in found[:MOST]
    ]
    title = f"Jobs and servers: {len(found)}"
    heads = ("job", "kind", "state", "running pods", "requests", "age", "user")
    return Lines(title, heads, tuple(lines), max(0, len(found) - MOST), f"tenancy jobs {board.team}")


def _tables(usage: Usage) -> Iterator[Table]:
    """Shares and quotas as `tenancy usage` has them."""
    shares: list[tuple[str, ...]] = []
    for share in usage.rows:
        numbers = (share.guaranteed, share.limit, share.used, share.borrowed, share.lent, share.waiting)
        amounts = ("?" if number is None else amount_text(share.resource, number) for number in numbers)
        shares.append((share.title.strip(), share.flavor, share.resource, *amounts))
    heads = columns("team", "flavor", "resource", "guaranteed#", "limit#", "used#", "borrowed#", "lent#", "pending#")
    yield Table("shares", "Shares", heads, tuple(row(*cells) for cells in shares[: 10 * MOST]))
    budgets: list[tuple[str, ...]] = []
    for found in usage.budgets:
        budget = found.budget
        amounts = (amount_text(budget.resource, value) for value in (budget.used, budget.hard))
        budgets.append((found.team, budget.quota, budget.resource, *amounts))
    heads = columns("namespace", "quota", "resource", "used#", "limit#")
    yield Table("quotas", "Namespace quotas", heads, tuple(row(*cells) for cells in budgets[: 10 * MOST]))


def _nodes(board: Board) -> dict[str, object]:
    """The nodes of each flavor together, and one by one."""
    nodes = board.nodes or ()
    groups = [
        row(
            flavor or "no flavor",
            sum(states.values()),
            ", ".join(f"{count} {state}" for state, count in states.items()),
            *_held(whole, used),
        )
        for flavor, (states, whole, used) in by_flavor(nodes).items()
    ]
    each = [row(node.name, node.flavor, node.state, *_held(node.gpus, node.used)) for node in nodes[:MOST]]
    in_use = "GPUs of pods that you may read" if "Pod" in board.missing else "GPUs in use"
    heads = columns("flavor", "nodes#", "state", "GPUs", in_use)
    return {
        "groups": Table("node-groups", "Nodes by flavor", heads, tuple(groups)),
        "listed": Table("nodes", "Nodes", columns("node", "flavor", "state", "GPUs", in_use), tuple(each)),
        "count": plural(len(nodes), "node"),
        "more": max(0, len(nodes) - MOST),
    }


def _held(whole: Mapping[str, int], used: Mapping[str, int]) -> tuple[str, str]:
    """The GPUs that nodes have, and those in use."""
    if not whole:
        return "none", ""
    return leading_text(whole), leading_text(used) if any(used.values()) else "0"
