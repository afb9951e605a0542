"""JobSets: roles with different pods that are queued, restarted and finished together."""

from typing import Any, Final

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.batch.v1 import JobSpecArgsDict, PodFailurePolicyOnPodConditionsPatternArgsDict
from pulumi_kubernetes.core.v1 import PodSpecArgsDict
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict

from gpu_tenancy.model.plan.workloads import JobPlan, RolePlan

from .conventions import NAME
from .job_objects import deadline_of, job_object
from .pods import container, pod_spec, template_metadata
from .wire import wire

EVICTED: Final[list[PodFailurePolicyOnPodConditionsPatternArgsDict]] = [{"type": "DisruptionTarget", "status": "True"}]
"""Condition of pods that are preempted or evicted, and did not fail by themselves:
https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions."""


def job_set(name: str, job: JobPlan, opts: pulumi.ResourceOptions) -> CustomResource:
    """A JobSet with one replicated Job for each role."""
    spec: dict[str, Any] = {"replicatedJobs": [_replicated(job, role) for role in job.roles], **policies(job)}
    if job.success:
        spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": list(job.success)}
    return job_object(name, job, spec, opts)


def _replicated(job: JobPlan, role: RolePlan) -> dict[str, Any]:
    spec = job_of_role(job, role, pod_spec(role.pod, container(role.pod, "train")))
    return {"name": role.name, "replicas": 1, "template": {"spec": {**spec, **deadline_of(job)}}}


def job_of_role(job: JobPlan, role: RolePlan, pod: PodSpecArgsDict) -> dict[str, Any]:
    """The spec of one Job of a JobSet."""
    return {
        "completionMode": "Indexed",
        "parallelism": role.pods,
        "completions": role.pods,
        **failing(pod, template_metadata(role.pod, {NAME: job.name})),
    }


def failing(pod: PodSpecArgsDict, metadata: ObjectMetaArgsDict) -> dict[str, Any]:
    """A Job without retries of its own, because the JobSet restarts all Jobs: their pods exchange data.

    An evicted pod is another reason for its failure, so that the JobSet can tell the two apart.
    """
    spec: JobSpecArgsDict = {
        "backoff_limit": 0,
        "pod_failure_policy": {"rules": [{"action": "FailJob", "on_pod_conditions": EVICTED}]},
        "template": {"metadata": metadata, "spec": {**pod, "restart_policy": "Never"}},
    }
    return wire(spec)


def policies(job: JobPlan) -> dict[str, Any]:
    """When a JobSet is restarted, when it fails, and when it is deleted. Evictions do not use up its retries.

    https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/api/jobset/v1alpha2/jobset_types.go
    """
    rules = [
        {
            "name": "evicted",
            "action": "RestartJobSetAndIgnoreMaxRestarts",
            "onJobFailureReasons": ["PodFailurePolicy"],
        },
        {"name": "deadline", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
    ]
    return {
        "failurePolicy": {"maxRestarts": job.retries, "rules": rules},
        "ttlSecondsAfterFinished": job.keep,
    }
