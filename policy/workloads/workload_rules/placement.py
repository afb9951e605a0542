"""Rules for GPU requests and GPU sharing of pods, and for the nodes that a pod can be scheduled on."""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Final

from pydantic import Field

from rule_engine import Resource, Stack, View, format_number, rule
from workload_rules.objects import FACTS, PATCHES, RUNTIMES, SERVING, matches_any, objects
from workload_rules.pods import (
    CONTAINERS,
    POD_PARTS,
    PODS,
    Container,
    Gpus,
    Pod,
    TenantGpus,
    Tenants,
    for_tenants,
    namespace_of,
    views_at,
)

Values = Mapping[str, frozenset[str]]  # Required node labels with their allowed values

_REQUIRED: Final = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


def _tolerations(pod: Pod) -> list[dict[str, str]]:
    return [toleration.string_map() for toleration in pod.spec.items("tolerations")]


def node_labels(pod: Pod) -> Values:
    """The required node labels of a pod with their allowed values."""
    return pod.resource.once(
        (pod, "values of node labels"),
        lambda: {key: frozenset(value.text() for value in views) for key, views in _labels(pod).items()},
    )


def may_share_node(first: Values, second: Values) -> bool:
    """Whether one node can have the labels that two pods require."""
    return all(first[key] & second[key] for key in first.keys() & second.keys())


def _labels(pod: Pod) -> dict[str, list[View]]:
    """The required node labels of a pod with their allowed values, which can be unknown."""
    # The terms of an affinity are alternatives: a label is required if all of them require it.
    # https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
    required: dict[str, list[View]] = {}
    specs = [pod.spec]
    if pod.form == "trainer":
        specs = [view for path in PATCHES for _, view in views_at(pod.resource.props, path)]
    for spec in specs:
        expressions = [term.items("matchExpressions") for term in spec.items(*_REQUIRED)]
        terms = [
            {label.text("key"): label.items("values") for label in term if label.text("operator") == "In"}
            for term in expressions
        ]
        if terms:
            for key in reduce(lambda common, keys: common & keys, (set(term) for term in terms)):
                required[key] = [value for term in terms for value in term[key]]
        required |= {key: [value] for key, value in spec.entries("nodeSelector").items()}
    return required


class _ModelSettings(TenantGpus):
    labels: list[str] = Field(FACTS["model_labels"])
    """Node labels that identify the GPU model or the machine type."""
    partitions: bool = False
    """Whether the resource name of a partition (`nvidia.com/mig-1g.10gb`) is sufficient."""
    queues: list[str] = Field([])
    """Workload labels that are sufficient because their value determines the nodes: `kueue.x-k8s.io/queue-name` if each
    queue has one flavor."""


@rule("gpu-model-named", PODS)
@for_tenants
def gpu_model_named(pod: Pod, settings: _ModelSettings) -> Iterator[str]:
    """A pod that requests GPUs must select a GPU model."""
    names = [name for name in pod.gpus(settings) if not (settings.partitions and "/mig-" in name)]
    if not names or not _labels(pod).keys().isdisjoint(settings.labels):
        return
    if pod.resource.props.entries("metadata", "labels").keys().isdisjoint(settings.queues):
        yield (
            f"requests {', '.join(names)} without a GPU model; set one in nodeSelector or a required node affinity,"
            f" by {settings.labels[0] if settings.labels else 'a node label'}"
        )


class _DaemonSettings(Tenants):
    daemonsets: bool = False
    """Whether DaemonSets, which run on every node, are checked too."""

    def checks(self, pod: Pod) -> bool:
        """Whether a pod is checked."""
        return self.daemonsets or pod.kind != "apps:DaemonSet"


class _GpuNodes(TenantGpus, _DaemonSettings):
    """Labels and taints of GPU nodes."""

    taints: list[str] = Field([])
    """Taint keys of GPU nodes. If empty, the key is the resource name; for partitions, that of the whole GPU."""

    labels: list[str] = Field(FACTS["gpu_node_labels"])
    """Labels that only GPU nodes have, as patterns."""


@rule("cpu-pods-off-gpu-nodes", PODS)
@for_tenants
def cpu_pods_off_gpu_nodes(pod: Pod, settings: _GpuNodes) -> Iterator[str]:
    # Runtimes get their GPUs from TrainJobs, and a resource claim can be for GPUs.
    """A pod that requests no GPU must stay off GPU nodes."""
    claimed = pod.kind in RUNTIMES or pod.spec.items("resourceClaims")
    if claimed or not settings.checks(pod) or pod.gpus(settings):
        return
    for key in sorted({toleration.get("key", "") for toleration in _tolerations(pod)}):
        if key in settings.taints or settings.is_gpu(key):
            yield f"requests no GPU but tolerates {key}; remove the toleration"
    for label in sorted(_labels(pod)):
        if matches_any(label, settings.labels):
            yield f"requests no GPU but selects nodes by {label}; select other nodes"


@rule("node-taints-kept", objects("Nodes", "core:Node"))
def node_taints_kept(node: Resource, settings: _GpuNodes) -> Iterator[str]:
    """A GPU node must keep the taint of GPU nodes; a patch of a node's taints must have it too."""
    # Of a patch, the node's labels are not known.
    spec, labels = node.props.as_part().at("spec"), node.props.as_part().entries("metadata", "labels")
    if not (spec.has("taints") if node.patch else any(matches_any(label, settings.labels) for label in labels)):
        return
    keys = {taint.text("key") for taint in spec.items("taints") if taint.text("effect") in {"NoSchedule", "NoExecute"}}
    if not any(key in settings.taints or settings.is_gpu(key) for key in keys):
        key = (settings.taints or settings.gpus or ["a taint"])[0]
        yield f"has no taint of GPU nodes ({', '.join(sorted(keys)) or 'none'}); add {key}: NoSchedule"


