"""Tables of a team: jobs, their usage, and claims that jobs can mount."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import ceil
from typing import Any, Final, TypeVar

from rich.console import Group
from rich.text import Text

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import at, int_at, list_at, map_at, maps_at, text_at
from gpu_tenancy.base.quantity import CPU, MEMORY, add, amount, amount_text, gpu_count, gpus, leading_text
from gpu_tenancy.base.terminal import table
from gpu_tenancy.base.texts import plural, visible
from gpu_tenancy.cluster.demand import FAILED, outcome
from gpu_tenancy.cluster.pods import Manifest, ended, label, name_of, requests
from gpu_tenancy.cluster.rejections import refusal
from gpu_tenancy.jobs.jobs import Jobs
from gpu_tenancy.jobs.kubectl import GpuUse, together
from gpu_tenancy.jobs.listing import QueuedJob, age
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import NOT_FOUND, ApiError
from gpu_tenancy.model.kinds import kind_of
from gpu_tenancy.model.names import BUCKET, USER

METRICS: Final = ("metrics.k8s.io/v1beta1", "PodMetrics")
_STAGES: Final = {"waiting": "pending", "checked": "reserved", "switched off": "stopped"}
_STYLES: Final = {"running": "green", "pending": "yellow", "failed": "red", "refused": "red"}
_ORDER: Final = ("running", "starting", "refused", "pending", "reserved", "stopped")
_WAITING: Final = {*_ORDER[1:], "held back"}
_Row = TypeVar("_Row", QueuedJob, "JobRow")
Use = Mapping[str, Mapping[str, int]]  # CPU and memory of pods, by name, in base units


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job, a server or a single pod."""

    name: str
    kind: str
    state: str  # of Kueue or its controller, such as `running`; schedule of a CronJob
    running: int  # pods that run
    pods: int  # requested number
    requests: Mapping[str, int]  # of all its pods, in base units
    since: str
    user: str  # owner by its label; empty without
    refused: str = ""  # why the API server refuses its pods or children, and the fix


def rows(jobs: Jobs) -> tuple[JobRow, ...]:
    """Objects that people submitted in a namespace: running, then pending, then ended."""
    found = sorted((_row(jobs, root) for root in jobs.roots), key=lambda row: row.since, reverse=True)
    return tuple(sorted(found, key=lambda row: _ORDER.index(row.state) if row.state in _ORDER else len(_ORDER)))


def beside(jobs: Jobs, queued: Iterable[QueuedJob]) -> tuple[JobRow, ...]:
    """Objects of a namespace that ended, are stopped, or are in no queue."""
    listed = {job.name for job in queued}
    return tuple(row for row in rows(jobs) if row.name not in listed)


def chosen(rows: Iterable[_Row], user: str = "", *, pending: bool = False, by: str | None = None) -> tuple[_Row, ...]:
    """The jobs of a user, or of all; if `pending`, only those that do not run yet; `by`: as `--sort`."""
    found = [row for row in rows if user in {"", row.user} and not (pending and row.state not in _WAITING)]
    keys: Mapping[str | None, Callable[[_Row], Any]] = {
        None: lambda _: 0,
        "age": lambda row: row.since,
        "gpus": lambda row: -gpu_count(row.requests),
        "name": lambda row: row.name,
        "user": lambda row: (row.user, row.name),
    }
    return tuple(sorted(found, key=keys[by]))


def _row(jobs: Jobs, manifest: Manifest) -> JobRow:
    pods = [pod for pod in jobs.pods(manifest) if not ended(pod)]
    running = sum(text_at(pod, "status", "phase") == "Running" for pod in pods)
    kind = kind_of(manifest)
    wanted = 0
    if kind and kind.is_queued:
        groups = int_at(manifest, *kind.groups.count.split("."), otherwise=1) if kind.groups else 1
        wanted = groups * sum(pods.count for pods in kind.pod_sets(manifest))
    workloads = jobs.workloads_of(manifest)
    wanted = max(wanted, sum(pods.count for one in workloads if one.stage != "finished" for pods in one.sets))
    queued, state = [workload.total for workload in workloads], _state(jobs, manifest, running, wanted)
    messages = jobs.refused.get(f"{jobs.namespace}/{name_of(manifest)}") if state in {"starting", "pending"} else None
    return JobRow(
        name_of(manifest),
        text_at(manifest, "kind"),
        "refused" if messages else state,
        running,
        max(running, wanted),  # a launcher is not in the sizes of every kind
        add(*(queued or (requests(map_at(pod, "spec")) for pod in pods))),
        text_at(manifest, "metadata", "creationTimestamp"),
        label(manifest, USER),
        "; ".join(refusal(messages[0], admitted=any(one.stage == "admitted" for one in workloads))) if messages else "",
    )


