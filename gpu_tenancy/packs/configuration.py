"""The pack of the option `--policy`, and its configuration: the JSON file of `pulumi preview --policy-pack-config`."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from google.protobuf.json_format import MessageToDict
from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError, ValidationError
from pulumi.runtime.proto import analyzer_pb2 as wire
from referencing import Registry
from referencing.exceptions import Unresolvable

import gpu_tenancy
from gpu_tenancy.base.bounds import check_values, read_json
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.model.spec import Stack

LEVELS: Final[Mapping[str, int]] = {
    name: wire.EnforcementLevel.Value(name.upper()) for name in ("advisory", "mandatory", "disabled", "remediate")
}
_ALL: Final = "all"
_ENVIRONMENTS: Final = "environments"  # names of Pulumi ESC environments; only the Pulumi CLI opens them
_ROOT: Final = "value"  # place of a value that has no key
_PACKAGE: Final = Path(gpu_tenancy.__file__).parent
_SHIPPED: Final = _PACKAGE / "policy" if (_PACKAGE / "policy").is_dir() else _PACKAGE.parent / "policy"
"""The packs of this package: beside its modules if installed, else at the top of the repository."""


@dataclass(frozen=True, slots=True)
class PackChoice:
    """A pack's folder, and its configuration file, if any."""

    folder: Path
    config: Path | None = None
    stack: Stack | None = field(default=None, compare=False)  # whose namespace of Prometheus it gets


def shipped_sets() -> list[Path]:
    """The settings files of these packs: for each pack one for development and one for production."""
    return sorted((_SHIPPED / "config").glob("*.json"))


def pack_names(project: Path) -> list[str]:
    """The packs that need no folder: in the project's `policy/`, and in this package."""
    return sorted({file.parent.name for folder in _places(project) for file in folder.glob("*/PulumiPolicy.yaml")})


def _places(project: Path) -> tuple[Path, Path]:
    return (project / "policy", _SHIPPED)


def choose(text: str, project: Path, *, production: bool) -> PackChoice:
    """A pack from `folder`, `folder=config.json`, or the name of a pack. Raises ConsoleError for a missing folder.

    A pack by name gets the configuration set in `policy/config` for production or development, unless a file is named.
    """
    place, separator, config = text.partition("=")
    given = Path(config) if separator else None
    if place in pack_names(project):
        name = f"{place}-{'prod' if production else 'dev'}.json"
        packs = (folder / place for folder in _places(project))
        sets = (folder / "config" / name for folder in _places(project))
        pack = next(folder for folder in packs if (folder / "PulumiPolicy.yaml").is_file())
        return PackChoice(pack, given or next((file for file in sets if file.is_file()), None))
    folder = Path(place)
    if not place or not folder.is_dir():
        known = ", ".join(pack_names(project))
        raise ConsoleError(f"policy pack {place!r} does not exist", f"specify its folder, or one of: {known}")
    return PackChoice(folder, given)


def choose_in_copy(text: str, copy: Path, moved: Callable[[Path], Path], *, production: bool) -> PackChoice | None:
    """The pack that `choose` selects in a copy of the project at another git ref; None if the copy lacks the pack.

    `moved` returns the path in the copy of a project path, and all other paths unchanged. `production` is the copy's.
    """
    try:
        chosen = choose(text, copy, production=production)
    except ConsoleError:
        return None
    folder, config = moved(chosen.folder), chosen.config and moved(chosen.config)
    if not (folder / "PulumiPolicy.yaml").is_file():
        return None
    return PackChoice(folder, config if config and config.is_file() else None)


@dataclass(frozen=True, slots=True)
class RuleConfig:
    """One rule's level (None: unchanged) and settings."""

    level: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


def read_config(file: Path) -> dict[str, RuleConfig]:
    """Reads `{"rule": "mandatory" | {"enforcementLevel": …, setting: …}, "all": …}`; else raises ConsoleError."""
    if not file.is_file():
        raise ConsoleError(f"policy configuration {file} does not exist", "specify a JSON file")
    try:
        text = file.read_text(encoding="utf-8")
        given: object = read_json(text) if text.strip() else {}
    except ValueError as error:
        raise ConsoleError(f"{file}: not valid JSON: {error}", "fix the JSON syntax") from error
    if not isinstance(given, dict):
        raise ConsoleError(f"{file}: not a JSON object", "use rule names as keys")
    check_values(file, given)
    rules = cast("dict[str, object]", given)
    environments = rules.get(_ENVIRONMENTS, [])
    if not isinstance(environments, list) or not all(
        isinstance(name, str) for name in cast("list[object]", environments)
    ):
        raise ConsoleError(f"{file}: {_ENVIRONMENTS}: not a list of strings", "list names of Pulumi ESC environments")
    return {name: _rule(file, name, value) for name, value in rules.items() if name != _ENVIRONMENTS}


