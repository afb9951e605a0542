"""Servers, jobs and gangs, with the size, nodes and priority of each pod, and the runtimes of Kubeflow Trainer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts, is_extended
from gpu_tenancy.model.catalogue.pods import Engine
from gpu_tenancy.model.kinds import kinds
from gpu_tenancy.model.names import ACCOUNT
from gpu_tenancy.model.plan.datasets import NO_MOUNTS, Mounts, caches_of, mounts_of
from gpu_tenancy.model.plan.fabric import PodFabric, channels_of, pod_fabric
from gpu_tenancy.model.plan.needs import framework_used, there
from gpu_tenancy.model.plan.pods import (
    flavor_of,
    grouped,
    is_gang,
    limits_of,
    parts,
    placed_roles,
    pod_size,
    shared_memory,
    topology_request,
)
from gpu_tenancy.model.plan.pools import NodeTaint
from gpu_tenancy.model.plan.queues import gang_queue_name
from gpu_tenancy.model.plan.rollouts import SCHEDULED_WITHIN, Rollout, rollout
from gpu_tenancy.model.plan.secrets import NO_REFERENCES, References, literals, references
from gpu_tenancy.model.plan.servers import DEREGISTERED_AFTER, RoutePlan, engine_of, grace_period, route
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.signals import Monitor, Query, Signal, metric_name, monitor, per_pod, query, signals, target
from gpu_tenancy.model.resolve import ResolvedServer
from gpu_tenancy.model.spec.cluster import Metrics
from gpu_tenancy.model.spec.roles import LEADER, LEADER_WORKER_SET, WORKER, Framework
from gpu_tenancy.model.spec.serving import NO_METRICS, ServerLevel, ServerMetrics
from gpu_tenancy.model.spec.workloads import Pace, Training, Workload

DEPLOYMENT: Final = kinds()["apps", "Deployment"].api  # API version and kind of a server of one node
GANG: Final = kinds()["batch.volcano.sh", "Job"].api  # API version and kind of a gang
OF_JOB = "job-"  # start of the names of the runtimes of jobs; no runtime of a priority class starts with it
SHIPPED: Final[Mapping[Framework, str]] = {"pytorch": "torch-distributed", "jax": "jax-distributed"}
"""Trainer's own runtimes, which users can name in their TrainJobs, by framework."""
WAITS_FOR_RAY: Final = {CPU: 200, MEMORY: 256 * 2**20}
"""Requests and limits of the init container `wait-gcs-ready` of Ray's workers:
https://github.com/ray-project/kuberay/blob/v1.6.2/ray-operator/controllers/ray/common/pod.go."""


@dataclass(frozen=True, slots=True)
class PodPlan:
    """One kind of pod of a workload."""

    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: dict[str, str]
    amounts: Amounts  # requests, and limits unless `limits` has others, in base units: CPU, memory, GPUs
    node_labels: dict[str, str]  # node selector: its GPU's model
    tolerated: tuple[NodeTaint, ...]
    priority: str | None
    shared_memory: int | None = 0  # /dev/shm in bytes; 0 for the runtime's default, None for up to the pod's memory
    fabric: PodFabric | None = None
    volumes: Mounts = NO_MOUNTS
    references: References = NO_REFERENCES
    caches: tuple[str, ...] = ()  # labels of preferred nodes, which have caches of its datasets
    topology: Mapping[str, str] = field(default_factory=dict[str, str])  # annotations for Kueue's choice of nodes
    channel: str | None = None  # ResourceClaimTemplate of a channel of its job's ComputeDomain
    stays: bool = False  # whether node autoscalers leave it where it runs
    engine: Engine | None = None  # None for jobs and custom servers
    non_root: bool = False  # whether the namespace rejects pods that may run as root
    limits: Amounts = field(default_factory=dict[str, int])  # CPU and memory above the requests
    ends: tuple[int, int] | None = None  # seconds of answers after its deletion, and grace period; None for defaults
    account: str | None = ACCOUNT  # its ServiceAccount; None for the default of the namespace
    code: str = ""  # archive of the command's folder, as `tenancy submit --code` packs it

    @property
    def claims(self) -> dict[str, str]:
        """Its claims of devices: the ResourceClaimTemplate of each, by the name of the claim."""
        named = {"channel": self.channel, "interfaces": self.fabric.claim if self.fabric else None}
        return {name: template for name, template in named.items() if template}

    @property
    def gpus(self) -> int:
        """GPUs of the pod."""
        return sum(amount for resource, amount in self.amounts.items() if is_extended(resource))


