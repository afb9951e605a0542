"""Batch work: a Job or TrainJob through a queue, a gang through Volcano."""

from typing import Any, Final

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.batch.v1 import Job, JobSpecArgsDict
from pulumi_kubernetes.core.v1 import PodSpecArgsDict

from gpu_tenancy.model.plan.multikueue import CONTROLLER
from gpu_tenancy.model.plan.workloads import TORCH, GangPlan, JobPlan, RuntimePlan

from .conventions import DO_NOT_AWAIT, GROUP_MINIMUM, NAME, VOLCANO, queued
from .pods import (
    ACCOUNT,
    POD_SECURITY,
    annotations,
    container,
    container_rights,
    environment,
    host_volumes,
    mounts,
    pod_spec,
    resources,
    rights,
    sidecars,
    template_metadata,
    tolerations,
    volumes,
)
from .wire import wire

NODE: Final = "node"
"""Name of the replicated job and of its container, by which Trainer finds the pods that train:
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/constants/constants.go."""
_TRAINER: Final = "trainer.kubeflow.org/v1alpha1"
_TORCH_LABEL: Final = {"trainer.kubeflow.org/framework": "torch"}
_TRAINER_STEP: Final = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}


class TrainingJob(pulumi.ComponentResource):
    """A Job in a team's queue, or a TrainJob for distributed PyTorch. Kueue admits all of its pods together.

    It can be pending for a long time, so a deployment does not wait for it. A TrainJob requires Kubeflow Trainer with
    its runtime `torch-distributed`, which is not installed here, or the team's `TrainingRuntime`.

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


class TrainingRuntime(pulumi.ComponentResource):
    """A namespaced runtime of Kubeflow Trainer, for the TrainJobs of one team and one priority class.

    Trainer's own runtime has no priority class, and a TrainJob cannot set one: the fields that it can patch are those
    of `PodSpecPatch` in
    https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/apis/trainer/v1alpha1/trainjob_types.go. Where the namespace's
    quota admits only some classes, its pods would be rejected for ever. Like the other workloads, the pods have the
    team's service account, no API token and no capabilities. TrainJobs that users submit can use it, too.

    Example:
        >>> TrainingRuntime("ml-research-torch", plan(stack).teams[0].runtimes[0])
    """

    def __init__(self, name: str, runtime: RuntimePlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:TrainingRuntime", name, {}, opts)
        self.runtime = CustomResource(
            f"{name}-runtime",
            api_version=_TRAINER,
            kind="TrainingRuntime",
            metadata={"name": runtime.name, "namespace": runtime.team, "labels": {NAME: runtime.name, **_TORCH_LABEL}},
            spec=_runtime_spec(runtime),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"runtime": runtime.name})


def _runtime_spec(runtime: RuntimePlan) -> dict[str, Any]:
    """As Trainer's own runtime: one replicated job, whose container gets image, command and resources of the TrainJob.

    It has no image of its own: TrainJobs must set one, so that none runs an image that nobody chose.

    https://github.com/kubeflow/trainer/blob/v2.3.0/manifests/base/runtimes/torch_distributed.yaml
    """
    pod: PodSpecArgsDict = {
        "automount_service_account_token": False,
        "service_account_name": ACCOUNT,
        "security_context": POD_SECURITY,
        "containers": [{"name": NODE, "security_context": rights()}],
    }
    if runtime.priority:
        pod["priority_class_name"] = runtime.priority
    if runtime.fabric:
        pod["init_containers"] = sidecars(runtime.fabric)
        pod["volumes"] = host_volumes(runtime.fabric)
    trained = {"metadata": {"labels": _TRAINER_STEP}, "spec": {"template": {"spec": wire(pod)}}}
    return {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {"spec": {"replicatedJobs": [{"name": NODE, "template": trained}]}},
    }


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
        "template": {"metadata": template_metadata(job.pod, labels), "spec": pod},
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
    # All that Trainer lets a TrainJob patch; the rest is in the runtime.
    node: dict[str, Any] = {"name": NODE, "securityContext": wire(container_rights(pod))}
    place: dict[str, Any] = {
        "nodeSelector": pod.node_labels,
        "tolerations": wire(tolerations(pod.tolerated)),
        "serviceAccountName": ACCOUNT,
        "securityContext": wire(POD_SECURITY),
        "containers": [node],
    }
    if of_pod := volumes(pod):
        place["volumes"] = wire(of_pod)
        node["volumeMounts"] = wire(mounts(pod))
    template: dict[str, Any] = {"spec": place}
    if of_fabric := annotations(pod):
        template["metadata"] = {"annotations": of_fabric}
    spec: dict[str, Any] = {
        "runtimeRef": {"name": job.runtime, "kind": "TrainingRuntime"} if job.runtime else {"name": TORCH},
        "trainer": {key: value for key, value in trainer.items() if value},
        "runtimePatches": [
            {
                "manager": "gpu-tenancy.dev/tenancy",
                "trainingRuntimeSpec": {
                    "template": {
                        "spec": {
                            "replicatedJobs": [{"name": NODE, "template": {"spec": {"template": template}}}],
                        }
                    }
                },
            }
        ],
    }
    if job.deadline is not None:
        spec["activeDeadlineSeconds"] = job.deadline
    if job.dispatched:
        spec["managedBy"] = CONTROLLER
    return CustomResource(
        name,
        api_version=_TRAINER,
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
                "template": {"metadata": wire(template_metadata(gang.pod, {NAME: gang.name})), "spec": wire(pod)},
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
