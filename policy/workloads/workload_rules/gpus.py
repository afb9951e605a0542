"""Rules for GPU requests of pods, and for GPU sharing."""

from collections.abc import Iterator
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Final

from pydantic import Field

from rule_engine import ADVICE, MUST, Severity, Stack, View, format_number, quantity, rule
from workload_rules import nodes
from workload_rules.kinds import COMMUNICATE, COUNTS, SERVING
from workload_rules.pods import (
    CONTAINERS,
    POD_PARTS,
    PODS,
    Container,
    Gpus,
    Pod,
    TenantGpus,
    for_tenants,
    kind_of,
    views_at,
)

_DOCS: Final = "https://kubernetes.io/docs"


@rule(
    "gpu-request-equals-limit",
    rationale="Otherwise the API server rejects the pod, and its Deployment or Job has no pods.",
    fix="Set the number of GPUs under `limits`; omit `requests`, or set the same number there.",
    link=f"{_DOCS}/tasks/manage-gpus/scheduling-gpus/",
    severity=Severity.HIGH,
    level=MUST,
    on=CONTAINERS,
)
def gpu_request_equals_limit(container: Container, settings: Gpus) -> Iterator[str]:
    """A container's GPU count must be a whole number, and its request must equal its limit."""
    limits = container.resources.entries("limits")
    requests = container.resources.entries("requests")
    for name in sorted({*limits, *requests}):
        if not settings.is_gpu(name):
            continue
        limit = limits[name].number() if name in limits else None
        request = requests[name].number() if name in requests else None
        if limit is None:
            if request and container.pod.form != "part":
                count = format_number(request)
                yield f"requests {count} {name} without a limit; set limits.{name}: {count}"
        elif request is not None and request != limit:
            requested = format_number(request)
            yield f"requests {requested} {name}, but the limit is {format_number(limit)}; set both to the same number"
        elif limit != limit.to_integral_value():
            yield (
                f"requests {format_number(limit)} {name}, which is not a whole number; set a whole number, or request a"
                " partition"
            )


class LargestNode(TenantGpus):
    """GPUs of the largest nodes."""

    largest: dict[str, int] = Field(
        {"nvidia.com/gpu": 8, "amd.com/gpu": 8},
        description=(
            "GPUs of the largest node, keyed by resource name or pattern (`nvidia.com/mig-*`). The longest matching"
            " pattern applies; resources without a match are not checked."
        ),
    )

    def largest_node(self, resource: str) -> int | None:
        """GPUs of the largest node; None if no pattern matches."""
        fitting = [pattern for pattern in self.largest if fnmatchcase(resource, pattern)]
        return (
            self.largest[max(fitting, key=lambda pattern: (pattern == resource, len(pattern), pattern))]
            if fitting
            else None
        )


@rule(
    "gpu-per-node",
    rationale="Otherwise the pod stays pending, and the autoscaler adds no node for it.",
    fix="Split the work into several pods, or add the larger node to the rule's settings.",
    link=f"{_DOCS}/tasks/manage-gpus/scheduling-gpus/",
    severity=Severity.HIGH,
    level=MUST,
    on=POD_PARTS,
)
@for_tenants
def gpu_per_node(pod: Pod, settings: LargestNode) -> Iterator[str]:
    """A pod must not request more GPUs than the largest node has."""
    for name, count in pod.gpus(settings).items():
        maximum = settings.largest_node(name)
        if maximum is not None and count > maximum:
            yield (
                f"requests {format_number(count)} {name}, but the largest node has {maximum}; split the work into pods"
                f" of at most {maximum}"
            )


class Grace(TenantGpus):
    """Maximum termination grace periods of pods with GPUs."""

    jobs: int = Field(600, gt=0, description="Seconds for pods and jobs, to write a checkpoint.")
    servers: int = Field(3600, gt=0, description="Seconds for servers, to complete requests.")


def _has_gpus(pod: Pod, settings: Gpus) -> bool:
    """Whether a pod requests GPUs; a part of one does if any pod of its object does."""
    pods = (pod,) if pod.form == "pod" else pod.resource.parts(POD_PARTS)
    return any(other.gpus(settings) or other.claims for other in pods)


