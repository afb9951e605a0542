"""Rules for the network between GPUs of different machines."""

from collections.abc import Iterator
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Final

from pydantic import Field

from rule_engine import ADVICE, Severity, rule
from workload_rules import nodes
from workload_rules.kinds import COUNTS, PATCHES, TRAIN_JOB
from workload_rules.objects import matches_any
from workload_rules.pods import BATCH_PODS, Pod, TenantGpus, for_tenants, views_at

_INTERFACES: Final = "networking.gke.io/interfaces"


class FabricSettings(TenantGpus):
    """Machines with a network between GPUs, and how pods request it."""

    nodes: list[str] = Field(
        [
            "node.kubernetes.io/instance-type=p4d.24xlarge",
            "node.kubernetes.io/instance-type=p4de.24xlarge",
            "node.kubernetes.io/instance-type=p5*.48xlarge",
            "node.kubernetes.io/instance-type=p6*",
            "node.kubernetes.io/instance-type=a3-megagpu-8g",
            "node.kubernetes.io/instance-type=a3-ultragpu-8g",
            "node.kubernetes.io/instance-type=a4*",
            "node.kubernetes.io/instance-type=Standard_ND*r*",
            "cloud.google.com/gke-accelerator=nvidia-h100-mega-80gb",
            "cloud.google.com/gke-accelerator=nvidia-h200-141gb",
            "cloud.google.com/gke-accelerator=nvidia-b200",
        ],
        description=(
            "Labels of nodes with a network between GPUs of different machines, as patterns `label=value`; add those"
            " that your pods select, such as `nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3`."
        ),
    )
    devices: list[str] = Field(
        ["vpc.amazonaws.com/efa", "rdma/*", "nvidia.com/mlnxnics", "networking.gke.io.networks/*"],
        description="Resource names of the network's devices, as patterns.",
    )
    annotations: list[str] = Field(
        [_INTERFACES], description="Annotations of pods that attach the network's interfaces."
    )


def _count(pod: Pod) -> Decimal:
    count = Decimal(1)
    for path in COUNTS.get(pod.kind, ()):
        count *= pod.value_at(path).number() or Decimal(1)
    return count


def _on_fabric(pod: Pod, settings: FabricSettings) -> str:
    """The node label by which a pod selects machines with the network; empty if it does not."""
    for label, values in nodes.labels(pod).items():
        patterns = [pattern.partition("=")[2] for pattern in settings.nodes if pattern.startswith(f"{label}=")]
        if values and all(any(fnmatchcase(value.text(), one) for one in patterns) for value in values):
            return label
    return ""


def _requests(pod: Pod, settings: FabricSettings) -> bool:
    """Whether a pod requests a device of the network, by resource, annotation or resource claim."""
    named = {
        name
        for container in pod.containers
        for name in container.resources.entries("requests") | container.resources.entries("limits")
    }
    metas = [pod.meta]
    if pod.kind == TRAIN_JOB:
        templates = [path.removesuffix(".spec") for path in PATCHES]
        metas = [view.at("metadata") for path in templates for _, view in views_at(pod.resource.props, path)]
    annotated = {key for meta in metas for key in meta.entries("annotations")}
    return (
        any(matches_any(name, settings.devices) for name in named)
        or not annotated.isdisjoint(settings.annotations)
        or bool(pod.spec.items("resourceClaims"))
    )


@rule(
    "gpu-fabric-requested",
    rationale="Otherwise NCCL falls back to TCP without an error, and the job runs many times slower on the same GPUs.",
    fix="Request the network's devices in each pod, by the GPUs' share of the machine.",
    link="https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html",
    severity=Severity.HIGH,
    level=ADVICE,
    on=BATCH_PODS,
)
@for_tenants
def gpu_fabric_requested(pod: Pod, settings: FabricSettings) -> Iterator[str]:
    """A job with several GPU pods must request the network between the GPUs of its machines."""
    gpus = pod.gpus(settings)
    if not gpus or _count(pod) <= 1 or _requests(pod, settings):
        return
    if label := _on_fabric(pod, settings):
        yield (
            f"requests {', '.join(gpus)} in several pods on nodes with a network between GPUs ({label}), but no device"
            " of it; request one, such as vpc.amazonaws.com/efa or rdma/ib, or attach its interfaces"
        )
