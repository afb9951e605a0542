"""Namespaced and cluster-scoped kinds, as their definitions have them.

`scopes.yaml` is generated from the OpenAPI document of Kubernetes and the pinned custom resource definitions
(`make scopes`), so that a preview needs no network. `scopes_documented.yaml` has the kinds whose definitions are not
pinned, each with the document that shows the scope.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, TypeAdapter

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.model.yaml import read_table

GENERATED: Final = Path(__file__).parent / "scopes.yaml"
DOCUMENTED: Final = Path(__file__).parent / "scopes_documented.yaml"

Kind: TypeAlias = tuple[str, str]
"""API group (empty for the core group) and kind."""


class Scopes(BaseModel):
    """The kinds of one set of definitions, by API group.

    Attributes:
        definitions: what defines them, such as `kueue`.
        sha256: checksum of the definitions.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    definitions: str
    version: str
    sha256: str
    cluster: dict[str, list[str]] = {}
    namespaced: dict[str, list[str]] = {}

    def kinds(self) -> Iterator[tuple[Kind, bool]]:
        """Each kind, and whether it is cluster-scoped."""
        for kinds, cluster_scoped in ((self.cluster, True), (self.namespaced, False)):
            for group, names in kinds.items():
                yield from (((group, name), cluster_scoped) for name in names)


class DocumentedScope(BaseModel):
    """The scope of a kind whose definition is not pinned, with its source and the day it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    group: str
    kind: str
    scope: Literal["Cluster", "Namespaced"]
    source: str
    date: date


@cache
def generated_scopes() -> tuple[Scopes, ...]:
    """The rows of `scopes.yaml`."""
    return tuple(TypeAdapter(list[Scopes]).validate_python(read_table(GENERATED)))


@cache
def documented_scopes() -> tuple[DocumentedScope, ...]:
    """The rows of `scopes_documented.yaml`."""
    return tuple(TypeAdapter(list[DocumentedScope]).validate_python(read_table(DOCUMENTED)))


@cache
def known_scopes() -> Mapping[Kind, bool]:
    """Whether each known kind is cluster-scoped."""
    documented = {(row.group, row.kind): row.scope == "Cluster" for row in documented_scopes()}
    return documented | {kind: cluster for scopes in generated_scopes() for kind, cluster in scopes.kinds()}


def declared_scopes(objects: Iterable[KubernetesObject]) -> Mapping[Kind, bool]:
    """Returns the kinds that the given objects define, and whether each is cluster-scoped."""
    return dict(
        defined_scope(item.manifest)
        for item in objects
        if (item.group, item.kind) == ("apiextensions.k8s.io", "CustomResourceDefinition")
    )


def defined_scope(definition: Mapping[str, Json]) -> tuple[Kind, bool]:
    """The kind that a CustomResourceDefinition defines, and whether it is cluster-scoped."""
    kind = (text_at(definition, "spec", "group"), text_at(definition, "spec", "names", "kind"))
    return kind, text_at(definition, "spec", "scope") == "Cluster"
