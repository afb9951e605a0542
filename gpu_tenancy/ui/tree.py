"""The quota tree of a running cluster: cohorts and queues with what each has, uses, borrows, lends and waits for."""

from collections.abc import Iterable, Iterator
from typing import Final

from gpu_tenancy.base.quantity import amount_text, is_extended, leading_text
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.explain.usage import Row
from gpu_tenancy.kueue import Cohort
from gpu_tenancy.pages.bars import HUES, Bar, Branch, Scale

ALONE: Final = "without a cohort"
"""The branch of queues that share with no other."""


def tree(queues: Queues, rows: Iterable[Row]) -> tuple[Branch, ...]:
    """The trees of all queues, each from its root; cohorts without a queue are left out."""
    shown = _Shown(list(_drawn(rows)))
    cohorts = {cohort.name: cohort for cohort in queues.tenancy.cohorts}
    parents: dict[str, str] = {name: cohort.parent or "" for name, cohort in cohorts.items()}
    of_queue = {queue.name: queue.cohort or "" for queue in queues.tenancy.queues}
    below: dict[str, list[str]] = {}
    for name in dict.fromkeys(row.team for row in shown.rows if row.team in of_queue):
        below.setdefault(of_queue[name], []).append(name)
    needed = {name for cohort in below for name in _line(cohort, parents)}

    def branch(name: str, depth: int) -> Branch:
        own = sorted(child for child in needed if child and parents.get(child) == name and child != name)
        groups = tuple(branch(child, depth + 1) for child in own) if name else ()
        teams = tuple((team, tuple(shown.bars(team))) for team in below.get(name, ()))
        nobody = _own(cohorts[name]) if name in cohorts else ""
        count = len(teams) + sum(group.count for group in groups)
        return Branch(name or ALONE, depth, nobody, "", (), groups, teams, count)

    roots = sorted(name for name in needed if parents.get(name, "") not in needed or not name)
    return tuple(branch(name, 0) for name in roots if name or below.get(""))


def _line(cohort: str, parents: dict[str, str]) -> Iterator[str]:
    """A cohort and those above it; a cycle, which an API server accepts, ends."""
    seen: set[str] = set()
    while cohort not in seen:
        seen.add(cohort)
        yield cohort
        cohort = parents.get(cohort, "") or cohort


def _own(cohort: Cohort) -> str:
    """The quota of a cohort itself, of GPUs where it has some."""
    amounts = {line: quota.nominal for line, quota in cohort.quotas.items() if quota.nominal}
    drawn = {line: amount for line, amount in amounts.items() if is_extended(line[1])} or amounts
    return ", ".join(f"{leading_text({resource: amount})} {flavor}" for (flavor, resource), amount in drawn.items())


def _drawn(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows with a bar: GPUs, and of flavors without GPUs everything that is guaranteed or used."""
    found = [row for row in rows if not row.part_of]
    with_gpus = {row.flavor for row in found if is_extended(row.resource)}
    for row in found:
        if is_extended(row.resource) or (row.flavor not in with_gpus and (row.guaranteed or row.used)):
            yield row


class _Shown:
    """The bars of rows, in one scale."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self._longest: dict[str, int] = {}
        for row in rows:
            reach = max(self._longest.get(_label(row), 0), row.limit or 0, row.used)
            self._longest[_label(row)] = reach
        self._scale = Scale(self._longest)
        flavors = list(dict.fromkeys(row.flavor for row in rows))
        self._hues = {flavor: at % HUES for at, flavor in enumerate(flavors)}

    def bars(self, team: str) -> Iterator[Bar]:
        """The bars of a queue."""
        return (self._bar(row) for row in self.rows if row.team == team)

    def _bar(self, row: Row) -> Bar:
        label = _label(row)
        solid, end = (self._scale.percent(label, amount or 0) for amount in (row.guaranteed, row.limit))
        parts = {"borrowed": row.borrowed, "lent": row.lent, "pending": row.waiting}
        remark = ", ".join(f"{amount_text(row.resource, amount)} {what}" for what, amount in parts.items() if amount)
        used, guaranteed, limit = (_text(row, amount) for amount in (row.used, row.guaranteed, row.limit))
        return Bar(
            name=row.team,
            flavor=label,
            scheduler=row.scheduler,
            hue=self._hues[row.flavor],
            rail=self._scale.percent(label, self._longest[label]),
            solid=solid,
            hatch=(solid, round(max(0.0, end - solid), 2)),
            tick=None if row.limit is None else end,
            used=self._scale.percent(label, row.used),
            ring=row.guaranteed == 0,
            kept=None,
            numbers=f"{used} of {guaranteed} → {limit}",
            was="",
            remark=remark,
            says=f"{row.team}, {label}: {used} used of {guaranteed}, limit {limit}; {remark or 'none pending'}",
        )


def _text(row: Row, amount: int | None) -> str:
    return "?" if amount is None else amount_text(row.resource, amount)


def _label(row: Row) -> str:
    """The flavor, with the resource where it is not of GPUs; gangs are counted apart."""
    label = row.flavor if is_extended(row.resource) else f"{row.flavor} {row.resource}"
    return label if row.scheduler == "Kueue" else f"{label} ({row.scheduler})"