@rule(
    "gpu-grace-bounded",
    rationale="A deleted or preempted pod keeps its GPUs for this time, while its queue gives them to others.",
    fix="Lower `terminationGracePeriodSeconds` to what a checkpoint, or the last requests, need.",
    link=f"{_DOCS}/concepts/workloads/pods/pod-lifecycle/#pod-termination",
    severity=Severity.HIGH,
    level=ADVICE,
    on=POD_PARTS,
)
@for_tenants
def gpu_grace_bounded(pod: Pod, settings: Grace) -> Iterator[str]:
    """A pod with GPUs must end soon after it is deleted."""
    seconds = pod.spec.number("terminationGracePeriodSeconds")
    maximum = settings.servers if kind_of(pod.resource) in SERVING else settings.jobs
    if seconds is not None and seconds > maximum and _has_gpus(pod, settings):
        yield (
            f"has a termination grace period of {format_number(seconds)} s, in which it keeps its GPUs; set"
            f" terminationGracePeriodSeconds: {maximum} or less"
        )


class SharedMemory(TenantGpus):
    """Shared memory for processes on several GPUs."""

    gpus: list[str] = Field(
        ["nvidia.com/gpu", "amd.com/gpu"],
        description=(
            "Resource names of whole GPUs, as patterns. Partitions are not checked: they do not exchange data."
        ),
    )
    minimum: str = Field(
        "1Gi",
        pattern=r"^[0-9]+(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$",
        description="Minimum sizeLimit of /dev/shm, as a Kubernetes quantity.",
    )
    jobs: bool = Field(
        default=True, description="Whether pods with one GPU are checked too, if their job has several of them."
    )


def _has_several_gpu_pods(pod: Pod, settings: SharedMemory) -> bool:
    """Whether several pods with GPUs of one workload communicate; pods of a Job do only if it is indexed."""
    spec = pod.resource.props.at("spec")
    if pod.kind == "batch:Job":
        return spec.text("completionMode") == "Indexed" and (spec.number("parallelism") or 1) > 1
    counts: dict[str, Decimal] = {}
    for path in COUNTS.get(pod.kind, ()) if pod.kind in COMMUNICATE else ():
        for names, view in views_at(pod.resource.props, path):
            number, label = view.number(), ".".join(names)
            counts[label] = counts.get(label, Decimal(1)) * (Decimal(1) if number is None else number)
    with_gpus = {other.label for other in pod.resource.parts(PODS) if other.gpus(settings)}
    return sum(count for label, count in counts.items() if label in with_gpus) > 1


def _too_small(pod: Pod, container: Container, minimum: str) -> str:
    """The problem of a container's /dev/shm; empty if there is none."""
    write = f"an emptyDir with medium Memory and a sizeLimit of at least {minimum} there"
    mounts = [mount for mount in container.view.items("volumeMounts") if _is_shm(mount)]
    if not mounts:
        return f"has only the default 64Mi of /dev/shm for GPU communication; mount {write}"
    name = mounts[-1].text("name")
    volume = next((candidate for candidate in pod.spec.items("volumes") if candidate.text("name") == name), View(None))
    if volume.text("emptyDir", "medium") != "Memory":
        return f"mounts volume {name} at /dev/shm, which is not in memory; mount {write}"
    size = volume.number("emptyDir", "sizeLimit")
    if size is None:
        return f"mounts volume {name} at /dev/shm without a sizeLimit; set {minimum} or more, within the memory limit"
    if size < (quantity(minimum) or 0):
        return (
            f"mounts volume {name} at /dev/shm with a sizeLimit of {volume.text('emptyDir', 'sizeLimit')}; set"
            f" {minimum} or more"
        )
    return ""


def _is_shm(mount: View) -> bool:
    return mount.text("mountPath").rstrip("/") == "/dev/shm"  # noqa: S108 - the mount that is checked


