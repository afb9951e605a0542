"""Workloads of teams: servers, jobs and gangs."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal, Self

from pydantic import Field

from gpu_tenancy.model import fields
from gpu_tenancy.model.spec import serving
from gpu_tenancy.model.spec.data import MountPath, ScratchEntry
from gpu_tenancy.model.spec.pools import Range, TogetherEntry
from gpu_tenancy.model.spec.roles import KINDS, LAUNCHER, LEADER, SSHD, WORKER, Framework, Kind, Role
from gpu_tenancy.model.spec.secrets import EnvSource, FileSource, Variables


class CpuMemory(fields.Section):
    """An amount of CPU and memory; each is optional."""

    cpu: fields.Cpu | None = None
    """CPUs, such as 4, 0.5 or 500m."""
    memory: fields.Bytes | None = None
    """Bytes, such as 512Mi or 64Gi."""


class Workload(fields.Section):
    """Keys of all workloads."""

    image: fields.Image
    """Container image, with a fixed tag or a digest."""
    command: list[str] = []
    """Command; default: the image's entrypoint."""
    args: list[str] = []
    """Arguments of the command."""
    env: Variables = {}
    """Environment variables: texts, or references such as `{secret: wandb, key: TOKEN}`."""
    env_from: list[EnvSource] = []
    """Secrets and ConfigMaps of which each key becomes a variable, such as `[{secret: wandb}]`; `env` wins."""
    files: dict[MountPath, FileSource] = {}
    """Secrets and ConfigMaps to mount read-only, by directory, such as `{/etc/keys: {secret: signing}}`."""
    image_pull_secrets: list[fields.Name] = []
    """Secrets with credentials of registries, in addition to the team's."""
    flavor: fields.Name | None = None
    """Flavor to run on; required if the team has several GPU flavors."""
    gpus: fields.Count = 1
    """GPUs per pod, as request and limit; 0 for CPU workloads."""
    cpu: fields.Cpu | None = None
    """CPUs per pod, as request and limit; default: 90 % of its GPUs' share of the machine."""
    memory: fields.Bytes | None = None
    """Memory per pod, as request and limit; default: 90 % of its GPUs' share of the machine."""
    shared_memory: fields.Bytes | None = None
    """Size of /dev/shm, part of the pod's memory. Default: a quarter of the memory for pods with several GPUs or an
    engine, and for jobs with several GPU pods; 0: the container runtime's 64Mi."""
    fabric: bool | None = None
    """Whether the pods use the network between GPUs of their nodes (`fabric` of the pools): they request its devices by
    their GPUs' share of the machine, and get the variables of NCCL. Default: yes for jobs with several GPU pods, if all
    nodes of the flavor have such a network and the pods can use it."""
    datasets: dict[fields.Name, MountPath] = {}
    """Datasets of the team to mount, by name, with the path, such as `{corpus: /data/corpus}`. On GKE, each pod then
    has a sidecar, which the team's budget includes."""
    volumes: dict[fields.Name, MountPath] = {}
    """Storage of the team to mount, by name, with the path, such as `{checkpoints: /checkpoints}`."""
    scratch: ScratchEntry | None = None
    """Temporary space of each pod on its node, such as `500Gi` under /scratch, or `{size, path}`."""
    priority: fields.Name | None = None
    """Priority class; default: the team's."""
    movable: bool | None = None
    """Whether node autoscalers can evict the pods. Default: yes for servers with several replicas, no for jobs and for
    a server with one replica."""

    @property
    def stays(self) -> bool:
        """Whether node autoscalers leave the pods where they run."""
        return not self.movable

    @property
    def mounts(self) -> tuple[dict[fields.Name, MountPath], dict[fields.Name, MountPath]]:
        """Datasets and storage of the team, with their paths."""
        return self.datasets, self.volumes

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        datasets, volumes = self.mounts
        if len(set(datasets.values())) < len(datasets):
            yield "mounts two datasets at the same path", "set different paths under datasets"
        scratch = [self.scratch.path] if self.scratch else []
        paths = [*datasets.values(), *volumes.values(), *scratch, *self.files]
        if twice := next((path for path in paths if paths.count(path) > 1), None):
            yield f"mounts two volumes at {twice}", "set different paths under datasets, volumes, scratch and files"


