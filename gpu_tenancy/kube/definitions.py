"""Waits until the API server serves the kinds of custom resource definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_tenancy.base.json import maps_at, text_at
from gpu_tenancy.kube.errors import UnknownKindError, WaitTimeoutError
from gpu_tenancy.kube.outcome import Failure
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import holders

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpu_tenancy.base.json import Json
    from gpu_tenancy.kube.client import Cluster

_SERVED_WITHIN: Final = 30


def await_kinds(cluster: Cluster, definitions: Iterable[Mapping[str, Json]]) -> list[Failure]:
    """Waits until every kind of the definitions is served, and returns a failure for each that is not.

    One discovery request covers all kinds.
    """
    waiting = list(definitions)

    def served() -> bool:
        waiting[:] = [definition for definition in waiting if not _is_served(cluster, definition)]
        return not waiting

    try:
        cluster.wait_for(served, timeout=_SERVED_WITHIN, poll=0.1)
    except WaitTimeoutError:
        names = [Reference.of(definition) for definition in waiting]
        return [Failure(name, f"kind is not served; {holders(cluster.get(*name))}") for name in names]
    return []


def _is_served(cluster: Cluster, definition: Mapping[str, Json]) -> bool:
    group, kind = text_at(definition, "spec", "group"), text_at(definition, "spec", "names", "kind")
    try:
        for version in maps_at(definition, "spec", "versions"):
            if version.get("served"):
                cluster.resource(f"{group}/{text_at(version, 'name')}", kind)
    except UnknownKindError:
        return False
    return True