@dataclass(frozen=True, slots=True)
class Scaling:
    """An autoscaler's bounds. Raises ValueError: no target, a metric without a unit, or a query without a target."""

    minimum: int
    maximum: int
    cpu: int | None  # target utilization in percent of the requested CPU
    latency: tuple[str, float] | None  # pod metric and its target in seconds
    query: Query | None = None  # KEDA's query of the latency, averaged over pods; None if an adapter serves it
    per_pod: str | None = None  # PromQL of the latency of each pod; None if an adapter serves only the metric
    signals: tuple[Signal, ...] = ()
    up: Pace = field(default_factory=Pace)
    down: Pace = field(default_factory=Pace)

    @property
    def by_keda(self) -> bool:
        """Whether KEDA owns the number of replicas."""
        return bool(self.query) or any(signal.query for signal in self.signals)

    def __post_init__(self) -> None:
        msg = ""
        if self.cpu is None and self.latency is None and not self.signals:
            msg = "the autoscaler has no target; set cpu, latency or both"
        elif self.latency and not self.latency[0].endswith("_seconds"):
            msg = f"metric {self.latency[0]} does not end in _seconds, so its unit is unknown; serve it in seconds"
        elif self.query and self.latency is None:
            msg = "the autoscaler has a latency query, but no latency target; set latency"
        if msg:
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """A Deployment, or a LeaderWorkerSet, with its Service and autoscaler."""

    spec: ResolvedServer
    name: str
    team: str
    pod: PodPlan  # its pods; of a group of nodes, the leader
    rollout: Rollout
    scaling: Scaling | None  # None with a fixed number of replicas
    monitor: Monitor | None = None
    worker: PodPlan | None = None  # the other pods of each replica; None if a replica is one pod
    metrics: ServerMetrics = NO_METRICS
    level: ServerLevel = field(default_factory=ServerLevel)
    route: RoutePlan | None = None

    @property
    def replicas(self) -> int | None:
        """A fixed number of replicas; None with an autoscaler."""
        return None if self.scaling else self.spec.replicas.min

    @property
    def progress(self) -> int:
        """Seconds within which a rollout must make a pod ready (progressDeadlineSeconds)."""
        return self.spec.ready_within + SCHEDULED_WITHIN

    @property
    def api(self) -> tuple[str, str]:
        """API version and kind of the object that has its pods."""
        return LEADER_WORKER_SET if self.worker else DEPLOYMENT


@dataclass(frozen=True, slots=True)
class RolePlan:
    """Pods of a job that are alike."""

    name: str
    pods: int
    pod: PodPlan


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A Job, JobSet, TrainJob, RayJob or LeaderWorkerSet in the team's queue, or a Volcano Job (gang) in Volcano's."""

    name: str
    team: str
    queue: str
    framework: Framework
    roles: tuple[RolePlan, ...]  # the launcher, head or leader first; a Job, and a TrainJob of pytorch or jax, have one
    gang: bool  # whether Volcano starts all of its pods at once or none
    retries: int
    deadline: int | None  # seconds after which it, or each pod of a gang, is terminated; None for no deadline
    keep: int | None = None  # seconds until a finished one is deleted; None for a job of a stack, which would run again
    least: int | None = None  # number of pods that it can run with; None for all
    success: tuple[str, ...] = ()  # roles whose pods must succeed; empty for all
    runtime: str | None = None  # of a TrainJob; None for other kinds
    dispatched: bool = False  # whether a worker of MultiKueue runs it, and controllers of this cluster leave it alone
    entrypoint: tuple[str, ...] = ()  # command of a RayJob
    groups: int = 1  # number of groups of a LeaderWorkerSet, each with the pods of `roles`
    user: str | None = None  # label value if a person submits it; empty for nobody's, None for a job of a stack

    @property
    def channels(self) -> str | None:
        """ResourceClaimTemplate of its ComputeDomain; None without one."""
        return next((role.pod.channel for role in self.roles if role.pod.channel), None)

    @property
    def pod(self) -> PodPlan:
        """The pods of its last role: the workers."""
        return self.roles[-1].pod

    @property
    def workers(self) -> int:
        """Number of pods of its last role: the workers."""
        return self.roles[-1].pods


def servers(tree: Tree, team: str) -> tuple[ServerPlan, ...]:
    """A team's servers."""
    return tuple(plan for server in tree.stack.teams[team].serving.values() if (plan := _server(tree, server)))


