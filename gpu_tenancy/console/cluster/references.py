"""How one object among all is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gpu_tenancy.console.offline.wire import text_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_tenancy.console.offline.wire import Json

Key: TypeAlias = tuple[str, str, str, str]
"""Group, kind, namespace and name: an object's identity, which no change of version touches."""


class Reference(NamedTuple):
    """Names one object, whether it is there or not.

    Attributes:
        api_version: group and version to speak to it in, such as `apps/v1`.
        kind: such as `Deployment`.
        name: `metadata.name`.
        namespace: `metadata.namespace`; empty for what belongs to the whole cluster.
    """

    api_version: str
    kind: str
    name: str
    namespace: str = ""

    @classmethod
    def of(cls, manifest: Mapping[str, Json]) -> Reference:
        """Returns the name that a manifest gives itself."""
        name, namespace = text_at(manifest, "metadata", "name"), text_at(manifest, "metadata", "namespace")
        return cls(text_at(manifest, "apiVersion"), text_at(manifest, "kind"), name, namespace)

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def key(self) -> Key:
        """The identity: two references to one object in two versions have the same."""
        return self.group, self.kind, self.namespace, self.name

    def __str__(self) -> str:
        kind = f"{self.kind}.{self.group}" if self.group else self.kind
        return f"{kind} {self.namespace}/{self.name}" if self.namespace else f"{kind} {self.name}"


def is_namespace(reference: Reference) -> bool:
    """Whether an object is a namespace, with which everything in it goes."""
    return (reference.group, reference.kind) == ("", "Namespace")


def is_definition(reference: Reference) -> bool:
    """Whether an object defines a kind, with which every object of the kind goes."""
    return (reference.group, reference.kind) == ("apiextensions.k8s.io", "CustomResourceDefinition")
