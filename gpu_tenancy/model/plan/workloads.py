"""Servers, jobs and gangs, with the size, nodes and priority of each pod."""

from dataclasses import dataclass
from typing import Literal

from gpu_tenancy.model.plan.fabric import PodFabric, pod_fabric
from gpu_tenancy.model.plan.latency import Monitor, Query, metric_name, monitor, per_pod, query, target
from gpu_tenancy.model.plan.pods import pod_size, shared_memory
from gpu_tenancy.model.plan.queues import gang_queue_name
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.sidecars import NO_MOUNTS, Mounts, mounts_of
from gpu_tenancy.model.plan.supply import NodeTaint
from gpu_tenancy.model.quantity import Amounts
from gpu_tenancy.model.spec.workloads import Server, Training, Workload

TORCH = "torch-distributed"
"""Name of Trainer's own runtime for PyTorch, and start of the names of the teams' runtimes."""
READY_AFTER = 30
"""Initial delay of the readiness probe, in seconds."""
ALIVE_AFTER = 60
"""Initial delay of the liveness probe, in seconds."""


@dataclass(frozen=True, slots=True)
class PodPlan:
    """One kind of pod of a workload.

    Attributes:
        amounts: requests and limits, in base units: CPU, memory, GPUs.
        node_labels: node selector: its GPU's model.
        tolerated: taints of those nodes.
        shared_memory: size of /dev/shm in bytes; 0 for the container runtime's default.
        fabric: what the network between GPUs needs; None without.
        datasets: the datasets that the container mounts.
    """

    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: dict[str, str]
    amounts: Amounts
    node_labels: dict[str, str]
    tolerated: tuple[NodeTaint, ...]
    priority: str | None
    shared_memory: int = 0
    fabric: PodFabric | None = None
    datasets: Mounts = NO_MOUNTS


@dataclass(frozen=True, slots=True)
class Scaling:
    """An autoscaler's bounds and targets.

    Attributes:
        cpu: target utilization in percent of the requested CPU, or None.
        latency: pod metric and its target in seconds, or None.
        per_pod: PromQL of the latency of each pod; None if an adapter serves only the metric.
        query: KEDA's query of that metric, averaged over the pods; None if an adapter serves it for each pod.

    Raises:
        ValueError: no target, a metric without a unit, or a query without a target.
    """

    minimum: int
    maximum: int
    cpu: int | None
    latency: tuple[str, float] | None
    query: Query | None = None
    per_pod: str | None = None

    def __post_init__(self) -> None:
        if self.cpu is None and self.latency is None:
            msg = "the autoscaler has no target; set cpu, latency or both"
            raise ValueError(msg)
        if self.latency and not self.latency[0].endswith("_seconds"):
            msg = f"metric {self.latency[0]} does not end in _seconds, so its unit is unknown; serve it in seconds"
            raise ValueError(msg)
        if self.query and self.latency is None:
            msg = "the autoscaler has a latency query, but no latency target; set latency"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """A Deployment with its Service and autoscaler.

    Attributes:
        replicas: a fixed number; None with an autoscaler.
        scaling: the autoscaler; None with a fixed number.
        startup: maximum startup time in seconds.
        monitor: how Prometheus scrapes its pods; None if it does not.

    Raises:
        ValueError: both a fixed number and an autoscaler, which would override each other; or neither.
    """

    name: str
    team: str
    queue: str
    pod: PodPlan
    port: int
    health: str
    startup: int
    surge: int
    replicas: int | None
    scaling: Scaling | None
    monitor: Monitor | None = None

    def __post_init__(self) -> None:
        if (self.replicas is None) == (self.scaling is None):
            msg = f"server {self.name} must have either a fixed number of replicas or an autoscaler; set exactly one"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A batch job in the team's queue: a Job, or a TrainJob of Kubeflow Trainer.

    Attributes:
        together: whether Volcano starts all of its pods at once or none.
        deadline: seconds after which it is terminated, or None.
        keep: seconds after which it is deleted when finished.
        runtime: of a TrainJob; None for Trainer's own.
        dispatched: whether a worker of MultiKueue runs it, and the controllers of this cluster leave it alone.
    """

    name: str
    team: str
    queue: str
    framework: Literal["job", "pytorch"]
    pod: PodPlan
    workers: int
    together: bool
    retries: int
    deadline: int | None
    keep: int
    runtime: str | None = None
    dispatched: bool = False


@dataclass(frozen=True, slots=True)
class RuntimePlan:
    """A TrainingRuntime of Kubeflow Trainer: what the pods of its TrainJobs have, and what TrainJobs cannot patch.

    Attributes:
        priority: priority class of the pods; None for the cluster's default.
        fabric: whose sidecar the pods have; None without.
    """

    name: str
    team: str
    priority: str | None
    fabric: PodFabric | None = None


@dataclass(frozen=True, slots=True)
class GangPlan:
    """A Volcano Job: all pods of all tasks, or none.

    Attributes:
        deadline: seconds after which each of its pods is terminated, or None.
        keep: seconds after which it is deleted when finished.
    """

    name: str
    team: str
    queue: str
    pod: PodPlan
    tasks: dict[str, int]
    retries: int
    deadline: int | None
    keep: int


def servers(tree: Tree, team: str) -> tuple[ServerPlan, ...]:
    """A team's servers."""
    return tuple(
        plan for name, server in tree.stack.teams[team].serving.items() if (plan := _server(tree, team, name, server))
    )


