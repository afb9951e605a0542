"""Storage of teams: claims, and the StorageClasses that are made for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.catalogue.storage import StorageService, storage_services
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.data import Storage

PREFIX: Final = "gpu-tenancy-"
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


def claims(tree: Tree, team: str) -> tuple[ClaimPlan, ...]:
    """The claims of a team."""
    return tuple(_claim(tree.stack.cluster, team, name, spec) for name, spec in tree.stack.teams[team].storage.items())


def storage_classes(stack: Stack) -> tuple[StorageClassPlan, ...]:
    """The StorageClasses that claims of the stack need, each once."""
    found = {
        _class_name(name, spec): StorageClassPlan(
            _class_name(name, spec), name, service, spec.keep, _parameters(stack.cluster, service)
        )
        for team in stack.teams.values()
        for spec in team.storage.values()
        for name, service in [service_of(stack.cluster, spec)]
        if service
    }
    return tuple(found[name] for name in sorted(found))


def services_of_claims(stack: Stack) -> tuple[str, ...]:
    """Names of the services of which StorageClasses are made, each once."""
    return tuple(dict.fromkeys(made.kind for made in storage_classes(stack)))


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


def _claim(cluster: Cluster, team: str, name: str, storage: Storage) -> ClaimPlan:
    kind, service = service_of(cluster, storage)
    return ClaimPlan(
        name=name,
        team=team,
        size=storage.size,
        shared=storage.mode == "shared",
        storage_class=_class_name(kind, storage) if service else storage.storage_class,
        service=service.title if service else "",
    )


def _class_name(service: str, storage: Storage) -> str:
    return f"{PREFIX}{service}" if storage.keep else f"{PREFIX}{service}-deleted"
