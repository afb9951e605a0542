"""Objects of jobs with a custom resource: what all kinds have in common, JobSets and RayJobs."""

import shlex
from typing import Any, Final

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.batch.v1 import JobSpecArgsDict, PodFailurePolicyOnPodConditionsPatternArgsDict
from pulumi_kubernetes.core.v1 import PodSpecArgsDict
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict

from gpu_tenancy.model.plan.multikueue import CONTROLLER
from gpu_tenancy.model.plan.workloads import JobPlan, RolePlan
from gpu_tenancy.model.spec.roles import KINDS

from .conventions import NAME, labels_of, wire
from .pods import container, pod_spec, template_metadata


def job_object(name: str, job: JobPlan, spec: dict[str, Any], opts: pulumi.ResourceOptions) -> CustomResource:
    """The object of a job's kind, in the team's queue. A manager of MultiKueue leaves it to a worker."""
    api_version, kind = KINDS[job.framework].api
    return CustomResource(
        name,
        api_version=api_version,
        kind=kind,
        metadata={"name": job.name, "namespace": job.team, "labels": labels_of(job)},
        spec={**spec, "managedBy": CONTROLLER} if job.dispatched else spec,
        opts=opts,
    )


def deadline_of(job: JobPlan) -> dict[str, int]:
    """The field of a spec with the maximum run time; empty without one."""
    return {} if job.deadline is None else {"activeDeadlineSeconds": job.deadline}


def pod_template(job: JobPlan, role: RolePlan, container_name: str) -> dict[str, Any]:
    """The pods of a role."""
    return {
        "metadata": wire(template_metadata(role.pod, {NAME: job.name})),
        "spec": wire(pod_spec(role.pod, container(role.pod, container_name))),
    }


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


def ray_job(name: str, job: JobPlan, opts: pulumi.ResourceOptions) -> CustomResource:
    """A RayJob whose Ray job KubeRay submits to the head by HTTP.

    In the other modes, a pod or container of its own submits it: Kueue counts that too, and KubeRay makes the container
    without the security context that namespaces of teams require.
    https://github.com/ray-project/kuberay/blob/v1.6.2/ray-operator/apis/ray/v1/rayjob_types.go
    """
    spec = {
        "entrypoint": shlex.join(job.entrypoint),
        "submissionMode": "HTTPMode",
        # Kueue requires it, and sets `suspend`.
        "shutdownAfterJobFinishes": True,
        "backoffLimit": job.retries,
        "rayClusterSpec": _cluster(job),
        **deadline_of(job),
    }
    return job_object(name, job, spec, opts)


def _cluster(job: JobPlan) -> dict[str, Any]:
    head, *workers = job.roles
    # Ray tasks run on the workers; a head with GPUs computes too.
    params = _start(head) if head.pod.gpus else {"num-cpus": "0"}
    return {
        "headGroupSpec": {"rayStartParams": params, "template": pod_template(job, head, "ray")},
        "workerGroupSpecs": [
            {
                "groupName": role.name,
                "replicas": role.pods,
                "minReplicas": role.pods,
                "maxReplicas": role.pods,
                "rayStartParams": _start(role),
                "template": pod_template(job, role, "ray"),
            }
            for role in workers
        ],
    }


def _start(role: RolePlan) -> dict[str, str]:
    """Ray's resources of a pod. KubeRay takes CPUs and memory from the limits, and GPUs of some vendors only."""
    return {"num-gpus": str(role.pod.gpus)}
