"""Rules for batch workloads and their schedulers."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from pydantic import Field

from rule_engine import Part, Resource, Stack, Subject, UnknownValues, View, format_number, kubernetes, rule
from workload_rules.objects import BATCH, COUNTED, DEADLINES, PODS_IN, QUEUE_NAME, SERVING, matches_any
from workload_rules.placement import may_share_node, node_labels
from workload_rules.pods import (
    CONTAINERS,
    POD_PARTS,
    Container,
    Gpus,
    Pod,
    TenantGpus,
    Tenants,
    for_tenants,
    holds_pods,
    is_searched,
    namespace_of,
)

_HOUR: Final = 3600
_LONGEST: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""Label with Kueue's maximum execution time: pkg/controller/constants in kubernetes-sigs/kueue."""
_VOLCANO: Final = frozenset({"batch.volcano.sh", "flow.volcano.sh"})
_KUBEFLOW: Final = "kubeflow.org"


@dataclass(frozen=True, slots=True, eq=False)
class Work(Part):
    """An object with pods, which a queue or a gang scheduler can handle as one workload."""

    @property
    def meta(self) -> View:
        """The metadata of the workload; for a CronJob, of its jobs, which do not get the CronJob's labels."""
        path = ("spec", "jobTemplate", "metadata") if self.resource.kind == "CronJob" else ("metadata",)
        return self.view.at(*path)

    def pods(self, settings: Gpus) -> list[Pod]:
        """Its pods that request GPUs."""
        return [pod for pod in self.resource.parts(POD_PARTS) if pod.gpus(settings)]

    @property
    def queue(self) -> str:
        """The name of its LocalQueue; empty without."""
        return self.meta.text("labels", QUEUE_NAME)

    def of_volcano(self, pods: list[Pod]) -> bool:
        """Whether Volcano schedules it, and not Kueue."""
        if self.queue:
            return False
        if self.resource.group in _VOLCANO:
            return self.view.text("spec", "schedulerName", default="volcano") == "volcano"
        return any(pod.spec.text("schedulerName") == "volcano" for pod in pods)


def _is_batch(resource: Resource) -> bool:
    """Whether an object is batch work: of a known kind, or of any kind of an operator that is not known to serve."""
    kind = resource.object_kind
    return kind in BATCH or (is_searched(resource) and kind not in {*SERVING, *PODS_IN})


_BATCH: Final = Subject("batch work", _is_batch, lambda resource: (Work(resource, resource.props),))
_WORK: Final = Subject("work", holds_pods, lambda resource: (Work(resource, resource.props),))
_BATCH_PODS: Final = Subject("pods of batch workloads", kubernetes(*BATCH), lambda resource: resource.parts(POD_PARTS))


class _LongestSettings(TenantGpus):
    hours: float = Field(168, gt=0)
    """Maximum run time of batch work with GPUs, in hours."""


@rule("gpu-jobs-end", _BATCH_PODS)
@for_tenants
def gpu_jobs_end(pod: Pod, settings: _LongestSettings) -> Iterator[str]:
    """Batch work with GPUs must have a time limit."""
    gpus = pod.gpus(settings)
    if not gpus:
        return
    path = DEADLINES.get(pod.kind, "")
    deadline = pod.value_at(path) if path else View(None)
    label = Work(pod.resource, pod.resource.props).meta.number("labels", _LONGEST)
    ends = [deadline.number(), pod.spec.number("activeDeadlineSeconds"), label]
    limits = [end for end in ends if end is not None]
    maximum = Decimal(str(settings.hours)) * _HOUR
    field = path or f"{'.'.join(pod.spec.path)}.activeDeadlineSeconds"
    if not limits:
        yield f"requests {', '.join(gpus)} without a time limit; set {field}: {format_number(maximum)} or less"
    elif min(limits) > maximum:
        limit = format_number(min(limits))
        yield f"time limit of {limit} seconds exceeds the maximum; set {format_number(maximum)} or less"


class _QueueSettings(TenantGpus):
    names: list[str] = Field(
        [QUEUE_NAME, "scheduling.volcano.sh/queue-name", "volcano.sh/queue-name", "kai.scheduler/queue"]
    )
    """Labels or annotations that name a queue. Kueue's label is read from the workload itself, the others from its pods
    too."""
    serving: list[str] = Field([])
    """Further kinds of serving workloads, `group:Kind`, as patterns. Pods of operators' kinds are batch work, except
    those of kinds that the pack knows to serve."""
    claims: list[str] = Field([])
    """ResourceClaims and ResourceClaimTemplates without GPUs, as patterns: `compute-domain-*`."""


def _names_a_queue(meta: View, names: list[str]) -> bool:
    return any(meta.text(field, name) for field in ("labels", "annotations") for name in names)


def _claims(pod: Pod, settings: _QueueSettings) -> list[str]:
    """The claims of a pod that can have GPUs."""
    return [claim.name for claim in pod.claims if not matches_any(claim.name, settings.claims)]


