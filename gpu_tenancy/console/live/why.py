"""Why an object is pending: follows it from the queue to the nodes, up to what blocks it."""

from typing import Final

from gpu_tenancy.console.live import narrative
from gpu_tenancy.console.live.demand import QUEUE_LABEL
from gpu_tenancy.console.live.gangs import gang_queues, judge_gang, messages
from gpu_tenancy.console.live.pods import called, home, requests
from gpu_tenancy.console.live.queues import Queues
from gpu_tenancy.console.live.reading import Kind, State
from gpu_tenancy.console.live.running import blocked_pods, rejected_pods, running
from gpu_tenancy.console.live.target import Target
from gpu_tenancy.console.live.verdicts import Why
from gpu_tenancy.console.live.waiting import queued
from gpu_tenancy.console.offline.wire import at, text_at

KINDS: Final[tuple[Kind, ...]] = (
    "AdmissionCheck", "ClusterQueue", "Cohort", "LocalQueue", "Namespace", "Node", "Pod", "PodGroup", "Queue",
    "ResourceFlavor", "Workload",
)  # fmt: skip
OWN: Final[tuple[Kind, ...]] = ("Event", "PersistentVolumeClaim")
_FIRST: Final = ("waiting", "switched off", "checked", "admitted", "finished")


def why(target: Target, state: State) -> Why:
    """Follows one object from its queue to its pods."""
    if target.outcome:
        return Why(target.title, (), narrative.ended(target.outcome), "", waits=False)
    if target.groups or target.demand.gang is not None:
        return _gang(target, state)
    queues = Queues(state)
    if target.workloads:
        workload = min(target.workloads, key=lambda workload: _FIRST.index(workload.stage))
        return queued(target, queues, workload)
    if not _has_kueue(state):
        return running(target, state, (narrative.NO_KUEUE,))
    return _unqueued(target, queues)


def _has_kueue(state: State) -> bool:
    """Whether the cluster has Kueue, even if the user may not read its objects."""
    missing = state.missing.get("LocalQueue")
    return missing is None or bool(missing.who)


def _unqueued(target: Target, queues: Queues) -> Why:
    """The object has no Workload."""
    state, namespace = queues.state, home(target.manifest)
    own = queues.homes.get(namespace, {})
    placed = [pod for pod in target.pods if text_at(pod, "spec", "nodeName")]
    if "Workload" in state.missing and not state.of("Workload", namespace):
        return running(target, state, (narrative.missing_text(state.missing["Workload"]),))
    if placed or blocked_pods(target.pods, state):
        return running(target, state, ("no Workload: Kueue does not manage it",))
    if not target.queue:
        label = f"{QUEUE_LABEL}={min(own) if own else '<a LocalQueue>'}"
        return Why(target.title, (), "not queued: no queue label", f"add the label {label}")
    if target.queue not in own:
        reason = f"not queued: {narrative.no_local_queue(target.queue, namespace)}"
        return Why(target.title, (), reason, narrative.known_queues(target.queue, own))
    rejected = (f"pod rejected: {message}" for message in rejected_pods(target, state))
    lines = (f"queue label: LocalQueue {target.queue} (ClusterQueue {own[target.queue]})", *rejected)
    if queues.uncounted:
        return running(target, state, (*lines, narrative.KUEUE_NOT_RUNNING))
    return Why(
        target.title,
        lines,
        "not queued yet: Kueue has not created a Workload for it",
        "check that the Kueue controller is running, and that it manages this kind and this namespace",
    )


def _gang(target: Target, state: State) -> Why:
    """Volcano schedules the object."""
    name = text_at(target.groups[0], "spec", "queue") if target.groups else target.demand.gang or "default"
    lines = [f"gang in Volcano queue {name}: all pods start together"]
    for group in target.groups:
        phase = text_at(group, "status", "phase") or "no phase yet"
        lines.append(f"PodGroup {called(group)}: {phase}, minMember {at(group, 'spec', 'minMember')}")
        lines += messages(group)
    if any(text_at(group, "status", "phase") == "Running" for group in target.groups):
        return running(target, state, tuple(lines))
    pods = [(requests(template.spec), template.count) for template in target.demand.templates]
    queues = gang_queues(state.of("Queue"), state.of("PodGroup"), state.of("Pod"))
    if not target.groups and queues and not any(queue.counted for queue in queues):
        lines.append("Volcano has not reported usage for any queue: its controller is not running")
    answer = judge_gang(queues, name, pods)
    lines += answer.lines if state.knows("Queue") else [narrative.missing_text(state.missing["Queue"])]
    blocked = blocked_pods(target.pods, state)
    if answer.verdict == "never" and state.knows("Queue"):
        reason = f"its queue can never admit it: {answer.lines[0]}"
        return Why(target.title, tuple(lines), reason, "request less, or raise the capability of the queue")
    if answer.verdict == "later" and state.knows("Queue"):
        reason = f"its queue is at capacity: {answer.lines[0]}"
        return Why(target.title, tuple(lines), reason, "wait until other gangs of the team end")
    if blocked:
        return Why(target.title, (*lines, *blocked.lines), blocked.reason, blocked.fix)
    if not target.groups:
        reason = "Volcano has not created a PodGroup for it"
        return Why(target.title, tuple(lines), reason, "check that the Volcano controller is running")
    reason = "no capacity for all pods of the gang at the same time"
    return Why(target.title, tuple(lines), reason, "wait for nodes; the gang starts as a whole")
