"""Roles of a distributed job: the pods that differ from each other, and the kinds that have them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gpu_tenancy.model.spec.base import Bytes, Count, Cpu, Image, Name, Positive, Section

Framework: TypeAlias = Literal["job", "pytorch", "jax", "mpi", "deepspeed", "jobset"]

WORKER: Final = "worker"
"""Role of the pods whose number is `workers`."""
LAUNCHER: Final = "launcher"
"""Role of the pod that runs mpirun."""

NODE: Final = "node"
"""Name of the replicated job and of its container, by which Trainer finds the pods that train:
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/constants/constants.go."""
TRAINER_STEP: Final = ("trainer.kubeflow.org/trainjob-ancestor-step", "trainer")
"""Label of the replicated job to which a TrainJob's image, command and resources apply."""

SSHD: Final = ("/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config")
"""Command of the workers of an MPI job, in images as Trainer's own runtime of DeepSpeed expects them:
https://github.com/kubeflow/trainer/blob/v2.3.0/manifests/base/runtimes/deepspeed_distributed.yaml."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a framework makes of a job.

    Attributes:
        api: API version and kind of its object.
        leader: role with one pod that starts the work of the others; None without.
        roles: the roles that it can have; None for any, empty for no `roles`.
        policies: whether a restart restarts all of its pods, and success can depend on some roles only.
    """

    api: tuple[str, str]
    leader: str | None = None
    roles: frozenset[str] | None = frozenset()
    policies: bool = False

    @property
    def trainer(self) -> bool:
        """Whether Kubeflow Trainer's chart installs its controller."""
        return self.api[1] in {"TrainJob", "JobSet"}

    @property
    def runtime(self) -> bool:
        """Whether it is a TrainJob, which has a TrainingRuntime."""
        return self.api == TRAIN_JOB


TRAIN_JOB: Final = ("trainer.kubeflow.org/v1alpha1", "TrainJob")
JOB_SET: Final = ("jobset.x-k8s.io/v1alpha2", "JobSet")
_MPI: Final = Kind(TRAIN_JOB, leader=LAUNCHER, roles=frozenset({LAUNCHER, WORKER}))

KINDS: Final[Mapping[Framework, Kind]] = {
    "job": Kind(("batch/v1", "Job")),
    "pytorch": Kind(TRAIN_JOB),
    "jax": Kind(TRAIN_JOB),
    "mpi": _MPI,
    "deepspeed": _MPI,
    "jobset": Kind(JOB_SET, roles=None, policies=True),
}
"""Each framework's kind."""


class Role(Section):
    """Pods of a job that have keys of their own; the job's keys apply to what a role does not set."""

    pods: Positive | None = None
    """Number of pods; default: 1, or `workers` for the role `worker`."""
    image: Image | None = None
    """Container image."""
    command: list[str] = []
    """Command; default: the job's, and for `worker` of mpi and deepspeed sshd, which the launcher connects to."""
    args: list[str] = []
    """Arguments of the command; default: the job's, unless the role sets `command`."""
    env: dict[str, str] = {}
    """Environment variables, in addition to the job's."""
    flavor: Name | None = None
    """Flavor to run on."""
    gpus: Count | None = None
    """GPUs per pod; default: the job's, and 0 for a launcher."""
    cpu: Cpu | None = None
    """CPUs per pod; default: the job's, or, if the role has other GPUs, 90 % of its GPUs' share of the machine."""
    memory: Bytes | None = None
    """Memory per pod; default: the job's, or, if the role has other GPUs, 90 % of its GPUs' share of the machine."""
