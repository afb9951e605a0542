"""Batch work: a Job or TrainJob through a queue, a gang through Volcano."""

from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.batch.v1 import Job, JobSpecArgsDict
from pulumi_kubernetes.core.v1 import PodSpecArgsDict

from gpu_tenancy.model.plan.workloads import GangPlan, JobPlan

from .conventions import DO_NOT_AWAIT, GROUP_MINIMUM, NAME, VOLCANO, queued
from .pods import (
    container,
    environment,
    pod_spec,
    resources,
    shared_memory_mounts,
    shared_memory_volumes,
    tolerations,
)
from .wire import wire


class TrainingJob(pulumi.ComponentResource):
    """A Job in a team's queue, or a TrainJob for distributed PyTorch. Kueue admits all of its pods together.

    It can be pending for a long time, so a deployment does not wait for it. A TrainJob requires Kubeflow Trainer and
    its runtime `torch-distributed`, which are not installed here.

    Example:
        >>> TrainingJob("ml-research-nightly", plan(stack).teams[0].jobs[0])
    """

    def __init__(self, name: str, job: JobPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:TrainingJob", name, {}, opts)
        self.job: pulumi.Resource = (
            _job(f"{name}-job", job, pulumi.ResourceOptions(parent=self))
            if job.framework == "job"
            else _train_job(f"{name}-train-job", job, _replaced_on_change(self))
        )
        self.register_outputs({"job": job.name})


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
        self.register_outputs({"job": gang.name})


def _replaced_on_change(component: pulumi.ComponentResource) -> pulumi.ResourceOptions:
    """Options for kinds whose webhooks reject changes of the spec. Pulumi knows this for Jobs only."""
    return pulumi.ResourceOptions(parent=component, replace_on_changes=["spec"], delete_before_replace=True)


def _job(name: str, job: JobPlan, opts: pulumi.ResourceOptions) -> Job:
    labels = {NAME: job.name}
    # Kueue admits the job to the quota; Volcano then schedules its pods together.
    pod: PodSpecArgsDict = {**pod_spec(job.pod, container(job.pod, "train")), "restart_policy": "Never"}
    if job.together:
        pod["scheduler_name"] = VOLCANO
    together = {GROUP_MINIMUM: str(job.workers)} if job.together else {}
    spec: JobSpecArgsDict = {
        "parallelism": job.workers,
        "completions": job.workers,
        "completion_mode": "Indexed",
        "backoff_limit": job.retries,
        "ttl_seconds_after_finished": job.keep,
        "template": {
            "metadata": {"labels": labels},
            "spec": pod,
        },
    }
    if job.deadline is not None:
        spec["active_deadline_seconds"] = job.deadline
    return Job(
        name,
        metadata={
            "name": job.name,
            "namespace": job.team,
            "labels": labels | queued(job.queue, job.pod.priority),
            "annotations": DO_NOT_AWAIT | together,
        },
        spec=spec,
        opts=opts,
    )


def _train_job(name: str, job: JobPlan, opts: pulumi.ResourceOptions) -> CustomResource:
    pod = job.pod
    trainer: dict[str, Any] = {
        "image": pod.image,
        "numNodes": job.workers,
        "resourcesPerNode": resources(pod),
        "command": list(pod.command),
        "args": list(pod.args),
        "env": environment(pod),
    }
    place: dict[str, Any] = {"nodeSelector": pod.node_labels, "tolerations": wire(tolerations(pod.tolerated))}
    if pod.shared_memory:
        place["volumes"] = wire(shared_memory_volumes(pod))
        place["containers"] = [{"name": "node", "volumeMounts": wire(shared_memory_mounts(pod))}]
    spec: dict[str, Any] = {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {key: value for key, value in trainer.items() if value},
        "runtimePatches": [
            {
                "manager": "gpu-tenancy.dev/tenancy",
                "trainingRuntimeSpec": {
                    "template": {
                        "spec": {
                            "replicatedJobs": [
                                {"name": "node", "template": {"spec": {"template": {"spec": place}}}},
                            ]
                        }
                    }
                },
            }
        ],
    }
    if job.deadline is not None:
        spec["activeDeadlineSeconds"] = job.deadline
    return CustomResource(
        name,
        api_version="trainer.kubeflow.org/v1alpha1",
        kind="TrainJob",
        metadata={
            "name": job.name,
            "namespace": job.team,
            "labels": {NAME: job.name, **queued(job.queue, pod.priority)},
        },
        spec=spec,
        opts=opts,
    )


def _volcano_job(name: str, gang: GangPlan, opts: pulumi.ResourceOptions) -> CustomResource:
    pod: PodSpecArgsDict = {**pod_spec(gang.pod, container(gang.pod, "train")), "restart_policy": "OnFailure"}
    if gang.deadline is not None:  # A Volcano Job has no field for a deadline.
        pod["active_deadline_seconds"] = gang.deadline
    spec: dict[str, Any] = {
        "schedulerName": VOLCANO,
        "queue": gang.queue,
        "minAvailable": sum(gang.tasks.values()),
        "maxRetry": gang.retries,
        "ttlSecondsAfterFinished": gang.keep,
        # The pods address each other by host name and wait for each other, so if one is lost, all must restart.
        "plugins": {"env": [], "svc": []},
        "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
        "tasks": [
            {
                "name": task,
                "replicas": replicas,
                # Volcano's webhook sets the default only on create, and rejects an update without it.
                "maxRetry": gang.retries,
                "template": {"metadata": {"labels": {NAME: gang.name}}, "spec": wire(pod)},
            }
            for task, replicas in gang.tasks.items()
        ],
        **({"priorityClassName": gang.pod.priority} if gang.pod.priority else {}),
    }
    return CustomResource(
        name,
        api_version="batch.volcano.sh/v1alpha1",
        kind="Job",
        metadata={"name": gang.name, "namespace": gang.team, "labels": {NAME: gang.name}},
        spec=spec,
        opts=opts,
    )
