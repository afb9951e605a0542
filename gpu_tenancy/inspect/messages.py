"""What controllers say of an object in their own words, and what Kueue's words about a preemption mean."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from gpu_tenancy.base.json import text_at
from gpu_tenancy.inspect.gangs import messages
from gpu_tenancy.inspect.pods import name_of
from gpu_tenancy.inspect.queues import Queues
from gpu_tenancy.inspect.reading import State
from gpu_tenancy.inspect.running import Why, rejected_pods
from gpu_tenancy.inspect.target import Target
from gpu_tenancy.inspect.workloads import Workload
from gpu_tenancy.kube.waiting import condition

_PREEMPTOR: Final = re.compile(r"workload \(UID: ([^,)]+),.*preemptor path: \S*/([^/;\s]+);")
"""Kueue's words about who preempts: `preemptionMessage` in
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go"""
_CAUSES: Final = {
    "InClusterQueue": "which has a higher priority in the same queue",
    "InCohortReclamation": "which reclaims its guaranteed quota",
    "InCohortFairSharing": "by fair sharing",
    "InCohortReclaimWhileBorrowing": "which has a higher priority and borrows",
}


def messages_of(target: Target, state: State) -> Iterator[str]:
    """Conditions of its Workloads and PodGroups, the scheduler's words about its pods, and rejections of pods."""
    for workload in target.workloads:
        for kind in ("QuotaReserved", "Evicted", "Admitted"):
            current = condition(workload.manifest, kind)
            blocks = text_at(current, "status") == ("True" if kind == "Evicted" else "False")
            if current and blocks and text_at(current, "message"):
                yield f"Kueue condition {kind} ({text_at(current, 'reason')}): {text_at(current, 'message')}"
    for group in target.groups:
        yield from messages(group)
    for pod in target.pods:
        placed = condition(pod, "PodScheduled")
        if text_at(placed, "status") == "False" and text_at(placed, "message"):
            yield f"pod {name_of(pod)}: {text_at(placed, 'message')}"
    for message in rejected_pods(target, state):
        yield f"pod rejected: {message}"


def after_preemption(found: Why, workload: Workload, queues: Queues) -> Why:
    """The answer about a workload that waits because it was preempted, with the name of who preempted it.

    Whoever may not read the preemptor learns its queue.
    """
    evicted = condition(workload.manifest, "Evicted")
    if not found.waits or text_at(evicted, "status") != "True" or text_at(evicted, "reason") != "Preempted":
        return found
    words = _PREEMPTOR.search(text_at(evicted, "message"))
    uid, queue = words.groups() if words else ("", "")
    label = next((each.label for each in queues.workloads if text_at(each.manifest, "metadata", "uid") == uid), "")
    who = label or (f"a workload of queue {queue}" if queue else "another workload")
    cause = _CAUSES.get(text_at(condition(workload.manifest, "Preempted"), "reason"), "")
    reason = f"preempted by {who}{f', {cause}' if cause else ''}; now {found.reason}"
    return replace(found, reason=reason)
