"""Jobs of a queue: the object of each kind, and Jobs of Kubernetes themselves."""

import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

from gpu_tenancy.model.manifests import job_sets
from gpu_tenancy.model.manifests.pods import NAME, VOLCANO, container, pod_spec, template_metadata
from gpu_tenancy.model.names import GROUP_MINIMUM
from gpu_tenancy.model.plan.workloads import GANG, JobPlan, RolePlan
from gpu_tenancy.model.spec.roles import KINDS


def _leader_worker_set(job: JobPlan) -> dict[str, Any]:
    """A LeaderWorkerSet. Kueue makes a Workload for each group, and all pods of a group restart together.

    https://github.com/kubernetes-sigs/lws/blob/v0.9.0/api/leaderworkerset/v1/leaderworkerset_types.go
    """
    size = sum(role.pods for role in job.roles)
    templates = [job_sets.pod_template(job, role, "train") for role in job.roles]
    return job_sets.job_object(job, {"replicas": job.groups, "leaderWorkerTemplate": group_template(size, *templates)})


def group_template(size: int, leader: dict[str, Any], worker: dict[str, Any]) -> dict[str, Any]:
    """The pods of each group: if one fails, all restart, because they wait for each other."""
    return {
        "size": size,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": leader,
        "workerTemplate": worker,
    }


def _ray_job(job: JobPlan) -> dict[str, Any]:
    """A RayJob whose Ray job KubeRay submits to the head by HTTP.

    In the other modes, a submitter pod or container adds to Kueue's count, and KubeRay makes the container without the
    security context that namespaces of teams require.
    https://github.com/ray-project/kuberay/blob/v1.6.2/ray-operator/apis/ray/v1/rayjob_types.go
    """
    spec = {
        "entrypoint": shlex.join(job.entrypoint),
        "submissionMode": "HTTPMode",
        # Kueue requires it, and sets `suspend`.
        "shutdownAfterJobFinishes": True,
        "backoffLimit": job.retries,
        "rayClusterSpec": _cluster(job),
        **job_sets.deadline_of(job),
    }
    return job_sets.job_object(job, spec)


def _cluster(job: JobPlan) -> dict[str, Any]:
    head, *workers = job.roles
    # Ray tasks run on the workers; a head with GPUs computes too.
    params = _start(head) if head.pod.gpus else {"num-cpus": "0"}
    return {
        "headGroupSpec": {"rayStartParams": params, "template": job_sets.pod_template(job, head, "ray")},
        "workerGroupSpecs": [
            {
                "groupName": role.name,
                "replicas": role.pods,
                "minReplicas": role.pods,
                "maxReplicas": role.pods,
                "rayStartParams": _start(role),
                "template": job_sets.pod_template(job, role, "ray"),
            }
            for role in workers
        ],
    }


def _start(role: RolePlan) -> dict[str, str]:
    """Ray's resources of a pod. KubeRay takes CPUs and memory from the limits, and GPUs of some vendors only."""
    return {"num-gpus": str(role.pod.gpus)}


_ELASTIC: Final = {"kueue.x-k8s.io/job-completions-equal-parallelism": "true"}
_MINIMUM: Final = "kueue.x-k8s.io/job-min-parallelism"
"""Annotations by which Kueue admits a Job with fewer pods and lowers its completions, so that each pod has an index
below their number: https://kueue.sigs.k8s.io/docs/tasks/run/jobs/#partial-admission."""


def job_manifest(job: JobPlan) -> dict[str, Any]:
    """The object of a job in a team's queue: a Job, JobSet, TrainJob, RayJob or LeaderWorkerSet."""
    return _BUILDERS[KINDS[job.framework].api[1]](job)


def _job(job: JobPlan) -> dict[str, Any]:
    """A Job. With `gang`, Kueue admits it to the quota, and Volcano then schedules its pods together."""
    template = job_sets.pod_template(job, job.roles[-1], "train")
    template["spec"]["restartPolicy"] = "Never"
    if job.gang:
        template["spec"]["schedulerName"] = VOLCANO
    spec = {
        "parallelism": job.workers,
        "completions": job.workers,
        "completionMode": "Indexed",
        "backoffLimit": job.retries,
        "podFailurePolicy": job_sets.policy_of_failures("Ignore"),
        "template": template,
        **job_sets.deletion_of(job),
        **job_sets.deadline_of(job),
    }
    made = job_sets.job_object(job, spec)
    gang = {GROUP_MINIMUM: str(job.workers)} if job.gang else {}
    elastic = {**_ELASTIC, _MINIMUM: str(job.least)} if job.least else {}
    if annotations := gang | elastic:
        made["metadata"]["annotations"] = annotations
    return made


_BUILDERS: Final[Mapping[str, Callable[[JobPlan], dict[str, Any]]]] = {
    "Job": _job,
    "JobSet": job_sets.job_set,
    "LeaderWorkerSet": _leader_worker_set,
    "RayJob": _ray_job,
    "TrainJob": job_sets.train_job,
}


def gang_manifest(gang: JobPlan) -> dict[str, Any]:
    """A Volcano Job: all pods of all of its tasks start together, or none."""
    # A Volcano Job has no field for a deadline, so each of its pods has it.
    end = {"restartPolicy": "OnFailure", **job_sets.deadline_of(gang)}
    spec: dict[str, Any] = {
        "schedulerName": VOLCANO,
        "queue": gang.queue,
        "minAvailable": sum(role.pods for role in gang.roles),
        "maxRetry": gang.retries,
        # The pods address each other by host name and wait for each other, so if one is lost, all must restart.
        "plugins": {"env": [], "svc": []},
        "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
        "tasks": [
            {
                "name": role.name,
                "replicas": role.pods,
                # Volcano's webhook sets the default only on create, and rejects an update without it.
                "maxRetry": gang.retries,
                "template": {
                    "metadata": template_metadata(role.pod, {NAME: gang.name}),
                    "spec": {**pod_spec(role.pod, container(role.pod, "train")), **end},
                },
            }
            for role in gang.roles
        ],
        **({"priorityClassName": gang.pod.priority} if gang.pod.priority else {}),
    }
    return {
        "apiVersion": GANG[0],
        "kind": GANG[1],
        "metadata": {"name": gang.name, "namespace": gang.team, "labels": {NAME: gang.name}},
        "spec": spec,
    }
