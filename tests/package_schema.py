"""Checks values by a Pulumi package schema, as a typed SDK or Pulumi YAML does before it calls the provider.

Source: https://www.pulumi.com/docs/iac/extending-pulumi/schema/
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

_PRIMITIVES = {"boolean": bool, "integer": int, "number": (int, float), "string": str}

Schema = Mapping[str, Any]


def misfits(package: Schema, resource: str, inputs: Mapping[str, Any]) -> list[str]:
    component = package["resources"][resource]
    return list(_object(package, component["inputProperties"], component["requiredInputs"], inputs, ""))


def _object(
    package: Schema, properties: Schema, required: list[str], value: Mapping[str, Any], place: str
) -> Iterator[str]:
    for key in required:
        if key not in value:
            yield f"{place}.{key}: required"
    for key, part in value.items():
        if key not in properties:
            yield f"{place}.{key}: unknown"
        else:
            yield from _value(package, properties[key], part, f"{place}.{key}")


def _value(package: Schema, spec: Schema, value: Any, place: str) -> Iterator[str]:
    if "oneOf" in spec:
        attempts = [list(_value(package, branch, value, place)) for branch in spec["oneOf"]]
        if all(attempts):
            yield from min(attempts, key=len)
    elif "$ref" in spec:
        if spec["$ref"] != "pulumi.json#/Any":
            yield from _named(package, package["types"][spec["$ref"].removeprefix("#/types/")], value, place)
    elif spec["type"] in {"array", "object"}:
        yield from _container(package, spec, value, place)
    elif not isinstance(value, _PRIMITIVES[spec["type"]]) or (isinstance(value, bool) and spec["type"] != "boolean"):
        yield f"{place}: not a {spec['type']}"
    elif value != spec.get("const", value):
        yield f"{place}: not {spec['const']}"


def _container(package: Schema, spec: Schema, value: Any, place: str) -> Iterator[str]:
    if isinstance(value, list) and spec["type"] == "array":
        for index, entry in enumerate(cast("list[Any]", value)):
            yield from _value(package, spec["items"], entry, f"{place}[{index}]")
    elif isinstance(value, dict) and spec["type"] == "object":
        for key, part in cast("dict[str, Any]", value).items():
            yield from _value(package, spec["additionalProperties"], part, f"{place}.{key}")
    else:
        yield f"{place}: not an {spec['type']}"


def _named(package: Schema, spec: Schema, value: Any, place: str) -> Iterator[str]:
    if "enum" in spec:
        if value not in [option["value"] for option in spec["enum"]]:
            yield f"{place}: no value of the enum"
    elif not isinstance(value, dict):
        yield f"{place}: not an object"
    else:
        own = cast("dict[str, Any]", value)
        yield from _object(package, spec["properties"], spec["required"], own, place)
