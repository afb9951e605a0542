"""One request to an API server, in the server's own words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_tenancy.console.offline.wire import Json

FIELD_MANAGER: Final = "gpu-tenancy"
"""By this name the API server remembers which fields are ours."""

CONNECTIONS: Final = 8
"""Connections that are kept alive, and so the requests that are worth sending at once."""

JSON: Final = "application/json"
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
DISCOVERY: Final = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,{JSON}"
"""Asks for every group, version and kind in one answer."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        method: the HTTP method.
        path: from the server's root, such as `/api/v1/namespaces`.
        query: parameters; empty ones are not sent.
        body: what is sent, as JSON.
        content_type: what the body is.
        accept: what the answer should be.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Mapping[str, Json] | None = field(default=None, repr=False)
    content_type: str = JSON
    accept: str = JSON


def writing(*, dry_run: bool = False, force: bool = False) -> dict[str, str]:
    """Parameters of whatever writes: in our name, and no field that the kind does not have."""
    return {
        "fieldManager": FIELD_MANAGER,
        "fieldValidation": "Strict",
        "dryRun": "All" if dry_run else "",
        "force": "true" if force else "",
    }


def partial(kind: str = "PartialObjectMetadata", *, wanted: bool) -> str:
    """Accepts nothing but the metadata of an object, or of a list of objects, where this is wanted."""
    return f"{JSON};as={kind};g=meta.k8s.io;v=v1" if wanted else JSON
