"""Node auto-provisioning of GKE: pools that the cluster creates for pending pods, within limits of resources.

https://cloud.google.com/kubernetes-engine/docs/concepts/node-auto-provisioning.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import ClassVar, Final

from typing_extensions import override

from cloud_rules.machines import Machines, Prices
from cloud_rules.pools import Cloud, Machine, NodePool, Taint
from rule_engine import Resource, Stack, UnknownValueError, View

_LIMITS: Final = ("clusterAutoscaling", "resourceLimits")
_GPU_TYPES: Final = "nvidia-"
"""Prefix of resource types that are GPUs; others are cpu, memory and TPUs."""


class AutoProvisioning(NodePool):
    """The pools that node auto-provisioning of a cluster can create, as one pool."""

    __slots__ = ()
    cloud: ClassVar[Cloud] = "gcp"
    counted: ClassVar = "GPU count"
    writes: ClassVar = {
        "maximum": ".".join(_LIMITS),
        "minimum": f"minimum in {'.'.join(_LIMITS)}",
        "machines": "clusterAutoscaling.enabled: false",
    }

    @property
    @override
    def minimum(self) -> Decimal:
        return sum((limit.number("minimum") or Decimal(0) for limit in self._gpu_limits()), Decimal(0))

    @property
    @override
    def maximum(self) -> Decimal | None:
        return None

    @property
    @override
    def bounded(self) -> bool:
        return bool(self.view.items(*_LIMITS))

    @property
    @override
    def spot(self) -> bool:
        return False  # only for pods that select spot nodes

    @property
    @override
    def taints(self) -> list[Taint]:
        # GKE adds it: kubernetes/autoscaler, cluster-autoscaler/cloudprovider/gke/gke_cloud_provider.go.
        return [Taint("nvidia.com/gpu", "NoSchedule")]

    @override
    def machines(self) -> list[Machine]:
        return [Machine("a machine by resourceLimits", _LIMITS)]

    @override
    def all_machines(self, stack: Stack) -> list[Machine]:
        return []

    @override
    def gpus(self, known: Machines, stack: Stack) -> int | None:
        return None if self._most_gpus() else 0

    @override
    def has_cpu_nodes(self, known: Machines, stack: Stack) -> bool:
        return True

    @override
    def maximum_gpus(self, known: Machines, stack: Stack) -> Decimal | None:
        return self._most_gpus()

    @override
    def monthly(self, prices: Prices, stack: Stack) -> Decimal:
        raise UnknownValueError(_LIMITS, "limits resources, not nodes, so the cost is unknown")

    def _most_gpus(self) -> Decimal:
        return sum((limit.number("maximum") or Decimal(0) for limit in self._gpu_limits()), Decimal(0))

    def _gpu_limits(self) -> list[View]:
        limits = self.view.items(*_LIMITS)
        return [limit for limit in limits if limit.text("resourceType").lower().startswith(_GPU_TYPES)]


def auto_provisioning(resource: Resource) -> Iterator[AutoProvisioning]:
    """The pools that a cluster with node auto-provisioning can create; none without."""
    if resource.props.flag("clusterAutoscaling", "enabled"):
        yield AutoProvisioning(resource, resource.props, "node auto-provisioning")
