"""The table of workloads whose state a change decides."""

from gpu_tenancy.inspect.proposal import Affected, Effect
from gpu_tenancy.pages.tables import Cell, Row, Table, columns, row


def work(effect: Effect) -> Table:
    """Each workload whose state the change decides."""
    parts: tuple[tuple[tuple[Affected, ...], str], ...] = (
        (effect.deleted, "deleted"),
        (effect.preempted, "preempted"),
        (effect.delayed, "stays pending"),
        (effect.later, "waits longer"),
        (effect.admitted, "admitted"),
    )
    rows = tuple(_row(one, outcome) for part, outcome in parts for one in part)
    heads = columns("workload", "outcome", "GPUs#", "hours#", "for or why")
    return Table("work", "Running and pending workloads", heads, rows)


def _row(one: Affected, outcome: str) -> Row:
    restarted = outcome == "preempted" and one.again
    bad = outcome in {"deleted", "preempted"}
    return row(
        one.label,
        Cell("preempted, admitted again" if restarted else outcome, tone="bad" if bad else None),
        ", ".join(f"{amount} {flavor}".strip() for flavor, amount in one.gpus.items()) or "0",
        one.hours,
        one.by or one.why,
        team=one.team,
    )
