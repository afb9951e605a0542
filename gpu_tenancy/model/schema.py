"""The JSON schema of a stack's file: for editors, and for the descriptions in errors."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, TypeAlias, cast

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from gpu_tenancy.base.problems import Path
from gpu_tenancy.model.source import SHARED_SECTIONS
from gpu_tenancy.model.spec import NAMESPACE, Stack

Schema: TypeAlias = dict[str, Any]

URI: Final = "https://json-schema.org/draft/2020-12/schema"
SECRET: Final[Schema] = {"type": "object", "properties": {"secure": {"type": "string"}}, "required": ["secure"]}
"""A value that Pulumi encrypted."""


def file_schema() -> Schema:
    """The schema of `stacks/Pulumi.<stack>.yaml`, for validation and completion in editors."""
    sections = _sections()
    file = {"type": "string", "description": "A file beside this one that has the section."}
    return {
        "$schema": URI,
        "title": "A stack of gpu-tenancy",
        "description": "One environment: its cluster, its GPU pools, the teams that share them, and their workloads.",
        "type": "object",
        "required": ["config"],
        "properties": {
            "config": {
                "type": "object",
                # A manager of MultiKueue has them from its workers.
                "anyOf": [
                    {"required": [f"{NAMESPACE}:{key}" for key in sections["required"]]},
                    {"required": [f"{NAMESPACE}:multikueue"]},
                ],
                "properties": {
                    f"{NAMESPACE}:{key}": (
                        {"anyOf": [value, file], "description": value["description"]}
                        if key in SHARED_SECTIONS
                        else value
                    )
                    for key, value in sections["properties"].items()
                },
                "patternProperties": {f"^(?!{NAMESPACE}:)": {}},
                "additionalProperties": False,
            }
        },
        "$defs": {name: _with_secrets(schema) for name, schema in sections["$defs"].items()},
    }


def _with_secrets(section: Schema) -> Schema:
    """Allows encrypted values for the texts of containers; other sections are unchanged."""
    keys = section.get("properties", {})
    if not {"image", "command", "args", "env"} <= set(keys):
        return section

    def or_secret(text: Schema) -> Schema:
        return {"anyOf": [text, SECRET]}

    secret = {
        "image": {**or_secret(keys["image"]), "description": keys["image"]["description"]},
        **{key: {**keys[key], "items": or_secret(keys[key]["items"])} for key in ("command", "args")},
        "env": {**keys["env"], "additionalProperties": or_secret(keys["env"]["additionalProperties"])},
    }
    return {**section, "properties": {**keys, **secret}}


def schema_text() -> str:
    """The schema as the file `stacks/schema.json`."""
    return json.dumps(file_schema(), indent=2, ensure_ascii=False) + "\n"


class _Readable(GenerateJsonSchema):
    """Defaults as a stack writes them: `10m`, not 600."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        described, typed = super().default_schema(schema), cast("Schema", schema["schema"])
        while "serialization" not in typed and "schema" in typed:
            typed = typed["schema"]
        write = typed.get("serialization", {}).get("function")
        if write and (default := described.get("default")) is not None:
            described["default"] = write(default)
        return described


@cache
def _sections() -> Schema:
    return Stack.model_json_schema(by_alias=True, schema_generator=_Readable)


def _choices(schema: Schema) -> Iterator[Schema]:
    """The schema with its reference resolved, and each branch of a union."""
    if "$ref" in schema:
        yield from _choices(_sections()["$defs"][schema["$ref"].rpartition("/")[2]])
    yield schema
    for branch in (*schema.get("anyOf", []), *schema.get("oneOf", [])):
        yield from _choices(branch)


def _children(around: Schema, part: str | int) -> Iterator[Schema]:
    for choice in _choices(around):
        if branch := choice.get("discriminator", {}).get("mapping", {}).get(part):
            yield {"$ref": branch}
        child = choice.get("items") if isinstance(part, int) else choice.get("properties", {}).get(part)
        by_pattern: list[Any] = [choice.get("additionalProperties"), *choice.get("patternProperties", {}).values()]
        for schema in [child] if child else by_pattern:
            if isinstance(schema, dict):
                yield cast("Schema", schema)


def _at(path: Path) -> list[Schema]:
    schemas = [_sections()]
    for part in path:
        schemas = [child for schema in schemas for child in _children(schema, part)]
    return schemas


def is_described(path: Path) -> bool:
    """Whether the schema has a place, which can name the branch of a union: `("cluster", "aws", "create")`."""
    return bool(_at(path))


def known_keys(path: Path) -> list[str]:
    """The valid keys at a place of a stack."""
    return sorted({key for schema in _at(path) for choice in _choices(schema) for key in choice.get("properties", {})})


def meaning(path: Path) -> str:
    """The first sentence of the description of a place; empty without one."""
    for schema in _at(path):
        for choice in (schema, *_choices(schema)):
            if "description" in choice:
                return str(choice["description"]).replace("\n", " ").split(". ")[0].rstrip(".").split("; ")[0]
    return ""


def example(path: Path, plain: str) -> str:
    """A mapping with the required keys of a place, or else with its first key, whose value is `plain` if it can be."""
    for schema in _at(path):
        for choice in _choices(schema):
            keys: Schema = choice.get("properties", {})
            if names := choice.get("required") or [*keys][:1]:
                alone = len(names) == 1 and re.search(keys[names[0]].get("pattern", "$^"), plain)
                values = [keys[name].get("const", plain if alone else "…") for name in names]
                return f"{{{', '.join(f'{name}: {value}' for name, value in zip(names, values, strict=True))}}}"
    return "{NAME: …}"
