"""References to objects: API version, kind, namespace and name."""

from collections.abc import Mapping
from typing import NamedTuple, Self, TypeAlias

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.model.names import adoptable

Key: TypeAlias = tuple[str, str, str, str]  # group, kind, namespace, name: same in all API versions


class Reference(NamedTuple):
    """Reference to one object, existing or not; `namespace` is empty if it is cluster-scoped."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""

    @classmethod
    def of(cls, manifest: Mapping[str, Json]) -> Self:
        """Reference to the object of a manifest."""
        name, namespace = text_at(manifest, "metadata", "name"), text_at(manifest, "metadata", "namespace")
        return cls(text_at(manifest, "apiVersion"), text_at(manifest, "kind"), name, namespace)

    @property
    def group(self) -> str:
        """API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def key(self) -> Key:
        """Identity, the same for all API versions of an object."""
        return self.group, self.kind, self.namespace, self.name

    @property
    def adoptable(self) -> str:
        """Name in `cluster.adopt` of a stack."""
        return adoptable(self.api_version, self.kind, self.namespace, self.name)

    @property
    def place(self) -> str:
        """`namespace/name`, or the name alone: the ID of Pulumi's provider."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        return f"{self.kind}.{self.group} {self.place}" if self.group else f"{self.kind} {self.place}"


def is_namespace(reference: Reference) -> bool:
    """Whether an object is a namespace, whose deletion deletes everything in it."""
    return (reference.group, reference.kind) == ("", "Namespace")


def is_definition(reference: Reference) -> bool:
    """Whether an object is a CustomResourceDefinition, whose deletion deletes every object of its kind."""
    return (reference.group, reference.kind) == ("apiextensions.k8s.io", "CustomResourceDefinition")