def jobs(tree: Tree, team: str) -> tuple[JobPlan, ...]:
    """A team's jobs that Kueue queues."""
    return tuple(
        JobPlan(
            name=name,
            team=team,
            queue=team,
            framework=job.framework,
            pod=pod,
            workers=job.workers,
            together=job.together,
            retries=job.retries,
            deadline=None if job.deadline is None else int(job.deadline),
            keep=int(job.keep),
            runtime=runtime_name(pod) if job.framework == "pytorch" else None,
            dispatched=tree.stack.dispatches,
        )
        for name, job in tree.stack.teams[team].training.items()
        if job.scheduler == "kueue" and (pod := _pod(tree, team, job))
    )


def runtimes(tree: Tree, team: str) -> tuple[RuntimePlan, ...]:
    """A team's runtimes: those of its TrainJobs, and one for each class of a namespace that admits only some classes.

    There, TrainJobs with Trainer's own runtime would never get a pod. Empty without Kubeflow Trainer.
    """
    if not tree.trainer:
        return ()
    of_jobs = [job.pod for job in jobs(tree, team) if job.framework == "pytorch"]
    plans = [RuntimePlan(name, team, pod.priority, _sidecar(pod)) for pod in of_jobs if (name := runtime_name(pod))]
    # TrainJobs of a MultiKueue manager name its runtimes, which are not copied to a worker.
    managed = tree.stack.multikueue is not None and tree.stack.multikueue.manager is not None
    of_classes = sorted(tree.stack.teams[team].compute.priorities or (tree.stack.priorities if managed else ()))
    plans += [RuntimePlan(f"{TORCH}-{name}", team, name, None) for name in of_classes]
    return tuple({plan.name: plan for plan in plans}.values())


def runtime_name(pod: PodPlan) -> str | None:
    """Name of the runtime of a TrainJob's pods; None if Trainer's own has all that they need.

    A TrainJob can patch all fields of its pods that are needed here, except the priority class and further containers.
    """
    sidecar = _sidecar(pod)
    parts = [*([pod.priority] if pod.priority else []), *([sidecar.name] if sidecar else [])]
    return "-".join((TORCH, *parts)) if parts else None


def _sidecar(pod: PodPlan) -> PodFabric | None:
    return pod.fabric if pod.fabric and pod.fabric.daemon else None


def gangs(tree: Tree, team: str) -> tuple[GangPlan, ...]:
    """A team's gangs, which Volcano schedules."""
    return tuple(
        _gang(tree, team, name, job, pod)
        for name, job in tree.stack.teams[team].training.items()
        if job.scheduler == "volcano" and (pod := _pod(tree, team, job))
    )


def _gang(tree: Tree, team: str, name: str, job: Training, pod: PodPlan) -> GangPlan:
    size = pod_size(tree, team, job)
    return GangPlan(
        name=name,
        team=team,
        queue=gang_queue_name(team, size.flavor.name if size else ""),
        pod=pod,
        tasks=job.roles,
        retries=job.retries,
        deadline=None if job.deadline is None else int(job.deadline),
        keep=int(job.keep),
    )


def _pod(tree: Tree, team: str, workload: Workload) -> PodPlan | None:
    size = pod_size(tree, team, workload)
    if size is None:
        return None
    return PodPlan(
        image=workload.image,
        command=tuple(workload.command),
        args=tuple(workload.args),
        env=dict(workload.env),
        amounts=size.amounts,
        node_labels=dict(size.flavor.node_labels),
        tolerated=size.flavor.taints,
        priority=workload.priority or tree.stack.teams[team].priority,
        shared_memory=shared_memory(workload, size),
        fabric=pod_fabric(tree.stack, size.flavor.name, workload),
        datasets=mounts_of(tree.stack, tree.stack.teams[team], workload),
    )


def _server(tree: Tree, team: str, name: str, server: Server) -> ServerPlan | None:
    pod = _pod(tree, team, server)
    if pod is None:
        return None
    return ServerPlan(
        name=name,
        team=team,
        queue=team,
        pod=pod,
        port=server.port,
        health=server.health,
        startup=int(server.startup),
        surge=server.surge,
        replicas=None if server.autoscaled else server.replicas.min,
        scaling=_scaling(tree, team, name, server) if server.autoscaled else None,
        monitor=monitor(tree.stack, server),
    )


def _scaling(tree: Tree, team: str, name: str, server: Server) -> Scaling:
    metric, seconds = metric_name(tree.stack.metrics), target(server)
    latency = (metric, seconds) if metric and seconds else None
    return Scaling(
        minimum=server.replicas.min,
        maximum=server.replicas.max,
        cpu=server.scale_on.cpu if server.scale_on else 70,
        latency=latency,
        query=query(tree.stack, team, name) if latency else None,
        per_pod=per_pod(tree.stack, team, name) if latency else None,
    )
