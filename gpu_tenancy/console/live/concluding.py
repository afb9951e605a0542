"""The last line of a `why` for what waits in a queue: the reason, and what would mend it."""

from collections.abc import Sequence
from typing import Final

from gpu_tenancy.console.live.amounts import said
from gpu_tenancy.console.live.entry import Entry
from gpu_tenancy.console.live.foreseen import named
from gpu_tenancy.console.live.queueing import ORDER, Leave, Share, Taken
from gpu_tenancy.console.live.queues import Queues
from gpu_tenancy.console.live.tree import ClusterQueue
from gpu_tenancy.console.live.workloads import Workload

_REASONS: Final[dict[Leave, tuple[str, str]]] = {
    "own": ("there is room in its queue, and Kueue has not taken it up yet", "wait a moment; else see that Kueue runs"),
    "borrowing": (
        "there is room to borrow, and Kueue has not taken it up yet",
        "wait a moment; else see that Kueue runs",
    ),
    "reclaiming": (
        "others borrow what is guaranteed to it",
        "nothing to do: Kueue takes it back from {who}",
    ),
    "others": (
        "it needs what others use, beyond its own guarantee",
        "wait until {who} leave theirs, ask for less, or have the guarantee raised",
    ),
    "own end": (
        "its own team uses what it may have",
        "wait until work of its own ends, end some, or have the limit raised",
    ),
    "never": ("its queue can never take it", "ask for less or for another flavor, or have the limit raised"),
}
_ROOM: Final = ("Kueue is about to admit it", "wait a moment; else see that Kueue runs")


def by_arithmetic(
    queues: Queues, queue: ClusterQueue, taken: Sequence[Taken], first: Sequence[Workload]
) -> tuple[str, str]:
    """The reason and what would mend it, by what the queues have and use."""
    hardest, shares, what = _hardest(taken)
    reason, mend = _REASONS[hardest.leave]
    if hardest.leave in {"own", "borrowing"}:
        if first:
            reason, mend = "others come before it in its queue", "wait, or give it a higher priority class"
    elif hardest.leave == "never":
        words = "; ".join(each.words for each in shares) or "; ".join(hardest.refused)
        reason = f"its queue can never take it: {words}"
    else:
        reason = f"{reason}: {what}"
        if hardest.leave == "reclaiming" and queue.meekly:
            mend = "Kueue takes it back from work of lower priority alone; else wait until {who} leave theirs"
    return reason, mend.format(who=_names(queues, queue.name, shares) or "others")


def by_simulation(taken: Sequence[Taken], entry: Entry) -> tuple[str, str]:
    """The reason and what would mend it, by the simulation of Kueue: it knows what arithmetic does not."""
    hardest, shares, what = _hardest(taken)
    if entry.admitted and entry.gone:
        way = "give way" if len(entry.gone) > 1 else "gives way"
        return f"Kueue is about to admit it, and {named(entry.gone)} {way}", "nothing to do"
    if entry.admitted:
        return _REASONS[hardest.leave] if hardest.leave in {"own", "borrowing"} else _ROOM
    reason, mend, more = entry.reason, _mend(entry), ""
    if entry.behind:
        return reason, mend
    if hardest.leave == "own end":
        reason, more = f"its own team uses what it may have: {what}", "end some, or have the limit raised"
    elif hardest.leave == "others" and any(each.used + each.asked > each.nominal for each in shares):
        reason = f"what it needs beyond its own guarantee is in use: {what}"
        more = "ask for less, or have the guarantee raised"
    return reason, ", ".join(each for each in (mend, more) if each)


def _mend(entry: Entry) -> str:
    if entry.ends:
        ends = entry.ends
        return f"wait until {ends[0]} ends" if len(ends) == 1 else f"wait until one of these ends: {named(ends)}"
    if entry.together:
        return f"wait until these {len(entry.together)} have ended: {named(entry.together)}"
    if entry.ahead:
        return f"wait, or have this taken back, which is ahead of it: {named(entry.ahead)}"
    if entry.takers:
        return f"wait for those who come first, such as {named(entry.takers)}"
    return "no end that was tried lets it in"


def _hardest(taken: Sequence[Taken]) -> tuple[Taken, list[Share], str]:
    """The pods that are hardest to start, what of them is, and how much is missing."""
    hardest = max(taken, key=lambda each: ORDER.index(each.leave))
    shares = [each for each in hardest.shares if each.leave == hardest.leave]
    what = ", ".join(
        f"{said(each.resource, each.lacking)} {each.resource} of {each.flavor}" for each in shares if each.lacking
    )
    return hardest, shares, what


def _names(queues: Queues, target: str, shares: list[Share]) -> str:
    found = [queues.tree.borrowers(target, (share.flavor, share.resource)) for share in shares if share.lacking]
    return named(tuple(dict.fromkeys(name for each in found for name in each)))