def _state(jobs: Jobs, manifest: Manifest, running: int, wanted: int) -> str:
    if end := outcome(manifest):
        return "failed" if end in FAILED else "complete"
    if schedule := text_at(manifest, "spec", "schedule"):
        return "suspended" if at(manifest, "spec", "suspend") else f"at {schedule}"
    if running:
        return "running" if running >= wanted else "starting"
    if text_at(manifest, "status", "state", "phase") == "Pending":  # of a Job of Volcano
        return "pending"
    queued = jobs.workloads_of(manifest)
    stages = ("stopped" if workload.on_hold else _STAGES.get(workload.stage) for workload in queued)
    begins = wanted or any(workload.stage == "admitted" for workload in queued)
    return next(filter(None, stages), "starting" if begins else "stopped")


def shown(found: tuple[JobRow, ...], now: datetime | None = None) -> Group:
    """The second table of `tenancy queue -v`."""
    now = now or datetime.now(UTC)
    listed = table("other…", "kind", "state…", "pods#", "requests", "age#", "user…", drop=("age", "user", "kind"))
    for row in found:
        state = Text(row.state, style=_STYLES.get(row.state, ""))
        pods = f"{row.running}/{row.pods}" if row.pods else ""
        requested = leading_text(row.requests) if row.requests else ""
        listed.add_row(row.name, row.kind, state, pods, requested, age(row.since, now), row.user)
    notes = [Text(visible(f"{row.name}: {row.refused}"), style="red") for row in found if row.refused]
    return Group(listed, *notes)


@dataclass(frozen=True, slots=True)
class UseRow:
    """Usage of a job or a pod."""

    name: str  # of the job, or number and name of the pod
    where: str  # number of running pods, or the node of the pod
    used: Mapping[str, int] | None  # CPU and memory in base units; None without metrics
    requests: Mapping[str, int]  # in base units
    gpus: GpuUse | None = None  # utilization; None if not requested, or not reported
    idle: str = ""  # of the job, as in `tenancy queue`


def use_of(cluster: Cluster, namespace: str) -> Use:
    """Usage of the pods of a namespace; raises ConsoleError if the cluster has no metrics."""
    try:
        found = cluster.list(*METRICS, namespace=namespace)
    except ApiError as error:
        if error.status not in {NOT_FOUND, 503}:
            raise
        fix = "ask the platform team for metrics-server"
        raise ConsoleError("the cluster serves no metrics of pods", fix) from error

    def used(pod: Manifest, name: str) -> int:
        containers = (map_at(container, "usage") for container in maps_at(pod, "containers"))
        return sum(ceil(amount(name, one.get(name, 0))) for one in containers)

    return {name_of(pod): {name: used(pod, name) for name in (CPU, MEMORY)} for pod in found}


def of_jobs(jobs: Jobs, use: Use, busy: Mapping[str, GpuUse]) -> Iterator[UseRow]:
    """Usage of each job with running pods."""
    for root in jobs.roots:
        if pods := [pod for pod in jobs.pods(root) if text_at(pod, "status", "phase") == "Running"]:
            names = [name_of(pod) for pod in pods]
            used = [use[name] for name in names if name in use]
            asked = add(*(requests(map_at(pod, "spec")) for pod in pods))
            of_gpus = together(busy, names)
            where = plural(len(pods), "pod")
            yield UseRow(name_of(root), where, add(*used) if used else None, asked, of_gpus, _idle(jobs, root))


def _idle(jobs: Jobs, manifest: Manifest) -> str:
    return next(filter(None, (workload.idle() for workload in jobs.workloads_of(manifest))), "")


