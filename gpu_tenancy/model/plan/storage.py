"""Storage of teams: claims, and the StorageClasses that are made for them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.problems import Path
from gpu_tenancy.model.catalogue.storage import StorageService, storage_services
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.data import Storage
from gpu_tenancy.model.spec.teams import Team

_PREFIX: Final = "gpu-tenancy-"
"""Start of the names of StorageClasses that are made here."""


@dataclass(frozen=True, slots=True)
class StorageClassPlan:
    """A StorageClass of a cluster that is created here.

    Attributes:
        kind: name of the service.
        service: what its volumes are.
        keep: whether a volume stays when its claim is deleted.
        parameters: for its driver; IDs that only the cloud decides have placeholders.
    """

    name: str
    kind: str
    service: StorageService
    keep: bool
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """A claim of a team.

    Attributes:
        size: in bytes.
        shared: whether pods on any number of nodes can mount it, or one pod.
        storage_class: None for the cluster's default class.
        service: title of the service; empty if the class is not made here.
    """

    name: str
    team: str
    size: int
    shared: bool
    storage_class: str | None
    service: str = ""

    @property
    def access_mode(self) -> str:
        """https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes."""
        return "ReadWriteMany" if self.shared else "ReadWriteOnce"


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
        shared=storage.mode == "shared",
        storage_class=class_name(kind, storage) if service else storage.storage_class,
        service=service.title if service else "",
    )


def stored(team: Team) -> Iterator[tuple[Path, Storage]]:
    """All storage of a team, with its place below the team: that of its claims, and that of a notebook."""
    for name, storage in team.storage.items():
        yield ("storage", name), storage
    if team.notebooks:
        yield ("notebooks", "home"), team.notebooks.home


def storage_classes(cluster: Cluster, teams: Iterable[Team]) -> tuple[StorageClassPlan, ...]:
    """The StorageClasses that claims of teams need, each once."""
    found: dict[str, StorageClassPlan] = {}
    for storage in (storage for team in teams for _, storage in stored(team)):
        kind, service = service_of(cluster, storage)
        if service:
            name = class_name(kind, storage)
            found[name] = StorageClassPlan(name, kind, service, storage.keep, _parameters(cluster, service))
    return tuple(found[name] for name in sorted(found))


def _parameters(cluster: Cluster, service: StorageService) -> Mapping[str, str]:
    values = cluster.storage_parameters
    return {key: text.format_map(values) for key, text in service.parameters.items()}


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
