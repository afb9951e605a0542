"""TrainJobs of Kubeflow Trainer, the runtimes that they name, and the pods of MPI jobs in these."""

import hashlib
import json
from typing import Any, Final

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import ContainerArgsDict, PodSpecArgsDict, ProbeArgsDict

from gpu_tenancy.model.names import NODE, TRAINER_STEP
from gpu_tenancy.model.plan.runtimes import RuntimePlan
from gpu_tenancy.model.plan.workloads import SHIPPED, JobPlan, RolePlan
from gpu_tenancy.model.spec.roles import LAUNCHER, TRAIN_JOB, Framework

from .conventions import NAME, wire
from .job_objects import deadline_of, failing, job_object, job_of_role, policies
from .pods import (
    ACCOUNT,
    POD_SECURITY,
    annotations,
    container,
    container_rights,
    device_claims,
    environment,
    host_volumes,
    mounts,
    near,
    pod_security,
    pod_spec,
    resources,
    rights,
    sidecars,
    tolerations,
    volumes,
)
from .references import pull_secrets, variable_sources

_TRAINER: Final = TRAIN_JOB[0]
_FRAMEWORK_LABEL: Final = "trainer.kubeflow.org/framework"
_TORCH: Final = "torch"
_RUNTIME: Final = "gpu-tenancy.dev/runtime"
"""Annotation of a TrainJob's JobSet: digest of its runtime, so that a change of the runtime replaces the TrainJob."""
_MPI: Final[tuple[Framework, ...]] = ("mpi", "deepspeed")


