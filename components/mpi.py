"""Pods of MPI jobs, in runtimes of Kubeflow Trainer: a launcher runs mpirun, which starts processes in workers."""

from typing import Any, Final

from pulumi_kubernetes.core.v1 import ProbeArgsDict

from gpu_tenancy.model.plan.workloads import JobPlan, RolePlan
from gpu_tenancy.model.spec.roles import LAUNCHER, NODE, TRAINER_STEP

from .job_sets import job_of_role
from .pods import container, container_rights, pod_security, pod_spec

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
