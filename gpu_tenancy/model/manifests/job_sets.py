"""JobSets: one replicated Job for each role."""

from typing import Any

from gpu_tenancy.model.manifests.job_objects import deadline_of, job_object, policy_of_failures
from gpu_tenancy.model.manifests.labels import pod_labels
from gpu_tenancy.model.manifests.pods import container, pod_spec, template_metadata
from gpu_tenancy.model.plan.workloads import JobPlan, RolePlan


def job_set(job: JobPlan) -> dict[str, Any]:
    """A JobSet with one replicated Job for each role."""
    spec: dict[str, Any] = {"replicatedJobs": [_replicated(job, role) for role in job.roles], **policies(job)}
    if job.success:
        spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": list(job.success)}
    return job_object(job, spec)


def _replicated(job: JobPlan, role: RolePlan) -> dict[str, Any]:
    spec = job_of_role(job, role, pod_spec(role.pod, container(role.pod, "train")))
    return {"name": role.name, "replicas": 1, "template": {"spec": {**spec, **deadline_of(job)}}}


def job_of_role(job: JobPlan, role: RolePlan, pod: dict[str, Any]) -> dict[str, Any]:
    """The spec of one Job of a JobSet."""
    return {
        "completionMode": "Indexed",
        "parallelism": role.pods,
        "completions": role.pods,
        **failing(pod, template_metadata(role.pod, pod_labels(job))),
    }


def failing(pod: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    """A Job without retries of its own, because the JobSet restarts all Jobs: their pods exchange data.

    An evicted pod is another reason for its failure, so that the JobSet can tell the two apart.
    """
    return {
        "backoffLimit": 0,
        "podFailurePolicy": policy_of_failures("FailJob"),
        "template": {"metadata": metadata, "spec": {**pod, "restartPolicy": "Never"}},
    }


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
