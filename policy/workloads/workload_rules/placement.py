"""Nodes that a pod can be scheduled on, by its node selector, affinity and tolerations; and rules for these."""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Final

from pydantic import Field

from rule_engine import View, rule
from workload_rules.objects import FACTS, PATCHES, RUNTIMES, matches_any
from workload_rules.pods import POD_PARTS, PODS, Pod, TenantGpus, Tenants, for_tenants, views_at

Values = Mapping[str, frozenset[str]]
"""Required node labels with their allowed values."""

_REQUIRED: Final = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


def _tolerations(pod: Pod) -> list[dict[str, str]]:
    """The tolerations of a pod, as maps."""
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
    """The required node labels of a pod with their allowed values, which can be unknown.

    The terms of an affinity are alternatives: a label is required if all of them require it.
    https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
    """
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


class ModelSettings(TenantGpus):
    """Labels and names that identify a GPU model."""

    labels: list[str] = Field(FACTS["model_labels"])
    """Node labels that identify the GPU model or the machine type."""
    partitions: bool = False
    """Whether the resource name of a partition (`nvidia.com/mig-1g.10gb`) is sufficient."""
    queues: list[str] = Field([])
    """Workload labels that are sufficient because their value determines the nodes: `kueue.x-k8s.io/queue-name` if each
    queue has one flavor."""


@rule("gpu-model-named", PODS)
@for_tenants
def gpu_model_named(pod: Pod, settings: ModelSettings) -> Iterator[str]:
    """A pod that requests GPUs must select a GPU model."""
    names = [name for name in pod.gpus(settings) if not (settings.partitions and "/mig-" in name)]
    if not names or not _labels(pod).keys().isdisjoint(settings.labels):
        return
    if pod.resource.props.entries("metadata", "labels").keys().isdisjoint(settings.queues):
        yield (
            f"requests {', '.join(names)} without a GPU model; set one in nodeSelector or a required node affinity,"
            f" by {settings.labels[0] if settings.labels else 'a node label'}"
        )


class DaemonSettings(Tenants):
    """Pods whose tolerations are checked."""

    daemonsets: bool = False
    """Whether DaemonSets, which run on every node, are checked too."""

    def checks(self, pod: Pod) -> bool:
        """Whether a pod is checked."""
        return self.daemonsets or pod.kind != "apps:DaemonSet"


class GpuNodes(TenantGpus, DaemonSettings):
    """Labels and taints of GPU nodes."""

    taints: list[str] = Field([])
    """Taint keys of GPU nodes. If empty, the key is the resource name; for partitions, that of the whole GPU."""

    labels: list[str] = Field(FACTS["gpu_node_labels"])
    """Labels that only GPU nodes have, as patterns."""


@rule("cpu-pods-off-gpu-nodes", PODS)
@for_tenants
def cpu_pods_off_gpu_nodes(pod: Pod, settings: GpuNodes) -> Iterator[str]:
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


@rule("toleration-has-key", POD_PARTS)
@for_tenants
def toleration_has_key(pod: Pod, settings: DaemonSettings) -> Iterator[str]:
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
        if any(_reaches(term, pod.namespace) for term in terms):
            yield (
                f"has a required {field} to pods of other namespaces; remove namespaces and namespaceSelector of its"
                " terms"
            )
    metas = (pod.resource.props.at("metadata"), pod.meta, pod.value_at("spec.replicatedJobs.*.template.metadata"))
    if any(_EXCLUSIVE in meta.entries("annotations") for meta in metas):
        yield f"has annotation {_EXCLUSIVE}, which keeps JobSets of other namespaces from nodes; remove it"
