"""Why an object is pending: follows it from the queue to the nodes, up to what blocks it."""

from typing import Final

from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.inspect import narrative
from gpu_tenancy.inspect.demand import QUEUE_LABEL
from gpu_tenancy.inspect.gangs import gang_queues, judge_gang, messages
from gpu_tenancy.inspect.pods import called, home, requests
from gpu_tenancy.inspect.queues import Queues
from gpu_tenancy.inspect.reading import Kind, State
from gpu_tenancy.inspect.running import blocked_pods, rejected_pods, running
from gpu_tenancy.inspect.target import Target
from gpu_tenancy.inspect.verdicts import Why
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
        return running(target, state, (narrative.NOT_MANAGED,))
    if not target.queue:
        return Why(target.title, (), *narrative.not_labelled(QUEUE_LABEL, own))
    if target.queue not in own:
        return Why(target.title, (), *narrative.not_queued(target.queue, namespace, own))
    rejected = (narrative.pod_rejected(message) for message in rejected_pods(target, state))
    lines = (narrative.queue_label(target.queue, own[target.queue]), *rejected)
    if queues.uncounted:
        return running(target, state, (*lines, narrative.KUEUE_NOT_RUNNING))
    return Why(target.title, lines, *narrative.NOT_QUEUED_YET)


def _gang(target: Target, state: State) -> Why:
    """Volcano schedules the object."""
    name = text_at(target.groups[0], "spec", "queue") if target.groups else target.demand.gang or "default"
    lines = [narrative.gang_place(name)]
    for group in target.groups:
        phase, members = text_at(group, "status", "phase"), at(group, "spec", "minMember")
        lines.append(narrative.pod_group_text(called(group), phase, members))
        lines += messages(group)
    if any(text_at(group, "status", "phase") == "Running" for group in target.groups):
        return running(target, state, tuple(lines))
    pods = [(requests(template.spec), template.count) for template in target.demand.templates]
    queues = gang_queues(state.of("Queue"), state.of("PodGroup"), state.of("Pod"))
    if not target.groups and queues and not any(queue.counted for queue in queues):
        lines.append(narrative.VOLCANO_NOT_RUNNING)
    answer = judge_gang(queues, name, pods)
    lines += answer.lines if state.knows("Queue") else [narrative.missing_text(state.missing["Queue"])]
    blocked = blocked_pods(target.pods, state)
    if answer.verdict == "never" and state.knows("Queue"):
        return Why(target.title, tuple(lines), *narrative.gang_never(answer.lines[0]))
    if answer.verdict == "later" and state.knows("Queue"):
        return Why(target.title, tuple(lines), *narrative.gang_later(answer.lines[0]))
    if blocked:
        return Why(target.title, (*lines, *blocked.lines), blocked.reason, blocked.fix)
    return Why(
        target.title, tuple(lines), *(narrative.NO_CAPACITY_FOR_GANG if target.groups else narrative.NO_POD_GROUP)
    )
