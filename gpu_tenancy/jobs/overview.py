"""Tables of jobs: what runs, and what it uses."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Any, Final

from rich.console import Group
from rich.text import Text

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import at, int_at, map_at, maps_at, text_at
from gpu_tenancy.base.quantity import CPU, MEMORY, add, amount, amount_text, gpus, leading_text
from gpu_tenancy.base.terminal import table
from gpu_tenancy.base.texts import plural, visible
from gpu_tenancy.cluster.demand import FAILED, outcome
from gpu_tenancy.cluster.pods import Manifest, ended, label, name_of, requests
from gpu_tenancy.jobs.gpu_use import GpuUse, together
from gpu_tenancy.jobs.jobs import Jobs
from gpu_tenancy.jobs.listing import age
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import NOT_FOUND, ApiError
from gpu_tenancy.model.kinds import kind_of
from gpu_tenancy.model.names import USER

METRICS: Final = ("metrics.k8s.io/v1beta1", "PodMetrics")
_STAGES: Final = {"waiting": "pending", "checked": "reserved", "switched off": "stopped"}
_STYLES: Final = {"running": "green", "pending": "yellow", "failed": "red"}
_ORDER: Final = ("running", "starting", "pending", "reserved", "stopped")
Use = Mapping[str, Mapping[str, int]]
"""CPU and memory that pods use, by the name of the pod, in base units."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job, a server or a single pod.

    Attributes:
        state: as Kueue or its controller has it, such as `running` or `pending`; of a CronJob its schedule.
        running: its pods that run; `pods` is how many it asks for.
        requests: of all its pods, in base units.
        user: whose it is, by its label; empty without.
    """

    name: str
    kind: str
    state: str
    running: int
    pods: int
    requests: Mapping[str, int]
    since: str
    user: str


def rows(jobs: Jobs) -> tuple[JobRow, ...]:
    """Everything in a namespace that people submitted: what runs first, then what waits, then what ended."""
    found = sorted((_row(jobs, root) for root in jobs.roots), key=lambda row: row.since, reverse=True)
    return tuple(sorted(found, key=lambda row: _ORDER.index(row.state) if row.state in _ORDER else len(_ORDER)))


def _row(jobs: Jobs, manifest: Manifest) -> JobRow:
    pods = [pod for pod in jobs.pods(manifest) if not ended(pod)]
    running = sum(text_at(pod, "status", "phase") == "Running" for pod in pods)
    wanted = _wanted(manifest)
    queued = [workload.total for workload in jobs.workloads_of(manifest)]
    return JobRow(
        name_of(manifest),
        text_at(manifest, "kind"),
        _state(jobs, manifest, running, wanted),
        running,
        wanted,
        add(*(queued or (requests(map_at(pod, "spec")) for pod in pods))),
        text_at(manifest, "metadata", "creationTimestamp"),
        label(manifest, USER),
    )


def _wanted(manifest: Manifest) -> int:
    kind = kind_of(manifest)
    if kind is None or not kind.is_queued:
        return 0
    groups = int_at(manifest, *kind.groups.count.split("."), otherwise=1) if kind.groups else 1
    return groups * sum(pods.count for pods in kind.pod_sets(manifest))


def _state(jobs: Jobs, manifest: Manifest, running: int, wanted: int) -> str:
    if end := outcome(manifest):
        return "failed" if end in FAILED else "complete"
    if schedule := text_at(manifest, "spec", "schedule"):
        return "suspended" if at(manifest, "spec", "suspend") else f"at {schedule}"
    if running:
        return "running" if running >= wanted else "starting"
    queued = jobs.workloads_of(manifest)
    stages = ("stopped" if workload.on_hold else _STAGES.get(workload.stage) for workload in queued)
    return next(filter(None, stages), "starting" if wanted else "stopped")


def shown(found: tuple[JobRow, ...], now: datetime | None = None, what: str = "job") -> Group:
    """Output of `tenancy jobs`, or of a command about `what` other objects."""
    now = now or datetime.now(UTC)
    listed = table(what, "kind", "state", "pods#", "requests", "age#", "user", drop=("age", "user", "kind"))
    for row in found:
        state = Text(row.state, style=_STYLES.get(row.state, ""))
        pods = f"{row.running}/{row.pods}" if row.pods else ""
        requested = leading_text(row.requests) if row.requests else ""
        listed.add_row(row.name, row.kind, state, pods, requested, age(row.since, now), row.user)
    return Group(listed) if found else Group(Text(f"no {what}s", style="bold"))


def data(found: tuple[JobRow, ...]) -> list[dict[str, Any]]:
    """The same for programs, amounts in base units."""
    return [asdict(row) for row in found]


@dataclass(frozen=True, slots=True)
class UseRow:
    """What a job or a pod uses.

    Attributes:
        name: of the job, or number and name of the pod.
        where: how many pods run, or the node of the pod.
        used: CPU and memory in base units; None without metrics.
        requests: in base units.
        gpus: what its GPUs do; None if that was not asked, or no pod tells.
    """

    name: str
    where: str
    used: Mapping[str, int] | None
    requests: Mapping[str, int]
    gpus: GpuUse | None = None


def use_of(cluster: Cluster, namespace: str) -> Use:
    """What the pods of a namespace use.

    Raises:
        ConsoleError: the cluster has no metrics.
    """
    try:
        found = cluster.list(*METRICS, namespace=namespace)
    except ApiError as error:
        if error.status not in {NOT_FOUND, 503}:
            raise
        raise ConsoleError(
            "the cluster serves no metrics of pods", "ask the platform team for metrics-server"
        ) from error
    return {name_of(pod): _measured(pod) for pod in found}


def _measured(pod: Manifest) -> dict[str, int]:
    containers = [map_at(container, "usage") for container in maps_at(pod, "containers")]
    return {name: sum(ceil(amount(name, one.get(name, 0))) for one in containers) for name in (CPU, MEMORY)}


def of_jobs(jobs: Jobs, use: Use, busy: Mapping[str, GpuUse]) -> Iterator[UseRow]:
    """What each job with running pods uses, and what their GPUs do."""
    for root in jobs.roots:
        pods = _running(jobs, root)
        if pods:
            names = [name_of(pod) for pod in pods]
            used = [use[name] for name in names if name in use]
            asked = add(*(requests(map_at(pod, "spec")) for pod in pods))
            of_gpus = together(busy, names)
            yield UseRow(name_of(root), plural(len(pods), "pod"), add(*used) if used else None, asked, of_gpus)


def of_pods(jobs: Jobs, manifest: Manifest, use: Use, busy: Mapping[str, GpuUse]) -> Iterator[UseRow]:
    """What each pod of a job uses, with the number by which `tenancy logs` knows it, and what its GPUs do."""
    for number, pod in enumerate(jobs.pods(manifest)):
        where = text_at(pod, "spec", "nodeName") or text_at(pod, "status", "phase").lower()
        asked = requests(map_at(pod, "spec"))
        name = name_of(pod)
        yield UseRow(f"{number} {name}", where, use.get(name), asked, busy.get(name))


def _running(jobs: Jobs, manifest: Manifest) -> list[Manifest]:
    return [pod for pod in jobs.pods(manifest) if text_at(pod, "status", "phase") == "Running"]


def used(found: tuple[UseRow, ...], *, pods: bool, busy: bool = False, notes: Iterable[str] = ()) -> Group:
    """Output of `tenancy top`: what is used of what is requested, and what GPUs do if that was asked."""
    more, drop = (("GPUs#", "GPU memory#"), ("CPUs", "memory")) if busy else (("GPUs",), ("GPUs",))
    listed = table("pod" if pods else "job", "node" if pods else "pods", "CPUs#", "memory#", *more, drop=drop)
    for row in found:
        cells = [
            f"{amount_text(name, _rounded(name, row.used[name])) if row.used else '?'}"
            f" of {amount_text(name, row.requests.get(name, 0))}"
            for name in (CPU, MEMORY)
        ]
        held = gpus(row.requests)
        unknown = "?" if held else ""
        of_gpus = [row.gpus.busy, row.gpus.filled] if row.gpus else [unknown, unknown]
        cells += of_gpus if busy else [leading_text(held) if held else ""]
        listed.add_row(row.name, row.where, *cells)
    told = (Text(visible(note), style="dim") for note in notes)
    return Group(listed, *told) if found else Group(Text("no running pods", style="bold"))


def _rounded(name: str, value: int) -> int:
    """An amount to a tenth of a CPU, or to a Mi."""
    unit = 100 if name == CPU else 2**20
    return ceil(value / unit) * unit


def use_data(found: tuple[UseRow, ...]) -> list[dict[str, Any]]:
    """The same for programs, amounts in base units."""
    return [asdict(row) for row in found]
