"""GKE node pools, and node auto-provisioning: pools that a cluster creates within limits of resources.

https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters (and its nodePools),
https://cloud.google.com/kubernetes-engine/docs/concepts/node-auto-provisioning.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import ClassVar, Final

from typing_extensions import override

from cloud_rules.pools import Machine, Machines, NodePool, Nodes, Prices, Taint, cloud_taints, highest_price
from rule_engine import Resource, Stack, UnknownValueError, View

_ZONE: Final = re.compile(r".+-[a-z]")
_DEFAULT_MACHINE: Final = "e2-medium"
"""The default machine type: https://cloud.google.com/sdk/gcloud/reference/container/node-pools/create."""
_TAKES_GPUS: Final = re.compile(r"(n1|custom)-")
"""Machine types to which GPUs are attached; for all others, the machine type determines the GPUs."""


class GkePool(NodePool, Nodes):
    """A GKE node pool."""

    writes: ClassVar = {
        "zone": "one zone under nodeLocations",
        "update": "upgradeSettings: {maxSurge: 0, maxUnavailable: 1}",
        "maximum": "autoscaling.totalMaxNodeCount",
        "minimum": "autoscaling.totalMinNodeCount",
        "machines": "nodeConfig.machineType",
        "spot": "neither nodeConfig.spot nor nodeConfig.preemptible",
        "taint": "nodeConfig.taints: [{key: nvidia.com/gpu, value: present, effect: NO_SCHEDULE}]; GKE adds it itself"
        " only where the cluster has a pool without GPUs when this one is made",
        "size": "nodeCount",
        "labels": "nodeConfig.labels",
    }

    @property
    def _config(self) -> View:
        return self.view.at("nodeConfig")

    @property
    @override
    def minimum(self) -> Decimal:
        return self._scaled("totalMinNodeCount", "minNodeCount") or Decimal(0)

    @property
    @override
    def maximum(self) -> Decimal | None:
        return self._scaled("totalMaxNodeCount", "maxNodeCount")

    @property
    @override
    def bounded(self) -> bool:
        scaling = self.view.at("autoscaling")
        return scaling.value is None or scaling.has("totalMaxNodeCount") or scaling.has("maxNodeCount")

    @property
    @override
    def spot(self) -> bool:
        return self._config.flag("spot") or self._config.flag("preemptible")

    @override
    def fabric(self, stack: Stack) -> str:
        network = self.view.at("networkConfig")
        of_gpus = network.has("acceleratorNetworkProfile") or network.items("additionalNodeNetworkConfigs")
        return "GPUDirect" if of_gpus else ""

    @override
    def zones(self, stack: Stack) -> int:
        return self._zones()

    @override
    def reserved(self, stack: Stack) -> bool:
        return self.affinity == "SPECIFIC_RESERVATION"

    @property
    @override
    def surges(self) -> bool:
        upgrade = self.view.at("upgradeSettings")
        return upgrade.text("strategy") == "BLUE_GREEN" or upgrade.number("maxSurge") != 0

    @property
    def affinity(self) -> str:
        """Which reservations its nodes use; empty for the default."""
        return self._config.text("reservationAffinity", "consumeReservationType")

    @property
    @override
    def taints(self) -> list[Taint]:
        return cloud_taints(self._config.items("taints"))

    @property
    @override
    def autoscaled(self) -> bool:
        return self.view.has("autoscaling")

    @override
    def machines(self) -> list[Machine]:
        machine_type = self._config.at("machineType")
        return [Machine(machine_type.text(default=_DEFAULT_MACHINE), machine_type.path)]

    @override
    def gpus(self, known: Machines, stack: Stack) -> int | None:
        of_machine = known.gpus_of(self.machines()[0].name)
        if of_machine != 0:
            return of_machine
        counts = [accelerator.number("count") for accelerator in self._config.items("guestAccelerators")]
        return sum(1 if count is None else int(count) for count in counts)

    @override
    def monthly(self, prices: Prices, stack: Stack) -> Decimal:
        machine, attached = self.machines()[0], self._config.items("guestAccelerators")
        if not _TAKES_GPUS.match(machine.name):
            return NodePool.monthly(self, prices, stack)
        gpus = "".join(
            f"+{accelerator.text('count', default='1')}x{accelerator.text('type')}" for accelerator in attached
        )
        return self.at_most(highest_price([Machine(machine.name + gpus, machine.path)], prices))

    @override
    def metadata(self, hops: int) -> Iterator[str]:
        mode = self._config.text("workloadMetadataConfig", "mode", default="GKE_METADATA")
        if mode != "GKE_METADATA":
            yield f"allows pods to read the node's metadata ({mode}); set workloadMetadataConfig.mode: GKE_METADATA"
        if self._config.text("metadata", "disable-legacy-endpoints", default="true") != "true":
            yield "serves the legacy metadata endpoints; set nodeConfig.metadata.disable-legacy-endpoints: 'true'"

    def _scaled(self, total: str, per_zone: str) -> Decimal | None:
        """A bound of the autoscaler for all zones together; without an autoscaler, the fixed number of nodes."""
        scaling = self.view.at("autoscaling")
        if scaling.value is None:
            count = self.view.number("nodeCount")
            if count is None:
                count = self.view.number("initialNodeCount")
            nodes = Decimal(1) if count is None else count
            return nodes * self._zones() if nodes else nodes
        if scaling.has(total):
            return scaling.number(total)
        count = scaling.number(per_zone)
        return count * self._zones() if count else count

    def _zones(self) -> int:
        """Number of zones, which node counts are per; a region has three by default."""
        # https://cloud.google.com/kubernetes-engine/docs/concepts/regional-clusters
        if self.view.path and self.view.has("nodeLocations"):
            return len(self.view.items("nodeLocations"))
        location = self.resource.props.text("location")
        zones = {zone.text() for zone in self.resource.props.items("nodeLocations")}
        if zones:  # a cluster's nodeLocations do not include its own zone
            own = {location} if self.resource.kind == "Cluster" and _ZONE.fullmatch(location) else set[str]()
            return len(zones | own)
        if not location:
            raise UnknownValueError((*self.view.path, "nodeLocations"), "is not set, and the node counts are per zone")
        return 1 if _ZONE.fullmatch(location) else 3


