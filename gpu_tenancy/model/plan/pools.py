"""The pools of a stack with their machines: GPUs, resources for pods, network and supply."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts
from gpu_tenancy.model.catalogue import PRODUCT_LABELS, Gpu, Machine, Network, allocatable, find_gpu, find_machine
from gpu_tenancy.model.catalogue.clouds import CloudRules, DriverMode, SharingRule, TopologyRule, rules_of
from gpu_tenancy.model.catalogue.machines import CapacityType, Purchase
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.aws import AwsCluster
from gpu_tenancy.model.spec.cluster import Cluster, service_of
from gpu_tenancy.model.spec.pools import HOSTNAME, Level, MachineEntry, Pool

NVIDIA: Final = "nvidia.com/gpu"
GPU_TAINT_VALUE: Final = "present"
POOL_LABEL: Final = "gpu-tenancy.dev/pool"  # node label with the pool's name
CAPACITY_LABEL: Final = "gpu-tenancy.dev/capacity"  # node label with the capacity type, such as `spot`
MIG_CONFIG_LABEL: Final = "nvidia.com/mig.config"
"""Node label that selects the MIG configuration of a node for the GPU Operator's MIG manager:
https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-mig.html."""
PLUGIN_CONFIG_LABEL: Final = "nvidia.com/device-plugin.config"
"""Node label that selects the configuration of a node for the GPU Operator's device plugin:
https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-sharing.html."""


@dataclass(frozen=True, slots=True)
class NodeTaint:
    """A taint of a node, in Kubernetes' terms."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Provisioning:
    """Request of nodes by a queue, all at once for one workload: `model.catalogue.clouds.ByQueue`."""

    provisioning_class: str
    node_selector: Mapping[str, str]
    seconds: int | None  # maximum lifetime of the nodes; None without a maximum


@dataclass(frozen=True, slots=True)
class TopologyLevel:
    """One level of the network, by the node label whose value names the part; jobs cannot ask for a `level` None."""

    label: str
    level: Level | None = None


Levels = tuple[TopologyLevel, ...]  # the largest first; the last is the node; empty without a topology

_NODE: Final = TopologyLevel(HOSTNAME, "node")


def levels_of(pool: Pool, rules: CloudRules) -> Levels:
    """The levels of a pool's nodes: only the node if the cloud has no labels, which `model.checks` reports."""
    topology = pool.topology
    if topology is None:
        return ()
    if rule := cloud_labels(pool, rules) if topology.source == "cloud" else None:
        names: Mapping[str, Level] = {rule.block: "block", rule.rack: "rack"}
        return (*(TopologyLevel(label, names.get(label)) for label in rule.labels), _NODE)
    levels: tuple[tuple[str | None, Level], ...] = ((topology.block, "block"), (topology.rack, "rack"))
    return (*(TopologyLevel(label, level) for label, level in levels if label), _NODE)


def cloud_labels(pool: Pool, rules: CloudRules) -> TopologyRule | None:
    """The labels that the cloud sets on nodes of a pool's machine type; None if none are known."""
    return next((rule for rule in rules.topologies if (pool.machine or "").startswith(rule.machines)), None)


@dataclass(frozen=True, slots=True)
class PoolSupply:
    """The supply of one pool."""

    name: str
    flavor: str
    node: Amounts  # allocatable resources of one node: CPU, memory, and its GPUs by resource name
    resource: str | None
    product: str | None
    labels: Mapping[str, str]  # node labels that pods can select nodes by
    taints: tuple[NodeTaint, ...]
    capacity: str  # capacity type, such as `spot`
    provisioning: Provisioning | None  # request by the queue; None if pending pods make the autoscaler add nodes
    min_nodes: int
    max_nodes: int  # number of nodes that can be guaranteed: `nodes.max` with an autoscaler, else `nodes.min`
    levels: Levels = ()

    @property
    def node_labels(self) -> dict[str, str]:
        """The labels of a node of the pool, without its driver's: see `ResolvedPool.node_labels`."""
        return {**self.labels, POOL_LABEL: self.name, CAPACITY_LABEL: self.capacity}

    @property
    def gpus_per_node(self) -> int:
        """Allocatable GPUs of a node; MIG partitions or time slices if GPUs are shared."""
        return self.node.get(self.resource, 0) if self.resource else 0


@dataclass(frozen=True, slots=True)
class Nvlink:
    """NVLink between machines; `nodes` is the maximum number of machines that it connects, None if it is unknown."""

    nodes: int | None


@dataclass(frozen=True, slots=True)
class Cut:
    """The resources that one GPU provides to pods; `labels` select such nodes, in addition to the model's."""

    resource: str
    replicas: int = 1
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class NodeDisk:
    """A disk of a node, its size in bytes; a local one is the machine's own, with a fixed size."""

    size: int
    local: bool