class Replicas(Range):
    """Bounds of a number of pods."""

    min: fields.Positive
    """Minimum number of pods."""
    max: fields.Positive
    """Maximum number of pods."""


class ServerReplicas(Replicas):
    """Bounds of the number of replicas of a server."""

    min: fields.Count  # pyright: ignore[reportIncompatibleVariableOverride] - a server can have no pods
    """Minimum number. 0: no pods and no GPUs without load; requests fail until a replica has started, unless the sender
    waits. Requires `scaleOn.query` and KEDA."""


class ScaleQuery(fields.Section):
    """A query of Prometheus to scale on, divided by what one replica carries."""

    expr: Annotated[str, Field(min_length=1)]
    """PromQL with one value, such as `sum(rate(gateway_requests_total{service="chat"}[2m]))`."""
    per_replica: Annotated[float, Field(ge=0.001, le=fields.MOST_OBJECTS)]
    """How much of it one replica carries."""


class Pace(fields.Section):
    """How fast an autoscaler changes the number of pods. The defaults add pods fast and remove them slowly."""

    stabilization_window: Annotated[fields.Seconds, Field(le=3600)] | None = None
    """Time over which the most cautious number of pods applies; default: 30s to add pods, 5m to remove them."""
    percent: fields.Positive | None = None
    """Percent of the pods that a period may add or remove; default: 100 to add pods, 10 to remove them."""
    pods: fields.Positive | None = None
    """Number of pods that a period may add or remove, if that is more than `percent`."""
    period: Annotated[fields.Seconds, Field(ge=1, le=1800)] | None = None
    """Length of a period; default: 15s to add pods, 1m to remove them."""


class ScaleOn(fields.Section):
    """Targets of the autoscaler. With several, the one that needs most pods applies."""

    cpu: Annotated[int, Field(ge=1, le=100)] | None = 70
    """Target CPU utilization in percent of the request; null: do not scale on CPU."""
    latency_p99: Annotated[fields.Duration, Field(ge=0.001)] | None = Field(default=None, alias="latencyP99")
    """Target for the 99th percentile of a pod's latency, such as `100ms`; requires `metrics.latency` of the server,
    `metrics.histogram` or `metrics.latencyP99`."""
    queue: fields.Positive | None = None
    """Target for the requests that wait in a replica; requires `metrics.waiting` of the server, as of `vllm`."""
    concurrency: fields.Positive | None = None
    """Target for the requests in a replica, waiting ones too; requires `metrics.running` and `metrics.waiting`."""
    rate: fields.Rate | None = None
    """Target for the requests per second of a replica, such as `20/s`; requires `metrics.requests`."""
    cache: Annotated[int, Field(ge=1, le=100)] | None = None
    """Target for the used part of a replica's KV cache in percent; requires `metrics.cache`."""
    gpu: Annotated[int, Field(ge=1, le=100)] | None = None
    """Target for the utilization of a replica's GPUs in percent, by NVIDIA's exporter. It rarely tells the load of a
    model server: GPUs are busy with one request as with many."""
    query: ScaleQuery | None = None
    """A query of your own."""
    up: Pace = Pace()
    """How fast pods are added, such as `{pods: 4}`."""
    down: Pace = Pace()
    """How fast pods are removed, such as `{stabilizationWindow: 10m}`."""

    @property
    def measured(self) -> tuple[str, ...]:
        """Fields of the targets that Prometheus measures."""
        targets = ("latency_p99", "queue", "concurrency", "rate", "cache", "gpu", "query")
        return tuple(field for field in targets if getattr(self, field) is not None)

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if self.cpu is None and not self.measured:
            yield "has no target to scale on", "set cpu, latencyP99 or another target"


class Load(fields.Section):
    """The load of a server at its peak, and what one replica answers, as you measured it on the flavor's GPUs.

    A stack is refused if `replicas.max`, or the team's limit, cannot carry it.
    """

    rate: fields.Rate
    """Requests per second at the peak, such as `10000/s`."""
    per_replica: fields.Rate
    """Requests per second that one replica answers within `latency`, by your own measurement, such as `220/s`."""
    latency: Annotated[fields.Duration, Field(ge=0.001)] | None = None
    """99th percentile of the latency at which you measured `perReplica`, such as `100ms`."""
    headroom: Literal["node", "none"] = "node"
    """`node`: the load is carried while a node is lost, or a rollout without `surge` replaces a replica. `none`: only
    while all replicas answer."""


