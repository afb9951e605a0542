"""The disk of a node on which its pods have their ephemeral storage."""

from dataclasses import dataclass

from gpu_tenancy.model.catalogue import Machine
from gpu_tenancy.model.catalogue.clouds import rules_of
from gpu_tenancy.model.plan.gpus import machine_of
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.aws import AwsCluster
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.pools import Pool


@dataclass(frozen=True)
class NodeDisk:
    """A disk of a node.

    Attributes:
        size: capacity in bytes.
        local: whether it is the machine's own, whose size nobody can change.
    """

    size: int
    local: bool


def node_disk(stack: Stack, pool: Pool) -> NodeDisk:
    """The disk with the ephemeral storage of nodes that the stack creates: local disks, else the boot disk."""
    machine = machine_of(stack, pool)
    if machine and uses_local_disks(stack.cluster, machine):
        return NodeDisk(machine.local_disk, local=True)
    return NodeDisk(pool.disk.size, local=False)


def uses_local_disks(cluster: Cluster, machine: Machine) -> bool:
    """Whether nodes of a machine type have their containers and ephemeral storage on local NVMe disks."""
    off = isinstance(cluster, AwsCluster) and not cluster.local_disks
    return bool(machine.local_disk and rules_of(cluster.cloud).local_disk) and not off
