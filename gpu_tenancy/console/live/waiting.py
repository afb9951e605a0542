"""What a job waits for that Kueue has a Workload for: quota, its turn, a check, or the nodes."""

from collections.abc import Iterator

from gpu_tenancy.console.cluster.waiting import condition
from gpu_tenancy.console.live.amounts import gpus, listed, many, said
from gpu_tenancy.console.live.concluding import by_arithmetic, by_simulation
from gpu_tenancy.console.live.entry import Entry, find_entry
from gpu_tenancy.console.live.foreseen import named
from gpu_tenancy.console.live.queueing import VERDICTS, Share, judge_queue
from gpu_tenancy.console.live.queues import Queues
from gpu_tenancy.console.live.running import running
from gpu_tenancy.console.live.subject import Subject
from gpu_tenancy.console.live.tree import ClusterQueue
from gpu_tenancy.console.live.verdicts import Why
from gpu_tenancy.console.live.workloads import Workload, ahead
from gpu_tenancy.console.offline.wire import maps_at, text_at
from gpu_tenancy.model.problems import nearest
from gpu_tenancy.model.quantity import add


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
    if closed := _closed(queues, queue, workload):
        return Why(subject.title, tuple(found), *closed)
    taken = judge_queue(queues.tree, queue, state.of("ResourceFlavor"), workload.sets)
    if first and queue.strict:
        found.append("its queue is StrictFIFO: nothing overtakes the first, even where that can never start")
    never = any(each.leave == "never" for each in taken)
    played = "" if never else find_entry(queues, workload)
    entry = played if isinstance(played, Entry) else None
    shares = [share for each in taken for share in each.shares]
    if entry is None or (entry.admitted and not entry.gone and all(VERDICTS[each.leave] == "now" for each in taken)):
        found += dict.fromkeys(share.words for share in _telling(shares))
    else:
        found += dict.fromkeys(share.numbers for share in _telling(shares))
    found += dict.fromkeys(refusal for each in taken if each.leave == "never" for refusal in each.refused)
    found += _borrowers(queues, target, shares)
    if isinstance(played, Entry):
        found += played.words
        return Why(subject.title, tuple(found), *by_simulation(taken, played), entry=played)
    found += [f"not simulated: {played}"] if played else []
    return Why(subject.title, tuple(found), *by_arithmetic(queues, queue, taken, first))


def _closed(queues: Queues, queue: ClusterQueue, workload: Workload) -> tuple[str, str] | None:
    """Why Kueue does not look at it, whatever is free, and what would mend that; None where it does."""
    if stopped := queue.inactive or queues.stopped(workload.namespace, workload.queue):
        reason = f"queue {queue.name} admits nothing: {stopped}"
        return reason, "mend what it names; Kueue then takes it up by itself"
    if words := queues.shut_out(workload.namespace, queue.name):
        return f"queue {queue.name} is not for it: {words}", "have the queue take the namespace, or name another queue"
    if workload.put_off:
        mend = "nothing to do until then" if workload.again else "mend what it names; Kueue then takes it up by itself"
        return workload.put_off, mend
    return None


def _telling(shares: list[Share]) -> list[Share]:
    """What holds it; where nothing does, all that was judged."""
    return [each for each in shares if each.leave not in {"own", "borrowing"}] or shares


def _line(first: list[Workload], *, complete: bool) -> str:
    """Who comes before it."""
    beyond = "" if complete else " that you may see"
    if not first:
        return f"nothing{beyond} is ahead of it in the queue"
    asked = listed(gpus(add(*(each.total for each in first))))
    return f"ahead of it{beyond}: {many(len(first), 'workload')} for {asked}: {named([each.label for each in first])}"


def _borrowers(queues: Queues, target: str, shares: list[Share]) -> Iterator[str]:
    for share in shares:
        borrowed = queues.tree.borrowers(target, (share.flavor, share.resource))
        if share.leave in {"reclaiming", "others"} and borrowed:
            who = named([f"{name} {said(share.resource, much)}" for name, much in borrowed.items()])
            yield f"who borrows {share.flavor} {share.resource} now: {who}"
