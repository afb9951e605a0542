"""What an API server's metadata tells about an object: whose it is, and whether an apply changed it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpu_tenancy.console.cluster.request import FIELD_MANAGER
from gpu_tenancy.console.offline.wire import maps_at, text_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_tenancy.console.offline.wire import Json


_NOBODY: Final = "before-first-apply"
"""By this name the server calls whoever wrote before it kept account."""


def digest(value: Mapping[str, Json]) -> str:
    """A short stand-in for an object: the same only for the same one."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Live:
    """An object as it is on the server, or rather its metadata.

    Attributes:
        uid: its identity, which an object that is deleted and made anew does not keep.
        resource_version: changes with every write, whoever writes.
        deleting: it is on its way out, held by finalizers.
        managed: `managedFields`: who set which fields, and when.
    """

    uid: str
    resource_version: str
    deleting: bool
    managed: tuple[Mapping[str, Json], ...]

    @classmethod
    def of(cls, manifest: Mapping[str, Json]) -> Live:
        """Reads an object, or its `PartialObjectMetadata`."""
        return cls(
            uid=text_at(manifest, "metadata", "uid"),
            resource_version=text_at(manifest, "metadata", "resourceVersion"),
            deleting=bool(text_at(manifest, "metadata", "deletionTimestamp")),
            managed=tuple(maps_at(manifest, "metadata", "managedFields")),
        )

    @property
    def applied(self) -> Mapping[str, Json] | None:
        """What our own applies left in `managedFields`; None where we never applied this object."""
        return next(
            (
                one
                for one in self.managed
                if one.get("manager") == FIELD_MANAGER and one.get("operation") == "Apply" and "subresource" not in one
            ),
            None,
        )

    @property
    def mark(self) -> str:
        """A stand-in for `applied`: which fields our last apply set and nobody changed since, and when it was."""
        return digest(self.applied or {})

    @property
    def managers(self) -> tuple[str, ...]:
        """Everyone who set a field and left a name, in alphabetical order."""
        return tuple(sorted({text_at(one, "manager") for one in self.managed} - {_NOBODY}))

    def changed_since(self, before: Live) -> bool:
        """Whether our apply, whose outcome this is, changed the object that was there `before`.

        The same resourceVersion means no. Another one may also come from a controller that wrote a status
        in between; then the controller's own entry in `managedFields` has moved and ours has not, for an apply
        that changes nothing leaves its entry's time alone.
        """
        if self.resource_version == before.resource_version:
            return False
        return self.applied != before.applied or self.managed == before.managed