@rule(
    "shared-memory",
    rationale=(
        "NCCL and data loaders exchange data through /dev/shm, which is 64Mi by default: jobs fail during the run,"
        " or use slower transports."
    ),
    fix="Mount an emptyDir with `medium: Memory` and a `sizeLimit` at /dev/shm; it counts as memory of the pod.",
    link="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=PODS,
)
@for_tenants
def shared_memory(pod: Pod, settings: SharedMemory) -> Iterator[str]:
    """Pods whose GPUs communicate must have enough shared memory."""
    gpus = max(pod.gpus(settings).values(), default=0)
    if not (gpus > 1 or (gpus and settings.jobs and _has_several_gpu_pods(pod, settings))) or pod.spec.flag("hostIPC"):
        return
    for container in pod.containers:
        if any(container.gpus(settings).values()):
            wrong = _too_small(pod, container, settings.minimum)
            if wrong:
                yield f"container {container.view.text('name')} {wrong}"


class Sharing(TenantGpus):
    """Namespaces that can share time-sliced GPUs."""

    trusting: dict[str, list[str]] = Field(
        {},
        description=(
            "Groups of namespaces that trust one another: patterns of namespaces, keyed by a group name of your choice."
        ),
    )
    resources: list[str] = Field(["*.shared"], description="Resource names of time-sliced GPUs, as patterns.")
    labels: dict[str, list[str]] = Field(
        {
            "nvidia.com/gpu.sharing-strategy": ["time-slicing", "mps"],
            "nvidia.com/gpu.product": ["*-SHARED"],
            "cloud.google.com/gke-gpu-sharing-strategy": ["time-sharing", "mps"],
        },
        description="Labels of nodes with time-sliced GPUs, each with its values as patterns.",
    )

    def groups(self, namespace: str) -> frozenset[str]:
        """The groups of a namespace."""
        return frozenset(
            name for name, group in self.trusting.items() if any(fnmatchcase(namespace, pattern) for pattern in group)
        )

    def trust(self, namespace: str, other_namespace: str) -> bool:
        """Whether two namespaces trust one another."""
        return namespace == other_namespace or not self.groups(namespace).isdisjoint(self.groups(other_namespace))


def _time_sliced_resources(pod: Pod, settings: Sharing) -> set[str]:
    gpus = set(pod.gpus(settings))
    if not gpus:
        return gpus
    chosen = nodes.values(pod)
    for label, patterns in settings.labels.items():
        if any(fnmatchcase(value, pattern) for value in chosen.get(label, ()) for pattern in patterns):
            return gpus
    return {name for name in gpus if any(fnmatchcase(name, pattern) for pattern in settings.resources)}


@rule(
    "time-slicing-trust",
    rationale="Time-slicing isolates neither memory nor faults: one pod can starve or terminate the other.",
    fix="Partition GPUs with MIG, give each team its own nodes, or list the namespaces under `trusting`.",
    link="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-sharing.html",
    severity=Severity.HIGH,
    level=ADVICE,
    on=POD_PARTS,
)
@for_tenants
def time_slicing_trust(pod: Pod, settings: Sharing, stack: Stack) -> Iterator[str]:
    """Pods of different namespaces may share time-sliced GPUs only if the namespaces trust one another."""
    names = _time_sliced_resources(pod, settings)
    if not names:
        return

    def stranger(other: Pod) -> bool:
        return (
            not settings.trust(pod.namespace, other.namespace)
            and settings.tenant(other.namespace)
            and bool(names & _time_sliced_resources(other, settings))
            and nodes.may_share_node(nodes.values(pod), nodes.values(other))
        )

    # Pods with the same GPUs and nodes, of namespaces in the same groups, have the same stranger.
    groups = settings.groups(pod.namespace) or pod.namespace
    nodes_of_pod = frozenset(nodes.values(pod).items())
    other = stack.once(
        ("time-slicing-trust", id(settings), groups, frozenset(names), nodes_of_pod),
        lambda: stack.first(POD_PARTS, stranger),
    )
    if other is not None:
        yield (
            f"shares time-sliced {', '.join(sorted(names))} with {other.place} without memory isolation; partition"
            " the GPUs with MIG, select other nodes, or list both namespaces under `trusting`"
        )
