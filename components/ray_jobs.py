"""RayJobs of KubeRay: a Ray cluster of a head and groups of workers, which runs one Ray job and ends with it."""

import shlex
from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from gpu_tenancy.model.plan.multikueue import CONTROLLER
from gpu_tenancy.model.plan.workloads import JobPlan, RolePlan
from gpu_tenancy.model.spec.roles import RAY_JOB

from .conventions import NAME, labels_of
from .pods import container, pod_spec, template_metadata
from .wire import wire


def ray_job(name: str, job: JobPlan, opts: pulumi.ResourceOptions) -> CustomResource:
    """A RayJob whose Ray job KubeRay submits to the head by HTTP.

    In the other modes, a pod or container of its own submits it: Kueue counts that too, and KubeRay makes the container
    without the security context that namespaces of teams require.
    https://github.com/ray-project/kuberay/blob/v1.6.2/ray-operator/apis/ray/v1/rayjob_types.go
    """
    spec: dict[str, Any] = {
        "entrypoint": shlex.join(job.entrypoint),
        "submissionMode": "HTTPMode",
        # Kueue requires it, and sets `suspend`.
        "shutdownAfterJobFinishes": True,
        "backoffLimit": job.retries,
        "rayClusterSpec": _cluster(job),
    }
    if job.deadline is not None:
        spec["activeDeadlineSeconds"] = job.deadline
    if job.dispatched:
        spec["managedBy"] = CONTROLLER
    return CustomResource(
        name,
        api_version=RAY_JOB[0],
        kind=RAY_JOB[1],
        metadata={"name": job.name, "namespace": job.team, "labels": labels_of(job)},
        spec=spec,
        opts=opts,
    )


def _cluster(job: JobPlan) -> dict[str, Any]:
    head, *workers = job.roles
    # Ray tasks run on the workers; a head with GPUs computes too.
    params = _start(head) if head.pod.gpus else {"num-cpus": "0"}
    return {
        "headGroupSpec": {"rayStartParams": params, "template": _template(job, head)},
        "workerGroupSpecs": [
            {
                "groupName": role.name,
                "replicas": role.pods,
                "minReplicas": role.pods,
                "maxReplicas": role.pods,
                "rayStartParams": _start(role),
                "template": _template(job, role),
            }
            for role in workers
        ],
    }


def _start(role: RolePlan) -> dict[str, str]:
    """Ray's resources of a pod. KubeRay takes CPUs and memory from the limits, and GPUs of some vendors only."""
    return {"num-gpus": str(role.pod.gpus)}


def _template(job: JobPlan, role: RolePlan) -> dict[str, Any]:
    return {
        "metadata": wire(template_metadata(role.pod, {NAME: job.name})),
        "spec": wire(pod_spec(role.pod, container(role.pod, "ray"))),
    }