def of_pods(jobs: Jobs, manifest: Manifest, use: Use, busy: Mapping[str, GpuUse]) -> Iterator[UseRow]:
    """Usage of each pod of a job, with its number for `tenancy logs`."""
    idle = _idle(jobs, manifest)
    for number, pod in enumerate(jobs.pods(manifest)):
        where = text_at(pod, "spec", "nodeName") or text_at(pod, "status", "phase").lower()
        asked = requests(map_at(pod, "spec"))
        name = name_of(pod)
        yield UseRow(f"{number} {name}", where, use.get(name), asked, busy.get(name), idle)


def used(found: tuple[UseRow, ...], *, pods: bool, busy: bool = False, notes: Iterable[str] = ()) -> Group:
    """Table of `tenancy top`: usage, requests and, with `busy`, utilization of GPUs."""
    more, drop = (("GPUs#", "GPU memory#"), ("CPUs", "memory")) if busy else (("GPUs",), ("GPUs",))
    listed = table("pod…" if pods else "job…", "node…" if pods else "pods", "CPUs#", "memory#", *more, drop=drop)
    units = {CPU: 100, MEMORY: 2**20}  # A tenth of a CPU, and a Mi.
    for row in found:
        cells: list[str] = []
        for name, unit in units.items():
            own = amount_text(name, ceil(row.used[name] / unit) * unit) if row.used else "?"
            cells.append(f"{own} of {amount_text(name, row.requests.get(name, 0))}")
        held = gpus(row.requests)
        unknown = "?" if held else ""
        of_gpus = [row.gpus.busy, row.gpus.filled] if row.gpus else [unknown, unknown]
        cells += of_gpus if busy else [leading_text(held) if held else ""]
        listed.add_row(row.name, row.where, *cells)
    idle = dict.fromkeys(row.idle if pods else f"{row.name}: {row.idle}" for row in found if row.idle)
    told = (Text(visible(note), style="dim") for note in (*idle, *notes))
    return Group(listed, *told) if found else Group(Text("no running pods", style="bold"))


# https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes
_ACCESS: Final = {
    "ReadOnlyMany": "read",
    "ReadWriteMany": "read and write",
    "ReadWriteOnce": "one node",
    "ReadWriteOncePod": "one pod",
}


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A PersistentVolumeClaim."""

    name: str
    bucket: str  # URL of the dataset's bucket; empty without one
    access: str  # `read`, `read and write`, `one node`, `one pod`
    size: str  # capacity if bound, else requested, as Kubernetes writes it
    state: str  # such as `Bound` or `Pending`
    pods: tuple[str, ...] = ()  # that mount it and have not ended


def claims(found: Iterable[Manifest], pods: Iterable[Manifest]) -> tuple[ClaimRow, ...]:
    """Claims of a namespace, datasets first, with the pods that mount them."""
    users: dict[str, list[str]] = {}
    for pod in pods:
        for volume in () if ended(pod) else maps_at(pod, "spec", "volumes"):
            users.setdefault(text_at(volume, "persistentVolumeClaim", "claimName"), []).append(name_of(pod))
    rows = (
        ClaimRow(
            name_of(claim),
            text_at(claim, "metadata", "annotations", BUCKET),
            ", ".join(_ACCESS.get(mode, mode) for mode in list_at(claim, "spec", "accessModes")),
            text_at(claim, "status", "capacity", "storage")
            or text_at(claim, "spec", "resources", "requests", "storage"),
            text_at(claim, "status", "phase"),
            tuple(users.get(name_of(claim), ())),
        )
        for claim in found
    )
    return tuple(sorted(rows, key=lambda row: (not row.bucket, row.name)))


def shown_claims(rows: tuple[ClaimRow, ...]) -> Group:
    """Table of `tenancy claims`."""
    listed = table("claim…", "bucket…", "access", "size#", "state", "pods#", drop=("state", "size"))
    for row in rows:
        # The size of a dataset's claim is a number for the quota only: a bucket has none.
        size = "" if row.bucket else row.size
        listed.add_row(row.name, row.bucket, row.access, size, row.state, str(len(row.pods) or ""))
    how = "mount one: `tenancy submit --mount CLAIM=PATH`, or `--mount` of `tenancy notebook start`"
    return Group(listed, Text(""), Text(how, style="dim")) if rows else Group(Text("no claims", style="bold"))


def data(rows: Iterable[JobRow | UseRow | ClaimRow]) -> list[dict[str, Any]]:
    """Rows of a table for JSON, amounts in base units."""
    return [asdict(row) for row in rows]
