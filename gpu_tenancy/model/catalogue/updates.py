"""What a provider does when an input of a resource changes: replaces it, restarts nodes, or updates it in place.

`pulumi package get-schema aws@7.51.1 > aws.json` prints the schema; `make replacements SCHEMA=aws.json` reads it.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from gpu_tenancy.base.json import Json
from gpu_tenancy.model.catalogue.rows import Fact, Row, Url, read_rows

NAMED_BY: Final = ("metadata.name", "metadata.namespace")

_MUTABLE: Final = {
    "kubernetes:core/v1:ConfigMap": "enableConfigMapMutable",
    "kubernetes:core/v1:Secret": "enableSecretMutable",
}


def forces_new(type_: str, path: str, declared: tuple[str, ...], provider: Mapping[str, Json]) -> bool:
    """Whether a change at a path (`spec.template.spec.containers.0.image`) forces replacement, as far as known offline.

    `declared`: `replaceOnChanges` of the resource, such as `spec.containers[0].image`; `provider`: inputs of its
    provider, of which some are strings that contain JSON.
    """
    fields = [re.sub(r"\[([0-9]+)\]", r".\1", field) for field in declared]
    if type_.startswith("kubernetes:"):
        _, version, kind = type_.split(":")
        fields += NAMED_BY
        if provider.get(_MUTABLE.get(type_, "")) not in {True, "true"}:
            fields += read_rows("updates", _Table).kubernetes.get(f"{version.partition('/')[0]}:{kind}", ())
    return "*" in fields or _within(path, fields)


Nodes: TypeAlias = Literal["", "restart", "may restart"]


class CloudType(Row):
    """Behaviour of the cloud's provider for one type of resource: keys as in `updates.yaml`."""

    what: str = ""
    name: str = ""
    loses: str = ""
    system: str = ""
    stay: str = ""
    drift: bool = False
    replaces: tuple[str, ...] = ()
    creation: Mapping[str, Url] = {}
    fixed: Mapping[str, str] = {}
    fixed_if: str = ""
    restarts: Mapping[Url, tuple[str, ...]] = {}
    removes: Mapping[Url, tuple[str, ...]] = {}
    updates: Mapping[Url, tuple[str, ...]] = {}

    def forces(self, paths: Iterable[str]) -> bool:
        """Whether a change at one of these paths replaces the resource."""
        whole = tuple(field.removesuffix(".*") for field in self.replaces if field.endswith(".*"))
        return any(path in self.replaces or _within(path, whole) for path in paths)

    def kept(self, path: str) -> str:
        """Why the input at a path keeps its value; empty if it can change."""
        return next((reason for field, reason in self.fixed.items() if _within(path, [field])), "")

    def nodes(self, path: str, *, removed: bool = True) -> Nodes:
        """What a change at a path that does not replace the resource does to nodes; `removed`: entries of a list."""
        restarts, removes, updates = (
            tuple(chain(*one.values())) for one in (self.restarts, self.removes, self.updates)
        )
        if _within(path, removes):
            return "restart" if removed else ""
        if _within(path, restarts) or any(_within(field, [path]) for field in restarts):
            return "restart"
        known = self.forces([path]) or _within(path, (*self.creation, *self.fixed, *updates))
        return "" if known or not (restarts or updates) else "may restart"


def _within(path: str, fields: Iterable[str]) -> bool:
    return any(path == field or path.startswith(f"{field}.") for field in fields)


class _Table(Row):
    """`kubernetes` has fields by API group and kind, besides the name of the object."""

    sources: Mapping[str, Fact]
    kubernetes: Mapping[str, tuple[str, ...]]
    types: Mapping[str, CloudType]


def cloud_types() -> Mapping[str, CloudType]:
    """Rows of `updates.yaml` by type token."""
    return read_rows("updates", _Table).types


def cloud_type(type_: str) -> CloudType:
    """The row of a type; empty if there is none."""
    return cloud_types().get(type_, _OTHER)


_OTHER: Final = CloudType()


def without_indexes(path: Iterable[str | int]) -> str:
    """`agentPoolProfiles.vmSize` for `agentPoolProfiles.0.vmSize`."""
    return ".".join(step for step in map(str, path) if not step.isdigit())


def paths_in(path: str, *values: object) -> Iterator[str]:
    """A path and the paths of all values inside, without indexes; they appear or disappear with a block."""
    yield path
    for value in values:
        if isinstance(value, dict):
            for key, item in cast("dict[str, object]", value).items():
                yield from paths_in(f"{path}.{key}", item)
        elif isinstance(value, list):
            yield from (inner for item in cast("list[object]", value) for inner in paths_in(path, item))


_MARKS: Final = ("willReplaceOnChanges", "replaceOnChanges")  # https://www.pulumi.com/docs/iac/extending-pulumi/schema/


def replacing(package: Mapping[str, Any], token: str) -> set[str]:
    """Inputs of a resource whose change replaces it, as paths without indexes; KeyError if the schema lacks it."""
    return set(_marked(package, package["resources"][token]["inputProperties"], "", ()))


def _marked(
    package: Mapping[str, Any], properties: Mapping[str, Any], above: str, seen: tuple[str, ...]
) -> Iterator[str]:
    for name, spec in properties.items():
        path = f"{above}{name}"
        if any(spec.get(mark) for mark in _MARKS):
            yield path
        inner = spec
        while "items" in inner or "additionalProperties" in inner:
            inner = inner.get("items") or inner["additionalProperties"]
        reference = str(inner.get("$ref", "")).removeprefix("#/types/")
        if reference in package.get("types", {}) and reference not in seen:
            fields = package["types"][reference].get("properties", {})
            yield from _marked(package, fields, f"{path}.", (*seen, reference))


def differences(package: Mapping[str, Any], rows: Mapping[str, CloudType]) -> Iterator[str]:
    """Missing and excess entries of the table, for each type of the schema's provider."""
    for token, row in rows.items():
        if token.partition(":")[0] != package["name"]:
            continue
        if token not in package["resources"]:
            yield f"{token}: not in the schema"
            continue
        marked = replacing(package, token)
        yield from (f"{token}: {path} replaces it; add it" for path in sorted(marked) if not row.forces([path]))
        for path in row.replaces:
            below = path.removesuffix("*") if path.endswith(".*") else None
            if not any(f"{path}.".startswith(f"{field}.") or (below and field.startswith(below)) for field in marked):
                yield f"{token}: {path} is not marked in the schema; remove it, or say why it is there"


if __name__ == "__main__":
    found = list(differences(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), cloud_types()))
    print("\n".join(found) or "updates.yaml has what the schema marks")
    sys.exit(bool(found))
