"""Why an object is pending: follows it from the queue to the nodes, up to what blocks it."""

from typing import Final

from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.inspect.demand import QUEUE_LABEL
from gpu_tenancy.inspect.gangs import gang_queues, judge_gang, messages
from gpu_tenancy.inspect.pods import called, home, requests
from gpu_tenancy.inspect.queues import KUEUE_NOT_RUNNING, NO_KUEUE, Queues
from gpu_tenancy.inspect.reading import Kind, State
from gpu_tenancy.inspect.running import Why, blocked_pods, rejected_pods, running
from gpu_tenancy.inspect.target import Target
from gpu_tenancy.inspect.waiting import queued

KINDS: Final[tuple[Kind, ...]] = (
    "AdmissionCheck", "ClusterQueue", "ClusterTrainingRuntime", "Cohort", "LocalQueue", "Namespace", "Node", "Pod",
    "PodGroup", "Queue", "ResourceFlavor", "Workload",
)  # fmt: skip
OWN: Final[tuple[Kind, ...]] = ("Dataset", "Event", "PersistentVolumeClaim", "TrainingRuntime")
_FIRST: Final = ("waiting", "switched off", "checked", "admitted", "finished")


def why(target: Target, state: State) -> Why:
    """Follows one object from its queue to its pods."""
    if target.outcome:
        return Why(target.title, (), f"not pending: ended ({target.outcome})", "", waits=False)
    if target.groups or target.demand.gang is not None:
        return _gang(target, state)
    queues = Queues(state)
    if target.workloads:
        workload = min(target.workloads, key=lambda workload: _FIRST.index(workload.stage))
        return queued(target, queues, workload)
    if not _has_kueue(state):
        return running(target, state, (NO_KUEUE,))
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
        return running(target, state, (state.missing["Workload"].text,))
    if placed or blocked_pods(target.pods, state):
        return running(target, state, ("no Workload: Kueue does not manage it",))
    if not target.queue:
        return Why(
            target.title,
            (),
            "not queued: no queue label",
            f"add the label {QUEUE_LABEL}={min(own, default='<a LocalQueue>')}",
        )
    if target.queue not in own:
        reason, fix = queues.unknown_local(namespace, target.queue)
        return Why(target.title, (), f"not queued: {reason}", fix)
    rejected = (f"pod rejected: {message}" for message in rejected_pods(target, state))
    lines = (f"queue label: LocalQueue {target.queue} (ClusterQueue {own[target.queue]})", *rejected)
    if queues.uncounted:
        return running(target, state, (*lines, KUEUE_NOT_RUNNING))
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
        phase, members = text_at(group, "status", "phase"), at(group, "spec", "minMember")
        lines.append(f"PodGroup {called(group)}: {phase or 'no phase yet'}, minMember {members}")
        lines += messages(group)
    if any(text_at(group, "status", "phase") == "Running" for group in target.groups):
        return running(target, state, tuple(lines))
    pods = [(requests(template.spec), template.count) for template in target.demand.templates]
    queues = gang_queues(state.of("Queue"), state.of("PodGroup"), state.of("Pod"))
    if not target.groups and queues and not any(queue.counted for queue in queues):
        lines.append("Volcano has not reported usage for any queue: its controller is not running")
    answer, known = judge_gang(queues, name, pods), state.knows("Queue")
    lines += answer.lines if known else [state.missing["Queue"].text]
    blocked = blocked_pods(target.pods, state)
    if known and answer.verdict == "never":
        reason = f"its queue can never admit it: {answer.lines[0]}"
        fix = "request less, or raise the capability of the queue"
    elif known and answer.verdict == "later":
        reason, fix = f"its queue is at capacity: {answer.lines[0]}", "wait until other gangs of the team end"
    elif blocked:
        lines += blocked.lines
        reason, fix = blocked.reason, blocked.fix
    elif target.groups:
        reason = "no capacity for all pods of the gang at the same time"
        fix = "wait for nodes; the gang starts as a whole"
    else:
        reason, fix = "Volcano has not created a PodGroup for it", "check that the Volcano controller is running"
    return Why(target.title, tuple(lines), reason, fix)
