"""The cluster and its node pools, in terms that every cloud's part turns into its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu_tenancy.model.catalogue import Machine, Network, find_machine
from gpu_tenancy.model.catalogue.clouds import DriverMode, rules_of
from gpu_tenancy.model.plan.gpu_operator import operator_values
from gpu_tenancy.model.plan.gpus import machine_of, sharing_rule
from gpu_tenancy.model.plan.supply import PoolSupply, pool_supply
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import Cluster, service_of
from gpu_tenancy.model.spec.pools import Capacity, Disk

PROTECTED: Final = "prod"
"""The environment whose clusters and pools Pulumi refuses to delete."""
MIG_CONFIG_LABEL: Final = "nvidia.com/mig.config"
"""Node label by which the GPU Operator's MIG manager knows how to cut a node's GPUs:
https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-mig.html."""
PLUGIN_CONFIG_LABEL: Final = "nvidia.com/device-plugin.config"
"""Node label by which the GPU Operator's device plugin knows its configuration for a node:
https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-sharing.html."""


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How a pool's GPUs are cut where the cloud does it, by inputs of the pool.

    Attributes:
        mig_profile: such as `1g.10gb`; None without partitions.
        turns: pods that take turns on one GPU; None without.
    """

    mig_profile: str | None = None
    turns: int | None = None


@dataclass(frozen=True, slots=True)
class Surge:
    """Nodes that an upgrade may add or take away at a time."""

    added: int
    unavailable: int


@dataclass(frozen=True, slots=True)
class NodePool:
    """One pool as a cloud is to make it.

    Attributes:
        machine: the machine type's row; `machine.type` is the cloud's own name for it.
        supply: what its nodes are to pods: labels, taints, resources.
        labels: all labels of its nodes, `supply.node_labels` and those of its driver mode.
        capacity: how its machines are bought.
        zones: empty for all of the cluster's.
        compact: whether its nodes stand close to each other.
        fabric: the machine's network between GPUs, where it is to be set up.
        driver: name of its driver mode; None for a pool of CPUs, or of another vendor's GPUs.
        partitioning: what the cloud cuts; empty where the GPU Operator does, or nobody.
        surge: what an upgrade may do: GPU pools never grow by it, as a second set of GPUs is the dearest.
    """

    name: str
    machine: Machine
    supply: PoolSupply
    labels: Mapping[str, str]
    capacity: Capacity
    zones: tuple[str, ...]
    compact: bool
    fabric: Network | None
    disk: Disk
    driver: str | None
    partitioning: Partitioning
    surge: Surge

    @property
    def gpus(self) -> int:
        """Whole GPUs of a node."""
        return self.machine.gpus


@dataclass(frozen=True, slots=True)
class SystemNodes:
    """The nodes of a created cluster's own pods."""

    machine: Machine
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Fleet:
    """A cluster with its pools.

    Attributes:
        protect: whether Pulumi refuses to delete clusters and pools.
        tags: on whatever is made in the cloud.
        pools: those to be made; empty where they are somebody else's.
        system: of a cluster that is made here.
        gpu_operator: values of the GPU Operator's chart that go with the pools; empty without NVIDIA's GPUs.
    """

    environment: str
    cluster: Cluster
    protect: bool
    tags: Mapping[str, str]
    pools: tuple[NodePool, ...]
    system: SystemNodes | None
    gpu_operator: Mapping[str, Any]


def fleet(stack: Stack) -> Fleet:
    """The cluster and the pools of a coherent stack."""
    tags = {"environment": stack.environment, "managed-by": "gpu-tenancy"}
    extra = getattr(stack.cluster, "tags", {})
    return Fleet(
        environment=stack.environment,
        cluster=stack.cluster,
        protect=stack.environment == PROTECTED,
        tags={**tags, **extra},
        pools=tuple(_node_pool(stack, name) for name in stack.pools) if stack.cluster.NODES_MADE else (),
        system=_system(stack),
        gpu_operator=operator_values(stack),
    )


def _node_pool(stack: Stack, name: str) -> NodePool:
    pool, machine, supply = stack.pools[name], machine_of(stack, stack.pools[name]), pool_supply(stack, name)
    if machine is None or supply is None:
        msg = f"pool {name} has no machine; model.checks refuses such a stack"
        raise ValueError(msg)
    nvidia = supply.resource is not None and supply.resource.startswith("nvidia.com/")
    driver, mode = _driver(stack, pool.driver) if nvidia else (None, None)
    labels = {**supply.node_labels, **(mode.labels if mode else {}), **_operator_labels(stack, name)}
    return NodePool(
        name=name,
        machine=machine,
        supply=supply,
        labels=dict(sorted(labels.items())),
        capacity=pool.capacity,
        zones=tuple(pool.zones),
        compact=pool.compact,
        fabric=machine.network if pool.fabric else None,
        disk=pool.disk,
        driver=driver,
        partitioning=_partitioning(stack, name),
        surge=Surge(added=0, unavailable=1) if machine.gpus else Surge(added=1, unavailable=0),
    )


def _driver(stack: Stack, said: str | None) -> tuple[str, DriverMode]:
    modes = rules_of(service_of(stack.cluster)).drivers
    name = said or next(iter(modes))
    return name, modes[name]


def _partitioning(stack: Stack, name: str) -> Partitioning:
    pool = stack.pools[name]
    rule = sharing_rule(stack, pool)
    if rule is None or rule.by != "cloud" or pool.sharing is None:
        return Partitioning()
    mig, turns = pool.sharing.mig, pool.sharing.time_slicing
    return Partitioning(mig.profile if mig else None, turns.turns if turns else None)


def _operator_labels(stack: Stack, name: str) -> dict[str, str]:
    """What tells the GPU Operator to cut a pool's GPUs."""
    pool = stack.pools[name]
    rule = sharing_rule(stack, pool)
    if rule is None or rule.by != "operator" or pool.sharing is None:
        return {}
    if pool.sharing.mig:
        return {MIG_CONFIG_LABEL: f"all-{pool.sharing.mig.profile}"}
    return {PLUGIN_CONFIG_LABEL: name}


def _system(stack: Stack) -> SystemNodes | None:
    creation = stack.cluster.creation
    machine = find_machine(creation.system.machine) if creation else None
    if creation is None or machine is None:
        return None
    return SystemNodes(machine, creation.system.nodes.min, creation.system.nodes.max)
