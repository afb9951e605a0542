"""Labels, annotations, API versions and kinds of objects that several components use, and their form on the wire."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final, cast

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pydantic.alias_generators import to_camel

from gpu_tenancy.model.plan.workloads import JobPlan

QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Label that sends a workload through a LocalQueue: https://kueue.sigs.k8s.io/docs/reference/labels-and-annotations/"""
QUEUE_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
"""Label that gives a workload its WorkloadPriorityClass."""
NAME: Final = "app.kubernetes.io/name"
"""Label by which a workload's Service and other objects select its pods."""
PART_OF: Final = "app.kubernetes.io/part-of"
"""Label by which the Service of a server with a burst selects the pods of both."""
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
"""API version of Kueue's objects; v1beta1 is deprecated."""
VOLCANO: Final = "volcano"
"""Name of Volcano's scheduler."""
GROUP_MINIMUM: Final = "scheduling.volcano.sh/group-min-member"
"""Annotation of a Job that Volcano schedules: the minimum number of pods that must fit before any of them starts.
Volcano's podgroup controller reads it: https://github.com/volcano-sh/volcano/tree/master/pkg/controllers/podgroup."""
STAYS: Final = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""Annotations of pods by which node autoscalers do not evict them: Cluster Autoscaler, which GKE and AKS run too, and
Karpenter. They stop no preemption by Kueue, no upgrade of a node and no repair (read 2026-11-24):
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#what-types-of-pods-can-prevent-ca-from-removing-a-node,
https://karpenter.sh/docs/concepts/disruption/#pod-level-controls."""
DO_NOT_AWAIT: Final = {"pulumi.com/skipAwait": "true"}
"""Annotation of workloads that can stay pending in a queue: a deployment does not wait until they run."""


_RUN_TIME: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""Label after which Kueue stops a workload, counted over all of its admissions:
https://kueue.sigs.k8s.io/docs/concepts/workload/#maximum-execution-time."""
MARGIN: Final = 60
"""Seconds by which a job's own deadline, which tells users why it failed, comes before Kueue's."""


def labels_of(job: JobPlan) -> dict[str, str]:
    """Labels of a job in a queue. Its own deadline begins again after a preemption or restart, Kueue's does not."""
    end = {_RUN_TIME: str(job.deadline + MARGIN)} if job.deadline is not None else {}
    return {NAME: job.name, **queued(job.queue, job.pod.priority), **end}


def queued(queue: str, priority: str | None) -> dict[str, str]:
    """Labels of a workload that is submitted to a queue."""
    return {QUEUE: queue, **({QUEUE_PRIORITY: priority} if priority else {})}


def kueue_object(  # noqa: PLR0913 - what an object has
    name: str,
    kind: str,
    called: str,
    spec: Mapping[str, Any],
    opts: pulumi.ResourceOptions,
    *,
    annotations: dict[str, str] | None = None,
) -> CustomResource:
    """A cluster-scoped object of Kueue with the name `called`."""
    metadata: ObjectMetaArgsDict = {"name": called}
    if annotations:
        metadata["annotations"] = annotations
    return CustomResource(name, api_version=KUEUE, kind=kind, metadata=metadata, spec=spec, opts=opts)


def admission_check(
    name: str, check: str, controller: str, config_kind: str, opts: pulumi.ResourceOptions
) -> CustomResource:
    """The AdmissionCheck of a controller, with the config of its own kind and the same name."""
    parameters = {"apiGroup": KUEUE.partition("/")[0], "kind": config_kind, "name": check}
    return kueue_object(name, "AdmissionCheck", check, {"controllerName": controller, "parameters": parameters}, opts)


def fair_sharing(weight: float | None) -> dict[str, Any]:
    """The weight of a Cohort, ClusterQueue or LocalQueue, as part of its spec; empty for None."""
    return {} if weight is None else {"fairSharing": {"weight": f"{weight:g}"}}


class PlainObject(pulumi.CustomResource):
    """An object of a kind that an operator defines, such as Kueue's WorkloadPriorityClass.

    Example:
        >>> PlainObject("low", "kueue.x-k8s.io/v1beta2", "WorkloadPriorityClass", {"metadata": {...}, "value": 1}, opts)
    """

    def __init__(
        self, name: str, api_version: str, kind: str, fields: Mapping[str, Any], opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__(
            f"kubernetes:{api_version}:{kind}",
            name,
            {"apiVersion": api_version, "kind": kind, **fields},
            pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(version=version("pulumi-kubernetes"))),
        )


_OWN_KEYS: Final = frozenset({"annotations", "labels", "limits", "match_labels", "node_selector", "requests"})
"""Fields whose value is a map with keys of the user's choice."""


def wire(piece: Any) -> Any:
    """Converts the snake_case keys of an SDK's `…ArgsDict` to the API's camelCase.

    Keys of the user's choice, such as label keys, are unchanged.
    """
    if isinstance(piece, Mapping):
        found = cast("Mapping[str, Any]", piece)
        return {_key(key): dict(value) if key in _OWN_KEYS else wire(value) for key, value in found.items()}
    if isinstance(piece, list):
        return [wire(item) for item in cast("list[Any]", piece)]
    return piece


def _key(key: str) -> str:
    return to_camel(key.removesuffix("_"))
