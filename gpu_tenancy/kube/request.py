"""HTTP requests to an API server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_tenancy.base.json import Json

FIELD_MANAGER: Final = "gpu-tenancy"
"""The field manager for our fields."""

CONNECTIONS: Final = 8
"""Number of connections that are kept alive, and of parallel requests."""

JSON: Final = "application/json"
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
DISCOVERY: Final = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,{JSON}"
"""Requests every group, version and kind in one answer."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        method: the HTTP method.
        path: from the server's root, such as `/api/v1/namespaces`.
        query: parameters; empty ones are not sent.
        body: JSON content.
        content_type: media type of the body.
        accept: media type of the answer.
        once: whether it is never repeated, because it only asks whether the server works.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Mapping[str, Json] | None = field(default=None, repr=False)
    content_type: str = JSON
    accept: str = JSON
    once: bool = False


def writing(*, dry_run: bool = False, force: bool = False) -> dict[str, str]:
    """Query parameters for write requests: our field manager, and strict field validation."""
    return {
        "fieldManager": FIELD_MANAGER,
        "fieldValidation": "Strict",
        "dryRun": "All" if dry_run else "",
        "force": "true" if force else "",
    }


def partial(kind: str = "PartialObjectMetadata", *, wanted: bool) -> str:
    """The Accept header; if `wanted`, for the metadata of an object or a list only."""
    return f"{JSON};as={kind};g=meta.k8s.io;v=v1" if wanted else JSON
