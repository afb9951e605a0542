"""Rules for the nodes that pods choose."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

from pydantic import Field

from judge import ADVICE, AnyRule, Rule, Severity
from judge.marked import found_at, resource_of
from workload_rules import nodes
from workload_rules.pods import PODS, Pod, TenantGpus, Tenants

_TAINTS: Final = "https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"
_AFFINITY: Final = "https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/"


class TaintSettings(TenantGpus):
    """The taint of GPU nodes."""

    taints: list[str] = Field(
        [],
        description="Keys of the taints on GPU nodes; left empty, the resource's name is the key, and for partitions"
        " the whole GPU's.",
    )


def _taint_of(name: str, settings: TaintSettings) -> list[str]:
    return settings.taints or [f"{name.split('/', 1)[0]}/gpu" if name.startswith("nvidia.com/") else name]


def _not_tolerated(pod: Pod, settings: TaintSettings) -> list[str]:
    keys = {key for name in pod.gpus(settings) for key in _taint_of(name, settings)}
    tolerations = nodes.tolerations(pod) if keys else []
    return [key for key in sorted(keys) if not nodes.tolerates(tolerations, key)]


def _tolerates_taint(pod: Pod, settings: TaintSettings) -> Iterator[str]:
    for key in _not_tolerated(pod, settings):
        yield f"asks for GPUs and does not tolerate {key}; add {{key: {key}, operator: Exists, effect: NoSchedule}}"


def _tolerate(type_: str, props: dict[str, Any], settings: TaintSettings) -> bool:
    resource, changed = resource_of(type_, props), False
    for pod in resource.parts(PODS):
        if not any(settings.of_tenant(resource, _tolerates_taint(pod, settings))):
            continue
        spec = found_at(props, pod.spec.path)
        if found_at(spec, ("tolerations",)) is None:
            spec["tolerations"] = []
        found_at(spec, ("tolerations",)).extend(
            {"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in _not_tolerated(pod, settings)
        )
        changed = True
    return changed


GPU_TOLERATION: Final = Rule(
    name="gpu-toleration",
    says="A pod that asks for GPUs tolerates the taint of GPU nodes.",
    why="It would wait for ever where GPU nodes are tainted, as they should be; not every cluster adds the toleration"
    " by itself.",
    mend="Add a toleration of the taint's key, with operator Exists and effect NoSchedule.",
    link=_TAINTS,
    severity=Severity.HIGH,
    level=ADVICE,
    on=PODS,
    judge=lambda pod, settings: settings.of_tenant(pod.resource, _tolerates_taint(pod, settings)),
    settings=TaintSettings,
    remedy=_tolerate,
)


class ModelSettings(TenantGpus):
    """What names a model of GPU."""

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
        description="Labels of nodes that name the model of their GPUs, or the machine.",
    )
    partitions: bool = Field(
        default=False, description="Whether the resource name of a partition (`nvidia.com/mig-1g.10gb`) is enough."
    )
    queues: list[str] = Field(
        [],
        description="Labels of the object that are enough, since what they name chooses the nodes:"
        " `kueue.x-k8s.io/queue-name` where each queue has one flavor.",
    )


def _model_named(pod: Pod, settings: ModelSettings) -> Iterator[str]:
    names = [name for name in pod.gpus(settings) if not (settings.partitions and "/mig-" in name)]
    if not names or not nodes.labels(pod).keys().isdisjoint(settings.labels):
        return
    if pod.resource.props.entries("metadata", "labels").keys().isdisjoint(settings.queues):
        yield (
            f"asks for {', '.join(names)} of any model; name one in nodeSelector or a required node affinity, by"
            f" {settings.labels[0] if settings.labels else 'a label of the nodes'}"
        )


MODEL_NAMED: Final = Rule(
    name="gpu-model-named",
    says="A pod that asks for GPUs names their model.",
    why="The resource's name is the same for all models: work for a T4 would take an H100, and work for an H100 fails"
    " on a T4.",
    mend="Select nodes by the label of the GPU's product, in `nodeSelector` or in a required node affinity.",
    link=_AFFINITY,
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=PODS,
    judge=lambda pod, settings: settings.of_tenant(pod.resource, _model_named(pod, settings)),
    settings=ModelSettings,
)


class DaemonSettings(Tenants):
    """Whose tolerations are judged."""

    daemons: bool = Field(default=False, description="Whether DaemonSets, which are for each node, are judged too.")

    def judged(self, pod: Pod) -> bool:
        """Whether this pod is."""
        return self.daemons or pod.kind != "apps:DaemonSet"


class GpuNodes(TaintSettings, DaemonSettings):
    """By what GPU nodes are known."""

    labels: list[str] = Field(
        [
            "nvidia.com/gpu.*",
            "amd.com/gpu.*",
            "cloud.google.com/gke-accelerator",
            "eks.amazonaws.com/instance-gpu-*",
            "karpenter.azure.com/sku-gpu-*",
            "karpenter.k8s.aws/instance-gpu-*",
        ],
        description="Labels that GPU nodes alone have, as patterns.",
    )


_RUNTIMES: Final = {"trainer.kubeflow.org:TrainingRuntime", "trainer.kubeflow.org:ClusterTrainingRuntime"}


def _off_gpu_nodes(pod: Pod, settings: GpuNodes) -> Iterator[str]:
    # Runtimes get their GPUs from TrainJobs, and a claim may be one of GPUs.
    claimed = pod.kind in _RUNTIMES or pod.spec.items("resourceClaims")
    if claimed or not settings.judged(pod) or pod.gpus(settings):
        return
    for key in sorted({each.get("key", "") for each in nodes.tolerations(pod)}):
        if key in settings.taints or settings.is_gpu(key):
            yield f"asks for no GPU and tolerates {key}; take that toleration out"
    for label in sorted(nodes.labels(pod)):
        if any(fnmatchcase(label, pattern) for pattern in settings.labels):
            yield f"asks for no GPU and selects nodes by {label}; select others"


CPU_PODS: Final = Rule(
    name="cpu-pods-off-gpu-nodes",
    says="A pod that asks for no GPU keeps off GPU nodes.",
    why="It takes the cpu and memory that go with GPUs, and these then stand idle.",
    mend="Take the toleration of the GPU taint and the selection of GPU nodes out, or ask for a GPU.",
    link=_TAINTS,
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=PODS,
    judge=lambda pod, settings: settings.of_tenant(pod.resource, _off_gpu_nodes(pod, settings)),
    settings=GpuNodes,
)


def _has_key(pod: Pod, settings: DaemonSettings) -> Iterator[str]:
    if not settings.judged(pod):
        return
    for index, toleration in enumerate(nodes.tolerations(pod)):
        if not toleration.get("key"):
            yield f"toleration {index} has no key and tolerates every taint; name the key of one"


TOLERATION_KEY: Final = Rule(
    name="toleration-has-key",
    says="A toleration names the key of a taint.",
    why="Without a key it tolerates every taint: the pod goes onto GPU nodes, and onto nodes that are being drained.",
    mend="Write a toleration for each taint that is meant, with its key.",
    link=_TAINTS,
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=PODS,
    judge=lambda pod, settings: settings.of_tenant(pod.resource, _has_key(pod, settings)),
    settings=DaemonSettings,
)

RULES: Final[tuple[AnyRule, ...]] = (GPU_TOLERATION, MODEL_NAMED, CPU_PODS, TOLERATION_KEY)
