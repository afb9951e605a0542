"""Roles of a distributed job: the pods that differ from each other, and the kinds that have them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gpu_tenancy.model.fields import Bytes, Count, Cpu, Image, Name, Positive, Section
from gpu_tenancy.model.kinds import kind_at, kinds
from gpu_tenancy.model.names import RAY_JOB
from gpu_tenancy.model.spec.secrets import Variables

Framework: TypeAlias = Literal["job", "pytorch", "jax", "mpi", "deepspeed", "jobset", "ray", "leader-worker"]

WORKER: Final = "worker"
"""Role of the pods whose number is `workers`."""
LAUNCHER: Final = "launcher"
"""Role of the pod that runs mpirun."""
HEAD: Final = "head"
"""Role of the pod that runs Ray's head; Kueue reserves the name for it:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/raycluster/common.go."""
LEADER: Final = "leader"
"""Role of the first pod of each group of a LeaderWorkerSet."""

SSHD: Final = ("/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config")
"""Command of the workers of an MPI job, in images as Trainer's own runtime of DeepSpeed expects them:
https://github.com/kubeflow/trainer/blob/v2.3.0/manifests/base/runtimes/deepspeed_distributed.yaml."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a framework makes of a job."""

    api: tuple[str, str]  # API version and kind of its object
    leader: str | None = None  # role with one pod that starts the work of the others; None without
    roles: frozenset[str] | None = frozenset()  # the roles that it can have; None for any, empty for no `roles`
    policies: bool = False  # whether a restart restarts all of its pods, and success can depend on some roles only
    lacks: tuple[tuple[str, str], ...] = ()  # keys that it has no field for, with the reason

    @property
    def operator(self) -> str | None:
        """The operator that runs it, by its field in `Operators`; None for Kubernetes itself."""
        return kind_at(self.api).operator

    @property
    def runtime(self) -> bool:
        """Whether it is a TrainJob, which has a TrainingRuntime."""
        return self.api == TRAIN_JOB

    @property
    def submits(self) -> bool:
        """Whether `command` is submitted to its pods when they run, and is not the command of their containers."""
        return self.api == RAY_JOB

    @property
    def endless(self) -> bool:
        """Whether its pods run until it is deleted, in groups that are admitted one by one."""
        return self.api == LEADER_WORKER_SET


TRAIN_JOB: Final = kinds()["trainer.kubeflow.org", "TrainJob"].api
LEADER_WORKER_SET: Final = kinds()["leaderworkerset.x-k8s.io", "LeaderWorkerSet"].api
_MPI: Final = Kind(TRAIN_JOB, leader=LAUNCHER, roles=frozenset({LAUNCHER, WORKER}))
_ENDLESS: Final = "a LeaderWorkerSet runs until it is deleted"

KINDS: Final[Mapping[Framework, Kind]] = {
    "job": Kind(kinds()["batch", "Job"].api),
    "pytorch": Kind(TRAIN_JOB),
    "jax": Kind(TRAIN_JOB),
    "mpi": _MPI,
    "deepspeed": _MPI,
    "jobset": Kind(kinds()["jobset.x-k8s.io", "JobSet"].api, roles=None, policies=True),
    "ray": Kind(
        RAY_JOB,
        leader=HEAD,
        roles=None,
        # With ttlSecondsAfterFinished, KubeRay keeps the pods for that time, and Kueue has freed their quota.
        lacks=(("keep", "KubeRay deletes the pods when the job ends, and keeps the RayJob until you delete it"),),
    ),
    "leader-worker": Kind(
        LEADER_WORKER_SET,
        leader=LEADER,
        roles=frozenset({LEADER, WORKER}),
        lacks=(
            ("retries", f"{_ENDLESS}: a group restarts whenever one of its pods fails"),
            ("deadline", _ENDLESS),
            ("keep", _ENDLESS),
        ),
    ),
}
"""Each framework's kind."""


class Role(Section):
    """Pods of a job that have keys of their own; the job's keys apply to what a role does not set."""

    pods: Positive | None = None
    """Number of pods; default: 1, or `workers` for the role `worker`."""
    image: Image | None = None
    """Container image."""
    command: list[str] = []
    """Command; default: the job's, and for `worker` of mpi and deepspeed sshd, which the launcher connects to. Of ray:
    what runs before `ray start`; default: nothing."""
    args: list[str] = []
    """Arguments of the command; default: the job's, unless the role sets `command`. Of ray: none."""
    env: Variables = {}
    """Environment variables, in addition to the job's: texts, or references as in the job's."""
    flavor: Name | None = None
    """Flavor to run on; default: the job's. A role without GPUs runs on CPU nodes, if the team has a quota of any."""
    gpus: Count | None = None
    """GPUs per pod; default: the job's, and 0 for a launcher and a head."""
    cpu: Cpu | None = None
    """CPUs per pod; default: the job's, or, if the role has other GPUs, 90 % of its GPUs' share of the machine."""
    memory: Bytes | None = None
    """Memory per pod; default: the job's, or, if the role has other GPUs, 90 % of its GPUs' share of the machine."""
