"""Which kinds an API server serves, and under which paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.offline.wire import maps_at, text_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpu_tenancy.console.offline.wire import Json


@dataclass(frozen=True, slots=True)
class Resource:
    """What a kind is called in the server's paths."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str = "", name: str = "") -> str:
        """The path of one object, or of all of them where no name is given."""
        root = "/apis" if "/" in self.api_version else "/api"
        parts = [root, self.api_version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *([name] if name else [])])


class Catalogue:
    """Every kind that an API server served at one moment."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._resources: dict[tuple[str, str], Resource] = {}
        self._preferred: dict[tuple[str, str], Resource] = {}
        for one in resources:
            self._resources.setdefault((one.api_version, one.kind), one)
            self._preferred.setdefault((one.api_version.rpartition("/")[0], one.kind), one)

    def find(self, api_version: str, kind: str) -> Resource | None:
        """The kind in just this version."""
        return self._resources.get((api_version, kind))

    def preferred(self, group: str, kind: str) -> Resource | None:
        """The kind in the version that the server likes best."""
        return self._preferred.get((group, kind))


def resources(answer: Mapping[str, Json]) -> Iterator[Resource]:
    """Reads an aggregated discovery: the versions of a group come best first.

    Raises:
        ConsoleError: the server answered in an older form.
    """
    if answer.get("kind") != "APIGroupDiscoveryList":
        raise ConsoleError(
            "the API server does not offer aggregated discovery in v2", "use Kubernetes 1.30 or later on it"
        )
    for group in maps_at(answer, "items"):
        for version in maps_at(group, "versions"):
            prefix = text_at(group, "metadata", "name")
            name = text_at(version, "version")
            api_version = f"{prefix}/{name}" if prefix else name
            for resource in maps_at(version, "resources"):
                yield Resource(
                    api_version=api_version,
                    kind=text_at(resource, "responseKind", "kind"),
                    plural=text_at(resource, "resource"),
                    namespaced=text_at(resource, "scope") == "Namespaced",
                )