_LIMITS: Final = ("clusterAutoscaling", "resourceLimits")
_GPU_TYPES: Final = "nvidia-"  # prefix of resource types that are GPUs; others are cpu, memory and TPUs


class AutoProvisioning(NodePool):
    """The pools that node auto-provisioning of a cluster can create, as one pool."""

    counted: ClassVar = "GPU count"
    writes: ClassVar = {
        "maximum": ".".join(_LIMITS),
        "minimum": f"minimum in {'.'.join(_LIMITS)}",
        "machines": "clusterAutoscaling.enabled: false",
    }

    @property
    @override
    def minimum(self) -> Decimal:
        return self._gpus("minimum")

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
        return None if self._gpus("maximum") else 0

    @override
    def maximum_gpus(self, known: Machines, stack: Stack) -> Decimal | None:
        return self._gpus("maximum")

    @override
    def monthly(self, prices: Prices, stack: Stack) -> Decimal:
        raise UnknownValueError(_LIMITS, "limits resources, not nodes, so the cost is unknown")

    def _gpus(self, bound: str) -> Decimal:
        limits = self.view.items(*_LIMITS)
        of_gpus = [limit for limit in limits if limit.text("resourceType").lower().startswith(_GPU_TYPES)]
        return sum((limit.number(bound) or Decimal(0) for limit in of_gpus), Decimal(0))


def pools(resource: Resource) -> Iterator[GkePool | AutoProvisioning]:
    """The pools of a resource: a pool itself, or a cluster's inline pools, default pool and node auto-provisioning."""
    props = resource.props
    if resource.kind == "NodePool":
        yield GkePool(resource, props)
        return
    if not props.value or props.flag("enableAutopilot"):
        return
    if props.flag("clusterAutoscaling", "enabled"):
        yield AutoProvisioning(resource, props, "node auto-provisioning")
    inline = props.items("nodePools")
    for profile in inline:
        yield GkePool(resource, profile, f"node pool {profile.text('name') or profile.path[-1]}")
    if not inline and not props.flag("removeDefaultNodePool"):
        yield GkePool(resource, props, "default node pool")


def nodes(resource: Resource) -> Iterator[Nodes]:
    """The node configurations of a GKE resource."""
    return (pool for pool in pools(resource) if isinstance(pool, GkePool))
