"""What teams run: servers, jobs and gangs."""

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from gpu_tenancy.model.spec.base import Bytes, Count, Cpu, Image, Name, Positive, Seconds, Section, Shorthand, refuse


class Workload(Section):
    """What all workloads say."""

    image: Image
    """Image with a fixed tag or a digest."""
    command: list[str] = []
    """Command in place of the image's own."""
    args: list[str] = []
    """Arguments of the command."""
    env: dict[str, str] = {}
    """Environment variables."""
    flavor: Name | None = None
    """Flavor to run on; left out where the team has only one of GPUs."""
    gpus: Count = 1
    """GPUs of each pod, request and limit alike; 0 for work on CPUs."""
    cpu: Cpu | None = None
    """Cpus of each pod, request and limit alike; left out, what its GPUs bring of the machine, less a tenth."""
    memory: Bytes | None = None
    """Memory of each pod, likewise."""
    shared_memory: Bytes | None = None
    """Part of each pod's memory through which its GPUs exchange data, at /dev/shm; left out, a quarter of it where a
    pod has several GPUs or a job several pods with GPUs; 0 for the 64Mi that every container has."""
    priority: Name | None = None
    """Priority class; left out, the team's."""


class Replicas(Section):
    """Between how many pods the autoscaler chooses."""

    min: Positive
    """Pods that are always there."""
    max: Positive
    """Pods at the peak."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise refuse(f"max {self.max} is below min {self.min}", f"raise max to {self.min} or lower min")
        return self


class ScaleOn(Section):
    """What makes a server grow. With several, the one that asks for most pods counts."""

    cpu: Annotated[int, Field(ge=1, le=100)] | None = 70
    """Percent of the requested cpu; null for none."""
    latency_p99: Annotated[Seconds, Field(ge=0.001)] | None = Field(default=None, alias="latencyP99")
    """Target for a pod's 99th percentile of latency, such as `100ms`; needs `metrics.histogram` or
    `metrics.latencyP99`."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.cpu is None and self.latency_p99 is None:
            raise refuse("names nothing to scale on", "write cpu, latencyP99 or both")
        return self


class Server(Workload):
    """A Deployment with a Service, probes, a disruption budget and an autoscaler."""

    replicas: Annotated[Replicas, Shorthand(int, ("min", "max"))]
    """`{min, max}` for the autoscaler to choose from, or a fixed number without one."""
    scale_on: ScaleOn | None = None
    """What the autoscaler looks at; left out, 70 % of the requested cpu."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    """Port that the container listens on."""
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of the container's /metrics; left out, `port`. Only for a server whose `metrics.histogram` is scraped."""
    health: str = Field(default="/health", pattern=r"^/")
    """Path that answers 200 when the server can work."""
    startup: Seconds = 600.0
    """Time that the server may take to load its model before it counts as broken."""
    surge: Count = 0
    """Pods beyond `max` while a new version rolls out; the quota must hold them too."""

    @model_validator(mode="after")
    def _one_owner_of_replicas(self) -> Self:
        if self.scale_on is not None and not self.autoscaled:
            raise refuse(
                f"has a fixed number of replicas ({self.replicas.min}) under an autoscaler, so each deployment"
                " would reset it",
                "write replicas: {min: …, max: …}, or leave scaleOn out",
            )
        return self

    @property
    def autoscaled(self) -> bool:
        """Whether an autoscaler chooses the number of pods."""
        return self.replicas.min < self.replicas.max


class Training(Workload):
    """A batch job: a Job or a distributed TrainJob through the team's queue, or a gang of Volcano's."""

    framework: Literal["job", "pytorch"] = "job"
    """`job`: a Kubernetes Job. `pytorch`: a TrainJob of Kubeflow Trainer, its workers joined by torchrun."""
    scheduler: Literal["kueue", "volcano"] = "kueue"
    """`kueue`: the job waits in the team's queue. `volcano`: a Volcano Job, all pods or none, from the team's gangs."""
    workers: Positive = 1
    """Pods that run side by side (for a gang, see `tasks`)."""
    together: bool = False
    """Whether Volcano starts the pods of a Job all at once or not at all, after the team's queue has admitted it: for
    nodes that other schedulers' pods fill between admission and start. Needs Volcano in the cluster."""
    tasks: dict[Name, Positive] = {}
    """The pods of a gang by role, such as `{master: 1, worker: 3}`."""
    retries: Count = 3
    """Failures before the job is given up."""
    deadline: Annotated[Seconds, Field(ge=1)] | None = None
    """Time after which the job is ended."""
    keep: Seconds = 86400.0
    """Time that a finished job stays to be looked at."""

    @model_validator(mode="after")
    def _one_scheduler(self) -> Self:
        if self.tasks and self.scheduler != "volcano":
            raise refuse("has tasks, which only a gang has", "write scheduler: volcano, or workers in place of tasks")
        if self.framework != "job" and self.scheduler == "volcano":
            raise refuse("asks Volcano to schedule a TrainJob", "leave framework or scheduler out")
        if self.together and (self.framework != "job" or self.scheduler == "volcano"):
            raise refuse("starts together by other means, or cannot", "write together for an ordinary Job alone")
        return self

    @property
    def roles(self) -> dict[str, int]:
        """Pods by role: a gang's tasks, or its workers under one role."""
        return dict(self.tasks) or {"worker": self.workers}


class Dataset(Section):
    """Files in object storage, mounted by the cloud's CSI driver."""

    bucket: str = Field(pattern=r"^((s3|gs)://[a-z0-9][-a-z0-9._]*|az://[a-z0-9]+/[a-z0-9][-a-z0-9]*)(/[-\w.=+/]*)?$")
    """`s3://bucket[/prefix]`, `gs://bucket[/prefix]` or `az://account/container[/prefix]`."""
    teams: list[Name] = []
    """Teams whose pods may mount it, each through a claim of the dataset's name; left out, all."""
    writable: bool = False
    """Whether teams may write; read-only where left out."""
    size: Annotated[Bytes, Field(gt=0)] = 2**30
    """What the claim states, counted by the team's storage budget; object storage has no size of its own."""


DatasetEntry: TypeAlias = Annotated[Dataset, Shorthand(str, ("bucket",))]
