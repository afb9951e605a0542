"""The fields of all kinds of jobs; JobSets, and TrainJobs of Kubeflow Trainer, whose runtimes are JobSets."""

import hashlib
import json
from typing import Any, Final

from gpu_tenancy.model.manifests import pods
from gpu_tenancy.model.names import ACCOUNT, NODE, TRAINER_STEP
from gpu_tenancy.model.plan.operators.kueue import CONTROLLER
from gpu_tenancy.model.plan.workloads import SHIPPED, JobPlan, RolePlan, RuntimePlan
from gpu_tenancy.model.spec.roles import KINDS, LAUNCHER, TRAIN_JOB, Framework

EVICTED: Final = ({"type": "DisruptionTarget", "status": "True"},)
"""Condition of pods that are preempted or evicted, and did not fail by themselves:
https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions."""


def job_object(job: JobPlan, spec: dict[str, Any]) -> dict[str, Any]:
    """The object of a job's kind, in the team's queue. A manager of MultiKueue leaves it to a worker."""
    api_version, kind = KINDS[job.framework].api
    name = {"name": job.name} if job.name else {"generateName": "train-"}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {**name, "namespace": job.team, "labels": pods.labels_of(job)},
        "spec": {**spec, "managedBy": CONTROLLER} if job.dispatched else spec,
    }


def deadline_of(job: JobPlan) -> dict[str, int]:
    """The field of a spec with the maximum run time; empty without one."""
    return {} if job.deadline is None else {"activeDeadlineSeconds": job.deadline}


def deletion_of(job: JobPlan) -> dict[str, int]:
    """The field of a spec with the time from its end to its deletion; empty if it stays."""
    return {} if job.keep is None else {"ttlSecondsAfterFinished": job.keep}


def pod_template(job: JobPlan, role: RolePlan, container_name: str) -> dict[str, Any]:
    """The pod template of a role."""
    return {
        "metadata": pods.template_metadata(role.pod, pods.pod_labels(job)),
        "spec": pods.pod_spec(role.pod, pods.container(role.pod, container_name)),
    }


def policy_of_failures(action: str) -> dict[str, Any]:
    """A Job's action for an evicted pod, which did not fail by itself."""
    return {"rules": [{"action": action, "onPodConditions": [dict(condition) for condition in EVICTED]}]}


def job_set(job: JobPlan) -> dict[str, Any]:
    """A JobSet with one replicated Job for each role."""
    replicated: list[dict[str, Any]] = []
    for role in job.roles:
        spec = _job_of_role(job, role, pods.pod_spec(role.pod, pods.container(role.pod, "train")))
        replicated.append({"name": role.name, "replicas": 1, "template": {"spec": {**spec, **deadline_of(job)}}})
    success = {"successPolicy": {"operator": "All", "targetReplicatedJobs": list(job.success)}} if job.success else {}
    return job_object(job, {"replicatedJobs": replicated, **_policies(job), **success})


def _job_of_role(job: JobPlan, role: RolePlan, pod: dict[str, Any]) -> dict[str, Any]:
    return {
        "completionMode": "Indexed",
        "parallelism": role.pods,
        "completions": role.pods,
        **_failing(pod, pods.template_metadata(role.pod, pods.pod_labels(job))),
    }


