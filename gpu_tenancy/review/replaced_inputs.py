"""Compares `replacements.yaml` with the schema of a Pulumi provider, which marks the inputs that replace a resource.

`pulumi package get-schema aws@7.51.1 > aws.json` prints the schema; `make replacements SCHEMA=aws.json` reads it.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gpu_tenancy.review.replacements import CloudType, cloud_types

_MARKS: Final = ("willReplaceOnChanges", "replaceOnChanges")
"""https://www.pulumi.com/docs/iac/extending-pulumi/schema/"""


def replacing(package: Mapping[str, Any], token: str) -> set[str]:
    """Inputs of a resource whose change replaces it, as paths without indexes.

    Raises:
        KeyError: the schema has no such resource.
    """
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
    """What the table lacks, or has in excess, for each type of the schema's provider."""
    for token, row in rows.items():
        if token.partition(":")[0] != package["name"]:
            continue
        if token not in package["resources"]:
            yield f"{token}: not in the schema"
            continue
        marked = replacing(package, token)
        yield from (f"{token}: {path} replaces it; add it" for path in sorted(marked) if not row.forces([path]))
        for path in row.replaces:
            if not any(f"{path}.".startswith(f"{field}.") or _includes(path, field) for field in marked):
                yield f"{token}: {path} is not marked in the schema; remove it, or say why it is there"


def _includes(path: str, field: str) -> bool:
    return path.endswith(".*") and field.startswith(path.removesuffix("*"))


if __name__ == "__main__":
    found = list(differences(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), cloud_types()))
    print("\n".join(found) or "replacements.yaml has what the schema marks")
    sys.exit(bool(found))