class ServerWorker(fields.Section):
    """What the workers of a server with several `nodes` run; all else they have as the leader has it."""

    command: list[str] = []
    """Command; default: the server's."""
    args: list[str] = []
    """Arguments of the command; default: the server's, unless `command` is set."""
    env: Variables = {}
    """Environment variables, in addition to the server's: texts, or references as in the server's."""


class Burst(Range):
    """Further replicas of a server on another flavor, such as spot nodes, behind the same Service.

    They are a Deployment `SERVER-burst` with its own autoscaler. The server's own replicas are the base: with a fixed
    number they are always there; with a `scaleOn.query`, the burst has only what exceeds their maximum.
    """

    flavor: fields.Name
    """Flavor of the further replicas, for which the team has quota too."""
    min: fields.Count = 1
    """Minimum number. 0: none without load, which requires `scaleOn.query` and KEDA."""
    max: fields.Positive
    """Maximum number."""


OF_BURST: Final = "-burst"
"""End of the name of the Deployment with the further replicas of a server."""

_STARTUP: Final = 600
"""Default of `startup` in seconds, without the time to read the model. Ours: compilation and warm-up of a large model
take minutes, and a limit that is too short restarts the pod forever."""
_READ: Final = 100 * 2**20
"""Bytes of a model that are read in a second, at least: less than any of the storage that stacks can have."""


