"""Workloads of teams: servers, jobs and gangs."""

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from gpu_tenancy.model.spec.base import Bytes, Count, Cpu, Image, Name, Positive, Seconds, Section, Shorthand, refuse
from gpu_tenancy.model.spec.topology import TogetherEntry

MountPath: TypeAlias = Annotated[str, Field(pattern=r"^(/[\w.-]+)+$")]
"""An absolute path in a container."""


class Workload(Section):
    """Keys of all workloads."""

    image: Image
    """Container image, with a fixed tag or a digest."""
    command: list[str] = []
    """Command; default: the image's entrypoint."""
    args: list[str] = []
    """Arguments of the command."""
    env: dict[str, str] = {}
    """Environment variables."""
    flavor: Name | None = None
    """Flavor to run on; required if the team has several GPU flavors."""
    gpus: Count = 1
    """GPUs per pod, as request and limit; 0 for CPU workloads."""
    cpu: Cpu | None = None
    """CPUs per pod, as request and limit; default: 90 % of its GPUs' share of the machine."""
    memory: Bytes | None = None
    """Memory per pod, as request and limit; default: 90 % of its GPUs' share of the machine."""
    shared_memory: Bytes | None = None
    """Size of /dev/shm, as part of the pod's memory, for data exchange between GPUs. Default: a quarter of the memory
    for pods with several GPUs and for jobs with several GPU pods; 0: the container runtime's 64Mi."""
    fabric: bool | None = None
    """Whether the pods use the network between GPUs of their nodes (`fabric` of the pools): they request its devices by
    their GPUs' share of the machine, and get the variables that NCCL needs. Default: yes for jobs with several GPU
    pods, if all nodes of the flavor have such a network and the pods can use it."""
    datasets: dict[Name, MountPath] = {}
    """Datasets of the team to mount in the container, by name, with the path, such as `{corpus: /data/corpus}`. On GKE,
    each pod then has a sidecar, whose CPU and memory the team's budget includes."""
    priority: Name | None = None
    """Priority class; default: the team's."""

    @model_validator(mode="after")
    def _one_path_each(self) -> Self:
        if len(set(self.datasets.values())) < len(self.datasets):
            raise refuse("mounts two datasets at the same path", "set different paths under datasets")
        return self


class Replicas(Section):
    """The bounds of the autoscaler."""

    min: Positive
    """Minimum number of pods."""
    max: Positive
    """Maximum number of pods."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise refuse(f"max {self.max} is less than min {self.min}", f"raise max to {self.min} or lower min")
        return self


class ScaleOn(Section):
    """Targets of the autoscaler. With several, the one that needs most pods applies."""

    cpu: Annotated[int, Field(ge=1, le=100)] | None = 70
    """Target CPU utilization in percent of the request; null: do not scale on CPU."""
    latency_p99: Annotated[Seconds, Field(ge=0.001)] | None = Field(default=None, alias="latencyP99")
    """Target for the 99th percentile of a pod's latency, such as `100ms`; requires `metrics.histogram` or
    `metrics.latencyP99`."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.cpu is None and self.latency_p99 is None:
            raise refuse("has no target to scale on", "set cpu, latencyP99 or both")
        return self


class Server(Workload):
    """A Deployment with a Service, probes, a PodDisruptionBudget and an autoscaler."""

    replicas: Annotated[Replicas, Shorthand(int, ("min", "max"))]
    """Number of pods: `{min, max}` with an autoscaler, or a fixed number without one."""
    scale_on: ScaleOn | None = None
    """Targets of the autoscaler; default: CPU utilization of 70 %."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    """Port that the container listens on."""
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of the container's /metrics; default: `port`. Only for servers whose `metrics.histogram` is scraped."""
    health: str = Field(default="/health", pattern=r"^/")
    """HTTP path that returns 200 when the server is ready."""
    startup: Seconds = 600.0
    """Maximum startup time, such as the time to load a model."""
    surge: Count = 0
    """Additional pods during a rollout (maxSurge); the quota must include them."""

    @model_validator(mode="after")
    def _one_owner_of_replicas(self) -> Self:
        if self.scale_on is not None and not self.autoscaled:
            raise refuse(
                f"sets scaleOn with a fixed number of replicas ({self.replicas.min}), so each deployment would override"
                " the autoscaler",
                "set replicas: {min: …, max: …}, or remove scaleOn",
            )
        return self

    @property
    def most_pods(self) -> int:
        """Maximum number of pods: the autoscaler's maximum plus the surge of a rollout."""
        return self.replicas.max + self.surge

    @property
    def autoscaled(self) -> bool:
        """Whether an autoscaler sets the number of pods."""
        return self.replicas.min < self.replicas.max


