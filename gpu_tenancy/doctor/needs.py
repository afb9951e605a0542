"""Cloud resources that a deployment of a stack needs."""

from dataclasses import dataclass

from gpu_tenancy.model.catalogue import Machine, find_machine
from gpu_tenancy.model.catalogue.preflight import Part
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.identities import DataGrant, identities, made_buckets, team_identities
from gpu_tenancy.model.plan.people import access
from gpu_tenancy.model.plan.secrets import Store, readers
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.storage import storage_classes
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.aws import AwsCluster
from gpu_tenancy.model.spec.clouds.azure import AzureCluster
from gpu_tenancy.model.spec.clouds.base import CloudCluster
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster


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
            zones = tuple(pool.zones)
            found.append(NodesNeed(name, machine, pool.nodes.max, pool.capacity.kind, zones, interfaces))
    return tuple(found)


def parts_of(stack: Stack) -> frozenset[Part]:
    """Parts of a stack that need further rights than node pools."""
    people, creates = access(Tree(stack)), stack.cluster.creation is not None
    reads_secrets = bool(readers(stack))
    stored = {made.kind for made in storage_classes(stack.cluster, stack.teams.values())}
    found: dict[Part, bool] = {
        "create": creates,
        "network": isinstance(stack.cluster, CloudCluster) and creates and stack.cluster.makes_network,
        "people": bool(people and people.principals),
        "serviceAccounts": bool(identities(stack)),
        "identities": bool(team_identities(stack)),
        "buckets": bool(made_buckets(stack.datasets.values())),
        "secrets": reads_secrets,
        "secretsOfCreate": creates and reads_secrets,
        "efs": "efs" in stored,
        "lustre": "fsx-lustre" in stored,
    }
    return frozenset(part for part, needed in found.items() if needed)


def grants_of(stack: Stack) -> tuple[DataGrant, ...]:
    """Rights of teams on existing buckets, each folder once."""
    made = {(made.bucket.bucket, made.bucket.account) for made in made_buckets(stack.datasets.values())}
    by_folder = {
        grant.folder: grant
        for identity in team_identities(stack)
        for grant in identity.datasets
        if (grant.folder.bucket, grant.folder.account) not in made
    }
    return tuple(grant for _, grant in sorted(by_folder.items()))


def secrets_of(stack: Stack) -> tuple[tuple[Store, str], ...]:
    """The secrets in the cloud that teams read, each once."""
    pairs = ((store, name) for reader in readers(stack) for store, names in reader.secrets for name in names)
    return tuple(dict.fromkeys(pairs))
