"""Jobs of a queue: the object of each kind, and Jobs of Kubernetes themselves."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from gpu_tenancy.model.manifests.job_objects import deadline_of, job_object, pod_template, policy_of_failures
from gpu_tenancy.model.manifests.job_sets import job_set
from gpu_tenancy.model.manifests.labels import VOLCANO
from gpu_tenancy.model.manifests.leader_worker_sets import leader_worker_set
from gpu_tenancy.model.manifests.ray_jobs import ray_job
from gpu_tenancy.model.manifests.train_jobs import train_job
from gpu_tenancy.model.names import GROUP_MINIMUM
from gpu_tenancy.model.plan.workloads import JobPlan
from gpu_tenancy.model.spec.roles import KINDS

_ELASTIC: Final = {"kueue.x-k8s.io/job-completions-equal-parallelism": "true"}
_MINIMUM: Final = "kueue.x-k8s.io/job-min-parallelism"
"""Annotations by which Kueue admits a Job with fewer pods, and of which each one has an index below their number:
https://kueue.sigs.k8s.io/docs/tasks/run/jobs/#partial-admission."""


def job_manifest(job: JobPlan) -> dict[str, Any]:
    """The object of a job in a team's queue: a Job, JobSet, TrainJob, RayJob or LeaderWorkerSet."""
    return _BUILDERS[KINDS[job.framework].api[1]](job)


def _job(job: JobPlan) -> dict[str, Any]:
    """A Job. With `gang`, Kueue admits it to the quota, and Volcano then schedules its pods together."""
    template = pod_template(job, job.roles[-1], "train")
    template["spec"]["restartPolicy"] = "Never"
    if job.gang:
        template["spec"]["schedulerName"] = VOLCANO
    spec = {
        "parallelism": job.workers,
        "completions": job.workers,
        "completionMode": "Indexed",
        "backoffLimit": job.retries,
        "podFailurePolicy": policy_of_failures("Ignore"),
        "ttlSecondsAfterFinished": job.keep,
        "template": template,
        **deadline_of(job),
    }
    made = job_object(job, spec)
    gang = {GROUP_MINIMUM: str(job.workers)} if job.gang else {}
    elastic = {**_ELASTIC, _MINIMUM: str(job.least)} if job.least else {}
    if annotations := gang | elastic:
        made["metadata"]["annotations"] = annotations
    return made


_BUILDERS: Final[Mapping[str, Callable[[JobPlan], dict[str, Any]]]] = {
    "Job": _job,
    "JobSet": job_set,
    "LeaderWorkerSet": leader_worker_set,
    "RayJob": ray_job,
    "TrainJob": train_job,
}
"""What makes an object, by its kind."""
