"""Data and people of teams: datasets, their rights and caches, storage, and who has which role."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.model.plan.costs import storage_cost
from gpu_tenancy.model.plan.identities import (
    ACCOUNTS_OF_PODS,
    DataGrant,
    caches_grants,
    data_grants,
    granted_here,
    service_accounts,
)
from gpu_tenancy.model.plan.object_storage import DRIVERS, Folder, accelerated, pod_amounts, replicas_of
from gpu_tenancy.model.plan.people import bindings, resolved
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.storage import StorageClassPlan, claims
from gpu_tenancy.model.resolve import ResolvedTeam
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.aws import OBJECT_ACTIONS
from gpu_tenancy.model.spec.clouds.azure import BLOB_ROLES
from gpu_tenancy.model.spec.clouds.gcp import OBJECT_ROLES, GcpCluster
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.data import CACHES

READ: Final = "read"
WRITE: Final = "read and write"
_DEFAULT_CLASS: Final = "default StorageClass"


@dataclass(frozen=True, slots=True)
class DataAccess:
    """A dataset or storage of a team.

    Attributes:
        team: its namespace.
        kind: what the claim is.
        name: of the claim.
        place: URL of the folder, or the class of the storage.
        right: `read`, or `read and write`.
        size: of the storage in bytes; 0 for datasets, which have no size.
        mounted_by: workloads of the stack that mount it, such as `job nightly`.
        cost: of the storage, in US dollars per month; None if it is unknown, as for datasets, whose size is unknown.
        snapshots: when the storage has snapshots and how many stay, such as `0 3 * * * UTC, 7 kept`; empty for none.
        cached: whether Fluid makes the claim of a dataset, from a cache.
    """

    team: str
    kind: Literal["dataset", "storage"]
    name: str
    place: str
    right: str
    size: int = 0
    mounted_by: tuple[str, ...] = ()
    cached: bool = False
    cost: float | None = None
    snapshots: str = ""


def data_of(tree: Tree) -> Iterator[DataAccess]:
    """The data of all teams: first datasets, then storage."""
    for name, team in tree.stack.teams.items():
        for key, dataset in tree.stack.datasets.items():
            if dataset.is_of(name):
                right = WRITE if dataset.writes(name) else READ
                place, cached = dataset.bucket.rstrip("/"), dataset.accelerate is not None
                yield DataAccess(name, "dataset", key, place, right, 0, _mounts(team, key), cached)
        for claim in claims(tree.stack.cluster, name, team):
            place = claim.service or (f"StorageClass {claim.storage_class}" if claim.storage_class else _DEFAULT_CLASS)
            storage = team.storage[claim.name]
            taken = storage.snapshots
            yield DataAccess(
                name,
                "storage",
                claim.name,
                place,
                WRITE,
                claim.size,
                _mounts(team, claim.name, storage=True),
                cost=storage_cost(tree.stack.cluster, tree.stack.prices, storage),
                snapshots=f"{taken.schedule} UTC, {taken.keep} kept" if taken else "",
            )


def _mounts(team: ResolvedTeam, name: str, *, storage: bool = False) -> tuple[str, ...]:
    return tuple(
        f"{kind} {workload}"
        for kind, workloads in (("server", team.serving), ("job", team.training))
        for workload, spec in workloads.items()
        if name in (spec.volumes if storage else spec.datasets)
    )


def network_needs(classes: Iterable[StorageClassPlan]) -> Iterator[str]:
    """What the network must have before the first volume of shared storage: one sentence each."""
    for made in classes:
        shared = "private services access" if made.parameters.get("connect-mode") == "PRIVATE_SERVICE_ACCESS" else ""
        if needs := made.service.requires or shared:
            yield f"{made.service.title}: the network {made.parameters.get('network', '')} needs {needs}"


def rights_to_grant(stack: Stack) -> Iterator[str]:
    """What whoever administers a bucket must do, because the stack cannot: one sentence or command each."""
    for team in stack.teams:
        for grant in data_grants(stack.datasets, team):
            dataset, place = stack.datasets[grant.dataset], grant.folder
            if granted_here(stack.cluster, dataset):
                if place.scheme == "gs" and place.prefix and not dataset.create:
                    yield f"gcloud storage managed-folders create {place}/"
            else:
                yield from _grant(stack.cluster, team, grant)
    for grant in caches_grants(stack.datasets):
        if not granted_here(stack.cluster, stack.datasets[grant.dataset]):
            yield from _grant_to_caches(grant)


def _grant_to_caches(grant: DataGrant) -> Iterator[str]:
    """Caches read the bucket with the identity of the default ServiceAccount of their namespace."""
    who, place = f"Grant the ServiceAccount {CACHES}/default of the cluster", grant.folder
    if place.scheme == "s3":
        yield f"{who}, by an IAM role: {_s3_actions(place, writes=grant.writes)}"
    else:
        where = f"the managed folder {place}/" if place.prefix else f"the bucket {place}"
        yield f"{who}: role {OBJECT_ROLES[grant.writes]} on {where}"


def _grant(cluster: Cluster, team: str, grant: DataGrant) -> Iterator[str]:
    place = grant.folder
    if place.scheme == "gs":
        yield from _google(cluster, team, grant)
        return
    driver = f"the identity of the CSI driver {DRIVERS[place.scheme].name} in the cluster"
    if place.scheme == "s3":
        yield f"Grant {driver}: {_s3_actions(place, writes=grant.writes)}"
    else:
        folder = f", under the path {place.prefix}/ only" if place.prefix else ""
        yield f"Grant {driver}: role {BLOB_ROLES[grant.writes]} on the container {place.whole}{folder}"


def _s3_actions(place: Folder, *, writes: bool) -> str:
    arn = f"arn:aws:s3:::{place.bucket}"
    where = f" for the prefix {place.prefix}/*" if place.prefix else ""
    objects = f"{arn}/{place.prefix}/*" if place.prefix else f"{arn}/*"
    return f"s3:ListBucket on {arn}{where}, and {', '.join(OBJECT_ACTIONS[writes])} on {objects}"


def _google(cluster: Cluster, team: str, grant: DataGrant) -> Iterator[str]:
    """Cloud Storage FUSE reads with the identity of the pod, in every cluster."""
    place, role = grant.folder, OBJECT_ROLES[grant.writes]
    if not isinstance(cluster, GcpCluster):
        accounts = " and ".join(f"{team}/{account}" for account in ACCOUNTS_OF_PODS)
        where = f"the managed folder {place}/" if place.prefix else f"the bucket {place}"
        yield f"Grant the ServiceAccounts {accounts} of the cluster: role {role} on {where}"
        return
    number = f"$(gcloud projects describe {cluster.project} --format='value(projectNumber)')"
    for account in ACCOUNTS_OF_PODS:
        member = cluster.principal(number, team, account)
        kind, url = ("managed-folders", f"{place}/") if place.prefix else ("buckets", str(place))
        yield f'gcloud storage {kind} add-iam-policy-binding {url} --role={role} --member="{member}"'


@dataclass(frozen=True, slots=True)
class CacheOutlook:
    """The cache of a dataset.

    Attributes:
        size: of the whole cache in bytes.
        medium: `memory` or `ssd`.
        flavor: whose nodes have it.
        nodes: number of nodes that have a part of it.
        cpu, memory: what its pods take from the nodes of the flavor, in millicores and bytes.
        of_cpu, of_memory: that as a share of the maximum supply of the flavor.
        mount_cpu, mount_memory: what each other node that mounts the dataset gives.
        warm: whether it is filled once it is created.
    """

    dataset: str
    runtime: str
    size: int
    medium: str
    flavor: str
    nodes: int
    cpu: int
    memory: int
    of_cpu: float
    of_memory: float
    mount_cpu: int
    mount_memory: int
    warm: bool


def caches_of_stack(tree: Tree) -> Iterator[CacheOutlook]:
    """The caches of a stack, in its order."""
    for name, _, acceleration in accelerated(tree.stack.datasets):
        flavor = tree.flavors[acceleration.flavor]
        taken, mount = flavor.caches.by_dataset[name], pod_amounts(acceleration, "fuse")
        shares = {
            resource: taken[resource] / flavor.capacity[resource] if flavor.capacity[resource] else 0.0
            for resource in (CPU, MEMORY)
        }
        yield CacheOutlook(
            dataset=name,
            runtime=acceleration.runtime,
            size=acceleration.cache,
            medium=acceleration.medium,
            flavor=flavor.name,
            nodes=replicas_of(acceleration, flavor.always),
            cpu=taken[CPU],
            memory=taken[MEMORY],
            of_cpu=shares[CPU],
            of_memory=shares[MEMORY],
            mount_cpu=mount[CPU],
            mount_memory=mount[MEMORY],
            warm=acceleration.warm,
        )


@dataclass(frozen=True, slots=True)
class Membership:
    """The people who have a role.

    Attributes:
        team: where they have it; empty for the whole cluster.
        role: `lead`, `researcher` or `viewer` of a team; `admin` or `auditor` of the cluster.
        people: as the stack writes them, with their kind; of service accounts, each once.
    """

    team: str
    role: str
    people: tuple[str, ...]


def memberships(tree: Tree) -> Iterator[Membership]:
    """Who has which role: administrators and auditors first, then the members of each team."""
    people = tree.stack.people
    for role, entries in (("admin", people.admins), ("auditor", people.auditors)):
        if entries:
            yield Membership("", role, tuple(map(str, resolved(people.names, entries))))
    for team in tree.stack.teams:
        shown = {who: str(account) for account in service_accounts(tree.stack, team) for who in account.people}
        for binding in bindings(tree, team):
            found = dict.fromkeys(shown.get(who, str(who)) for who in binding.people)
            yield Membership(team, binding.role, tuple(found))
