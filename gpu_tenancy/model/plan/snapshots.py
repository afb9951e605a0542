"""Snapshots of storage on a schedule, and the VolumeSnapshotClasses that are made for them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from gpu_tenancy.model.plan.storage import class_name, service_of
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.data import SNAPSHOTS, Snapshots, Storage
from gpu_tenancy.model.spec.teams import Team

_SHOWN: Final = 20
"""Characters of a team and of a claim in the name of a CronJob, which can have 52:
https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/."""


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """Snapshots of a claim.

    Attributes:
        team: namespace of the claim.
        schedule: as five fields of cron, in UTC.
        keep: how many complete snapshots stay.
        snapshot_class: name of the VolumeSnapshotClass.
        kept: whether this class keeps what the cloud stores of a snapshot that is deleted.
    """

    team: str
    claim: str
    schedule: str
    keep: int
    snapshot_class: str
    kept: bool

    @property
    def name(self) -> str:
        """Of the CronJob, which is in one namespace with those of other teams."""
        digest = sha256(f"{self.team}/{self.claim}".encode()).hexdigest()[:8]
        return f"{self.team[:_SHOWN]}-{self.claim[:_SHOWN]}-{digest}"


@dataclass(frozen=True, slots=True)
class SnapshotClassPlan:
    """A VolumeSnapshotClass of a cluster that is created here.

    Attributes:
        driver: CSI driver of the volumes.
        parameters: of the driver.
        keep: whether what the cloud stores stays when a VolumeSnapshot is deleted.
    """

    name: str
    driver: str
    keep: bool
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class SnapshotsPlan:
    """What the snapshots of all teams share.

    Attributes:
        namespace: of the CronJobs, which belongs to no team.
        environment: of the stack.
        classes: those that are made here.
    """

    namespace: str
    environment: str
    classes: tuple[SnapshotClassPlan, ...]


def snapshots(cluster: Cluster, name: str, team: Team) -> tuple[SnapshotPlan, ...]:
    """The snapshots of a team's claims."""
    return tuple(
        SnapshotPlan(
            team=name,
            claim=claim,
            schedule=storage.snapshots.schedule,
            keep=storage.snapshots.keep,
            snapshot_class=made.name if made else storage.snapshots.kind or "",
            kept=bool(made and made.keep),
        )
        for claim, storage in team.storage.items()
        if storage.snapshots
        for made in [_class(cluster, storage)]
    )


def takes_snapshots(teams: Mapping[str, Team]) -> bool:
    """Whether a claim of a team has snapshots."""
    return next(with_snapshots(teams), None) is not None


def with_snapshots(teams: Mapping[str, Team]) -> Iterator[tuple[str, str, Storage, Snapshots]]:
    """Storage that has snapshots: its team, its name, itself and its snapshots."""
    for team, spec in teams.items():
        for name, storage in spec.storage.items():
            if storage.snapshots:
                yield team, name, storage, storage.snapshots


def snapshots_plan(stack: Stack) -> SnapshotsPlan | None:
    """What the snapshots of a stack share; None without any."""
    if not takes_snapshots(stack.teams):
        return None
    classes = (_class(stack.cluster, storage) for _, _, storage, _ in with_snapshots(stack.teams))
    made = {found.name: found for found in classes if found}
    return SnapshotsPlan(SNAPSHOTS, stack.environment, tuple(made[name] for name in sorted(made)))


def _class(cluster: Cluster, storage: Storage) -> SnapshotClassPlan | None:
    """The class that is made for a claim; None for a StorageClass that exists."""
    kind, service = service_of(cluster, storage)
    if service is None:
        return None
    return SnapshotClassPlan(class_name(kind, storage), service.provisioner, storage.keep, service.snapshot_parameters)
