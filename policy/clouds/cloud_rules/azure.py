"""AKS node pools.

https://learn.microsoft.com/azure/templates/microsoft.containerservice/managedclusters (and its agentPools). Azure
accepts names of VM sizes and values of enumerations in any case.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import ClassVar, Final

from typing_extensions import override

from cloud_rules.pools import Machine, NodePool, Taint
from rule_engine import Resource, Stack, View

_RDMA: Final = re.compile(r"standard_n[a-z]+\d+[a-z]*r[a-z]*\d*_")
"""VM sizes with GPUs and InfiniBand: https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions."""


class AksPool(NodePool):
    """An AKS node pool."""

    writes: ClassVar = {
        "zone": "one zone under availabilityZones",
        "update": "upgradeSettings: {maxSurge: '0', maxUnavailable: '1'}",
        "maximum": "maxCount",
        "minimum": "minCount",
        "machines": "vmSize",
        "spot": "scaleSetPriority: Regular",
        "taint": "nodeTaints: ['nvidia.com/gpu=present:NoSchedule']",
        "size": "count",
        "labels": "nodeLabels",
    }

    @property
    @override
    def minimum(self) -> Decimal:
        return self.view.number(self._bound("minCount")) or Decimal(0)

    @property
    @override
    def maximum(self) -> Decimal | None:
        maximum = self.view.number(self._bound("maxCount"))
        return Decimal(1) if maximum is None and not self.autoscaled else maximum

    @property
    @override
    def spot(self) -> bool:
        return self.view.text("scaleSetPriority").lower() == "spot"

    @property
    @override
    def taints(self) -> list[Taint]:
        parts = [taint.rpartition(":") for taint in self.view.texts("nodeTaints")]
        return [Taint(key.partition("=")[0], effect) for key, _, effect in parts]

    @property
    @override
    def for_system(self) -> bool:
        return self.view.text("mode").lower() == "system"

    @property
    @override
    def autoscaled(self) -> bool:
        return self.view.flag("enableAutoScaling")

    @override
    def fabric(self, stack: Stack) -> str:
        return "InfiniBand" if any(_RDMA.match(machine.name.lower()) for machine in self.machines()) else ""

    @override
    def zones(self, stack: Stack) -> int:
        return len(self.view.items("availabilityZones"))

    @override
    def reserved(self, stack: Stack) -> bool:
        return self.view.has("capacityReservationGroupID")

    @property
    @override
    def surges(self) -> bool:
        return self.view.text("upgradeSettings", "maxSurge") not in {"0", "0%"}

    @override
    def machines(self) -> list[Machine]:
        size = self.view.at("vmSize")
        return [Machine(size.text(), size.path)] if size.value is not None else []

    def _bound(self, key: str) -> str:
        return key if self.autoscaled else "count"


class AksPoolOfSizes(AksPool):
    """An AKS node pool with machines of several sizes: https://learn.microsoft.com/azure/aks/virtual-machines-node-pools."""

    writes: ClassVar = {
        **AksPool.writes,
        "maximum": "virtualMachinesProfile.scale",
        "minimum": "virtualMachinesProfile.scale",
        "machines": "virtualMachinesProfile.scale",
        "size": "",  # a profile has either a number of nodes or an autoscaler
    }

    @property
    @override
    def minimum(self) -> Decimal:
        return sum((_count(profile, "minCount") for profile in self._profiles()), Decimal(0))

    @property
    @override
    def maximum(self) -> Decimal | None:
        return sum((_count(profile, "maxCount") for profile in self._profiles()), Decimal(0))

    @override
    def machines(self) -> list[Machine]:
        sizes = [
            size for profile in self._profiles() for size in (profile.at("size"), *profile.items("sizes")) if size.has()
        ]
        return [Machine(size.text(), size.path) for size in sizes]

    def _profiles(self) -> list[View]:
        """Profiles with a number of nodes or an autoscaler, which some API versions have once, others as a list."""
        scale = self.view.at("virtualMachinesProfile", "scale")
        profiles: list[View] = []
        for key in ("manual", "autoscale"):
            profile = scale.at(key)
            profiles += profile.items() if isinstance(profile.value, list) else [profile] if profile.has() else []
        return profiles


def _count(profile: View, bound: str) -> Decimal:
    """The number of nodes of a profile, or a bound of its autoscaler."""
    number = profile.number("count")
    return (profile.number(bound) if number is None else number) or Decimal(0)


def _pool(resource: Resource, view: View, label: str = "") -> AksPool:
    return (AksPoolOfSizes if view.has("virtualMachinesProfile") else AksPool)(resource, view, label)


def pools(resource: Resource) -> Iterator[AksPool]:
    """The pools of a resource: a pool itself, or a cluster with inline pools."""
    if resource.kind == "AgentPool":
        yield _pool(resource, resource.props)
        return
    for profile in resource.props.items("agentPoolProfiles"):
        yield _pool(resource, profile, f"node pool {profile.text('name') or profile.path[-1]}")