class Training(Workload):
    """A batch job: a Job or TrainJob in the team's queue, or a gang (Volcano Job)."""

    framework: Literal["job", "pytorch"] = "job"
    """`job`: a Kubernetes Job. `pytorch`: a distributed TrainJob of Kubeflow Trainer, with torchrun."""
    scheduler: Literal["kueue", "volcano"] = "kueue"
    """`kueue`: the job is queued in the team's LocalQueue. `volcano`: a Volcano Job (all pods or none)."""
    workers: Positive = 1
    """Number of pods that run in parallel (for a gang, see `tasks`)."""
    together: TogetherEntry | None = None
    """In which part of the network all pods run: `block`, `rack`, `node`, or `{preferred: rack}`; default: anywhere.
    Requires `topology` of the flavor's pools."""
    gang: bool = False
    """Whether Volcano starts all pods of a Job at once or none, after Kueue has admitted it: for nodes that pods of
    other schedulers can fill between admission and start. Requires Volcano in the cluster."""
    tasks: dict[Name, Positive] = {}
    """Number of pods of a gang by role, such as `{master: 1, worker: 3}`."""
    retries: Count = 3
    """Number of retries before the job is marked as failed."""
    deadline: Annotated[Seconds, Field(ge=1)] | None = None
    """Maximum run time; the job is terminated after it."""
    keep: Seconds = 86400.0
    """Time until a finished job is deleted."""

    @model_validator(mode="after")
    def _one_scheduler(self) -> Self:
        if self.tasks and self.scheduler != "volcano":
            raise refuse(
                "sets tasks, which only gangs have", "set scheduler: volcano, or set workers in place of tasks"
            )
        if self.framework != "job" and self.scheduler == "volcano":
            raise refuse("Volcano does not schedule TrainJobs", "remove framework or scheduler")
        if self.gang and (self.framework != "job" or self.scheduler == "volcano"):
            raise refuse("sets gang, which only applies to framework: job with scheduler: kueue", "remove gang")
        if self.together and self.scheduler == "volcano":
            raise refuse(
                "sets together, but only Kueue knows the topology of the nodes", "remove together or scheduler"
            )
        return self

    @property
    def most_pods(self) -> int:
        """Number of pods of all roles."""
        return sum(self.roles.values())

    @property
    def roles(self) -> dict[str, int]:
        """Pods by role: a gang's tasks, or the workers as one role."""
        return dict(self.tasks) or {"worker": self.workers}


class Dataset(Section):
    """Files in object storage, mounted with the cloud's CSI driver."""

    bucket: str = Field(pattern=r"^((s3|gs)://[a-z0-9][-a-z0-9._]*|az://[a-z0-9]+/[a-z0-9][-a-z0-9]*)(/[-\w.=+/]*)?$")
    """URL of the bucket: `s3://bucket[/prefix]`, `gs://bucket[/prefix]` or `az://account/container[/prefix]`."""
    teams: list[Name] = []
    """Teams that get a PersistentVolumeClaim with the dataset's name; default: all."""
    writable: bool = False
    """Whether teams can write; default: read-only."""
    size: Annotated[Bytes, Field(gt=0)] = 2**30
    """Size of the claim, counted in the team's storage budget; object storage itself has no size."""


DatasetEntry: TypeAlias = Annotated[Dataset, Shorthand(str, ("bucket",))]
