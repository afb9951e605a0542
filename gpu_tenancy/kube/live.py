"""Live objects, from their metadata: who owns them, and whether an apply changed them."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, Self

from gpu_tenancy.base.json import Json, int_at, maps_at, text_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.outcome import Failure, in_parallel
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import FIELD_MANAGER
from gpu_tenancy.model.names import DEPLOYED_BY

_UNTRACKED: Final = "before-first-apply"
"""The manager name that the server gives to writes before the first apply."""


def digest(value: Mapping[str, Json]) -> str:
    """A hash of an object's content."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Live:
    """The metadata of an object on the server.

    Attributes:
        uid: its identity; an object that is deleted and created again gets another one.
        resource_version: changes with every write of any client.
        deleting: its deletion is pending because of finalizers or a grace period.
        generation: changes with every write that changes the spec; 0 for kinds without one.
        managed: `managedFields`: which manager set which fields, and when.
        deployed_by: the environment whose deployment by Pulumi created it; empty if it has no such mark.
    """

    uid: str
    resource_version: str
    deleting: bool
    generation: int
    managed: tuple[Mapping[str, Json], ...]
    deployed_by: str = ""

    @classmethod
    def of(cls, manifest: Mapping[str, Json]) -> Self:
        """Reads an object, or its `PartialObjectMetadata`."""
        return cls(
            uid=text_at(manifest, "metadata", "uid"),
            resource_version=text_at(manifest, "metadata", "resourceVersion"),
            deleting=bool(text_at(manifest, "metadata", "deletionTimestamp")),
            generation=int_at(manifest, "metadata", "generation"),
            managed=tuple(maps_at(manifest, "metadata", "managedFields")),
            deployed_by=text_at(manifest, "metadata", "annotations", DEPLOYED_BY),
        )

    @property
    def applied(self) -> Mapping[str, Json] | None:
        """Our own entry in `managedFields`; None if we never applied this object."""
        return next(
            (
                entry
                for entry in self.managed
                if entry.get("manager") == FIELD_MANAGER
                and entry.get("operation") == "Apply"
                and "subresource" not in entry
            ),
            None,
        )

    @property
    def mark(self) -> str:
        """The digest of `applied`: the fields that are still as our last apply set them, and its time."""
        return digest(self.applied or {})

    @property
    def managers(self) -> tuple[str, ...]:
        """The known managers of any field, in alphabetical order."""
        return tuple(sorted({text_at(entry, "manager") for entry in self.managed} - {_UNTRACKED}))

    def changed_since(self, before: Self) -> bool:
        """Whether our apply, which returned this object, changed the object `before` it.

        The same resourceVersion means no. A different one can also come from a controller that wrote the status in
        the meantime. Then the controller's entry in `managedFields` has a new time and ours does not, because an
        apply without changes keeps its time.
        """
        if self.resource_version == before.resource_version:
            return False
        return self.applied != before.applied or self.managed == before.managed


def survey(cluster: Cluster, pool: Executor, references: Iterable[Reference]) -> dict[Reference, Live | Failure | None]:
    """Returns the metadata of each object; None if it does not exist, a failure if it cannot be read.

    One object of a kind is read by name. Several are read by a list of their namespace, or of all namespaces if they
    are in more than one.
    """
    kinds: dict[tuple[str, str], list[Reference]] = defaultdict(list)
    for reference in references:
        kinds[reference.api_version, reference.kind].append(reference)
    existing: dict[Reference, Live | Failure | None] = {}
    queries = {same_kind[0]: same_kind for same_kind in kinds.values()}
    for first, answer in in_parallel(pool, lambda same_kind: _lives(cluster, same_kind), queries):
        for reference in queries[first]:
            failed = isinstance(answer, Failure)
            # pyrefly: ignore[missing-attribute]
            existing[reference] = Failure(reference, answer.why) if failed else answer.get(reference)
    return existing


def look(cluster: Cluster, reference: Reference) -> Live | None:
    """Returns the metadata of one object; None if it does not exist."""
    metadata = cluster.get(*reference, metadata_only=True)
    return Live.of(metadata) if metadata else None


def foreign(reference: Reference, live: Live) -> str:
    """Why an existing object of somebody else is not applied, and how the stack can take it over."""
    owners = ", ".join(live.managers) or "an unknown field manager"
    return (
        f"already exists, owned by {owners}; rename it in the stack, delete the existing object, or add"
        f" {reference.adoptable} to cluster.adopt to take it over"
    )


def _lives(cluster: Cluster, same_kind: Sequence[Reference]) -> dict[Reference, Live]:
    first = same_kind[0]
    if len(same_kind) == 1:
        live = look(cluster, first)
        return {first: live} if live else {}
    namespaces = {reference.namespace for reference in same_kind}
    namespace = namespaces.pop() if len(namespaces) == 1 else ""
    listed = cluster.list(first.api_version, first.kind, namespace=namespace, metadata_only=True)
    wanted = set(same_kind)
    return {name: Live.of(item) for item in listed if (name := Reference.of(item)) in wanted}