@rule("toleration-has-key", POD_PARTS)
@for_tenants
def toleration_has_key(pod: Pod, settings: _DaemonSettings) -> Iterator[str]:
    """A toleration must name the key of a taint."""
    if not settings.checks(pod):
        return
    for index, toleration in enumerate(_tolerations(pod)):
        if not toleration.get("key"):
            yield f"toleration {index} has no key and tolerates every taint; set the key of one taint"


_TERMS: Final = ("podAffinity", "podAntiAffinity")
_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""Annotation by which JobSet adds such terms, against the JobSets of all namespaces:
https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/pod_webhook.go."""


def _reaches(term: View, namespace: str) -> bool:
    """Whether a term of an affinity is about pods of other namespaces, too."""
    if any(name != namespace for name in term.texts("namespaces")):
        return True
    selector = term.at("namespaceSelector")
    own = {"kubernetes.io/metadata.name": namespace}
    return term.has("namespaceSelector") and (
        selector.has("matchExpressions") or selector.string_map("matchLabels") != own
    )


@rule("affinity-own-namespace", POD_PARTS)
@for_tenants
def affinity_own_namespace(pod: Pod, _: Tenants) -> Iterator[str]:
    """Required affinities to pods must be about pods of the same namespace."""
    for field in _TERMS:
        terms = pod.spec.items("affinity", field, "requiredDuringSchedulingIgnoredDuringExecution")
        if any(_reaches(term, namespace_of(pod)) for term in terms):
            yield (
                f"has a required {field} to pods of other namespaces; remove namespaces and namespaceSelector of its"
                " terms"
            )
    metas = (pod.resource.props.at("metadata"), pod.meta, pod.value_at("spec.replicatedJobs.*.template.metadata"))
    if any(_EXCLUSIVE in meta.entries("annotations") for meta in metas):
        yield f"has annotation {_EXCLUSIVE}, which keeps JobSets of other namespaces from nodes; remove it"


# Requests for GPUs, and their sharing.


@rule("gpu-request-equals-limit", CONTAINERS)
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


class _Grace(TenantGpus):
    jobs: int = Field(600, gt=0)
    """Seconds for pods and jobs, to write a checkpoint."""
    servers: int = Field(3600, gt=0)
    """Seconds for servers, to complete requests."""


@rule("gpu-grace-bounded", POD_PARTS)
@for_tenants
def gpu_grace_bounded(pod: Pod, settings: _Grace) -> Iterator[str]:
    """A pod with GPUs must end soon after it is deleted."""
    seconds = pod.spec.number("terminationGracePeriodSeconds")
    maximum = settings.servers if pod.kind in SERVING else settings.jobs
    if seconds is None or seconds <= maximum:
        return
    # A part of a pod is merged with others of its object.
    pods = (pod,) if pod.form == "pod" else pod.resource.parts(POD_PARTS)
    if any(other.gpus(settings) or other.claims for other in pods):
        yield (
            f"has a termination grace period of {format_number(seconds)} s, in which it keeps its GPUs; set"
            f" terminationGracePeriodSeconds: {maximum} or less"
        )


class _Sharing(TenantGpus):
    trusting: dict[str, list[str]] = Field({})
    """Groups of namespaces that trust one another: patterns of namespaces, keyed by a group name of your choice."""
    resources: list[str] = Field(["*.shared"])
    """Resource names of time-sliced GPUs, as patterns."""
    labels: dict[str, list[str]] = Field(FACTS["time_sliced"])
    """Labels of nodes with time-sliced GPUs, each with its values as patterns."""

    def groups(self, namespace: str) -> frozenset[str]:
        """The groups of a namespace."""
        return frozenset(name for name, group in self.trusting.items() if matches_any(namespace, group))

    def trust(self, namespace: str, other_namespace: str) -> bool:
        """Whether two namespaces trust one another."""
        return namespace == other_namespace or not self.groups(namespace).isdisjoint(self.groups(other_namespace))


def _time_sliced_resources(pod: Pod, settings: _Sharing) -> set[str]:
    gpus = set(pod.gpus(settings))
    if not gpus:
        return gpus
    chosen = node_labels(pod)
    for label, patterns in settings.labels.items():
        if any(matches_any(value, patterns) for value in chosen.get(label, ())):
            return gpus
    return {name for name in gpus if matches_any(name, settings.resources)}


@rule("time-slicing-trust", POD_PARTS)
@for_tenants
def time_slicing_trust(pod: Pod, settings: _Sharing, stack: Stack) -> Iterator[str]:
    """Pods of different namespaces may share time-sliced GPUs only if the namespaces trust one another."""
    names = _time_sliced_resources(pod, settings)
    if not names:
        return

    def stranger(other: Pod) -> bool:
        return (
            not settings.trust(namespace_of(pod), namespace_of(other))
            and settings.tenant(namespace_of(other))
            and bool(names & _time_sliced_resources(other, settings))
            and may_share_node(node_labels(pod), node_labels(other))
        )

    # Pods with the same GPUs and nodes, of namespaces in the same groups, have the same stranger.
    groups = settings.groups(namespace_of(pod)) or namespace_of(pod)
    other = stack.once(
        ("time-slicing-trust", id(settings), groups, frozenset(names), frozenset(node_labels(pod).items())),
        lambda: stack.first(POD_PARTS, stranger),
    )
    if other is not None:
        yield (
            f"shares time-sliced {', '.join(sorted(names))} with {other.place} without memory isolation; partition"
            " the GPUs with MIG, select other nodes, or list both namespaces under `trusting`"
        )
