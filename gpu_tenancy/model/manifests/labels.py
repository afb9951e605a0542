"""Labels and annotations of workloads."""

from typing import Final

from gpu_tenancy.model.names import PRIORITY_LABEL, QUEUE_LABEL, USER
from gpu_tenancy.model.plan.workloads import JobPlan

NAME: Final = "app.kubernetes.io/name"
"""Label by which a workload's Service and other objects select its pods."""
PART_OF: Final = "app.kubernetes.io/part-of"
"""Label by which the Service of a server with a burst selects the pods of both."""
COMPONENT: Final = "app.kubernetes.io/component"
"""Label of the pods of a group with their role, by which a server's Service selects the leaders:
https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/."""
VOLCANO: Final = "volcano"
"""Name of Volcano's scheduler."""
STAYS: Final = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""Annotations of pods by which node autoscalers do not evict them: Cluster Autoscaler, which GKE and AKS run too, and
Karpenter. They stop no preemption by Kueue, no upgrade of a node and no repair (read 2026-11-24):
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#what-types-of-pods-can-prevent-ca-from-removing-a-node,
https://karpenter.sh/docs/concepts/disruption/#pod-level-controls."""
_RUN_TIME: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""Label after which Kueue stops a workload, counted over all of its admissions:
https://kueue.sigs.k8s.io/docs/concepts/workload/#maximum-execution-time."""
MARGIN: Final = 60
"""Seconds by which a job's own deadline, which tells users why it failed, comes before Kueue's."""


def labels_of(job: JobPlan) -> dict[str, str]:
    """Labels of a job in a queue. Its own deadline begins again after a preemption or restart, Kueue's does not."""
    end = {_RUN_TIME: str(job.deadline + MARGIN)} if job.deadline is not None else {}
    whose = {USER: job.user} if job.user else {}
    return {**pod_labels(job), **queued(job.queue, job.pod.priority), **whose, **end}


def pod_labels(job: JobPlan) -> dict[str, str]:
    """Labels of the pods of a job.

    What a person submits has no name here: it can be that of a server of the team, whose Service would send requests.
    """
    return {} if job.user is not None else {NAME: job.name}


def queued(queue: str, priority: str | None) -> dict[str, str]:
    """Labels of a workload that is submitted to a queue."""
    return {QUEUE_LABEL: queue, **({PRIORITY_LABEL: priority} if priority else {})}
