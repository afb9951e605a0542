"""Output of a survey: one screen for people, JSON for programs."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpu_tenancy.base.terminal import table
from gpu_tenancy.base.texts import plural, visible
from gpu_tenancy.cluster.supply import Pool, Total
from gpu_tenancy.survey.rules import Level
from gpu_tenancy.survey.survey import Survey

_MARKS: Final[dict[Level, tuple[str, str]]] = {"wrong": ("✗", "red"), "risk": ("…", "yellow")}
NUMBERS: Final = ("nodes#", "exist#", "promised#", "used#", "idle#")
_FIRST: Final = 5  # lines about preemption
_SHOWN: Final = 2  # findings of one rule on the screen
_WORDS: Final = {"queues": "promised by Kueue", "gangs": "by Volcano", "quotas": "by quotas", "held": "on no node"}
_NOUNS: Final = {
    "Namespace": "namespace", "Node": "node", "ClusterQueue": "ClusterQueue", "Queue": "Volcano queue", "Pod": "pod",
    "Workload": "workload",
}  # fmt: skip


def screen(survey: Survey) -> Group:
    """One screen: objects, GPUs, findings with their fixes, and next preemptions."""
    parts: list[RenderableType] = [Text(visible(line)) for line in heading(survey)]
    if survey.pools:
        parts += [Text(""), _pools(survey), Text("")]
    parts += [Text(visible(sums(total, survey)), style="bold") for total in survey.totals]
    parts += [Text(""), Text(conclusion(survey), style="bold")]
    for broken in survey.broken:
        texts = [finding.text for finding in broken.findings[:_SHOWN]]
        if (more := len(broken.findings) - _SHOWN) > 0:
            texts.append(f"{more} more of {broken.rule}: -o json and --out show all")
        parts += [Text.assemble(_MARKS[broken.level], f" {visible(text)}") for text in texts]
    parts += [Text(visible(line)) for line in preempted(survey)]
    parts += [Text(visible(line), style="dim") for line in unread(survey)]
    return Group(*parts)


def heading(survey: Survey) -> Iterator[str]:
    """Objects and operators of the cluster."""
    counts = [plural(count, _NOUNS[kind]) for kind, count in survey.counts.items() if count]
    yield ", ".join(counts) or "no nodes, queues, pods or workloads are readable"
    yield f"operators: {', '.join(survey.operators) or 'none found'}"


def _pools(survey: Survey) -> Table:
    pools = survey.pools
    several = len({pool.resource for pool in pools}) > 1  # The only resource is in the line below.
    heads = ("flavor", "model~", *(["resource"] if several else []), *NUMBERS, "taints")
    shown = table(*heads, drop=("taints", "model"))
    for pool in pools:
        resource, taints = [pool.resource] if several else [], ", ".join(pool.taints) or "none"
        shown.add_row(flavor(pool), pool.model or "unknown", *resource, *numbers(pool, survey), taints)
    return shown


def flavor(pool: Pool) -> str:
    """The flavors of GPU nodes."""
    return " + ".join(pool.flavors) or "no flavor"


def numbers(pool: Pool, survey: Survey) -> list[str]:
    """Cells below `NUMBERS`; `?` for unreadable numbers."""
    names = ("exist", "promised", "used", "idle")
    cells = ("?" if name in survey.unknown else str(getattr(pool, name)) for name in names)
    return [str(len(pool.nodes)), *cells]


def sums(total: Total, survey: Survey) -> str:
    """Totals of a GPU resource; unknown totals are marked, zero totals are omitted."""
    texts = {
        "exist": f"{total.exist} exist" + (f" ({total.ready} ready)" if total.ready != total.exist else ""),
        "queues": f"{total.queues} promised by Kueue",
        "gangs": f"{total.gangs} by Volcano" if total.gangs else "",
        "quotas": f"{total.quotas} by quotas",
        "used": f"{total.used} used",
        "idle": f"{total.idle} idle",
        "held": f"{total.held} requested by pods on no node" if total.held else "",
    }
    known = [text for name, text in texts.items() if text and name not in survey.unknown]
    unknown = [_WORDS.get(name, name) for name in texts if name in survey.unknown]
    parts = [*known, f"unknown: {', '.join(unknown)}"] if unknown else known
    return f"{total.resource}: {', '.join(parts)}"


def conclusion(survey: Survey) -> str:
    """Numbers of findings and evaluated rules."""
    wrong = sum(len(each.findings) for each in survey.broken if each.level == "wrong")
    risks = sum(len(each.findings) for each in survey.broken if each.level == "risk")
    whole = survey.evaluated + len(survey.not_evaluated)
    return f"{wrong} wrong, {plural(risks, 'risk')} ({survey.evaluated} of {whole} rules evaluated)"


def preempted(survey: Survey) -> Iterator[str]:
    """Next preemptions, by the simulation of Kueue."""
    found = survey.preemptions
    yield from (f"preempted next: {one.text}" for one in found[:_FIRST])
    if len(found) > _FIRST:
        yield f"preempted next: {len(found) - _FIRST} more: -o json shows all"
    yield from (f"not simulated: {reason}" for reason in survey.not_simulated)


def unread(survey: Survey) -> Iterator[str]:
    """Unreadable kinds, and the people to ask."""
    yield from (f"not readable: {', '.join(kinds)}; ask {who}" for who, kinds in survey.unreadable.items())
    if survey.partly:
        yield f"read in your namespace only: {', '.join(survey.partly)}"
    if survey.not_evaluated:
        yield f"not evaluated: {', '.join(survey.not_evaluated)}"


def data(survey: Survey) -> dict[str, Any]:
    """The survey for JSON."""
    return {
        "operators": survey.operators,
        "objects": survey.counts,
        "pools": [_known(asdict(pool) | {"idle": pool.idle}, survey) for pool in survey.pools],
        "gpus": [_known(asdict(total) | {"idle": total.idle}, survey) for total in survey.totals],
        "findings": [
            {"rule": broken.rule, "level": broken.level, **asdict(finding)}
            for broken in survey.broken
            for finding in broken.findings
        ],
        "preemptions": [asdict(one) for one in survey.preemptions],
        "notSimulated": survey.not_simulated,
        "notReadable": survey.unreadable,
        "readInOwnNamespace": survey.partly,
        "rules": {"evaluated": survey.evaluated, "notEvaluated": survey.not_evaluated},
    }


def _known(fields: dict[str, Any], survey: Survey) -> dict[str, Any]:
    return {name: None if name in survey.unknown else value for name, value in fields.items()}
