"""Data and people of teams: datasets, their rights and caches, storage, and people's roles."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.model.catalogue.storage import bucket_drivers
from gpu_tenancy.model.plan import identities
from gpu_tenancy.model.plan.costs import storage_cost
from gpu_tenancy.model.plan.object_storage import accelerated, pod_amounts, replicas_of
from gpu_tenancy.model.plan.people import bindings, resolved
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.storage import StorageClassPlan, claims
from gpu_tenancy.model.resolve import ResolvedTeam
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.aws import KEY_ACTIONS, OBJECT_ACTIONS
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

    `cost`: of the storage, in US dollars per month; None if it is unknown, as for datasets, whose size is unknown.
    """

    team: str
    kind: Literal["dataset", "storage"]
    name: str
    place: str  # URL of the folder, or the class of the storage
    right: str  # `read`, or `read and write`
    size: int = 0  # of the storage in bytes; 0 for datasets, which have no size
    mounted_by: tuple[str, ...] = ()  # workloads of the stack that mount it, such as `job nightly`
    cached: bool = False  # whether Fluid makes the claim of a dataset, from a cache
    cost: float | None = None
    snapshots: str = ""  # schedule and number of kept snapshots, such as `0 3 * * * UTC, 7 kept`; empty for none


def data_of(tree: Tree) -> Iterator[DataAccess]:
    """The data of all teams: first datasets, then storage."""
    cluster = tree.stack.cluster
    for name, team in tree.stack.teams.items():
        for key, dataset in tree.stack.datasets.items():
            if dataset.is_of(name):
                right = WRITE if dataset.writes(name) else READ
                place, cached = dataset.place, dataset.accelerate is not None
                yield DataAccess(name, "dataset", key, place, right, 0, _mounts(team, key), cached)
        for claim in claims(cluster, name, team):
            place = claim.service or (f"StorageClass {claim.storage_class}" if claim.storage_class else _DEFAULT_CLASS)
            storage, mounted = team.storage[claim.name], _mounts(team, claim.name, storage=True)
            cost, taken = storage_cost(cluster, tree.stack.prices, storage), storage.snapshots
            shown = f"{taken.schedule} UTC, {taken.keep} kept" if taken else ""
            yield DataAccess(name, "storage", claim.name, place, WRITE, claim.size, mounted, cost=cost, snapshots=shown)


def _mounts(team: ResolvedTeam, name: str, *, storage: bool = False) -> tuple[str, ...]:
    return tuple(
        f"{kind} {workload}"
        for kind, workloads in (("server", team.serving), ("job", team.training))
        for workload, spec in workloads.items()
        if name in (spec.volumes if storage else spec.datasets)
    )


def network_needs(classes: Iterable[StorageClassPlan]) -> Iterator[str]:
    """Requirements of the network before the first volume of shared storage: one sentence each."""
    for made in classes:
        shared = "private services access" if made.parameters.get("connect-mode") == "PRIVATE_SERVICE_ACCESS" else ""
        if needs := made.service.requires or shared:
            yield f"{made.service.title}: the network {made.parameters.get('network', '')} needs {needs}"


def rights_to_grant(stack: Stack) -> Iterator[str]:
    """Tasks of a bucket's administrator, which the stack cannot do: one sentence or command each."""
    for team in stack.teams:
        for grant in identities.data_grants(stack.datasets, team):
            dataset, place = stack.datasets[grant.dataset], grant.folder
            if not identities.granted_here(stack.cluster, dataset):
                yield from _grant(stack.cluster, team, grant)
            elif place.scheme == "gs" and place.prefix and not dataset.create:
                yield f"gcloud storage managed-folders create {place}/"
    for grant in identities.caches_grants(stack.datasets):
        if not identities.granted_here(stack.cluster, stack.datasets[grant.dataset]):
            # Caches read the bucket with the identity of the default ServiceAccount of their namespace.
            who = f"Grant the ServiceAccount {CACHES}/default of the cluster"
            yield f"{who}, by an IAM role: {_s3(grant)}" if grant.folder.scheme == "s3" else f"{who}: {_gcs(grant)}"


