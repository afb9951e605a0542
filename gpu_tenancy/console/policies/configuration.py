"""How an organisation configures a pack: the JSON file that `pulumi preview --policy-pack-config` takes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from google.protobuf.json_format import MessageToDict
from pulumi.runtime.proto import analyzer_pb2 as wire

from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.policies.schemas import wrong
from gpu_tenancy.model.problems import nearest

LEVELS: Final[Mapping[str, int]] = {
    "advisory": wire.ADVISORY,
    "mandatory": wire.MANDATORY,
    "disabled": wire.DISABLED,
    "remediate": wire.REMEDIATE,
}
_ALL: Final = "all"
_ENVIRONMENTS: Final = "environments"
"""Names of Pulumi ESC environments, which a file may have beside its rules; only the CLI opens them."""


@dataclass(frozen=True, slots=True)
class RuleConfig:
    """One rule's level (None: as it is) and settings."""

    level: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


def read_config(file: Path) -> dict[str, RuleConfig]:
    """Reads a file: `{"rule": "mandatory" | {"enforcementLevel": …, setting: …}, "all": …}`.

    Raises:
        ConsoleError: there is none, or it is not of that form.
    """
    if not file.is_file():
        raise ConsoleError(f"there is no configuration {file}", "name a JSON file")
    text = file.read_text(encoding="utf-8")
    if not text.strip():
        return {}
    try:
        given: Any = json.loads(text)
    except ValueError as error:
        raise ConsoleError(f"{file} is no JSON: {error}", "mend it") from error
    if not isinstance(given, dict):
        raise ConsoleError(f"{file} is no JSON object", "write rules by name")
    rules = cast("dict[str, object]", given)
    return {name: _rule(file, name, each) for name, each in rules.items() if name != _ENVIRONMENTS}


def _rule(file: Path, name: str, given: object) -> RuleConfig:
    if isinstance(given, str):
        return RuleConfig(_level(file, name, given))
    if not isinstance(given, dict):
        raise ConsoleError(f"{file}: {name} is {given!r}", "write a level, or an object with settings")
    settings = dict(cast("dict[str, Any]", given))
    level = settings.pop("enforcementLevel", None)
    return RuleConfig(None if level is None else _level(file, name, level), settings)


def _level(file: Path, name: str, given: object) -> int:
    if not isinstance(given, str) or given not in LEVELS:
        raise ConsoleError(f"{file}: {name}: {given!r} is no level", f"there are {', '.join(LEVELS)}")
    return LEVELS[given]


def reconciled(info: wire.AnalyzerInfo, given: Mapping[str, RuleConfig], where: str) -> wire.ConfigureAnalyzerRequest:
    """What the engine sends to a pack: every rule with its level and settings, defaults where nobody set anything.

    `all` sets the level of each rule that is not named itself: pkg/resource/analyzer/config.go in pulumi/pulumi,
    `ReconcilePolicyPackConfig`. Unlike there, a rule that the pack does not have is an error.

    Args:
        info: what the pack says of itself.
        given: what `read_config` read.
        where: the file, for errors.

    Raises:
        ConsoleError: with every rule that is unknown, and every setting that its schema does not allow.
    """
    rules = {rule.name: rule for rule in info.policies}
    found: dict[str, RuleConfig] = {name: _default(rule) for name, rule in rules.items()}
    for name, each in info.initialConfig.items():
        merged = found.get(name, RuleConfig())
        found[name] = RuleConfig(each.enforcementLevel, {**merged.settings, **MessageToDict(each.properties)})
    problems = [f"there is no rule {name}; {nearest(name, rules)}" for name in given if name not in {_ALL, *rules}]
    if (everywhere := given.get(_ALL, RuleConfig()).level) is not None:
        found = {name: replace(each, level=everywhere) for name, each in found.items()}
    for name, each in given.items():
        if name in rules:
            level = found[name].level if each.level is None else each.level
            found[name] = RuleConfig(level, {**found[name].settings, **each.settings})
    for name, rule in rules.items():
        schema = {"type": "object", **MessageToDict(rule.configSchema)}
        problems += [f"{name}.{each}" for each in wrong(schema, dict(found[name].settings))]
    if problems:
        raise ConsoleError(f"{where}: {'; '.join(problems)}", "mend the configuration")
    request = wire.ConfigureAnalyzerRequest()
    for name, each in found.items():
        request.policyConfig[name].enforcementLevel = each.level or wire.ADVISORY  # pyright: ignore[reportAttributeAccessIssue] - an int is what it takes
        request.policyConfig[name].properties.update(dict(each.settings))
    return request


def _default(rule: wire.PolicyInfo) -> RuleConfig:
    schemas: dict[str, Any] = MessageToDict(rule.configSchema.properties)
    return RuleConfig(
        rule.enforcementLevel, {key: each["default"] for key, each in schemas.items() if "default" in each}
    )
