"""Definitions as the embedded platform installs them: without descriptions, which are most of a large schema.

The API server encodes, compares and validates a definition a dozen times until it is served.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from gpu_tenancy.base.writing import write_text
from gpu_tenancy.embedded.definitions.pins import Pin
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.model.yaml import read_table

_FORM: Final = 1
"""Of the copies; another number where other fields are left out."""
_BY_NAME: Final = frozenset({"properties", "patternProperties", "definitions"})
"""Fields of a schema whose keys are names, not fields of schemas."""


def reduced(pin: Pin, file: Path, cache: Path) -> Manifest:
    """A definition without descriptions, status and conversion.

    Conversion needs the operator's webhook, which is not installed yet; objects are stored without conversion.

    Args:
        pin: of the definition.
        file: with its content, which was verified.
        cache: folder for a copy in JSON, since YAML takes seconds to read for all operators.
    """
    copy = cache / "definitions" / f"reduced-{_FORM}" / f"{pin.sha256}.json"
    with suppress(OSError, ValueError):
        return cast("Manifest", json.loads(copy.read_bytes()))
    definition = read_table(file)
    definition.pop("status", None)
    definition["spec"].pop("conversion", None)
    for version in definition["spec"]["versions"]:
        version["schema"] = without_descriptions(version["schema"])
    unfinished = copy.with_suffix(f".{os.getpid()}")  # another process may write the same copy
    write_text(unfinished, json.dumps(definition, separators=(",", ":")))
    unfinished.replace(copy)
    return definition


def without_descriptions(schema: Any) -> Any:
    """A schema, or a list or other part of one, without the descriptions in it."""
    if isinstance(schema, list):
        return [without_descriptions(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    fields = cast("Mapping[str, Any]", schema)
    return {
        field: {name: without_descriptions(one) for name, one in value.items()}
        if field in _BY_NAME
        else without_descriptions(value)
        for field, value in fields.items()
        if field != "description"
    }
