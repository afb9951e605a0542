"""The kinds that an API server serves, and their paths."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, maps_at, text_at


@dataclass(frozen=True, slots=True)
class Resource:
    """A served kind, with the name for its path."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str = "", name: str = "") -> str:
        """The path of one object; without a name, of the whole list."""
        root = "/apis" if "/" in self.api_version else "/api"
        parts = [root, self.api_version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *([name] if name else [])])


class Catalogue:
    """Every kind that an API server served at one time."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._resources: dict[tuple[str, str], Resource] = {}
        self._preferred: dict[tuple[str, str], Resource] = {}
        for resource in resources:
            self._resources.setdefault((resource.api_version, resource.kind), resource)
            self._preferred.setdefault((resource.api_version.rpartition("/")[0], resource.kind), resource)

    def find(self, api_version: str, kind: str) -> Resource | None:
        """The kind in exactly this version."""
        return self._resources.get((api_version, kind))

    def versions(self, group: str) -> tuple[str, ...]:
        """The versions of a group that the server serves, the preferred one first; empty for none."""
        all_ = (version.rpartition("/") for version, _ in self._resources)
        return tuple(dict.fromkeys(version for of, _, version in all_ if of == group))

    def preferred(self, group: str, kind: str) -> Resource | None:
        """The kind in the server's preferred version."""
        return self._preferred.get((group, kind))


def resources(answer: Mapping[str, Json]) -> Iterator[Resource]:
    """Reads an aggregated discovery document, in which the preferred version of a group comes first.

    Raises:
        ConsoleError: the server does not support aggregated discovery v2.
    """
    if answer.get("kind") != "APIGroupDiscoveryList":
        raise ConsoleError(
            "the API server does not support aggregated discovery v2", "upgrade the cluster to Kubernetes 1.30 or later"
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
