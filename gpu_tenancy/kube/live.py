"""Live objects: who owns them, and whether an apply changed them, from their metadata."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpu_tenancy.base.json import int_at, maps_at, text_at
from gpu_tenancy.kube.request import FIELD_MANAGER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_tenancy.base.json import Json


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
    """

    uid: str
    resource_version: str
    deleting: bool
    generation: int
    managed: tuple[Mapping[str, Json], ...]

    @classmethod
    def of(cls, manifest: Mapping[str, Json]) -> Live:
        """Reads an object, or its `PartialObjectMetadata`."""
        return cls(
            uid=text_at(manifest, "metadata", "uid"),
            resource_version=text_at(manifest, "metadata", "resourceVersion"),
            deleting=bool(text_at(manifest, "metadata", "deletionTimestamp")),
            generation=int_at(manifest, "metadata", "generation"),
            managed=tuple(maps_at(manifest, "metadata", "managedFields")),
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

    def changed_since(self, before: Live) -> bool:
        """Whether our apply, which returned this object, changed the object `before` it.

        The same resourceVersion means no. A different one can also come from a controller that wrote the status in
        the meantime. Then the controller's entry in `managedFields` has a new time and ours does not, because an
        apply without changes keeps its time.
        """
        if self.resource_version == before.resource_version:
            return False
        return self.applied != before.applied or self.managed == before.managed