class Server(Workload):
    """A Deployment (with several `nodes`, a LeaderWorkerSet), a Service, probes, disruption budget and autoscaler."""

    engine: serving.EngineName = "custom"
    """`vllm`: vLLM, whose command, arguments, port, probes, user, metrics and shutdown follow from the stack; `image`
    is one of vLLM, and `args` are added. `custom`: any image, with these keys as it needs them."""
    model: serving.Model | None = None
    """The model, mounted read-only at `/model`, or where `datasets` or `volumes` mount its source; required for
    `vllm`."""
    replicas: Annotated[ServerReplicas, fields.Shorthand(int, ("min", "max"))]
    """Number of pods, or of groups of `nodes`: `{min, max}` with an autoscaler, or a fixed number without one."""
    nodes: fields.Positive = 1
    """Number of nodes that serve as one replica. Each replica is then a group of pods with the same resources, one for
    each node: a leader, which the Service, the probes and the autoscaler use, and workers, which find it by the
    variable `LWS_LEADER_ADDRESS`. Kueue admits each group whole."""
    worker: ServerWorker | None = None
    """Command, arguments and variables of the workers, if they differ from those of the leader."""
    together: TogetherEntry | None = None
    """Part of the network in which all pods of a group run: `block`, `rack`, `node`, or `{preferred: rack}`; default:
    anywhere. Requires `nodes` and `topology` of the flavor's pools."""
    limits: CpuMemory = CpuMemory()
    """CPU and memory that a pod may use above its requests, such as `{memory: 96Gi}`; default: the requests. Kueue
    counts requests only, and the namespace's quota counts limits if `compute.limits` is set. What a pod uses above its
    requests is not reserved: if the node lacks memory, such pods are evicted first."""
    scale_on: ScaleOn | None = None
    """Targets of the autoscaler; default: CPU utilization of 70 %."""
    load: Load | None = None
    """The load that it must carry; default: not checked."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    """Port that the container listens on. Of `vllm`: 8000."""
    metrics: serving.ServerMetrics = serving.NO_METRICS
    """Names of its metrics. With one of them, Prometheus scrapes /metrics of its pods."""
    service_level: serving.ServerLevel = serving.ServerLevel()
    """Times within which requests must be answered, and for how many. Failed requests count if `metrics` has `requests`
    and `failures`. Alerts fire if the error budget of 30 days is used up too fast."""
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of the container's /metrics; default: `port`. Only with `metrics` of the server or `metrics.histogram` of
    the stack."""
    health: str = Field(default="/health", pattern=r"^/")
    """HTTP path that returns 200 when the server is ready."""
    probes: serving.Probes = Field(default_factory=serving.Probes)
    """Times of the probes of `health`, such as `{period: 5s, failures: 6}`."""
    startup: Annotated[fields.Seconds, Field(ge=1)] | None = None
    """Maximum startup time, such as the time to load a model; default: 10 minutes, and a second for each 100Mi of
    `model.size`."""
    drain: Annotated[fields.Seconds, Field(ge=1)] | None = None
    """Time that requests in progress have before a pod ends. It leaves the Service, gets the signal to end after 15 s,
    and must complete them. Default: 2 minutes of `vllm`; of others, the pod gets the signal at once and 30 s."""
    expose: serving.ServerExpose | None = None
    """How clients outside of the cluster reach it; default: they do not."""
    canary: serving.Canary | None = None
    """Which part of another server's requests it gets, such as `{of: chat, weight: 5}`; default: none."""
    burst: Burst | None = None
    """Further replicas on another flavor, such as `{flavor: l4-spot, max: 8}`; default: none."""
    surge: fields.Count | None = None
    """Additional pods, or groups of `nodes`, during a rollout (maxSurge), for which the limit must have quota. Default:
    1 where the guarantee has quota for it; else one at a time is replaced, if possible with at least `replicas.min`."""

    @property
    def mounts(self) -> tuple[dict[fields.Name, MountPath], dict[fields.Name, MountPath]]:
        """Datasets and storage of the team, with their paths and that of the model."""
        dataset, volume = (self.model.dataset, self.model.volume) if self.model else (None, None)
        of_dataset, of_volume = ({source: serving.MODEL_PATH} if source else {} for source in (dataset, volume))
        return {**of_dataset, **self.datasets}, {**of_volume, **self.volumes}

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        yield from super()._conflicts()
        scratch = [self.scratch.path] if self.scratch else []
        taken = {*self.datasets.values(), *self.volumes.values(), *self.files, *scratch}
        if self.model and self.model.image and serving.MODEL_PATH in taken:
            yield f"mounts a volume at {serving.MODEL_PATH}, where it has its model", "set another path"
        for key in ("worker", "together"):
            if getattr(self, key) is not None and not self.grouped:
                yield f"sets {key}, which only applies to a server of several nodes", f"set nodes, or remove {key}"
        if self.canary and self.expose:
            yield "sets canary and expose", f"remove expose: it shares the host of {self.canary.of}"
        if self.burst:
            yield from self._burst_conflicts()
        bursts = self.burst is not None and self.burst.min < self.burst.max
        if self.scale_on is not None and not self.autoscaled and not bursts:
            rule = f"sets scaleOn with a fixed number of replicas ({self.replicas.min})"
            fix = "set replicas: {min: …, max: …}, or remove scaleOn"
            yield f"{rule}, so each deployment would override the autoscaler", fix

    def _burst_conflicts(self) -> Iterator[tuple[str, str]]:
        """Each of the two autoscalers sees only the pods of its own Deployment, so both would scale at once."""
        if self.grouped:
            yield "sets burst, which only applies to a server of one node", "remove burst, or nodes"
        on = self.scale_on
        if self.autoscaled and (on is None or on.cpu is not None or on.measured != ("query",)):
            rule = "sets burst and a range of replicas, but scales on its pods, so that both would grow at once"
            yield rule, "set a fixed number of replicas, or scaleOn: {cpu: null, query: …} with all requests"

    @property
    def stays(self) -> bool:
        """The other replicas of a server answer while one is moved, of which its disruption budget keeps most."""
        return self.replicas.max == 1 if self.movable is None else not self.movable

    @property
    def grouped(self) -> bool:
        """Whether each replica is a group of pods on several nodes."""
        return self.nodes > 1

    @property
    def starts_within(self) -> int:
        """Maximum startup time in seconds."""
        size = self.model.size if self.model and self.model.size else 0
        return _STARTUP + size // _READ if self.startup is None else self.startup

    @property
    def ready_within(self) -> int:
        """Seconds from the start of its container until it must be ready."""
        return max(self.starts_within, self.probes.ready_after)

    @property
    def model_path(self) -> str:
        """The folder of its model in the container; empty without a model."""
        if self.model is None:
            return ""
        mounted = {**self.datasets, **self.volumes}
        root = mounted.get(self.model.dataset or self.model.volume or "", serving.MODEL_PATH)
        return f"{root}/{self.model.path}".removesuffix("/")

    @property
    def most_replicas(self) -> int:
        """Maximum number of replicas for which there must be quota: the autoscaler's maximum and `surge`."""
        return self.replicas.max + (self.surge or 0)

    @property
    def most_pods(self) -> int:
        """Maximum number of pods: those of all replicas at their peak."""
        return self.most_replicas * self.nodes

    @property
    def pods_by_role(self) -> dict[str, int]:
        """Pods of one replica by role, the leader first; one pod without a role if it is not a group."""
        return {LEADER: 1, WORKER: self.nodes - 1} if self.grouped else {"": 1}

    @property
    def parts(self) -> dict[str, Self]:
        """Each role as a server with the keys of its pods. `most_pods` of each is that of the whole server."""
        if not self.grouped:
            return {"": self}
        own = self.worker or ServerWorker()
        of_worker = {
            "command": own.command or self.command,
            "args": own.args or ([] if own.command else self.args),
            "env": {**self.env, **own.env},
        }
        return {LEADER: self, WORKER: self.model_copy(update=of_worker)}

    @property
    def autoscaled(self) -> bool:
        """Whether an autoscaler sets the number of pods."""
        return self.replicas.min < self.replicas.max


