"""Batch work: a Job, JobSet, TrainJob, RayJob or LeaderWorkerSet through a queue, a gang through Volcano."""

from typing import Any, Final

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.batch.v1 import Job, JobSpecArgsDict
from pulumi_kubernetes.core.v1 import PodSpecArgsDict

from gpu_tenancy.model.names import COMPUTE_DOMAIN
from gpu_tenancy.model.plan.multikueue import CONTROLLER
from gpu_tenancy.model.plan.workloads import GANG, GangPlan, JobPlan, PodPlan
from gpu_tenancy.model.spec.roles import KINDS

from .conventions import DO_NOT_AWAIT, GROUP_MINIMUM, NAME, VOLCANO, labels_of, wire
from .job_objects import EVICTED, job_set, ray_job
from .leader_worker_sets import leader_worker_set
from .pods import container, pod_spec, template_metadata
from .train_jobs import train_job

_ELASTIC: Final = {"kueue.x-k8s.io/job-completions-equal-parallelism": "true"}
_MINIMUM: Final = "kueue.x-k8s.io/job-min-parallelism"
"""Annotations by which Kueue admits a Job with fewer pods, and of which each one has an index below their number:
https://kueue.sigs.k8s.io/docs/tasks/run/jobs/#partial-admission."""
_OBJECTS: Final = {
    "JobSet": (job_set, "job-set", "spec"),
    # The number of groups can change.
    "LeaderWorkerSet": (leader_worker_set, "leader-worker-set", "spec.leaderWorkerTemplate"),
    "RayJob": (ray_job, "ray-job", "spec"),
    "TrainJob": (train_job, "train-job", "spec"),
}
"""By kind: what makes its object, how its resource is named, and the field whose change replaces it."""


class TrainingJob(pulumi.ComponentResource):
    """A Job in a team's queue, or another kind of job, with its ComputeDomain if it has one.

    A TrainJob has a `TrainingRuntime` beside it.

    Kueue admits all pods together, or those of one group of a LeaderWorkerSet. It can be pending for a long time, so a
    deployment does not wait for it. The operators of the kinds are not installed here.

    Example:
        >>> TrainingJob("ml-research-nightly", plan(stack).teams[0].jobs[0])
    """

    def __init__(self, name: str, job: JobPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:TrainingJob", name, {}, opts)
        self.domain = (
            compute_domain(f"{name}-compute-domain", job, job.channels, _replaced_on_change(self))
            if job.channels
            else None
        )
        after = pulumi.ResourceOptions(depends_on=[self.domain] if self.domain else [])
        if job.framework == "job":
            own = pulumi.ResourceOptions(parent=self)
            self.job: pulumi.Resource = _job(f"{name}-job", job, pulumi.ResourceOptions.merge(own, after))
        else:
            build, suffix, field = _OBJECTS[KINDS[job.framework].api[1]]
            own = _replaced_on_change(self, field)
            self.job = build(f"{name}-{suffix}", job, pulumi.ResourceOptions.merge(own, after))


class GangJob(pulumi.ComponentResource):
    """A Volcano Job: all of its pods start together, or none.

    It uses quota of the team's Volcano queue, not of Kueue's, so that only one scheduler allocates each GPU. Volcano is
    not installed here.

    Example:
        >>> GangJob("ml-research-gang", plan(stack).teams[0].gangs[0])
    """

    def __init__(self, name: str, gang: GangPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:GangJob", name, {}, opts)
        self.job = _volcano_job(f"{name}-job", gang, _replaced_on_change(self))


def _replaced_on_change(component: pulumi.ComponentResource, field: str = "spec") -> pulumi.ResourceOptions:
    """Options for kinds whose webhooks reject changes of a field. Pulumi knows this for Jobs only."""
    return pulumi.ResourceOptions(parent=component, replace_on_changes=[field], delete_before_replace=True)


def _job(name: str, job: JobPlan, opts: pulumi.ResourceOptions) -> Job:
    # Kueue admits the job to the quota; Volcano then schedules its pods together.
    pod: PodSpecArgsDict = {**pod_spec(job.pod, container(job.pod, "train")), "restart_policy": "Never"}
    if job.gang:
        pod["scheduler_name"] = VOLCANO
    gang = {GROUP_MINIMUM: str(job.workers)} if job.gang else {}
    elastic = {**_ELASTIC, _MINIMUM: str(job.least)} if job.least else {}
    spec: JobSpecArgsDict = {
        "parallelism": job.workers,
        "completions": job.workers,
        "completion_mode": "Indexed",
        "backoff_limit": job.retries,
        "pod_failure_policy": {"rules": [{"action": "Ignore", "on_pod_conditions": EVICTED}]},
        "ttl_seconds_after_finished": job.keep,
        "template": {"metadata": template_metadata(job.pod, {NAME: job.name}), "spec": pod},
    }
    if job.deadline is not None:
        spec["active_deadline_seconds"] = job.deadline
    if job.dispatched:
        spec["managed_by"] = CONTROLLER
    return Job(
        name,
        metadata={
            "name": job.name,
            "namespace": job.team,
            "labels": labels_of(job),
            "annotations": DO_NOT_AWAIT | gang | elastic,
        },
        spec=spec,
        opts=opts,
    )


def _gang_pod(gang: GangPlan, pod: PodPlan) -> PodSpecArgsDict:
    spec: PodSpecArgsDict = {**pod_spec(pod, container(pod, "train")), "restart_policy": "OnFailure"}
    if gang.deadline is not None:  # A Volcano Job has no field for a deadline.
        spec["active_deadline_seconds"] = gang.deadline
    return spec


def _volcano_job(name: str, gang: GangPlan, opts: pulumi.ResourceOptions) -> CustomResource:
    spec: dict[str, Any] = {
        "schedulerName": VOLCANO,
        "queue": gang.queue,
        "minAvailable": sum(role.pods for role in gang.roles),
        "maxRetry": gang.retries,
        "ttlSecondsAfterFinished": gang.keep,
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
                    "metadata": wire(template_metadata(role.pod, {NAME: gang.name})),
                    "spec": wire(_gang_pod(gang, role.pod)),
                },
            }
            for role in gang.roles
        ],
        **({"priorityClassName": gang.pod.priority} if gang.pod.priority else {}),
    }
    return CustomResource(
        name,
        api_version=GANG[0],
        kind=GANG[1],
        metadata={"name": gang.name, "namespace": gang.team, "labels": {NAME: gang.name}},
        spec=spec,
        opts=opts,
    )


def compute_domain(name: str, job: JobPlan, channels: str, opts: pulumi.ResourceOptions) -> CustomResource:
    """The ComputeDomain of a job. The driver's controller makes the ResourceClaimTemplate `channels` for its pods.

    `numNodes` is deprecated, and 0 is right for any number of pods:
    https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/v0.4.1/api/nvidia.com/resource/v1beta1/computedomain.go
    """
    return CustomResource(
        name,
        *COMPUTE_DOMAIN,
        metadata={"name": job.name, "namespace": job.team, "labels": {NAME: job.name}},
        spec={"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": channels}, "allocationMode": "Single"}},
        opts=opts,
    )
