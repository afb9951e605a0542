"""Cloud identities of teams: what the pods of a team may do in the cloud, besides what everybody may.

A team has one identity, for the ServiceAccounts that its pods can run with, in clusters that are created here. Nothing
is made for teams without grants.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpu_tenancy.model.plan.buckets import Folder, folder
from gpu_tenancy.model.plan.cache_pods import accelerated, has_identity
from gpu_tenancy.model.plan.service_accounts import ACCOUNTS_OF_PODS
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.base import CloudCluster
from gpu_tenancy.model.spec.data import CACHES, CLOUD_OF, Dataset


@dataclass(frozen=True, slots=True)
class DataGrant:
    """The right of a team on the folder of a dataset.

    Attributes:
        dataset: name of the dataset.
        folder: what the right is on.
        writes: whether the team also creates, changes and deletes objects.
        key: ARN of the KMS key of the bucket; None for a bucket without a key of its own.
        account: resource ID of the storage account on Azure; None for one in the cluster's resource group.
    """

    dataset: str
    folder: Folder
    writes: bool
    key: str | None = None
    account: str | None = None


@dataclass(frozen=True, slots=True)
class TeamIdentity:
    """The identity of a team in the cluster's cloud.

    Attributes:
        team: its namespace.
        name: of the IAM role or managed identity; GKE has none, because its ServiceAccounts are principals themselves.
        accounts: the ServiceAccounts of the team that have it: those that pods of the team can run with.
        datasets: its rights on datasets, one for each folder.
    """

    team: str
    name: str
    accounts: tuple[str, ...]
    datasets: tuple[DataGrant, ...]


@dataclass(frozen=True, slots=True)
class MadeBucket:
    """A bucket that the stack creates.

    Attributes:
        folders: those of its datasets; empty if a dataset is the whole bucket alone.
        key: ARN of its KMS key; None for the cloud's own.
    """

    bucket: Folder
    folders: tuple[Folder, ...] = ()
    key: str | None = None
    account: str | None = None


def team_identities(stack: Stack) -> tuple[TeamIdentity, ...]:
    """The identities of all teams that have grants, and of the caches; none in a cluster that exists already."""
    teams = (identity for team in stack.teams if (identity := identity_of(stack, team)))
    caches = caches_identity(stack)
    return (*teams, *([caches] if caches else []))


def caches_identity(stack: Stack) -> TeamIdentity | None:
    """The identity of the caches of datasets, whose pods run with the default ServiceAccount; None if none needs it."""
    cluster = stack.cluster
    if not isinstance(cluster, CloudCluster) or cluster.creation is None:
        return None
    grants = tuple(grant for grant in caches_grants(stack) if granted_here(stack, stack.datasets[grant.dataset]))
    return TeamIdentity(CACHES, cluster.team_identity_name(CACHES), ("default",), grants) if grants else None


def caches_grants(stack: Stack) -> tuple[DataGrant, ...]:
    """The rights that caches need on datasets, whoever grants them; on each folder once, sorted."""
    cached = ((name, dataset) for name, dataset, cache in accelerated(stack) if has_identity(dataset, cache))
    return _grants((name, dataset, dataset.written) for name, dataset in cached)


def identity_of(stack: Stack, team: str) -> TeamIdentity | None:
    """The identity of a team; None if it has no grants, or the cluster exists already."""
    cluster = stack.cluster
    if not isinstance(cluster, CloudCluster) or cluster.creation is None:
        return None
    grants = tuple(grant for grant in data_grants(stack, team) if granted_here(stack, stack.datasets[grant.dataset]))
    if not grants:
        return None
    return TeamIdentity(team, cluster.team_identity_name(team), ACCOUNTS_OF_PODS, grants)


def granted_here(stack: Stack, dataset: Dataset) -> bool:
    """Whether the stack itself grants the rights on a dataset: its cluster is created here, in the bucket's cloud."""
    cluster = stack.cluster
    return cluster.creation is not None and cluster.cloud == CLOUD_OF[dataset.scheme]


def data_grants(stack: Stack, team: str) -> tuple[DataGrant, ...]:
    """The rights that a team needs on datasets, whoever grants them; on each folder once, sorted.

    None on datasets with a cache, which reads the bucket for the team.
    """
    own = ((name, dataset) for name, dataset in stack.datasets.items() if dataset.is_of(team))
    return _grants((name, dataset, dataset.writes(team)) for name, dataset in own if dataset.accelerate is None)


def _grants(datasets: Iterable[tuple[str, Dataset, bool]]) -> tuple[DataGrant, ...]:
    by_folder: dict[Folder, DataGrant] = {}
    for name, dataset, writes in datasets:
        place = folder(dataset)
        before = by_folder.get(place)
        if before is None or (writes and not before.writes):
            by_folder[place] = DataGrant(name, place, writes, dataset.key, dataset.account)
    return tuple(grant for _, grant in sorted(by_folder.items()))


def made_buckets(stack: Stack) -> tuple[MadeBucket, ...]:
    """The buckets that the stack creates, each once."""
    return tuple(_made(stack))


def _made(stack: Stack) -> Iterator[MadeBucket]:
    created = [dataset for dataset in stack.datasets.values() if dataset.create]
    for whole in sorted({_bucket(folder(dataset)) for dataset in created}):
        own = [dataset for dataset in created if _bucket(folder(dataset)) == whole]
        folders = sorted({folder(dataset) for dataset in own} - {whole})
        keys = [dataset.key for dataset in own if dataset.key]
        accounts = [dataset.account for dataset in own if dataset.account]
        yield MadeBucket(whole, tuple(folders), next(iter(keys), None), next(iter(accounts), None))


def _bucket(place: Folder) -> Folder:
    return Folder(place.scheme, place.bucket, "", place.account)
