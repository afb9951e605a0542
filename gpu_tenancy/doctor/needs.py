"""Cloud resources that a deployment of a stack needs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_tenancy.model.catalogue import Machine, find_machine
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.aws import AwsCluster
from gpu_tenancy.model.spec.clouds.azure import AzureCluster
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster

if TYPE_CHECKING:
    from gpu_tenancy.engine.recording import Registration


@dataclass(frozen=True, slots=True)
class NodesNeed:
    """The nodes of a pool, or the `system` nodes of a cluster to create, at their maximum number."""

    pool: str
    machine: Machine
    nodes: int
    capacity: str = "on-demand"  # purchase option, such as `spot`
    zones: tuple[str, ...] = ()  # empty: as the cluster
    interfaces: int = 0  # further ones of the fabric, for each node

    @property
    def cpus(self) -> int:
        """CPUs of a node."""
        return self.machine.cpu // 1000

    @property
    def preemptible(self) -> bool:
        """Whether the cloud has a separate quota for the machines."""
        return self.capacity == "spot"

    @property
    def reserved(self) -> bool:
        """Whether the machines are of a reservation, which counted against quotas when it was made."""
        return self.capacity in {"reserved", "capacity-block"}


def nodes_of(stack: Stack, section: AwsCluster | GcpCluster | AzureCluster) -> tuple[NodesNeed, ...]:
    """Nodes of all pools and system nodes; a machine type of the stack has the stack's amounts."""
    system = section.creation.system if section.creation else None
    found: list[NodesNeed] = []
    if system and (machine := find_machine(system.machine, section.cloud)):
        found.append(NodesNeed("system", machine, system.nodes.max))
    for name, resolved in Environment(stack).pools.items():
        pool, machine = resolved.pool, resolved.machine
        if machine and pool.machine:
            interfaces = machine.network.interfaces if pool.fabric and machine.network else 0
            found.append(NodesNeed(name, machine, pool.nodes.max, pool.capacity.kind, tuple(pool.zones), interfaces))
    return tuple(found)


def types_of(resources: Iterable["Registration"]) -> list[str]:
    """The types of resources, each once; `.get` is at the end of one that is only read."""
    return sorted({f"{one.type}.get" if one.external_id else one.type for one in resources})