def jobs(tree: Tree, team: str) -> tuple[JobPlan, ...]:
    """A team's jobs that Kueue queues."""
    return tuple(_jobs(tree, team, "kueue"))


def gangs(tree: Tree, team: str) -> tuple[JobPlan, ...]:
    """A team's gangs, which Volcano schedules."""
    return tuple(_jobs(tree, team, "volcano"))


def _jobs(tree: Tree, team: str, scheduler: str) -> Iterator[JobPlan]:
    for name, job in tree.stack.teams[team].training.items():
        pods = _pods(tree, team, job) if job.scheduler == scheduler else {}
        if not pods:
            continue
        if job.compute_domain:
            pods = {role: replace(pod, channel=channels_of(name)) if pod.gpus else pod for role, pod in pods.items()}
        roles = tuple(RolePlan(role, number, pods[role]) for role, number in job.pods_by_role.items())
        flavor = flavor_of(tree, team, next(iter(parts(tree, team, job).values()))) if is_gang(job) else None
        yield JobPlan(
            name=name,
            team=team,
            queue=gang_queue_name(team, flavor.name) if flavor else team,
            framework=job.framework,
            roles=roles,
            gang=job.gang,
            retries=job.retries,
            deadline=_deadline(tree, team, job),
            least=job.workers.min if job.elastic else None,
            success=tuple(job.success_roles),
            runtime=_runtime(tree, name, job, roles[-1].pod) if job.kind.runtime else None,
            dispatched=tree.stack.dispatches,
            entrypoint=(*job.command, *job.args) if job.kind.submits else (),
            groups=job.groups,
        )


def _runtime(tree: Tree, name: str, job: Training, pod: PodPlan) -> str:
    """Name of a TrainJob's runtime: its own, or, for workers of MultiKueue, one that every worker has."""
    if not tree.stack.dispatches or job.framework not in SHIPPED:
        return f"{OF_JOB}{name}"
    return class_runtime(job.framework, pod.priority) if pod.priority else SHIPPED[job.framework]


def class_runtime(framework: Framework, priority: str) -> str:
    """Name of the runtime for all TrainJobs of a priority class."""
    return f"{SHIPPED[framework]}-{priority}"


def _pods(tree: Tree, team: str, workload: ResolvedServer | Training) -> dict[str, PodPlan]:
    """The pods of a workload by role; empty if a flavor is ambiguous, which `model.checks` reports."""
    of_role = parts(tree, team, workload)
    pods = {name: pod for name, part in of_role.items() if (pod := _pod(tree, team, part))}
    if len(pods) < len(of_role):
        return {}
    topology = grouped({name: pod.topology for name, pod in pods.items()}, placed_roles(of_role))
    return {name: replace(pod, topology=topology[name]) for name, pod in pods.items()}


def _deadline(tree: Tree, team: str, job: Training) -> int | None:
    """The job's deadline, else the team's, if its kind can have one."""
    usual = None if any(key == "deadline" for key, _ in job.kind.lacks) else tree.stack.teams[team].deadline
    return usual if job.deadline is None else job.deadline