def _rule(file: Path, name: str, given: object) -> RuleConfig:
    if isinstance(given, str):
        return RuleConfig(_level(file, name, given))
    if not isinstance(given, dict):
        raise ConsoleError(
            f"{file}: {name}: {given!r} is not a level or an object", "set a level, or an object with settings"
        )
    settings = dict(cast("dict[str, Any]", given))
    level = _level(file, name, settings.pop("enforcementLevel")) if "enforcementLevel" in settings else None
    return RuleConfig(level, settings)


def _level(file: Path, name: str, given: object) -> int:
    if not isinstance(given, str) or given not in LEVELS:
        raise ConsoleError(f"{file}: {name}: {given!r} is not an enforcement level", f"set one of {', '.join(LEVELS)}")
    return LEVELS[given]


def reconciled(
    info: wire.AnalyzerInfo, given: Mapping[str, RuleConfig], where: str, stack: Stack | None = None
) -> wire.ConfigureAnalyzerRequest:
    """The configuration that the engine sends to a pack: the level and settings of every rule, defaults included.

    `all` sets the level of each rule that has none: pkg/resource/analyzer/config.go in pulumi/pulumi,
    `ReconcilePolicyPackConfig`. Unlike there, an unknown rule is an error. `where` is the file, for errors. Raises
    ConsoleError with all unknown rules, and all settings that their schemas do not allow.
    """
    rules = {rule.name: rule for rule in info.policies}
    configs: dict[str, RuleConfig] = {}
    for name, rule in rules.items():
        schemas: dict[str, Any] = MessageToDict(rule.configSchema.properties)
        defaults = {key: schema["default"] for key, schema in schemas.items() if "default" in schema}
        configs[name] = RuleConfig(rule.enforcementLevel, defaults)
    for name, initial in info.initialConfig.items():
        merged = configs.get(name, RuleConfig())
        configs[name] = RuleConfig(initial.enforcementLevel, {**merged.settings, **MessageToDict(initial.properties)})
    problems = [f"unknown rule {name!r}; {nearest(name, rules)}" for name in given if name not in {_ALL, *rules}]
    if (everywhere := given.get(_ALL, RuleConfig()).level) is not None:
        configs = {name: replace(config, level=everywhere) for name, config in configs.items()}
    for name, own in given.items():
        if name in rules:
            level = configs[name].level if own.level is None else own.level
            configs[name] = RuleConfig(level, {**configs[name].settings, **own.settings})
    for name, rule in rules.items():
        listed = configs[name].settings.get("platform")
        if stack and info.name == "gpu-workloads" and isinstance(listed, list):
            named = [*cast("list[str]", listed), stack.metrics.prometheus.namespace]
            configs[name] = replace(configs[name], settings={**configs[name].settings, "platform": named})
        schema = {"type": "object", **MessageToDict(rule.configSchema)}
        problems += violations(schema, dict(configs[name].settings), name)
    if problems:
        raise ConsoleError(f"{where}: {'; '.join(problems)}", "fix the configuration")
    request = wire.ConfigureAnalyzerRequest()
    for name, config in configs.items():
        request.policyConfig[name].enforcementLevel = config.level or wire.ADVISORY  # pyright: ignore[reportAttributeAccessIssue] - an int is what it takes
        request.policyConfig[name].properties.update(dict(config.settings))
    return request


def violations(schema: Mapping[str, Any], value: Any, at: str = "") -> list[str]:
    """The violations of a schema (draft 7) by a JSON value, in order: `few-jobs.most: -1 must be at least 0`.

    The Pulumi CLI validates with gojsonschema, a mix of drafts 4, 6 and 7 with formats: `validatePolicyConfig` in
    pkg/resource/analyzer/config.go of pulumi/pulumi. Not checked: formats that need a further package, such as
    `date-time` and `uri`, and references to other documents. An invalid schema is also a violation. `at` is the value's
    place.
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
    path = [*([at] if at else []), *(str(part) for part in error.absolute_path)]
    if error.validator in _KEYS:
        keys, problem = _KEYS[error.validator]
        yield from (f"{'.'.join([*path, key])}: {problem}" for key in keys(error))
    else:
        yield f"{'.'.join(path) or _ROOT}: {_problem(error)}"


_MUST: Final[Mapping[object, str]] = {  # texts of keywords with one value
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


def _problem(error: ValidationError) -> str:
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
