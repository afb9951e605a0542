"""RayJobs: a Ray cluster, and the command that it runs."""

import shlex
from typing import Any

from gpu_tenancy.model.manifests.job_objects import deadline_of, job_object, pod_template
from gpu_tenancy.model.plan.workloads import JobPlan, RolePlan


def ray_job(job: JobPlan) -> dict[str, Any]:
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
    return job_object(job, spec)


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
