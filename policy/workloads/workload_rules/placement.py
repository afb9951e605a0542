"""Rules for node selection and tolerations of pods."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

from pydantic import Field

from rule_engine import ADVICE, Severity, View, rule
from rule_engine.remedies import resource_of, value_at
from workload_rules import nodes
from workload_rules.kinds import RUNTIMES
from workload_rules.pods import DEVICE_CLASS, POD_PARTS, PODS, Pod, TenantGpus, Tenants, for_tenants

_TAINTS: Final = "https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"
_AFFINITY: Final = "https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/"


class TaintSettings(TenantGpus):
    """The taint of GPU nodes."""

    taints: list[str] = Field(
        [],
        description=(
            "Taint keys of GPU nodes. If empty, the key is the resource name; for partitions, that of the whole GPU."
        ),
    )


def _taint_of(name: str, settings: TaintSettings) -> list[str]:
    if settings.taints:
        return settings.taints
    if name.startswith(DEVICE_CLASS):  # the class `gpu.nvidia.com` has devices of nvidia.com
        return [f"{'.'.join(name.removeprefix(DEVICE_CLASS).split('.')[-2:])}/gpu"]
    return [f"{name.partition('/')[0]}/gpu" if name.startswith("nvidia.com/") else name]


def _not_tolerated(pod: Pod, settings: TaintSettings) -> Iterator[str]:
    keys = {key for name in pod.gpus(settings) for key in _taint_of(name, settings)}
    tolerations = nodes.tolerations(pod) if keys else []
    yield from (key for key in sorted(keys) if not nodes.tolerates(tolerations, key))


def _tolerate(type_: str, props: dict[str, Any], settings: TaintSettings) -> bool:
    resource, changed = resource_of(type_, props), False
    for pod in resource.parts(PODS):
        keys = list(settings.of_tenant(resource, _not_tolerated(pod, settings)))
        if not keys:
            continue
        spec = value_at(props, pod.spec.path)
        if value_at(spec, ("tolerations",)) is None:
            spec["tolerations"] = []
        value_at(spec, ("tolerations",)).extend(
            {"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys
        )
        changed = True
    return changed


@rule(
    "gpu-toleration",
    rationale=(
        "Otherwise the pod stays pending if GPU nodes are tainted, as recommended; not every cluster adds the"
        " toleration automatically."
    ),
    fix="Add a toleration for the taint's key, with operator Exists and effect NoSchedule.",
    link=_TAINTS,
    severity=Severity.HIGH,
    level=ADVICE,
    on=PODS,
    remedy=_tolerate,
)
@for_tenants
def gpu_toleration(pod: Pod, settings: TaintSettings) -> Iterator[str]:
    """A pod that requests GPUs must tolerate the taint of GPU nodes."""
    for key in _not_tolerated(pod, settings):
        yield f"requests GPUs but does not tolerate {key}; add {{key: {key}, operator: Exists, effect: NoSchedule}}"


class ModelSettings(TenantGpus):
    """Labels and names that identify a GPU model."""

    labels: list[str] = Field(
        [
            "nvidia.com/gpu.product",
            "amd.com/gpu.product-name",
            "cloud.google.com/gke-accelerator",
            "eks.amazonaws.com/instance-gpu-name",
            "karpenter.azure.com/sku-gpu-name",
            "karpenter.k8s.aws/instance-gpu-name",
            "node.kubernetes.io/instance-type",
        ],
        description="Node labels that identify the GPU model or the machine type.",
    )
    partitions: bool = Field(
        default=False,
        description=("Whether the resource name of a partition (`nvidia.com/mig-1g.10gb`) is sufficient."),
    )
    queues: list[str] = Field(
        [],
        description=(
            "Workload labels that are sufficient because their value determines the nodes:"
            " `kueue.x-k8s.io/queue-name` if each queue has one flavor."
        ),
    )


@rule(
    "gpu-model-named",
    rationale=(
        "All models have the same resource name: a workload for a T4 can occupy an H100, and a workload for an H100"
        " fails on a T4."
    ),
    fix="Select nodes by the GPU product label, in `nodeSelector` or in a required node affinity.",
    link=_AFFINITY,
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=PODS,
)
@for_tenants
def gpu_model_named(pod: Pod, settings: ModelSettings) -> Iterator[str]:
    """A pod that requests GPUs must select a GPU model."""
    names = [name for name in pod.gpus(settings) if not (settings.partitions and "/mig-" in name)]
    if not names or not nodes.labels(pod).keys().isdisjoint(settings.labels):
        return
    if pod.resource.props.entries("metadata", "labels").keys().isdisjoint(settings.queues):
        yield (
            f"requests {', '.join(names)} without a GPU model; set one in nodeSelector or a required node affinity,"
            f" by {settings.labels[0] if settings.labels else 'a node label'}"
        )


class DaemonSettings(Tenants):
    """Pods whose tolerations are checked."""

    daemonsets: bool = Field(default=False, description="Whether DaemonSets, which run on every node, are checked too.")

    def checks(self, pod: Pod) -> bool:
        """Whether a pod is checked."""
        return self.daemonsets or pod.kind != "apps:DaemonSet"


class GpuNodes(TaintSettings, DaemonSettings):
    """Labels and taints of GPU nodes."""

    labels: list[str] = Field(
        [
            "nvidia.com/gpu.*",
            "amd.com/gpu.*",
            "cloud.google.com/gke-accelerator",
            "eks.amazonaws.com/instance-gpu-*",
            "karpenter.azure.com/sku-gpu-*",
            "karpenter.k8s.aws/instance-gpu-*",
        ],
        description="Labels that only GPU nodes have, as patterns.",
    )


@rule(
    "cpu-pods-off-gpu-nodes",
    rationale="It uses CPU and memory that GPU pods need, which leaves GPUs idle.",
    fix="Remove the toleration of the GPU taint and the selection of GPU nodes, or request a GPU.",
    link=_TAINTS,
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=PODS,
)
@for_tenants
def cpu_pods_off_gpu_nodes(pod: Pod, settings: GpuNodes) -> Iterator[str]:
    # Runtimes get their GPUs from TrainJobs, and a resource claim can be for GPUs.
    """A pod that requests no GPU must stay off GPU nodes."""
    claimed = pod.kind in RUNTIMES or pod.spec.items("resourceClaims")
    if claimed or not settings.checks(pod) or pod.gpus(settings):
        return
    for key in sorted({toleration.get("key", "") for toleration in nodes.tolerations(pod)}):
        if key in settings.taints or settings.is_gpu(key):
            yield f"requests no GPU but tolerates {key}; remove the toleration"
    for label in sorted(nodes.labels(pod)):
        if any(fnmatchcase(label, pattern) for pattern in settings.labels):
            yield f"requests no GPU but selects nodes by {label}; select other nodes"


@rule(
    "toleration-has-key",
    rationale=(
        "Without a key it tolerates every taint: the pod can be scheduled on GPU nodes, and on nodes that are being"
        " drained."
    ),
    fix="Add one toleration for each intended taint, with its key.",
    link=_TAINTS,
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=POD_PARTS,
)
@for_tenants
def toleration_has_key(pod: Pod, settings: DaemonSettings) -> Iterator[str]:
    """A toleration must name the key of a taint."""
    if not settings.checks(pod):
        return
    for index, toleration in enumerate(nodes.tolerations(pod)):
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


@rule(
    "affinity-own-namespace",
    rationale=(
        "The scheduler places no pod where it breaks the required anti-affinity of a pod that is there already: one"
        " small pod can keep all pods of other teams from the nodes of a zone or a pool."
    ),
    fix="Remove `namespaces` and `namespaceSelector` from required terms; Kueue places pods together by topology.",
    link=f"{_AFFINITY}#namespace-selector",
    severity=Severity.HIGH,
    level=ADVICE,
    on=POD_PARTS,
)
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