def _failing(pod: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    """A Job without retries of its own, because the JobSet restarts all Jobs: their pods exchange data.

    An evicted pod is another reason for its failure, so that the JobSet can tell the two apart.
    """
    return {
        "backoffLimit": 0,
        "podFailurePolicy": policy_of_failures("FailJob"),
        "template": {"metadata": metadata, "spec": {**pod, "restartPolicy": "Never"}},
    }


def _policies(job: JobPlan) -> dict[str, Any]:
    """When a JobSet is restarted, fails, and is deleted. Evictions do not use up its retries.

    https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/api/jobset/v1alpha2/jobset_types.go
    """
    actions = (
        ("evicted", "RestartJobSetAndIgnoreMaxRestarts", "PodFailurePolicy"),
        ("deadline", "FailJobSet", "DeadlineExceeded"),
    )
    rules = [{"name": name, "action": action, "onJobFailureReasons": [reason]} for name, action, reason in actions]
    return {"failurePolicy": {"maxRestarts": job.retries, "rules": rules}, **deletion_of(job)}


_FRAMEWORK_LABEL: Final = "trainer.kubeflow.org/framework"
_TORCH: Final = "torch"
_RUNTIME: Final = "gpu-tenancy.dev/runtime"
"""Annotation of a TrainJob's JobSet: digest of its runtime, so that a change of the runtime replaces the TrainJob."""
_MPI: Final[tuple[Framework, ...]] = ("mpi", "deepspeed")


def training_runtime(runtime: RuntimePlan) -> dict[str, Any]:
    """A TrainingRuntime of a team."""
    framework = _TORCH if runtime.framework == "pytorch" else runtime.framework
    return {
        "apiVersion": TRAIN_JOB[0],
        "kind": "TrainingRuntime",
        "metadata": {
            "name": runtime.name,
            "namespace": runtime.team,
            "labels": {pods.NAME: runtime.name, _FRAMEWORK_LABEL: framework},
        },
        "spec": _runtime_spec(runtime.framework, runtime.priority, runtime.job),
    }


def _runtime_spec(framework: Framework, priority: str | None, job: JobPlan | None) -> dict[str, Any]:
    if job and framework in _MPI:
        # One process for each GPU, in the launcher too if it has GPUs.
        mpi = {
            "numProcPerNode": max(1, job.pod.gpus),
            "mpiImplementation": "OpenMPI",
            "sshAuthMountPath": _HOME,
            "runLauncherAsNode": _computes(job),
        }
        return {"mlPolicy": {"numNodes": 1, "mpi": mpi}, "template": {"spec": {**_policies(job), **_mpi_jobs(job)}}}
    source = _TORCH if framework == "pytorch" else framework
    spec = {**(_policies(job) if job else {}), "replicatedJobs": [_node(priority, job)]}
    return {"mlPolicy": {"numNodes": 1, source: {}}, "template": {"spec": spec}}


def _node(priority: str | None, job: JobPlan | None) -> dict[str, Any]:
    """As in Trainer's own runtimes: one replicated job, whose container gets the TrainJob's values.

    It has no image of its own: TrainJobs must set one.
    https://github.com/kubeflow/trainer/tree/v2.3.0/manifests/base/runtimes
    """
    node: dict[str, Any] = {"name": NODE, "securityContext": pods.rights()}
    if job and (sources := pods.variable_sources(job.pod.references)):
        node["envFrom"] = sources  # A TrainJob cannot set it.
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "serviceAccountName": ACCOUNT,
        "securityContext": pods.POD_SECURITY,
        "containers": [node],
    }
    if priority:
        pod["priorityClassName"] = priority
    if job and job.pod.fabric and (of_fabric := pods.sidecars(job.pod.fabric)):
        pod["initContainers"] = of_fabric
        pod["volumes"] = pods.host_volumes(job.pod.fabric)
    if job and job.pod.claims:
        # Trainer 2.3 drops claims from the resources of a TrainJob (pkg/runtime/core/trainingruntime.go). What pods
        # with GPUs need is here too, where the policy packs find it.
        node["resources"], node["volumeMounts"] = pods.resources(job.pod), pods.mounts(job.pod)
        pod["resourceClaims"], pod["volumes"] = pods.device_claims(job.pod), pods.volumes(job.pod)
        pod["nodeSelector"], pod["tolerations"] = job.pod.node_labels, pods.tolerations(job.pod.tolerated)
    # A pod failure policy needs pods that are not restarted in place.
    spec = _failing(pod, {}) if job else {"template": {"spec": pod}}
    return {"name": NODE, "template": {"metadata": {"labels": dict([TRAINER_STEP])}, "spec": spec}}


