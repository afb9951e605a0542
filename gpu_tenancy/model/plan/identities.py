"""Cloud identities and service accounts of teams: rights of their pods and CI jobs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.model.names import ACCOUNT
from gpu_tenancy.model.plan.object_storage import Folder, accelerated, folder, has_identity
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.base import CloudCluster
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.data import CACHES, CLOUD_OF, Dataset
from gpu_tenancy.model.spec.people import Person


@dataclass(frozen=True, slots=True)
class DataGrant:
    """The right of a team on the folder of a dataset."""

    dataset: str
    folder: Folder
    writes: bool  # whether the team also creates, changes and deletes objects
    key: str | None = None  # ARN of the KMS key of the bucket; None for a bucket without its own key
    account: str | None = None  # resource ID of a storage account; None for one in the cluster's resource group


@dataclass(frozen=True, slots=True)
class TeamIdentity:
    """The identity of a team in the cluster's cloud."""

    team: str
    name: str  # of the IAM role or managed identity; GKE's ServiceAccounts are principals
    accounts: tuple[str, ...]  # ServiceAccounts of its pods
    datasets: tuple[DataGrant, ...]  # each folder once


@dataclass(frozen=True, slots=True)
class MadeBucket:
    """A bucket that the stack creates; `folders` is empty if a dataset is the whole bucket alone."""

    bucket: Folder
    folders: tuple[Folder, ...] = ()
    key: str | None = None  # ARN of its KMS key; None for the cloud's own
    account: str | None = None


def team_identities(stack: Stack) -> tuple[TeamIdentity, ...]:
    """The identities of all teams that have grants, and of the caches; none in a cluster that exists already."""
    cluster, datasets = stack.cluster, stack.datasets
    if not isinstance(cluster, CloudCluster):
        return ()
    needed: list[tuple[str, tuple[str, ...], tuple[DataGrant, ...]]] = [
        *((team, ACCOUNTS_OF_PODS, data_grants(datasets, team)) for team in stack.teams),
        (CACHES, ("default",), caches_grants(datasets)),  # the ServiceAccount that their pods run with
    ]
    return tuple(
        TeamIdentity(namespace, cluster.team_identity_name(namespace), accounts, here)
        for namespace, accounts, grants in needed
        if (here := tuple(grant for grant in grants if granted_here(stack.cluster, datasets[grant.dataset])))
    )


def granted_here(cluster: Cluster, dataset: Dataset) -> bool:
    """Whether a stack itself grants the rights on a dataset: its cluster is created here, in the bucket's cloud."""
    return cluster.creation is not None and dataset.endpoint is None and cluster.cloud == CLOUD_OF[dataset.scheme]


def caches_grants(datasets: Mapping[str, Dataset]) -> tuple[DataGrant, ...]:
    """The rights that caches need on datasets, by any grantor; on each folder once, sorted."""
    cached = ((name, dataset) for name, dataset, cache in accelerated(datasets) if has_identity(dataset, cache))
    return _grants((name, dataset, dataset.written) for name, dataset in cached)


def data_grants(datasets: Mapping[str, Dataset], team: str) -> tuple[DataGrant, ...]:
    """The rights that a team needs on datasets without a cache, by any grantor; on each folder once, sorted."""
    own = ((name, dataset) for name, dataset in datasets.items() if dataset.is_of(team))
    return _grants((name, dataset, dataset.writes(team)) for name, dataset in own if dataset.accelerate is None)


def _grants(datasets: Iterable[tuple[str, Dataset, bool]]) -> tuple[DataGrant, ...]:
    by_folder: dict[Folder, DataGrant] = {}
    for name, dataset, writes in datasets:
        place = folder(dataset)
        before = by_folder.get(place)
        if before is None or (writes and not before.writes):
            by_folder[place] = DataGrant(name, place, writes, dataset.key, dataset.account)
    return tuple(grant for _, grant in sorted(by_folder.items()))


def made_buckets(datasets: Iterable[Dataset]) -> tuple[MadeBucket, ...]:
    """The buckets that a stack creates for its datasets, each once."""
    created = ((folder(dataset), dataset) for dataset in datasets if dataset.create)
    buckets = grouped((Folder(place.scheme, place.bucket, "", place.account), dataset) for place, dataset in created)
    return tuple(
        MadeBucket(
            whole,
            tuple(sorted({folder(dataset) for dataset in own} - {whole})),
            next((dataset.key for dataset in own if dataset.key), None),
            next((dataset.account for dataset in own if dataset.account), None),
        )
        for whole, own in sorted(buckets.items())
    )


ACCOUNTS_OF_PODS: Final = ("default", ACCOUNT)  # ServiceAccounts of a team's pods, whose rights would be everybody's


@dataclass(frozen=True, slots=True)
class ServiceAccountPlan:
    """A service account of a team."""

    team: str
    name: str
    role: Literal["researcher", "viewer"]
    subject: str | None = None  # claim `sub` of its CI job's tokens
    identity: Person | None = None  # its cloud identity as the cluster knows it; None without

    def __str__(self) -> str:
        """As reviews list it: the subject is part of the identity."""
        return f"serviceaccount:{self.team}/{self.name}" + (f" ({self.subject})" if self.subject else "")

    @property
    def people(self) -> tuple[Person, ...]:
        """Its names for the API server."""
        account = Person("serviceaccount", f"{self.team}/{self.name}")
        return (account, self.identity) if self.identity else (account,)


def service_accounts(stack: Stack, team: str) -> Iterator[ServiceAccountPlan]:
    """The service accounts of a team."""
    for name, account in stack.teams[team].service_accounts.items():
        identity = stack.cluster.account_identity(team, name) if account.subject else None
        yield ServiceAccountPlan(team, name, account.role, account.subject, identity)


def identities(stack: Stack) -> tuple[ServiceAccountPlan, ...]:
    """The service accounts of all teams that have a cloud identity."""
    return tuple(account for team in stack.teams for account in service_accounts(stack, team) if account.identity)