def _pod(tree: Tree, name: str, workload: Workload) -> PodPlan | None:
    size, team = pod_size(tree, name, workload), tree.stack.teams[name]
    if size is None:
        return None
    return PodPlan(
        image=workload.image,
        command=tuple(workload.command),
        args=tuple(workload.args),
        env=literals(workload.env),
        amounts=size.amounts,
        limits=limits_of(workload),
        node_labels=dict(size.flavor.node_labels),
        tolerated=size.flavor.taints,
        priority=workload.priority or team.priority,
        shared_memory=shared_memory(workload, size),
        fabric=pod_fabric(tree, size.flavor.name, workload),
        volumes=mounts_of(tree.stack.datasets, name, team, workload),
        references=references(team, workload),
        caches=caches_of(tree.stack.datasets, size.flavor.name, workload),
        topology=topology_request(size.flavor.levels, workload),
        stays=workload.stays,
        engine=engine_of(workload),
        non_root=team.pod_security == "restricted",
    )


def _ends(server: ResolvedServer, pods: dict[str, PodPlan]) -> dict[str, PodPlan]:
    """The pods of a server that drains; the workers of a group work until their leader has answered all requests."""
    grace = grace_period(server)
    if grace is None or server.drain is None:
        return pods
    waits = {WORKER: DEREGISTERED_AFTER + server.drain}
    return {role: replace(pod, ends=(waits.get(role, DEREGISTERED_AFTER), grace)) for role, pod in pods.items()}


def _server(tree: Tree, server: ResolvedServer) -> ServerPlan | None:
    team = server.team
    pods, size = _ends(server, _pods(tree, team, server)), pod_size(tree, team, server)
    if not pods or size is None:
        return None
    return ServerPlan(
        spec=server,
        name=server.name,
        team=team,
        pod=pods[LEADER if server.grouped else ""],
        rollout=rollout(tree, server, size),
        scaling=_scaling(tree.stack.metrics, server) if server.autoscaled else None,
        monitor=monitor(tree, server),
        worker=pods.get(WORKER),
        metrics=server.metrics if server.has_service else NO_METRICS,
        level=server.service_level,
        route=route(server),
    )


def _scaling(metrics: Metrics, server: ResolvedServer) -> Scaling:
    metric, seconds = metric_name(metrics, server), target(server)
    latency = (metric, seconds) if metric and seconds else None
    return Scaling(
        minimum=server.replicas.min,
        maximum=server.replicas.max,
        cpu=server.scale_on.cpu,
        latency=latency,
        query=query(metrics, server) if latency else None,
        per_pod=per_pod(metrics, server) if latency else None,
        signals=tuple(signals(metrics, server)),
        up=server.scale_on.up,
        down=server.scale_on.down,
    )


@dataclass(frozen=True, slots=True)
class RuntimePlan:
    """A TrainingRuntime of Kubeflow Trainer: pod fields of its TrainJobs, and fields that TrainJobs cannot patch."""

    name: str
    team: str
    framework: Framework
    priority: str | None
    job: JobPlan | None = None  # the only job that uses it; None for a runtime for users


def runtimes(tree: Tree, team: str) -> tuple[RuntimePlan, ...]:
    """A team's runtimes: one for each TrainJob, and one for each class of a namespace that admits only some classes.

    There, TrainJobs with Trainer's own runtimes would never get a pod. Empty without Kubeflow Trainer.
    """
    if not there(tree, "trainer"):
        return ()
    of_jobs = (
        RuntimePlan(job.runtime, team, job.framework, job.pod.priority, job)
        for job in jobs(tree, team)
        if job.runtime and not job.dispatched
    )
    # TrainJobs of a MultiKueue manager name its runtimes, which are not copied to a worker.
    several = tree.stack.multikueue is not None
    classes = tree.stack.teams[team].compute.priorities or (tree.stack.priorities if several else ())
    of_classes = (
        RuntimePlan(class_runtime(framework, priority), team, framework, priority)
        for framework in SHIPPED
        if framework == "pytorch" or several or framework_used(tree.stack, framework)
        for priority in sorted(classes)
    )
    return (*of_jobs, *of_classes)
