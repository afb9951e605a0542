"""The cluster and its node pools, in terms that are common to all clouds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu_tenancy.model.catalogue import Machine, Network, find_machine
from gpu_tenancy.model.catalogue.clouds import DriverMode, rules_of
from gpu_tenancy.model.plan.fabric import node_pages
from gpu_tenancy.model.plan.gpu_operator import operator_values
from gpu_tenancy.model.plan.gpus import machine_of, sharing_rule
from gpu_tenancy.model.plan.identities import MadeBucket, TeamIdentity, made_buckets, team_identities
from gpu_tenancy.model.plan.secrets import SecretReader, readers
from gpu_tenancy.model.plan.service_accounts import ServiceAccountPlan, identities
from gpu_tenancy.model.plan.snapshots import takes_snapshots
from gpu_tenancy.model.plan.storage import StorageClassPlan, storage_classes
from gpu_tenancy.model.plan.supply import PoolSupply, pool_supply
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.azure import CLIENT_ID_OF
from gpu_tenancy.model.spec.clouds.base import late_storage
from gpu_tenancy.model.spec.cluster import Cluster, service_of
from gpu_tenancy.model.spec.people import Person
from gpu_tenancy.model.spec.pools import Capacity, Disk, Pool

PROTECTED: Final = "prod"
"""The environment whose clusters and pools Pulumi refuses to delete."""
MIG_CONFIG_LABEL: Final = "nvidia.com/mig.config"
"""Node label that selects the MIG configuration of a node for the GPU Operator's MIG manager:
https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-mig.html."""
PLUGIN_CONFIG_LABEL: Final = "nvidia.com/device-plugin.config"
"""Node label that selects the configuration of a node for the GPU Operator's device plugin:
https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-sharing.html."""


@dataclass(frozen=True, slots=True)
class Partitioning:
    """GPU sharing that the cloud configures through inputs of the pool.

    Attributes:
        mig_profile: such as `1g.10gb`; None without MIG.
        turns: pods that share a GPU by time slicing; None without.
    """

    mig_profile: str | None = None
    turns: int | None = None


@dataclass(frozen=True, slots=True)
class Surge:
    """Nodes that an upgrade may add or remove at a time."""

    added: int
    unavailable: int


@dataclass(frozen=True, slots=True)
class NodePool:
    """One pool, as a cloud creates it.

    Attributes:
        machine: the machine type; `machine.type` is the cloud's name for it.
        supply: labels, taints and resources of its nodes.
        labels: all labels of its nodes: `supply.node_labels` and those of its driver mode.
        capacity: purchase option of its machines.
        zones: empty for all zones of the cluster.
        compact: whether its nodes are placed close together.
        placement_policy: existing policy for their placement; None if one is created, or none is needed.
        fabric: the machine's network between GPUs, if it is to be configured.
        driver: name of its driver mode; None for a CPU pool, or another vendor's GPUs.
        partitioning: GPU sharing that the cloud configures; empty if the GPU Operator does, or without sharing.
        surge: for upgrades; GPU pools never add nodes, because additional GPUs are expensive.
        huge_pages: huge pages of a node in bytes that its pods can request for the fabric.
        alternatives: other machine types of its spot nodes.
    """

    name: str
    machine: Machine
    supply: PoolSupply
    labels: Mapping[str, str]
    capacity: Capacity
    zones: tuple[str, ...]
    compact: bool
    placement_policy: str | None
    fabric: Network | None
    disk: Disk
    driver: str | None
    partitioning: Partitioning
    surge: Surge
    huge_pages: int = 0
    alternatives: tuple[Machine, ...] = ()

    @property
    def gpus(self) -> int:
        """Whole GPUs of a node."""
        return self.machine.gpus


@dataclass(frozen=True, slots=True)
class SystemNodes:
    """System nodes of a created cluster.

    Attributes:
        dedicated: whether only the cluster's own pods may run there. Operators and other pods without tolerations then
            run on a pool without taints; if there is none, the system nodes must accept them.
    """

    machine: Machine
    minimum: int
    maximum: int
    dedicated: bool


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A cluster and its node pools.

    Attributes:
        section: the stack's section.
        protect: whether Pulumi refuses to delete clusters and pools.
        tags: of all cloud resources.
        pools: the pools to create; empty for an existing cluster.
        system: system nodes of a cluster to create.
        gpu_operator: values of the GPU Operator's chart that the pools need; empty without NVIDIA GPUs.
        identities: those of teams to create, with their rights.
        buckets: those to create.
        people: those whom the stack lets log in to the cluster: by access entries of EKS, or a role of the cloud.
        service_accounts: those to create a cloud identity for.
        readers: those to create a cloud identity for that reads a team's secrets.
        registries: registries of images that the nodes get the right to read.
        storage: StorageClasses for claims of teams, whose drivers and file systems are created with the cluster.
        snapshots: whether volumes of teams have snapshots.
    """

    environment: str
    section: Cluster
    protect: bool
    tags: Mapping[str, str]
    pools: tuple[NodePool, ...]
    system: SystemNodes | None
    gpu_operator: Mapping[str, Any]
    identities: tuple[TeamIdentity, ...] = ()
    buckets: tuple[MadeBucket, ...] = ()
    people: tuple[Person, ...] = ()
    service_accounts: tuple[ServiceAccountPlan, ...] = ()
    readers: tuple[SecretReader, ...] = ()
    registries: tuple[str, ...] = ()
    storage: tuple[StorageClassPlan, ...] = ()
    snapshots: bool = False

    def stores(self, kind: str) -> bool:
        """Whether claims of teams are volumes of a service of the cloud, such as `efs`."""
        return any(made.kind == kind for made in self.storage)

    @property
    def late_users(self) -> tuple[str, ...]:
        """Placeholders for what the cloud decides: names of accounts, identities of teams, IDs of shared storage."""
        found = (account.identity.name for account in self.service_accounts if account.identity)
        clients = (f"{CLIENT_ID_OF}{identity.name}" for identity in self.identities)
        of_readers = (name for reader in self.readers for name in reader.annotations.values())
        late = late_storage("")
        of_storage = (value for made in self.storage for value in made.parameters.values() if value.endswith(late))
        named = (name for name in (*found, *clients) if self.section.is_late(name))
        return (*named, *of_readers, *dict.fromkeys(of_storage))