def _grant(cluster: Cluster, team: str, grant: identities.DataGrant) -> Iterator[str]:
    """Cloud Storage FUSE reads with the identity of the pod in every cluster; other drivers have their own."""
    place = grant.folder
    driver = f"Grant the identity of the CSI driver {bucket_drivers()[place.scheme].name} in the cluster"
    if place.endpoint:
        can = f"{WRITE if grant.writes else READ} {place} at {place.endpoint}"
        yield f"Give the CSI driver {bucket_drivers()[place.scheme].name} in the cluster keys that can {can}"
    elif place.scheme == "s3":
        yield f"{driver}: {_s3(grant)}"
    elif place.scheme == "az":
        folder = f", under the path {place.prefix}/ only" if place.prefix else ""
        yield f"{driver}: role {BLOB_ROLES[grant.writes]} on the container {place.whole}{folder}"
    elif not isinstance(cluster, GcpCluster):
        accounts = " and ".join(f"{team}/{account}" for account in identities.ACCOUNTS_OF_PODS)
        yield f"Grant the ServiceAccounts {accounts} of the cluster: {_gcs(grant)}"
    else:
        number = f"$(gcloud projects describe {cluster.project} --format='value(projectNumber)')"
        kind, url = ("managed-folders", f"{place}/") if place.prefix else ("buckets", str(place))
        for account in identities.ACCOUNTS_OF_PODS:
            who = f'--role={OBJECT_ROLES[grant.writes]} --member="{cluster.principal(number, team, account)}"'
            yield f"gcloud storage {kind} add-iam-policy-binding {url} {who}"


def _s3(grant: identities.DataGrant) -> str:
    place, arn = grant.folder, f"arn:aws:s3:::{grant.folder.bucket}"
    where = f" for the prefix {place.prefix}/*" if place.prefix else ""
    objects = f"{arn}/{place.prefix}/*" if place.prefix else f"{arn}/*"
    key = f", and {', '.join(KEY_ACTIONS[grant.writes])} on {grant.key}" if grant.key else ""
    return f"s3:ListBucket on {arn}{where}, and {', '.join(OBJECT_ACTIONS[grant.writes])} on {objects}{key}"


def _gcs(grant: identities.DataGrant) -> str:
    place = grant.folder
    where = f"the managed folder {place}/" if place.prefix else f"the bucket {place}"
    return f"role {OBJECT_ROLES[grant.writes]} on {where}"


@dataclass(frozen=True, slots=True)
class CacheOutlook:
    """The cache of a dataset, of a size in bytes, on a number of nodes of a flavor."""

    dataset: str
    runtime: str
    size: int
    medium: str
    flavor: str
    nodes: int
    cpu: int  # millicores of its pods on the flavor's nodes
    memory: int  # bytes
    of_cpu: float  # share of the flavor's maximum supply
    of_memory: float
    mount_cpu: int  # of the mount on each other node
    mount_memory: int
    warm: bool  # whether it is filled once it is created


def caches_of_stack(tree: Tree) -> Iterator[CacheOutlook]:
    """The caches of a stack, in its order."""
    for name, _, acceleration in accelerated(tree.stack.datasets):
        flavor = tree.flavors[acceleration.flavor]
        taken, mount, supply = flavor.caches.by_dataset[name], pod_amounts(acceleration, "fuse"), flavor.capacity
        yield CacheOutlook(
            dataset=name,
            runtime=acceleration.runtime,
            size=acceleration.cache,
            medium=acceleration.medium,
            flavor=flavor.name,
            nodes=replicas_of(acceleration, flavor.always),
            cpu=taken[CPU],
            memory=taken[MEMORY],
            of_cpu=taken[CPU] / supply[CPU] if supply[CPU] else 0.0,
            of_memory=taken[MEMORY] / supply[MEMORY] if supply[MEMORY] else 0.0,
            mount_cpu=mount[CPU],
            mount_memory=mount[MEMORY],
            warm=acceleration.warm,
        )


@dataclass(frozen=True, slots=True)
class Membership:
    """The people with a role: `lead`, `researcher` or `viewer` of a team; `admin` or `auditor` of the cluster."""

    team: str  # empty for the whole cluster
    role: str
    people: tuple[str, ...]  # with their kind, as in the stack; service accounts once


def memberships(tree: Tree) -> Iterator[Membership]:
    """Roles of people: administrators and auditors first, then the members of each team."""
    people = tree.stack.people
    for role, entries in (("admin", people.admins), ("auditor", people.auditors)):
        if entries:
            yield Membership("", role, tuple(map(str, resolved(people.names, entries))))
    for team in tree.stack.teams:
        shown = {
            who: str(account) for account in identities.service_accounts(tree.stack, team) for who in account.people
        }
        for binding in bindings(tree, team):
            found = dict.fromkeys(shown.get(who, str(who)) for who in binding.people)
            yield Membership(team, binding.role, tuple(found))