class Training(Workload):
    """A job in the team's queue (Job, TrainJob, JobSet, RayJob or LeaderWorkerSet), or a gang (Volcano Job)."""

    framework: Framework = "job"
    """`job`: a Kubernetes Job. `pytorch`, `jax`, `mpi`, `deepspeed`: a TrainJob of Kubeflow Trainer: torchrun on each
    pod, JAX's coordinator, or mpirun in a launcher that reaches the workers by SSH. `jobset`: a JobSet with any
    `roles`. `ray`: a RayJob with a Ray cluster of its own, whose role `head` runs `command`; other `roles` are groups
    of workers. `leader-worker`: a LeaderWorkerSet, whose `groups` of a leader and `workers` each work as one, and run
    until you delete it."""
    scheduler: Literal["kueue", "volcano"] = "kueue"
    """`kueue`: the job is queued in the team's LocalQueue. `volcano`: a Volcano Job (all pods or none)."""
    workers: Annotated[Replicas, fields.Shorthand(int, ("min", "max"))] = Replicas(min=1, max=1)
    """Number of pods that run in parallel, without a launcher, head or leader (for a gang, see `tasks`). `{min, max}`
    for a Job that also runs with fewer pods: Kueue admits as many as the quota has, but at least `min`, and sets the
    number of completions to it."""
    roles: dict[fields.Name, Role] = {}
    """Pods with resources, image or command of their own, such as `{launcher: {cpu: 2}, worker: {pods: 4, gpus: 8}}`.
    mpi and deepspeed: `launcher`, which runs `command`, and computes too with as many GPUs as a worker, and `worker`.
    ray: `head` and any others. leader-worker: `leader` and `worker`. jobset and gangs: any."""
    groups: fields.Positive = 1
    """Number of groups of a leader-worker job. Kueue admits each group whole, and one group after another."""
    success_roles: list[fields.Name] = []
    """Roles of a jobset whose pods must succeed for the job to be complete; default: all."""
    together: TogetherEntry | None = None
    """Part of the network in which all pods run: `block`, `rack`, `node`, or `{preferred: rack}`; default: anywhere.
    Requires `topology` of the flavor's pools. Of a job with roles, it applies to the pods with GPUs: of one role, or of
    two, one of which has one pod."""
    compute_domain: bool = False
    """Whether the pods with GPUs share GPU memory over NVLink between machines (GB200, GB300), by a ComputeDomain of
    NVIDIA's DRA driver. A node has one channel, so each of these pods must request all GPUs of a node. Set `together:
    rack` too if the flavor has several NVLink domains."""
    gang: bool = False
    """Whether Volcano starts all pods of a Job at once or none, after Kueue has admitted it: for nodes that pods of
    other schedulers can fill meanwhile. Requires Volcano."""
    tasks: dict[fields.Name, fields.Positive] = {}
    """Number of pods of a gang by role, such as `{master: 1, worker: 3}`, if the pods are alike; else see `roles`."""
    retries: fields.Count = 3
    """Number of retries before the job is marked as failed. All pods of a TrainJob or JobSet restart together, a RayJob
    with a new Ray cluster. Evicted and preempted pods are not counted, except for gangs and the head of a RayJob."""
    deadline: Annotated[fields.Seconds, Field(ge=1)] | None = None
    """Maximum run time, without the time in the queue, after which the job is terminated. Kueue also stops a job whose
    run times before and after preemptions or restarts exceed it together by a minute."""
    keep: fields.Seconds = 86400
    """Time until a finished job of `tenancy submit --file` is deleted; not for ray. A job of a stack has none and stays
    until the stack no longer has it, because the next deployment would run a deleted one again."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        yield from super()._conflicts()
        if self.tasks and self.scheduler != "volcano":
            yield "sets tasks, which only gangs have", "set scheduler: volcano, or set workers in place of tasks"
        if self.framework != "job" and self.scheduler == "volcano":
            yield f"Volcano does not schedule {self.kind.api[1]}s", "remove framework or scheduler"
        if self.gang and (self.framework != "job" or self.scheduler == "volcano"):
            yield "sets gang, which only applies to framework: job with scheduler: kueue", "remove gang"
        if self.together and self.scheduler == "volcano":
            yield "sets together, but only Kueue knows the topology of the nodes", "remove together or scheduler"
        yield from self._role_conflicts()
        if self.scheduler != "volcano":
            yield from self._kind_conflicts()
        if self.compute_domain and (self.gang or self.scheduler == "volcano"):
            rule = "sets computeDomain, but Volcano's queues do not count claims of devices"
            yield rule, f"remove computeDomain or {'gang' if self.gang else 'scheduler'}"
        if self.compute_domain and self.groups > 1:
            rule = f"sets computeDomain with groups: {self.groups}, but a ComputeDomain is for pods that work as one"
            yield rule, "set one job for each group, or remove computeDomain"
        yield from self._policy_conflicts()

    def _role_conflicts(self) -> Iterator[tuple[str, str]]:
        known = None if self.scheduler == "volcano" else self.kind.roles
        if self.roles and known is not None and (strange := sorted(self.roles.keys() - known)):
            if not known:
                rule = f"sets roles, but all pods of framework: {self.framework} are alike"
                yield rule, "set framework: jobset, or remove roles"
            rule = f"roles.{strange[0]} is not a role of framework: {self.framework}"
            yield rule, f"use {' and '.join(sorted(known))}, or set framework: jobset"
        if self.scheduler == "volcano" and (role := next((n for n, r in self.roles.items() if r.flavor), None)):
            yield f"sets roles.{role}.flavor, but a gang uses the Volcano queue of one flavor", "set flavor of the gang"
        if self.roles and self.tasks:
            yield "sets tasks and roles", "set pods of each role under roles, and remove tasks"
        if "workers" in self.model_fields_set and self.roles:
            named = self.roles.keys() - {self.kind.leader}
            if self.scheduler == "volcano" or (self.kind.roles is None and named and WORKER not in named):
                yield "sets workers and roles without a role worker", "set pods of each role, and remove workers"
            if WORKER in self.roles and self.roles[WORKER].pods is not None:
                yield "sets workers and roles.worker.pods", "remove one of them"

    def _kind_conflicts(self) -> Iterator[tuple[str, str]]:
        """Its leader, keys that the kind of its object has no field for, and those that it requires."""
        leader = self.kind.leader
        if leader and (pods := self.pods_by_role[leader]) != 1:
            owner = "group" if leader == LEADER else "job"
            yield f"roles.{leader}.pods is {pods}, but a {owner} has one {leader}", "remove it"
        if leader == LAUNCHER:
            own, gpus = self.parts[leader].gpus, self.parts[WORKER].gpus
            if own not in {0, gpus}:
                rule = f"roles.{leader}.gpus is {own}, but a worker has {gpus}"
                fix = f"set it to {gpus}, or to 0 for a launcher that does not compute"
                yield f"{rule}: mpirun starts as many processes in each pod", fix
        for key, reason in self.kind.lacks:
            if key in self.model_fields_set:
                yield f"sets {key}, but {reason}", f"remove {key}"
        if self.groups > 1 and not self.kind.endless:
            yield "sets groups, which only applies to framework: leader-worker", "remove groups"
        if self.kind.submits and not self.command:
            rule = "has no command, but framework: ray submits one to its Ray cluster"
            yield rule, "set command, such as [python, /opt/train.py]"

    def _policy_conflicts(self) -> Iterator[tuple[str, str]]:
        if self.success_roles and (self.scheduler == "volcano" or not self.kind.policies):
            yield "sets successRoles, which only applies to framework: jobset", "remove successRoles"
        for role in self.success_roles:
            if role not in self.pods_by_role:
                yield f"successRoles names {role}, which is not a role of the job", "add it under roles"
        if self.elastic and (self.framework != "job" or self.scheduler == "volcano" or self.gang):
            bounds = "sets workers.min and workers.max"
            kind = "Volcano" if self.scheduler == "volcano" or self.gang else self.kind.api[1]
            if kind == "RayJob":
                rule = f"{bounds}, but Ray's autoscaler changes the Ray cluster in the API server"
                yield f"{rule}, and pods of teams have no rights there", f"set workers: {self.workers.max}"
            rule = f"{bounds}, but a {kind} job has a fixed number of pods"
            fix = f"set workers: {self.workers.max}, or use framework: job with scheduler: kueue"
            yield f"{rule}: Kueue admits only Jobs with fewer", fix

    @property
    def kind(self) -> Kind:
        """What its framework makes of it, if Kueue queues it."""
        return KINDS[self.framework]

    @property
    def elastic(self) -> bool:
        """Whether it can run with fewer pods."""
        return self.workers.min < self.workers.max

    @property
    def most_pods(self) -> int:
        """Number of pods of all roles, in all groups."""
        return sum(self.pods_by_role.values()) * self.groups

    @property
    def pods_by_role(self) -> dict[str, int]:
        """Pods by role, the leader first: a gang's tasks, the roles, or the workers as one role; of one group."""
        if self.tasks:
            return dict(self.tasks)
        return {name: role.pods or (self.workers.max if name == WORKER else 1) for name, role in self._roles.items()}

    @property
    def parts(self) -> "dict[str, Training]":
        """Each role as a job with the keys of its pods. `most_pods` of each is that of the whole job."""
        if self.tasks:
            return dict.fromkeys(self.tasks, self)
        submits = self.kind.submits and self.scheduler != "volcano"
        own = self.model_copy(update={"command": [], "args": []}) if submits else self
        return {
            name: own._part(role) if role.model_fields_set - {"pods"} else own for name, role in self._roles.items()
        }

    @property
    def _roles(self) -> dict[str, Role]:
        leader = None if self.scheduler == "volcano" else self.kind.leader
        if leader is None:
            return self.roles or {WORKER: Role()}
        others = {name: role for name, role in self.roles.items() if name != leader}
        if self.kind.roles is not None or not others:
            others.setdefault(WORKER, Role())
        first = self.roles.get(leader, Role())
        if first.gpus is None and leader != LEADER:  # The leader of a group computes too.
            first = first.model_copy(update={"gpus": 0})
        if leader == LAUNCHER and not others[WORKER].command:
            others[WORKER] = others[WORKER].model_copy(update={"command": list(SSHD)})
        return {leader: first, **others}

    def _part(self, role: Role) -> "Training":
        sized = role.gpus in {None, self.gpus} and role.flavor in {None, self.flavor}
        return self.model_copy(
            update={
                "image": role.image or self.image,
                "command": role.command or self.command,
                "args": role.args or ([] if role.command else self.args),
                "env": {**self.env, **role.env},
                "flavor": role.flavor or self.flavor,
                "gpus": self.gpus if role.gpus is None else role.gpus,
                "cpu": role.cpu if role.cpu is not None else self.cpu if sized else None,
                "memory": role.memory if role.memory is not None else self.memory if sized else None,
            }
        )
