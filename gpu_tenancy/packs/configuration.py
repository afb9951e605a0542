"""A pack's configuration: the JSON file for `pulumi preview --policy-pack-config`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from google.protobuf.json_format import MessageToDict
from pulumi.runtime.proto import analyzer_pb2 as wire

from gpu_tenancy.base.bounds import check_values, read_json
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.packs.schemas import violations

LEVELS: Final[Mapping[str, int]] = {
    "advisory": wire.ADVISORY,
    "mandatory": wire.MANDATORY,
    "disabled": wire.DISABLED,
    "remediate": wire.REMEDIATE,
}
_ALL: Final = "all"
_ENVIRONMENTS: Final = "environments"
"""Key for names of Pulumi ESC environments beside the rules; only the Pulumi CLI opens them."""


@dataclass(frozen=True, slots=True)
class RuleConfig:
    """One rule's level (None: unchanged) and settings."""

    level: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


def read_config(file: Path) -> dict[str, RuleConfig]:
    """Reads a file: `{"rule": "mandatory" | {"enforcementLevel": …, setting: …}, "all": …}`.

    Raises:
        ConsoleError: the file does not exist, or does not have that form.
    """
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
    if not _are_strings(rules.get(_ENVIRONMENTS, [])):
        raise ConsoleError(f"{file}: {_ENVIRONMENTS}: not a list of strings", "list names of Pulumi ESC environments")
    return {name: _rule(file, name, value) for name, value in rules.items() if name != _ENVIRONMENTS}


def _are_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in cast("list[object]", value))


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


def reconciled(info: wire.AnalyzerInfo, given: Mapping[str, RuleConfig], where: str) -> wire.ConfigureAnalyzerRequest:
    """The configuration that the engine sends to a pack: the level and settings of every rule, defaults included.

    `all` sets the level of each rule that has no level of its own: pkg/resource/analyzer/config.go in pulumi/pulumi,
    `ReconcilePolicyPackConfig`. Unlike there, an unknown rule is an error.

    Args:
        info: the pack's description of itself.
        given: the result of `read_config`.
        where: the file, for errors.

    Raises:
        ConsoleError: with all unknown rules, and all settings that their schemas do not allow.
    """
    rules = {rule.name: rule for rule in info.policies}
    configs: dict[str, RuleConfig] = {name: _default(rule) for name, rule in rules.items()}
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
        schema = {"type": "object", **MessageToDict(rule.configSchema)}
        problems += violations(schema, dict(configs[name].settings), name)
    if problems:
        raise ConsoleError(f"{where}: {'; '.join(problems)}", "fix the configuration")
    request = wire.ConfigureAnalyzerRequest()
    for name, config in configs.items():
        request.policyConfig[name].enforcementLevel = config.level or wire.ADVISORY  # pyright: ignore[reportAttributeAccessIssue] - an int is what it takes
        request.policyConfig[name].properties.update(dict(config.settings))
    return request


def _default(rule: wire.PolicyInfo) -> RuleConfig:
    schemas: dict[str, Any] = MessageToDict(rule.configSchema.properties)
    return RuleConfig(
        rule.enforcementLevel, {key: schema["default"] for key, schema in schemas.items() if "default" in schema}
    )