@dataclass(frozen=True, eq=False)
class ResolvedPool:
    """A pool with its machine type and the rules of its cloud; `grows` is whether an autoscaler adds nodes."""

    name: str
    pool: Pool
    cluster: Cluster
    machine: Machine | None  # the stack's row, else the catalogue's; None if neither has one
    grows: bool

    @property
    def flavor(self) -> str:
        """Name of the flavor of its nodes."""
        return self.pool.flavor or self.name

    @property
    def rules(self) -> CloudRules:
        """The rules of its cloud."""
        return rules_of(service_of(self.cluster))

    @property
    def gpu(self) -> str | None:
        """The model of its GPUs, as the machine type or the stack names it."""
        return self.machine.gpu if self.machine else self.pool.gpu

    @property
    def model(self) -> Gpu | None:
        """The catalogue's row of this model."""
        return find_gpu(self.gpu or "")

    @property
    def gpus(self) -> int:
        """Whole GPUs of a node."""
        return self.machine.gpus if self.machine else self.pool.gpus_per_node or 0

    @cached_property
    def resource(self) -> str:
        """The extended resource of whole GPUs: as set in the pool, else the model's."""
        return self.pool.resource or (self.model.resource if self.model else NVIDIA)

    @property
    def of_nvidia(self) -> bool:
        """Whether it has GPUs that are NVIDIA's, which the GPU Operator configures."""
        return bool(self.gpus) and self.resource == NVIDIA

    @property
    def mode(self) -> DriverMode | None:
        """Its driver mode, by default the cloud's first; None if the cloud does not have it."""
        modes = self.rules.drivers
        return modes.get(self.pool.driver or next(iter(modes)))

    @property
    def sharing_rule(self) -> SharingRule | None:
        """The configuration of its GPU sharing; None without sharing, or if it is not supported."""
        return self.mode.sharing(self.pool.sharing.way) if self.pool.sharing and self.mode else None

    @property
    def product(self) -> str | None:
        """The model as in the node label; GPU feature discovery adds a suffix for GPUs that its plugin shares.

        https://github.com/NVIDIA/k8s-device-plugin#with-cuda-time-slicing
        """
        plain = self.model.product if self.model else self.gpu
        turns = self.pool.sharing is not None and self.pool.sharing.pods is not None
        by_operator = self.sharing_rule is not None and self.sharing_rule.by == "operator"
        return f"{plain}-SHARED" if plain and turns and by_operator and self.resource == NVIDIA else plain

    @property
    def fabric(self) -> str | None:
        """The network between GPUs of different machines that it uses, such as `efa`; None without."""
        network = self.machine.network if self.machine else None
        return network.fabric or None if self.pool.fabric and network else None

    @property
    def claimable(self) -> int:
        """Interfaces of a node that its pods claim from GKE's DRANET; 0 without."""
        network = self.machine.network if self.machine else None
        return network.interfaces if self.fabric and network and self.pool.fabric == "dranet" else 0

    @cached_property
    def nvlink(self) -> Nvlink | None:
        """How NVLink connects its machines; None if it does not, or if pods get parts of GPUs."""
        if self.pool.sharing:
            return None
        if self.machine and self.machine.domain:
            return Nvlink(self.machine.domain)
        if self.model is None or self.model.nvlink is None or not self.gpus:
            return None
        return Nvlink(None if self.model.nvlink.gpus is None else self.model.nvlink.gpus // self.gpus)

    @property
    def driver(self) -> str | None:
        """Name of its driver mode; None for a CPU pool, or another vendor's GPUs."""
        of_nvidia = bool(self.gpus) and self.resource.startswith("nvidia.com/")
        return (self.pool.driver or next(iter(self.rules.drivers))) if of_nvidia else None

    @property
    def node_labels(self) -> dict[str, str]:
        """All labels of its nodes, with the labels by which the GPU Operator configures drivers and GPU sharing."""
        sharing, rule = self.pool.sharing, self.sharing_rule
        of_sharing: dict[str, str] = {}
        if sharing and rule and rule.by == "operator":
            mig = {MIG_CONFIG_LABEL: f"all-{sharing.mig.profile}"} if sharing.mig else None
            of_sharing = mig or {PLUGIN_CONFIG_LABEL: self.name}
        of_driver: Mapping[str, str] = self.mode.labels if self.driver and self.mode else {}
        of_pool = self.supply.node_labels if self.supply else {}
        return dict(sorted({**of_pool, **of_driver, **of_sharing}.items()))

    @property
    def bare(self) -> "ResolvedPool":
        """The pool without labels and taints of its own: its nodes have those of this program and of the cloud."""
        return replace(self, pool=self.pool.model_copy(update={"labels": {}, "taints": []}))

    @property
    def disk(self) -> NodeDisk:
        """The disk with the ephemeral storage of nodes that the stack creates: local disks, else the boot disk."""
        if self.machine and uses_local_disks(self.cluster, self.machine):
            return NodeDisk(self.machine.local_disk, local=True)
        return NodeDisk(self.pool.disk.size, local=False)

    @cached_property
    def cut(self) -> Cut | None:
        """The resources that one GPU provides to pods; None if its number of partitions is unknown."""
        sharing, rule = self.pool.sharing, self.sharing_rule
        if sharing is None:
            return Cut(self.resource)
        if sharing.mig is None:
            turns = sharing.pods or 1
            return Cut(self.resource, turns, _filled(rule, turns=str(turns)))
        profile = sharing.mig.profile
        partitions = sharing.mig.partitions or (self.model.mig.get(profile, 0) if self.model else 0)
        if not partitions:
            return None
        asked = self.resource if rule and rule.whole else f"{self.resource.partition('/')[0]}/mig-{profile}"
        return Cut(asked, partitions, _filled(rule, profile=profile))

    @cached_property
    def supply(self) -> PoolSupply | None:
        """Its supply; None if its machine type or MIG profile is unknown (`model.checks.pools` reports it)."""
        pool, cut, gpus = self.pool, self.cut, self.gpus
        if (pool.machine and self.machine is None) or cut is None:
            return None
        cpu, memory = allocatable(self.machine) if self.machine else (0, 0)
        product, product_label = self.product, PRODUCT_LABELS.get(self.resource.partition("/")[0])
        rule, provisioning = self.rules.capacity[pool.capacity.kind], None
        # As `kubectl taint` writes them: `key=value:effect`.
        of_cloud = tuple(NodeTaint(*re.split("[=:]", text)) for text in rule.taints)
        of_stack = tuple(NodeTaint(taint.key, taint.value, taint.effect) for taint in pool.taints)
        of_gpu = (NodeTaint(self.resource, GPU_TAINT_VALUE, "NoSchedule"),) if gpus else ()
        if rule.by_queue and pool.capacity.kind == "queued":
            provisioning = Provisioning(
                rule.by_queue.provisioning_class, rule.by_queue.node_selector, pool.capacity.max_run
            )
        return PoolSupply(
            name=self.name,
            flavor=self.flavor,
            node={
                CPU: pool.cpu or cpu,
                MEMORY: pool.memory or memory,
                **({cut.resource: gpus * cut.replicas} if gpus else {}),
            },
            resource=cut.resource if gpus else None,
            product=product if gpus else None,
            labels={
                **({product_label: product} if gpus and product and product_label else {}),
                **(cut.labels if gpus else {}),
                **dict(sorted(pool.labels.items())),
            },
            taints=of_gpu + of_stack + of_cloud,
            capacity=pool.capacity.kind,
            provisioning=provisioning,
            min_nodes=pool.nodes.min,
            max_nodes=pool.nodes.max if self.grows else pool.nodes.min,
            levels=levels_of(pool, self.rules),
        )


def resolved(stack: Stack, name: str, pool: Pool) -> ResolvedPool:
    """A pool of a stack, or of one of its workers, with its machine."""
    machine = _machine(pool.machine, stack.machines.get(pool.machine)) if pool.machine else None
    return ResolvedPool(name, pool, stack.cluster, machine, stack.cluster.grows)


def _machine(name: str, own: MachineEntry | None) -> Machine | None:
    known = find_machine(name)
    if own is None:
        return known
    network = known.network if known else None
    # The catalogue's, if their number is the same.
    cards = network.cards if network and own.network and network.interfaces == own.network.interfaces else ()
    # The machine type can be bought in no other way than the stack's.
    every: tuple[CapacityType, ...] = ("on-demand", "spot", "reserved", "capacity-block", "flex-start")
    lacks: tuple[CapacityType, ...] = tuple(kind for kind in every if kind not in (own.capacity or ()))
    values: dict[str, Any] = {key: getattr(own, key) for key in type(own).model_fields} | {
        "zones": frozenset(own.zones) if own.zones is not None else None,
        "purchase": None if own.capacity is None else Purchase(has=tuple(own.capacity), lacks=lacks),
        "network": Network(**own.network.model_dump(), cards=cards) if own.network else None,
        "local_disk": (known.local_disk if known else 0) if own.local_disk is None else own.local_disk,
    }
    del values["capacity"]
    if own.cpu is not None:
        return Machine(name=name, cloud="", **values)
    set_keys = {key for key in own.model_fields_set if getattr(own, key) is not None}
    keys = {"purchase" if key == "capacity" else key for key in set_keys}
    return replace(known, **{key: values[key] for key in keys}) if known else None


def uses_local_disks(cluster: Cluster, machine: Machine) -> bool:
    """Whether nodes of a machine type have their containers and ephemeral storage on local NVMe disks."""
    off = isinstance(cluster, AwsCluster) and not cluster.local_disks
    return bool(machine.local_disk and rules_of(cluster.cloud).local_disk) and not off


def _filled(rule: SharingRule | None, **words: str) -> dict[str, str]:
    return {key: value.format(**words) for key, value in rule.labels.items()} if rule else {}
