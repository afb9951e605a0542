"""Validates the settings of a policy as `pulumi preview` does, with messages of this project."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

_ROOT: Final = "value"
"""Place of a value that has no key."""


def violations(schema: Mapping[str, Any], value: Any, at: str = "") -> list[str]:
    """The violations of a schema by a value, in the order of their places; empty if the value is valid.

    The Pulumi CLI validates with gojsonschema, whose default is a mix of drafts 4, 6 and 7, with formats:
    `validatePolicyConfig` in pkg/resource/analyzer/config.go of pulumi/pulumi. Formats that need a further package,
    such as `date-time` and `uri`, are not checked here.

    Args:
        schema: of the value, in draft 7. References to other documents are not read: a preview needs no network.
        value: as read from JSON.
        at: the place of the value, such as `image-registries.registries`.

    Returns:
        texts such as `few-jobs.most: -1 must be at least 0`. An invalid schema is also a violation.
    """
    try:
        Draft7Validator.check_schema(schema)
        validator = Draft7Validator(schema, registry=Registry(), format_checker=Draft7Validator.FORMAT_CHECKER)
        errors: list[ValidationError] = sorted(validator.iter_errors(value), key=_position)  # pyright: ignore[reportUnknownMemberType] - the stubs have an untyped overload
        mistyped = {error.json_path for error in errors if error.validator == "type"}
        shown = (error for error in errors if error.validator == "type" or error.json_path not in mistyped)
        return list(dict.fromkeys(text for error in shown for text in _texts(error, at)))
    except (SchemaError, Unresolvable, re.error) as error:
        reason = error.message if isinstance(error, SchemaError) else str(error)
        return [f"{at or _ROOT}: the policy's schema is invalid: {reason}; report it to the pack owner"]


def _position(error: ValidationError) -> list[tuple[int, str]]:
    """Sort key: places by their names, list items by their numbers."""
    return [(part, "") if isinstance(part, int) else (0, part) for part in error.absolute_path]


def _texts(error: ValidationError, at: str) -> Iterator[str]:
    """The violation as text, one for each key that it is about."""
    path = [*([at] if at else []), *(str(part) for part in error.absolute_path)]
    if error.validator in _KEYS:
        keys, problem = _KEYS[error.validator]
        yield from (f"{'.'.join([*path, key])}: {problem}" for key in keys(error))
    else:
        yield f"{'.'.join(path) or _ROOT}: {_problem(error)}"


_MUST: Final[Mapping[object, str]] = {
    "const": "must be {!r}",
    "exclusiveMaximum": "must be less than {:.15g}",
    "exclusiveMinimum": "must be more than {:.15g}",
    "format": "must match {}",
    "maxItems": "must have at most {:.15g} items",
    "maxLength": "must have at most {:.15g} characters",
    "maximum": "must be at most {:.15g}",
    "minItems": "must have at least {:.15g} items",
    "minLength": "must have at least {:.15g} characters",
    "minimum": "must be at least {:.15g}",
    "pattern": "must match {}",
}
"""Texts of keywords with one value."""


def _problem(error: ValidationError) -> str:
    """The value and what it must be; the library's text for a rare keyword."""
    value: Any = error.instance
    expected: Any = error.validator_value
    if error.validator in _MUST:
        return f"{value!r} {_MUST[error.validator].format(expected)}"
    match error.validator:
        case "type":
            types = expected if isinstance(expected, str) else " or ".join(expected)
            return f"{value!r} must be of type {types}"
        case "enum":
            return f"{value!r} must be one of {', '.join(str(choice) for choice in expected)}"
        case "anyOf" | "oneOf":
            return f"{value!r} matches {'none' if error.context else 'more than one'} of the allowed types"
        case _:
            return error.message


def _missing(error: ValidationError) -> list[str]:
    required: Any = error.validator_value
    value: Any = error.instance
    return [key for key in required if key not in value]


def _additional(error: ValidationError) -> list[str]:
    """Keys that neither `properties` nor `patternProperties` allow."""
    schema = cast("Mapping[str, Any]", error.schema)
    patterns: list[str] = list(schema.get("patternProperties", ()))
    known = schema.get("properties", {})
    value: Any = error.instance
    return [key for key in value if key not in known and not any(re.search(pattern, key) for pattern in patterns)]


_KEYS: Final[Mapping[object, tuple[Callable[[ValidationError], list[str]], str]]] = {
    "required": (_missing, "required setting is missing"),
    "additionalProperties": (_additional, "unknown setting"),
}
"""Violations whose place is a key of the value, not the value."""
