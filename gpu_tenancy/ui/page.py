"""HTML of the page, and of each section that changes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.quantity import add, amount_text, leading_text
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.reading import Kind
from gpu_tenancy.explain.running import Why
from gpu_tenancy.explain.usage import Usage
from gpu_tenancy.jobs.listing import age
from gpu_tenancy.jobs.overview import JobRow
from gpu_tenancy.pages.bars import Branch
from gpu_tenancy.pages.tables import FOLD, Row, Table, Tone, columns, environment, policy, row
from gpu_tenancy.ui.board import Board

MOST: Final = 100  # rows of a table; a cluster can have tens of thousands
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
    """A row about a job; its name links to the reason why it is pending."""

    name: str
    place: tuple[str, str, str]  # namespace, kind, name
    cells: Mapping[str, str]  # after its name, by heading
    tone: Tone | None  # of the column `state`


def sections(board: Board) -> dict[str, str]:
    """HTML of each section by id."""

    def folded(branch: Branch, whole: int) -> bool:
        return whole > FOLD and bool(branch.depth)

    remarks = [*filter(None, [board.usage.others]), *board.usage.remarks]
    parts = {
        "numbers": {"figures": _figures(board.usage), "total": board.usage.total.text},
        "pending": {"listed": _queued(board, pending=True), "notes": board.queue.notes},
        "admitted": {"listed": _queued(board, pending=False)},
        "tree": {"trees": board.tree, "unread": _unread(board, "ClusterQueue"), "folded": folded, "fold": FOLD},
        "usage": {"tables": [*_tables(board.usage)], "remarks": remarks, "fold": FOLD},
        "jobs": {"listed": None if board.jobs is None else _submitted(board, board.jobs)},
        "nodes": {**_nodes(board), "unread": _unread(board, "Node"), "partly": _unread(board, "Pod"), "fold": FOLD},
    }  # fmt: skip
    template = _TEMPLATES.get_template("sections.html.j2")
    return {name: template.render(part=name, title=SECTIONS[name], **values) for name, values in parts.items()}


def page(team: str, server: str, found: dict[str, str], at: str) -> tuple[str, str]:
    """The whole page and its Content Security Policy; `found` is HTML of sections, read at the time `at`."""
    script = _TEMPLATES.get_template("live.js").render()
    text = _TEMPLATES.get_template("live.html.j2").render(
        team=team, server=server, sections=found, titles=SECTIONS, at=at, script=script
    )
    return text, policy(script, "connect-src 'self'", "frame-ancestors 'none'")


def explained(why: Why, at: str) -> str:
    """Why a job is pending, as in `tenancy why`."""
    return _TEMPLATES.get_template("why.html.j2").render(why=why, at=at)


def failed(what: str, fix: str) -> str:
    """A problem instead of a result."""
    return _TEMPLATES.from_string("<h2>{{ what }}</h2><p>fix: {{ fix }}</p>").render(what=what, fix=fix)


def _unread(board: Board, kind: Kind) -> str:
    missing = board.missing.get(kind)
    return missing.text if missing else ""


def _figures(usage: Usage) -> list[tuple[str, str, str]]:
    return [
        (name, "?" if amount is None else amount_text(total.resource, amount), total.resource)
        for total in usage.total.resources[:1]
        for name, amount in total.sums.items()
    ]


def _listed(title: str, lines: Iterable[Line], count: int, command: str) -> dict[str, object]:
    return {"title": title, "lines": list(lines), "more": max(0, count - MOST), "rest": command}


def _queued(board: Board, *, pending: bool) -> dict[str, object]:
    jobs = [job for job in board.queue.jobs if (job.state in {"admitted", "reserved"}) != pending]
    states = Counter(job.state for job in jobs)
    counts = ", ".join(f"{count} {state}" for state, count in states.items() if len(states) > 1)
    waits = pending and any(job.wait for job in jobs)
    lines: list[Line] = []
    for job in jobs[:MOST]:
        cells = {"requests": leading_text(job.requests)}
        if not pending:
            cells["flavor"] = ", ".join(job.flavors)
        state = f"{job.stands}, {job.idle}" if job.idle else job.stands
        cells |= {"state": state, "for": age(job.since, board.at), "user": job.user, "priority": str(job.priority)}
        if waits:
            cells["expected wait"] = job.wait.short if job.wait else ""
        # Pods of a group, and gangs, are not looked up by a kind.
        kind = job.kind if job.kind.isalpha() and job.kind != "Workload" else ""
        name = job.name if board.team else f"{job.namespace}/{job.name}"
        lines.append(Line(name, (job.namespace, kind, job.name), cells, _TONES.get(job.state)))
    title = f"{SECTIONS['pending' if pending else 'admitted']}: {counts or plural(len(jobs), 'job')}"
    return _listed(title, lines, len(jobs), f"tenancy queue {board.team or '--all'}")


def _submitted(board: Board, jobs: Sequence[JobRow]) -> dict[str, object]:
    lines: list[Line] = []
    for job in jobs[:MOST]:
        cells = {
            "kind": job.kind,
            "state": job.state,
            "running pods": f"{job.running} of {job.pods}" if job.pods else "",
            "requests": leading_text(job.requests) if job.requests else "",
            "age": age(job.since, board.at),
            "user": job.user,
        }
        lines.append(Line(job.name, (board.team, job.kind, job.name), cells, _TONES.get(job.state)))
    return _listed(f"Jobs and servers: {len(jobs)}", lines, len(jobs), f"tenancy queue {board.team} -v")


def _tables(usage: Usage) -> Iterator[Table]:
    amounts = ("limit#", "used#", "borrowed#", "lent#", "pending#")
    heads = columns("team", "flavor", "resource", "guaranteed#", "with up to", *amounts)
    shares = [
        row(one.title.strip(), one.flavor, one.resource, one.amounts[0], one.with_up_to, *one.amounts[1:])
        for one in usage.rows[: 10 * MOST]
    ]
    yield Table("shares", "Shares", heads, tuple(shares))
    heads = columns("namespace", "quota", "resource", "used#", "limit#")
    yield Table("quotas", "Namespace quotas", heads, tuple(row(*one.cells) for one in usage.spent[: 10 * MOST]))


def _nodes(board: Board) -> dict[str, object]:
    nodes = board.nodes or ()
    groups: list[Row] = []
    for flavor in dict.fromkeys(node.flavor for node in nodes):
        own = [node for node in nodes if node.flavor == flavor]
        states = ", ".join(f"{count} {state}" for state, count in Counter(node.state for node in own).items())
        held = _held(add(*(node.gpus for node in own)), add(*(node.used for node in own)))
        groups.append(row(flavor or "no flavor", len(own), states, *held))
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
    if not whole:
        return "none", ""
    return leading_text(whole), leading_text(used) if any(used.values()) else "0"