def train_job(job: JobPlan) -> dict[str, Any]:
    """A TrainJob, whose runtime has the rest."""
    of_trainer = job.runtime in SHIPPED.values()
    patch: dict[str, Any] = {}
    if job.user is None:  # The runtime of what a person submits is that of the cluster.
        runtime = _runtime_spec(job.framework, job.pod.priority, None if job.dispatched else job)
        digest = hashlib.sha256(json.dumps(runtime, sort_keys=True).encode()).hexdigest()[:16]
        patch["metadata"] = {"annotations": {_RUNTIME: digest}}
    if job.framework in _MPI:
        # The workers, and a launcher that computes too.
        trainer: dict[str, Any] = {"numNodes": job.workers + _computes(job)}
    else:
        fields = {
            "image": job.pod.image,
            "numNodes": job.workers,
            "resourcesPerNode": None if job.pod.claims else pods.resources(job.pod),
            "command": pods.command(job.pod),
            "args": list(job.pod.args),
            "env": pods.environment(job.pod),
        }
        trainer, patch["spec"] = {key: value for key, value in fields.items() if value}, _patch(job)
    spec = {
        "runtimeRef": {"name": job.runtime, "kind": "ClusterTrainingRuntime" if of_trainer else "TrainingRuntime"},
        "trainer": trainer,
        "runtimePatches": [{"manager": "gpu-tenancy.dev/tenancy", "trainingRuntimeSpec": {"template": patch}}],
        **deadline_of(job),
    }
    return job_object(job, spec)


def _patch(job: JobPlan) -> dict[str, Any]:
    """All fields that Trainer lets a TrainJob patch; the rest is in the runtime."""
    pod = job.pod
    node: dict[str, Any] = {
        "name": NODE,
        "securityContext": pods.container_rights(pod),
        "volumeMounts": pods.mounts(pod),
    }
    place: dict[str, Any] = {
        **pods.account(pod),
        "securityContext": pods.pod_security(pod),
        "containers": [{key: value for key, value in node.items() if value}],
        "nodeSelector": pod.node_labels,
        "tolerations": pods.tolerations(pod.tolerated),
        "affinity": pods.near(pod.caches) if pod.caches else {},
        "volumes": pods.volumes(pod),
        "imagePullSecrets": pods.pull_secrets(pod.references),
    }
    template: dict[str, Any] = {"spec": {key: value for key, value in place.items() if value}}
    if of_pods := pods.annotations(pod):
        template["metadata"] = {"annotations": of_pods}
    return {"replicatedJobs": [{"name": NODE, "template": {"spec": {"template": template}}}]}


_HOME: Final = "/home/mpiuser/.ssh"
_USER: Final = 1000
_PORT: Final = 2222
"""User, its SSH keys and the port of sshd in Trainer's image of DeepSpeed and in images of the MPI Operator:
https://github.com/kubeflow/trainer/blob/v2.3.0/manifests/base/runtimes/deepspeed_distributed.yaml."""


def _computes(job: JobPlan) -> bool:
    """Whether the launcher has GPUs, so that Trainer counts it as a node."""
    return job.roles[0].pod.gpus > 0


def _mpi_jobs(job: JobPlan) -> dict[str, Any]:
    """The workers with sshd, then the launcher, whose end is the end of the job.

    Both are complete here, because resources of a TrainJob would apply to the launcher and not to its workers.
    """
    launcher, worker = job.roles
    ready: dict[str, Any] = {"tcpSocket": {"port": _PORT}, "initialDelaySeconds": 5}
    return {
        "network": {"publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": [LAUNCHER]},
        "replicatedJobs": [
            _role(job, worker, NODE, ready),
            {**_role(job, launcher, LAUNCHER, None), "dependsOn": [{"name": NODE, "status": "Ready"}]},
        ],
    }


def _role(job: JobPlan, role: RolePlan, name: str, probe: dict[str, Any] | None) -> dict[str, Any]:
    own = pods.container(role.pod, NODE)
    own["securityContext"] = {**pods.container_rights(role.pod), "runAsUser": _USER}
    if probe:
        own["readinessProbe"] = probe
    pod = pods.pod_spec(role.pod, own)
    pod["securityContext"] = {**pods.pod_security(role.pod), "fsGroup": _USER}
    metadata = {"metadata": {"labels": dict([TRAINER_STEP])}} if name == LAUNCHER else {}
    return {"name": name, "replicas": 1, "template": {**metadata, "spec": _job_of_role(job, role, pod)}}