class TrainingRuntime(pulumi.ComponentResource):
    """A namespaced runtime of Kubeflow Trainer, for one TrainJob, or for TrainJobs of users with one priority class.

    A TrainJob cannot set a priority class, a failure policy, further containers or a second role: the fields that it
    can patch are those of `PodSpecPatch` in
    https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/apis/trainer/v1alpha1/trainjob_types.go. Where the namespace's
    quota admits only some classes, pods of Trainer's own runtimes would be rejected for ever. Like the other workloads,
    the pods have the team's service account, no API token and no capabilities.

    Example:
        >>> TrainingRuntime("ml-research-torch", plan(stack).teams[0].runtimes[0])
    """

    def __init__(self, name: str, runtime: RuntimePlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:TrainingRuntime", name, {}, opts)
        framework = _TORCH if runtime.framework == "pytorch" else runtime.framework
        self.runtime = CustomResource(
            f"{name}-runtime",
            api_version=_TRAINER,
            kind="TrainingRuntime",
            metadata={
                "name": runtime.name,
                "namespace": runtime.team,
                "labels": {NAME: runtime.name, _FRAMEWORK_LABEL: framework},
            },
            spec=_runtime_spec(runtime.framework, runtime.priority, runtime.job),
            opts=pulumi.ResourceOptions(parent=self),
        )


def _runtime_spec(framework: Framework, priority: str | None, job: JobPlan | None) -> dict[str, Any]:
    if job and framework in _MPI:
        return {"mlPolicy": mpi_policy(job), "template": {"spec": {**policies(job), **mpi_jobs(job)}}}
    source = _TORCH if framework == "pytorch" else framework
    jobs = {"replicatedJobs": [_node(priority, job)]}
    return {
        "mlPolicy": {"numNodes": 1, source: {}},
        "template": {"spec": {**(policies(job) if job else {}), **jobs}},
    }


def _node(priority: str | None, job: JobPlan | None) -> dict[str, Any]:
    """As in Trainer's own runtimes: one replicated job, whose container gets what the TrainJob sets.

    It has no image of its own: TrainJobs must set one, so that none runs an image that nobody chose.

    https://github.com/kubeflow/trainer/tree/v2.3.0/manifests/base/runtimes
    """
    node: ContainerArgsDict = {"name": NODE, "security_context": rights()}
    if job and (sources := variable_sources(job.pod.references)):
        node["env_from"] = sources  # A TrainJob cannot set it.
    pod: PodSpecArgsDict = {
        "automount_service_account_token": False,
        "service_account_name": ACCOUNT,
        "security_context": POD_SECURITY,
        "containers": [node],
    }
    if priority:
        pod["priority_class_name"] = priority
    if job and job.pod.fabric and (of_fabric := sidecars(job.pod.fabric)):
        pod["init_containers"] = of_fabric
        pod["volumes"] = host_volumes(job.pod.fabric)
    if job and job.pod.claims:
        # Trainer 2.3 drops claims from the resources of a TrainJob (pkg/runtime/core/trainingruntime.go). What pods
        # with GPUs need is here too, where the policy packs find it.
        node["resources"], node["volume_mounts"] = resources(job.pod), mounts(job.pod)
        pod["resource_claims"], pod["volumes"] = device_claims(job.pod), volumes(job.pod)
        pod["node_selector"], pod["tolerations"] = job.pod.node_labels, tolerations(job.pod.tolerated)
    # A pod failure policy needs pods that are not restarted in place.
    spec = failing(pod, {}) if job else {"template": {"spec": wire(pod)}}
    return {"name": NODE, "template": {"metadata": {"labels": dict([TRAINER_STEP])}, "spec": spec}}


def train_job(name: str, job: JobPlan, opts: pulumi.ResourceOptions) -> CustomResource:
    """A TrainJob, whose runtime has the rest."""
    runtime = _runtime_spec(job.framework, job.pod.priority, None if job.dispatched else job)
    of_trainer = job.runtime in SHIPPED.values()
    digest = hashlib.sha256(json.dumps(runtime, sort_keys=True).encode()).hexdigest()[:16]
    patch: dict[str, Any] = {"metadata": {"annotations": {_RUNTIME: digest}}}
    if job.framework in _MPI:
        trainer: dict[str, Any] = {"numNodes": computing_pods(job)}
    else:
        trainer, patch["spec"] = _trainer(job), _patch(job)
    spec = {
        "runtimeRef": {"name": job.runtime, "kind": "ClusterTrainingRuntime" if of_trainer else "TrainingRuntime"},
        "trainer": trainer,
        "runtimePatches": [{"manager": "gpu-tenancy.dev/tenancy", "trainingRuntimeSpec": {"template": patch}}],
        **deadline_of(job),
    }
    return job_object(name, job, spec, opts)


def _trainer(job: JobPlan) -> dict[str, Any]:
    trainer: dict[str, Any] = {
        "image": job.pod.image,
        "numNodes": job.workers,
        "resourcesPerNode": None if job.pod.claims else resources(job.pod),
        "command": list(job.pod.command),
        "args": list(job.pod.args),
        "env": wire(environment(job.pod)),
    }
    return {key: value for key, value in trainer.items() if value}


def _patch(job: JobPlan) -> dict[str, Any]:
    """All that Trainer lets a TrainJob patch; the rest is in the runtime."""
    pod = job.pod
    node: dict[str, Any] = {"name": NODE, "securityContext": wire(container_rights(pod))}
    place: dict[str, Any] = {
        "serviceAccountName": ACCOUNT,
        "securityContext": wire(pod_security(pod)),
        "containers": [node],
    }
    if pod.node_labels:
        place["nodeSelector"] = pod.node_labels
    if tolerated := tolerations(pod.tolerated):
        place["tolerations"] = wire(tolerated)
    if pod.caches:
        place["affinity"] = wire(near(pod.caches))
    if of_pod := volumes(pod):
        place["volumes"] = wire(of_pod)
        node["volumeMounts"] = wire(mounts(pod))
    if pulling := pull_secrets(pod.references):
        place["imagePullSecrets"] = wire(pulling)
    template: dict[str, Any] = {"spec": place}
    if of_pods := annotations(pod):
        template["metadata"] = {"annotations": of_pods}
    return {"replicatedJobs": [{"name": NODE, "template": {"spec": {"template": template}}}]}


_HOME: Final = "/home/mpiuser/.ssh"
_USER: Final = 1000
_PORT: Final = 2222
"""User, its SSH keys and the port of sshd in Trainer's image of DeepSpeed and in images of the MPI Operator:
https://github.com/kubeflow/trainer/blob/v2.3.0/manifests/base/runtimes/deepspeed_distributed.yaml."""


def mpi_policy(job: JobPlan) -> dict[str, Any]:
    """How Trainer writes the host file: one process for each GPU, in the launcher too if it has GPUs."""
    return {
        "numNodes": 1,
        "mpi": {
            "numProcPerNode": max(1, job.pod.gpus),
            "mpiImplementation": "OpenMPI",
            "sshAuthMountPath": _HOME,
            "runLauncherAsNode": _computes(job),
        },
    }


def computing_pods(job: JobPlan) -> int:
    """The pods that Trainer counts as nodes: the workers, and a launcher that computes too."""
    return job.workers + (1 if _computes(job) else 0)


def _computes(job: JobPlan) -> bool:
    return job.roles[0].pod.gpus > 0


def mpi_jobs(job: JobPlan) -> dict[str, Any]:
    """The replicated jobs: workers with sshd first, then the launcher, whose end is that of the job.

    Both are complete here, because resources of a TrainJob would apply to the launcher and not to its workers.
    """
    launcher, worker = job.roles
    ready: ProbeArgsDict = {"tcp_socket": {"port": _PORT}, "initial_delay_seconds": 5}
    return {
        "network": {"publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": [LAUNCHER]},
        "replicatedJobs": [
            _role(job, worker, NODE, ready),
            {**_role(job, launcher, LAUNCHER, None), "dependsOn": [{"name": NODE, "status": "Ready"}]},
        ],
    }


def _role(job: JobPlan, role: RolePlan, name: str, probe: ProbeArgsDict | None) -> dict[str, Any]:
    own = container(role.pod, NODE)
    own["security_context"] = {**container_rights(role.pod), "run_as_user": _USER}
    if probe:
        own["readiness_probe"] = probe
    pod = pod_spec(role.pod, own)
    pod["security_context"] = {**pod_security(role.pod), "fs_group": _USER}
    metadata = {"metadata": {"labels": dict([TRAINER_STEP])}} if name == LAUNCHER else {}
    return {"name": name, "replicas": 1, "template": {**metadata, "spec": job_of_role(job, role, pod)}}