def _with_gpus(work: Work, settings: _QueueSettings) -> list[Pod]:
    """The pods that request GPUs, or devices that can be GPUs; unknown ones matter only if no other does."""
    pods, unknown_values = list[Pod](), UnknownValues()
    for pod in work.resource.parts(POD_PARTS):
        with unknown_values.collected():
            if pod.gpus(settings) or _claims(pod, settings):
                pods.append(pod)
    if not pods:
        unknown_values.raise_first()
    return pods


@rule("batch-names-queue", _BATCH)
@for_tenants
def batch_names_queue(work: Work, settings: _QueueSettings) -> Iterator[str]:
    """Batch work with GPUs must name its queue."""
    if matches_any(work.resource.object_kind, settings.serving):
        return
    pods = _with_gpus(work, settings)
    if not pods or _names_a_queue(work.meta, settings.names):
        return
    if work.resource.group in _VOLCANO and work.view.text("spec", "queue"):
        return
    if work.resource.group == _KUBEFLOW and work.view.text("spec", "runPolicy", "schedulingPolicy", "queue"):
        return
    # Kueue handles plain pods by their own label; those of known kinds have it on the object that they belong to.
    others = [name for name in settings.names if name != QUEUE_NAME or work.resource.object_kind not in BATCH]
    metas = [work.view.at("spec") if pod.form == "trainer" else pod.meta for pod in pods]
    if all(_names_a_queue(meta, others) for meta in metas):
        return
    gpus = sorted({name for pod in pods for name in pod.gpus(settings)})
    gpus += sorted({f"devices of {claim}" for pod in pods for claim in _claims(pod, settings)})
    write = "spec.queue" if work.resource.group in _VOLCANO else f"label {QUEUE_NAME}"
    yield f"requests {', '.join(gpus)} and has no queue; set {write}"


@rule("queued-gpus-requested", CONTAINERS)
@for_tenants
def queued_gpus_requested(container: Container, settings: TenantGpus) -> Iterator[str]:
    """Work in a Kueue queue must request its GPUs, if Kueue counts its template."""
    if container.pod.kind not in COUNTED or not Work(container.resource, container.resource.props).queue:
        return
    requests = container.resources.entries("requests")
    for name, limit in container.resources.entries("limits").items():
        number = limit.number()
        if settings.is_gpu(name) and name not in requests and number:
            count = format_number(number)
            yield f"limits {count} {name} without a request, which Kueue could count as 0; set requests.{name}: {count}"


class _SchedulerSettings(TenantGpus):
    partitioned: list[str] = Field([])
    """Namespaces, as patterns, whose quota covers the GPUs of both Kueue and Volcano, and whose Volcano queue's GPUs
    are deducted from Kueue's."""


def _has_queue(work: Work) -> bool:
    return bool(work.queue)


def _same_gpus(pods: list[Pod], other_pods: list[Pod], settings: Gpus) -> bool:
    return any(
        not pod.gpus(settings).keys().isdisjoint(other_pod.gpus(settings))
        and may_share_node(node_labels(pod), node_labels(other_pod))
        for pod in pods
        for other_pod in other_pods
    )


@rule("one-batch-scheduler", _WORK)
@for_tenants
def one_batch_scheduler(work: Work, settings: _SchedulerSettings, stack: Stack) -> Iterator[str]:
    """In one namespace, Kueue and Volcano must not allocate the same GPUs."""
    pods = work.pods(settings)
    if not pods or not work.of_volcano(pods) or matches_any(namespace_of(work), settings.partitioned):
        return

    # Works with the same GPUs and nodes have the same competitor, so it is looked up once for all of them.
    demand = frozenset((frozenset(pod.gpus(settings)), frozenset(node_labels(pod).items())) for pod in pods)
    other = stack.once(
        ("one-batch-scheduler", id(settings), namespace_of(work), demand),
        lambda: stack.first(
            _WORK,
            lambda other: _same_gpus(pods, other.pods(settings), settings),
            (namespace_of, namespace_of(work)),
            (_has_queue, True),
        ),
    )
    if other is not None:
        yield (
            f"is scheduled by Volcano, and {other.place} of queue {other.queue} by Kueue, so both can use the same"
            " GPUs; use one scheduler for both, select different nodes, or list the namespace under `partitioned`"
        )


_SIZES: Final = frozenset(
    {"completions", "maxReplicas", "minReplicas", "numNodes", "numOfHosts", "parallelism", "replicas", "size"}
)


def _sizes(view: View) -> Iterator[str]:
    """The paths of sizes, and of `suspend: false`, of a patch."""
    inner = view.items() if isinstance(view.value, list) else view.entries().values() if view.value else ()
    for item in inner:
        if isinstance(item.value, list | dict):
            yield from _sizes(item)
        elif item.path[-1] in _SIZES or (item.path[-1] == "suspend" and not item.flag()):
            yield ".".join(item.path)


@rule("counted-sizes-unpatched", Subject("workloads that Kueue counts", kubernetes(*COUNTED), lambda work: (work,)))
@for_tenants
def counted_sizes_unpatched(work: Resource, _: Tenants) -> Iterator[str]:
    """A patch must not resize or start a workload that Kueue counts when it admits it."""
    for path in _sizes(work.props.as_part().at("spec")) if work.patch else ():
        yield f"sets {path} of a workload that Kueue counts; remove it, and change the object where it is defined"
