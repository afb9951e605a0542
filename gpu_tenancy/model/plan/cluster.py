"""The cluster and its node pools, in terms that are common to all clouds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu_tenancy.model.catalogue import Machine, Network, find_machine
from gpu_tenancy.model.catalogue.clouds import boot_disk
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.fabric import node_pages
from gpu_tenancy.model.plan.identities import (
    MadeBucket,
    ServiceAccountPlan,
    TeamIdentity,
    identities,
    made_buckets,
    team_identities,
)
from gpu_tenancy.model.plan.operators.gpus import operator_values
from gpu_tenancy.model.plan.pools import PoolSupply, ResolvedPool
from gpu_tenancy.model.plan.secrets import SecretReader, readers
from gpu_tenancy.model.plan.storage import StorageClassPlan, storage_classes, takes_snapshots
from gpu_tenancy.model.spec.clouds.azure import CLIENT_ID_OF
from gpu_tenancy.model.spec.clouds.base import late_storage
from gpu_tenancy.model.spec.cluster import Cluster, service_of
from gpu_tenancy.model.spec.people import Person
from gpu_tenancy.model.spec.pools import CapacityBlock, Pool, Reserved, Sharing


@dataclass(frozen=True, slots=True)
class Surge:
    """Nodes that an upgrade may add or remove at a time."""

    added: int
    unavailable: int


@dataclass(frozen=True, slots=True)
class NodePool:
    """One pool, as a cloud creates it."""

    spec: Pool
    name: str
    machine: Machine
    supply: PoolSupply
    labels: Mapping[str, str]  # all labels of its nodes, with the labels of its driver mode
    surge: Surge  # for upgrades; GPU pools never add nodes, because additional GPUs are expensive
    fabric: Network | None = None  # the machine's network between GPUs, if it is to be configured
    dranet: bool = False  # whether GKE creates its networks, and pods claim the interfaces
    driver: str | None = None  # name of its driver mode; None for a CPU pool, or another vendor's GPUs
    sharing: Sharing | None = None  # GPU sharing that the cloud configures; None if the GPU Operator does, or without
    huge_pages: int = 0  # bytes of a node that its pods can request for the fabric
    alternatives: tuple[Machine, ...] = ()  # other machine types of its spot nodes

    @property
    def gpus(self) -> int:
        """Whole GPUs of a node."""
        return self.machine.gpus

    @property
    def reservation(self) -> str | None:
        """The reservation of its machines, in the cloud's format; None without."""
        capacity = self.spec.capacity
        return capacity.reservation if isinstance(capacity, Reserved | CapacityBlock) else None


@dataclass(frozen=True, slots=True)
class SystemNodes:
    """System nodes of a created cluster: without a taint, because operators run there and have no tolerations."""

    machine: Machine
    minimum: int
    maximum: int
    disk: int  # size of a boot disk in bytes


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A cluster and its node pools."""

    environment: str
    section: Cluster
    protect: bool  # whether Pulumi refuses to delete clusters and pools
    tags: Mapping[str, str]  # of all cloud resources
    pools: tuple[NodePool, ...]  # the pools to create; empty for an existing cluster
    system: SystemNodes | None  # None for an existing cluster
    gpu_operator: Mapping[str, Any]  # chart values that the pools need; empty without NVIDIA GPUs
    identities: tuple[TeamIdentity, ...]  # cloud identities of teams to create, with their rights
    buckets: tuple[MadeBucket, ...]
    people: tuple[Person, ...]  # people with access entries of EKS, or a role of the cloud
    service_accounts: tuple[ServiceAccountPlan, ...]  # service accounts that get a cloud identity
    readers: tuple[SecretReader, ...]  # cloud identities to create that read a team's secrets
    registries: tuple[str, ...]  # registries that the nodes get the right to read
    storage: tuple[StorageClassPlan, ...]  # for claims of teams, with drivers and file systems that are made here
    snapshots: bool  # whether volumes of teams have snapshots

    def stores(self, kind: str) -> bool:
        """Whether claims of teams are volumes of a service of the cloud, such as `efs`."""
        return any(made.kind == kind for made in self.storage)

    @property
    def late_users(self) -> tuple[str, ...]:
        """Placeholders for accounts, identities of teams and IDs of shared storage that the cloud decides."""
        found = (account.identity.name for account in self.service_accounts if account.identity)
        clients = (f"{CLIENT_ID_OF}{identity.name}" for identity in self.identities)
        of_readers = (name for reader in self.readers for name in reader.annotations.values())
        late = late_storage("")
        of_storage = (value for made in self.storage for value in made.parameters.values() if value.endswith(late))
        named = (name for name in (*found, *clients) if self.section.is_late(name))
        return (*named, *of_readers, *dict.fromkeys(of_storage))


def fixed_tags(environment: str) -> dict[str, str]:
    """Tags that all cloud resources of an environment have."""
    return {"environment": environment, "managed-by": "gpu-tenancy"}


def cluster_plan(environment: Environment, people: tuple[Person, ...] = ()) -> ClusterPlan:
    """The plan of the cluster and pools of a stack that passes `gpu_tenancy.model.checks`, with people who log in."""
    stack, creation = environment.stack, environment.stack.cluster.creation
    machine = find_machine(creation.system.machine) if creation else None
    return ClusterPlan(
        environment=stack.environment,
        section=stack.cluster,
        protect=stack.is_production,
        tags={**fixed_tags(stack.environment), **getattr(stack.cluster, "tags", {})},
        pools=tuple(_node_pool(pool) for pool in environment.pools.values()) if stack.cluster.NODES_MADE else (),
        system=SystemNodes(
            machine, creation.system.nodes.min, creation.system.nodes.max, boot_disk(stack.cluster.cloud).system
        )
        if creation and machine
        else None,
        gpu_operator=operator_values(environment),
        identities=team_identities(stack),
        buckets=made_buckets(stack.datasets.values()),
        people=people,
        service_accounts=identities(stack),
        readers=readers(stack),
        registries=tuple(dict.fromkeys(stack.images.registries)),
        storage=storage_classes(stack.cluster, stack.teams.values()),
        snapshots=takes_snapshots(stack.teams),
    )


def _node_pool(resolved: ResolvedPool) -> NodePool:
    pool, machine, supply = resolved.pool, resolved.machine, resolved.supply
    if machine is None or supply is None:
        raise ValueError(f"pool {resolved.name} has no machine type; model.checks reports this first")
    rule, service = resolved.sharing_rule, service_of(resolved.cluster)
    return NodePool(
        spec=pool,
        name=resolved.name,
        machine=machine,
        supply=supply,
        labels=resolved.node_labels,
        fabric=machine.network if pool.fabric else None,
        dranet=resolved.claimable > 0,
        huge_pages=node_pages(machine, resolved.fabric) if resolved.fabric else 0,
        driver=resolved.driver,
        sharing=pool.sharing if rule and rule.by == "cloud" else None,
        surge=Surge(added=0, unavailable=1) if machine.gpus else Surge(added=1, unavailable=0),
        alternatives=tuple(other for name in pool.alternatives if (other := find_machine(name, service))),
    )