def cluster_plan(stack: Stack, people: tuple[Person, ...] = ()) -> ClusterPlan:
    """The plan of a stack's cluster and node pools; the stack must pass `gpu_tenancy.model.checks`.

    Args:
        stack: of one environment.
        people: those whom the stack lets log in to the cluster.
    """
    tags = {"environment": stack.environment, "managed-by": "gpu-tenancy"}
    extra = getattr(stack.cluster, "tags", {})
    return ClusterPlan(
        environment=stack.environment,
        section=stack.cluster,
        protect=stack.environment == PROTECTED,
        tags={**tags, **extra},
        pools=tuple(_node_pool(stack, name) for name in stack.pools) if stack.cluster.NODES_MADE else (),
        system=_system(stack),
        gpu_operator=operator_values(stack),
        identities=team_identities(stack),
        buckets=made_buckets(stack),
        people=people,
        service_accounts=identities(stack),
        readers=readers(stack),
        registries=tuple(dict.fromkeys(stack.images.registries)),
        storage=storage_classes(stack),
        snapshots=takes_snapshots(stack),
    )


def _node_pool(stack: Stack, name: str) -> NodePool:
    pool, machine, supply = stack.pools[name], machine_of(stack, stack.pools[name]), pool_supply(stack, name)
    if machine is None or supply is None:
        msg = f"pool {name} has no machine type; model.checks reports this first"
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
        placement_policy=pool.placement_policy,
        fabric=machine.network if pool.fabric else None,
        huge_pages=node_pages(machine, machine.network.fabric or "") if pool.fabric and machine.network else 0,
        disk=pool.disk,
        driver=driver,
        partitioning=_partitioning(stack, name),
        surge=Surge(added=0, unavailable=1) if machine.gpus else Surge(added=1, unavailable=0),
        alternatives=_alternatives(stack, pool),
    )


def _alternatives(stack: Stack, pool: Pool) -> tuple[Machine, ...]:
    service = service_of(stack.cluster)
    return tuple(machine for name in pool.alternatives if (machine := find_machine(name, service)))


def _driver(stack: Stack, driver: str | None) -> tuple[str, DriverMode]:
    modes = rules_of(service_of(stack.cluster)).drivers
    name = driver or next(iter(modes))
    return name, modes[name]


def _partitioning(stack: Stack, name: str) -> Partitioning:
    pool = stack.pools[name]
    rule = sharing_rule(stack, pool)
    if rule is None or rule.by != "cloud" or pool.sharing is None:
        return Partitioning()
    mig = pool.sharing.mig
    return Partitioning(mig.profile if mig else None, pool.sharing.pods)


def _operator_labels(stack: Stack, name: str) -> dict[str, str]:
    """Node labels that make the GPU Operator configure a pool's GPU sharing."""
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
    nodes = creation.system.nodes
    return SystemNodes(machine, nodes.min, nodes.max, dedicated=_elsewhere(stack))


def _elsewhere(stack: Stack) -> bool:
    """Whether pods without tolerations can run on a pool of the stack."""
    supplies = (pool_supply(stack, name) for name in stack.pools)
    return any(supply and not supply.taints and supply.max_nodes for supply in supplies)
