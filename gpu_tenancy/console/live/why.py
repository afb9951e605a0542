"""What a job waits for: followed from the queue to the nodes, until something holds it."""

from typing import Final

from gpu_tenancy.console.live.gangs import gang_queues, judge_gang, messages
from gpu_tenancy.console.live.pods import called, home, requests
from gpu_tenancy.console.live.queues import Queues
from gpu_tenancy.console.live.reading import Kind, State
from gpu_tenancy.console.live.running import held_pods, refused_pods, running
from gpu_tenancy.console.live.subject import Subject
from gpu_tenancy.console.live.verdicts import Why
from gpu_tenancy.console.live.waiting import queued
from gpu_tenancy.console.offline.wire import at, text_at
from gpu_tenancy.model.problems import nearest

KINDS: Final[tuple[Kind, ...]] = (
    "AdmissionCheck", "ClusterQueue", "Cohort", "LocalQueue", "Namespace", "Node", "Pod", "PodGroup", "Queue",
    "ResourceFlavor", "Workload",
)  # fmt: skip
OWN: Final[tuple[Kind, ...]] = ("Event", "PersistentVolumeClaim")
_FIRST: Final = ("waiting", "switched off", "checked", "admitted", "finished")


def why(subject: Subject, state: State) -> Why:
    """Follows one object from its queue to its pods."""
    if subject.outcome:
        return Why(subject.title, (), f"it does not wait: it ended ({subject.outcome})", "", waits=False)
    if subject.groups or subject.demand.gang is not None:
        return _gang(subject, state)
    queues = Queues(state)
    if subject.workloads:
        workload = min(subject.workloads, key=lambda each: _FIRST.index(each.stage))
        return queued(subject, queues, workload)
    if not _queueing(state):
        return running(subject, state, ("Kueue is not installed: nothing waits in a queue",))
    return _unqueued(subject, queues)


def _queueing(state: State) -> bool:
    """Whether the cluster has Kueue, even if the user may not look."""
    missing = state.missing.get("LocalQueue")
    return missing is None or bool(missing.who)


def _unqueued(subject: Subject, queues: Queues) -> Why:
    """There is no Workload for it."""
    state, namespace = queues.state, home(subject.manifest)
    own = queues.homes.get(namespace, {})
    placed = [each for each in subject.pods if text_at(each, "spec", "nodeName")]
    if "Workload" in state.missing and not state.of("Workload", namespace):
        return running(subject, state, (str(state.missing["Workload"]),))
    if placed or held_pods(subject.pods, state):
        return running(subject, state, ("it has no Workload: Kueue does not hold it",))
    if not subject.queue:
        label = f"kueue.x-k8s.io/queue-name={min(own) if own else '<a LocalQueue>'}"
        return Why(subject.title, (), "it is not queued at all: it names no queue", f"put the label {label} on it")
    if subject.queue not in own:
        known = nearest(subject.queue, own) if own else "the namespace has no LocalQueue: ask for one"
        return Why(subject.title, (), f"it is not queued: there is no LocalQueue {subject.queue} in {namespace}", known)
    found = (f"it names LocalQueue {subject.queue} (ClusterQueue {own[subject.queue]})", *refused_pods(subject, state))
    if queues.uncounted:
        return running(subject, state, (*found, "Kueue has counted none of the queues: it does not run here"))
    return Why(
        subject.title,
        found,
        "it is not queued yet: Kueue has made no Workload for it",
        "see that Kueue's controller runs, and that it takes in this kind and this namespace",
    )


def _gang(subject: Subject, state: State) -> Why:
    """Volcano starts it, all at once."""
    name = text_at(subject.groups[0], "spec", "queue") if subject.groups else subject.demand.gang or "default"
    found = [f"Volcano starts it, from queue {name}"]
    for group in subject.groups:
        least = at(group, "spec", "minMember")
        phase = text_at(group, "status", "phase") or "not looked at yet"
        found.append(f"PodGroup {called(group)}: {phase}, at least {least} pods at once")
        found += messages(group)
    if any(text_at(each, "status", "phase") == "Running" for each in subject.groups):
        return running(subject, state, tuple(found))
    pods = [(requests(each.spec), each.count) for each in subject.demand.templates]
    queues = gang_queues(state.of("Queue"), state.of("PodGroup"), state.of("Pod"))
    if not subject.groups and queues and not any(each.counted for each in queues):
        found.append("Volcano has counted none of its queues: it does not run here")
    answer = judge_gang(queues, name, pods)
    found += answer.words if state.knows("Queue") else [str(state.missing["Queue"])]
    held = held_pods(subject.pods, state)
    if answer.verdict != "now" and state.knows("Queue"):
        reason = "its queue can never take it" if answer.verdict == "never" else "its queue is full"
        mend = (
            "ask for less, or have capability raised"
            if answer.verdict == "never"
            else "wait until other gangs of the team end"
        )
        return Why(subject.title, tuple(found), f"{reason}: {answer.words[0]}", mend)
    if held:
        return Why(subject.title, (*found, *held.words), held.reason, held.mend)
    if not subject.groups:
        return Why(
            subject.title, tuple(found), "Volcano has made no PodGroup for it", "see that Volcano's controller runs"
        )
    return Why(
        subject.title,
        tuple(found),
        "Volcano has not found room for all of its pods at once",
        "wait for nodes; the gang starts whole",
    )
