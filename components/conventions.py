"""What all components share: labels and annotations that other programs read."""

from typing import Final

QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Label that sends a workload through a LocalQueue: https://kueue.sigs.k8s.io/docs/reference/labels-and-annotations/"""
QUEUE_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
"""Label that gives a workload its WorkloadPriorityClass."""
NAME: Final = "app.kubernetes.io/name"
"""Label by which a workload's own objects find its pods."""
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
"""The version of Kueue's API; v1beta1 still answers but is on its way out."""
VOLCANO: Final = "volcano"
"""Name of Volcano's scheduler."""
GROUP_MINIMUM: Final = "scheduling.volcano.sh/group-min-member"
"""Annotation of a Job whose pods Volcano schedules: how many of them must fit before any starts; read in its podgroup
controller (https://github.com/volcano-sh/volcano/tree/master/pkg/controllers/podgroup)."""
DO_NOT_AWAIT: Final = {"pulumi.com/skipAwait": "true"}
"""Annotation for what a queue may hold back: whether it runs is the queue's business, not the deployment's."""


def queued(queue: str, priority: str | None) -> dict[str, str]:
    """Labels of a workload that goes through a queue."""
    return {QUEUE: queue, **({QUEUE_PRIORITY: priority} if priority else {})}
