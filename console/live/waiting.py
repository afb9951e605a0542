"""What a job waits for that Kueue has a Workload for: quota, its turn, a check, or the nodes."""

from collections.abc import Iterator
from typing import Final

from console.cluster.waiting import condition
from console.live.amounts import gpus, listed, many, said
from console.live.pods import called
from console.live.queueing import ORDER, Leave, Share, Taken, judge_queue
from console.live.queues import Queues
from console.live.reading import State
from console.live.running import running
from console.live.subject import Subject
from console.live.tree import ClusterQueue
from console.live.verdicts import Why
from console.live.workloads import Workload, ahead
from console.offline.wire import maps_at, text_at
from model.problems import nearest
from model.quantity import add

_NAMED: Final = 5
"""Workloads ahead that are called by their names."""


def queued(subject: Subject, queues: Queues, workload: Workload) -> Why:
    """There is a Workload for it: as far as it came."""
    target = queues.queue_of(workload)
    place = f"Workload {workload.name} in LocalQueue {workload.queue or '(none)'}"
    found = [
        f"{place}{f' (ClusterQueue {target})' if target else ''}, priority {workload.priority}",
        *_conditions(workload),
    ]
    match workload.stage:
        case "finished":
            return Why(subject.title, tuple(found), "it does not wait: it ended", "", waits=False)
        case "switched off":
            reason = "its Workload is switched off (spec.active is false)"
            patch = """--type merge -p '{"spec":{"active":true}}'"""
            mend = f"kubectl -n {workload.namespace} patch workload {workload.name} {patch}"
            return Why(subject.title, tuple(found), reason, mend)
        case "checked":
            return _checked(subject, workload, found)
        case "admitted":
            return running(subject, queues.state, tuple(found))
        case "waiting":
            return _waiting(subject, queues, workload, found)


def _conditions(workload: Workload) -> Iterator[str]:
    """Kueue's own words, what holds it first."""
    for kind in ("QuotaReserved", "Evicted", "Admitted"):
        found = condition(workload.manifest, kind)
        telling = text_at(found, "status") == ("True" if kind == "Evicted" else "False")
        if found and telling and text_at(found, "message"):
            yield f"Kueue says ({kind}, {text_at(found, 'reason')}): {text_at(found, 'message')}"


def _checked(subject: Subject, workload: Workload, found: list[str]) -> Why:
    """Quota is reserved; admission checks hold it."""
    checks = [
        each for each in maps_at(workload.manifest, "status", "admissionChecks") if text_at(each, "state") != "Ready"
    ]
    for each in checks:
        message = text_at(each, "message")
        found.append(
            f"admission check {text_at(each, 'name')} is {text_at(each, 'state')}{': ' + message if message else ''}"
        )
    names = ", ".join(text_at(each, "name") for each in checks) or "a check"
    held = listed(gpus(workload.total)) if gpus(workload.total) else listed(workload.total)
    reason = f"its quota ({held}) is reserved, and admission check {names} has not let it pass"
    return Why(
        subject.title, tuple(found), reason, "wait for what the check asks for, such as nodes; see the AdmissionCheck"
    )


def _waiting(subject: Subject, queues: Queues, workload: Workload, found: list[str]) -> Why:
    """No quota is reserved for it."""
    state, target = queues.state, queues.queue_of(workload)
    own = queues.homes.get(workload.namespace, {})
    if workload.queue not in own and state.knows("LocalQueue"):
        mend = nearest(workload.queue, own) if own else "the namespace has no LocalQueue: ask for one"
        return Why(
            subject.title, tuple(found), f"there is no LocalQueue {workload.queue} in {workload.namespace}", mend
        )
    first = ahead(workload, queues.members.get(target, ()))
    found.append(_line(first, complete=state.knows("Workload")))
    if not state.knows("ClusterQueue"):
        found += [str(each) for each in state.refused("ClusterQueue", "Workload")]
        reason = "it waits for quota, of which you may not see how much is free"
        return Why(subject.title, tuple(found), reason, state.missing["ClusterQueue"].who + " can tell")
    queue = queues.tree.queues.get(target)
    if queue is None:
        return Why(
            subject.title,
            tuple(found),
            f"there is no ClusterQueue {target}",
            f"make it, or let LocalQueue {workload.queue} lead to another",
        )
    if stopped := queue.inactive or _stopped(state, workload):
        return Why(
            subject.title,
            tuple(found),
            f"queue {target} admits nothing: {stopped}",
            "mend what it names; Kueue then takes it up by itself",
        )
    taken = judge_queue(queues.tree, queue, state.of("ResourceFlavor"), workload.sets)
    shares = [share for each in taken for share in each.shares]
    if first and queue.strict:
        found.append("its queue is StrictFIFO: nothing overtakes the first, even where that can never start")
    found += dict.fromkeys(share.words for share in _telling(shares))
    found += dict.fromkeys(refusal for each in taken if each.leave == "never" for refusal in each.refused)
    found += _borrowers(queues, target, shares)
    return Why(subject.title, tuple(found), *_conclusion(queues, queue, taken, first))


def _telling(shares: list[Share]) -> list[Share]:
    """What holds it; where nothing does, all that was judged."""
    return [each for each in shares if each.leave not in {"own", "borrowing"}] or shares


def _stopped(state: State, workload: Workload) -> str:
    for each in state.of("LocalQueue", workload.namespace):
        if called(each) == workload.queue:
            active = condition(each, "Active")
            policy = text_at(each, "spec", "stopPolicy")
            if policy not in {"", "None"}:
                return f"LocalQueue {workload.queue} is stopped (stopPolicy {policy})"
            return (
                f"LocalQueue {workload.queue}: {text_at(active, 'message')}"
                if text_at(active, "status") == "False"
                else ""
            )
    return ""


def _line(first: list[Workload], *, complete: bool) -> str:
    """Who comes before it."""
    beyond = "" if complete else " that you may see"
    if not first:
        return f"nothing{beyond} is ahead of it in the queue"
    named = ", ".join(f"{each.namespace}/{each.name}" for each in first[:_NAMED])
    more = f" and {len(first) - _NAMED} more" if len(first) > _NAMED else ""
    asked = listed(gpus(add(*(each.total for each in first))))
    return f"ahead of it{beyond}: {many(len(first), 'workload')} for {asked}: {named}{more}"


def _borrowers(queues: Queues, target: str, shares: list[Share]) -> Iterator[str]:
    for share in shares:
        borrowed = queues.tree.borrowers(target, (share.flavor, share.resource))
        if share.leave in {"reclaiming", "others"} and borrowed:
            who = ", ".join(f"{name} {said(share.resource, much)}" for name, much in borrowed.items())
            yield f"who borrows {share.flavor} {share.resource} now: {who}"


def _names(queues: Queues, target: str, shares: list[Share]) -> str:
    found = [queues.tree.borrowers(target, (share.flavor, share.resource)) for share in shares if share.lacking]
    return ", ".join(dict.fromkeys(name for each in found for name in each))


def _conclusion(queues: Queues, queue: ClusterQueue, taken: list[Taken], first: list[Workload]) -> tuple[str, str]:
    """The reason, and what would mend it."""
    hardest = max(taken, key=lambda each: ORDER.index(each.leave))
    shares = [each for each in hardest.shares if each.leave == hardest.leave]
    what = ", ".join(
        f"{said(each.resource, each.lacking)} {each.resource} of {each.flavor}" for each in shares if each.lacking
    )
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
