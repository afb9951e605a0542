"""Storage of teams: claims, StorageClasses, and snapshots on a schedule."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from gpu_tenancy.base.problems import Path
from gpu_tenancy.model.catalogue.storage import StorageService, storage_services
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.data import Snapshots, Storage
from gpu_tenancy.model.spec.teams import Team

_PREFIX: Final = "gpu-tenancy-"  # start of the names of StorageClasses that are made here


@dataclass(frozen=True, slots=True)
class StorageClassPlan:
    """A StorageClass of a cluster that is created here, or the VolumeSnapshotClass of the same name."""

    name: str
    kind: str
    service: StorageService
    keep: bool  # whether a volume, or the cloud's data of a snapshot, stays when the object is deleted
    parameters: Mapping[str, str]  # for the driver of the StorageClass; IDs that the cloud decides have placeholders


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """A claim of a team, of a size in bytes."""

    name: str
    team: str
    size: int
    access_mode: str  # https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes.
    storage_class: str | None  # None for the cluster's default class
    service: str  # title of the service; empty if the class is not made here


def claims(cluster: Cluster, name: str, team: Team) -> Iterator[ClaimPlan]:
    """The claims of a team."""
    return (claim_of(cluster, name, claim, storage) for claim, storage in team.storage.items())


def claim_of(cluster: Cluster, team: str, name: str, storage: Storage) -> ClaimPlan:
    """The claim of some storage."""
    kind, service = service_of(cluster, storage)
    return ClaimPlan(
        name=name,
        team=team,
        size=storage.size,
        access_mode="ReadWriteMany" if storage.mode == "shared" else "ReadWriteOnce",
        storage_class=class_name(kind, storage) if service else storage.storage_class,
        service=service.title if service else "",
    )


def stored(team: Team) -> Iterator[tuple[Path, Storage]]:
    """All storage of a team (claims and a notebook's), with its place below the team."""
    yield from ((("storage", name), storage) for name, storage in team.storage.items())
    if team.notebooks:
        yield ("notebooks", "home"), team.notebooks.home


def storage_classes(cluster: Cluster, teams: Iterable[Team]) -> tuple[StorageClassPlan, ...]:
    """The StorageClasses that claims of teams need, each once."""
    return _classes(cluster, (storage for team in teams for _, storage in stored(team)))


def _classes(cluster: Cluster, storages: Iterable[Storage]) -> tuple[StorageClassPlan, ...]:
    made = {plan.name: plan for storage in storages if (plan := _class(cluster, storage))}
    return tuple(made[name] for name in sorted(made))


def _class(cluster: Cluster, storage: Storage) -> StorageClassPlan | None:
    """The class that is made for a claim; None for a StorageClass that exists."""
    kind, service = service_of(cluster, storage)
    if service is None:
        return None
    parameters = {key: text.format_map(cluster.storage_parameters) for key, text in service.parameters.items()}
    return StorageClassPlan(class_name(kind, storage), kind, service, storage.keep, parameters)


def service_of(cluster: Cluster, storage: Storage) -> tuple[str, StorageService | None]:
    """Name and row of the service of which a StorageClass is made here; no row if the class exists already."""
    if storage.storage_class is not None or cluster.creation is None:
        return storage.kind or "", None
    rows = storage_services().get(cluster.cloud, {})
    if storage.kind is not None:
        return storage.kind, rows.get(storage.kind)
    return next(((name, row) for name, row in rows.items() if storage.mode in row.modes), ("", None))


def class_name(service: str, storage: Storage) -> str:
    """Name of the StorageClass, and of the VolumeSnapshotClass, that is made of a service for a claim."""
    return f"{_PREFIX}{service}" if storage.keep else f"{_PREFIX}{service}-deleted"


_SHOWN: Final = 20
"""Characters of a team and of a claim in the name of a CronJob, which can have 52:
https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/."""


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """Snapshots of a claim by five fields of cron in UTC; `keep` is the number of complete snapshots that stay."""

    team: str
    claim: str
    schedule: str
    keep: int
    snapshot_class: str
    kept: bool  # whether the class keeps the cloud's data of a deleted snapshot

    @property
    def name(self) -> str:
        """Name of the CronJob, which shares a namespace with other teams' CronJobs."""
        digest = sha256(f"{self.team}/{self.claim}".encode()).hexdigest()[:8]
        return f"{self.team[:_SHOWN]}-{self.claim[:_SHOWN]}-{digest}"


def snapshots(cluster: Cluster, name: str, team: Team) -> tuple[SnapshotPlan, ...]:
    """The snapshots of a team's claims."""
    return tuple(
        SnapshotPlan(
            team=name,
            claim=claim,
            schedule=taken.schedule,
            keep=taken.keep,
            snapshot_class=made.name if made else taken.kind or "",
            kept=bool(made and made.keep),
        )
        for _, claim, storage, taken in with_snapshots({name: team})
        for made in [_class(cluster, storage)]
    )


def takes_snapshots(teams: Mapping[str, Team]) -> bool:
    """Whether a claim of a team has snapshots."""
    return any(True for _ in with_snapshots(teams))


def with_snapshots(teams: Mapping[str, Team]) -> Iterator[tuple[str, str, Storage, Snapshots]]:
    """Storage that has snapshots: its team, its name, itself and its snapshots."""
    for team, spec in teams.items():
        for name, storage in spec.storage.items():
            if storage.snapshots:
                yield team, name, storage, storage.snapshots


def snapshot_classes(stack: Stack) -> tuple[StorageClassPlan, ...] | None:
    """The VolumeSnapshotClasses that are made for claims, each once; None if no claim has snapshots."""
    taken = [storage for _, _, storage, _ in with_snapshots(stack.teams)]
    return _classes(stack.cluster, taken) if taken else None
