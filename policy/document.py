"""Writes docs/policies.md from the rules themselves: `make facts`."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import yaml
from pulumi_policy import EnforcementLevel

import cloud_rules
import workload_rules
import workload_rules.pods
from rule_engine import Pack
from rule_engine.evaluator import Evaluator
from rule_engine.rules import AnyRule

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "policies.md"
PACKS: Final[Mapping[str, Pack]] = {"workloads": workload_rules.PACK, "clouds": cloud_rules.PACK}
"""Packs by the name of their folder."""
NOT_EVALUATED: Final[Mapping[str, Callable[[], Iterator[str]]]] = {"clouds": cloud_rules.not_evaluated}
"""What a pack reports as not evaluated, by the name of its folder: items of a list."""
SETS: Final = ("dev", "prod")


@dataclass(frozen=True, slots=True)
class Form:
    """A form in which a program can have an object.

    Attributes:
        title: its name on the page.
        evaluated: what rules see of the object.
        silent: the rules that report nothing of a violation, by the reason.
        is_silent: whether that is every rule.
    """

    title: str
    evaluated: str
    silent: Mapping[str, list[str]]
    is_silent: bool

    @property
    def rules(self) -> list[str]:
        """The rules that report nothing of a violation."""
        return [name for names in self.silent.values() for name in names]


def _forms() -> dict[str, Form]:
    rows: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("forms.yaml").read_bytes())
    return {
        name: Form(row["title"], row["evaluated"], _object(row.get("silent")), row.get("silent") == "all")
        for name, row in rows.items()
    }


_MANY: Final = 4
"""Minimum number of rules for a shared setting to be described once, at the top of its pack."""
_SHORT: Final = 24
"""Maximum length of a default in the first table."""
_WIDE: Final = 100
"""Maximum length of a default that is shown as JSON."""

_HEAD: Final = Path(__file__).with_suffix(".md")
"""Introduction of the page, before its tables."""


def read_set(pack: str, name: str) -> dict[str, Any]:
    """A configuration from policy/config; empty if there is none."""
    file = ROOT / "policy" / "config" / f"{pack}-{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def level(rule: AnyRule, config: Mapping[str, Any]) -> EnforcementLevel:
    """The enforcement level of a rule under a configuration."""
    values = [_object(config.get(name)).get("enforcementLevel", config.get(name)) for name in (rule.name, "all")]
    levels = [value for value in values if isinstance(value, str)]
    return EnforcementLevel(levels[0]) if levels else rule.level


def page() -> str:
    """The whole page."""
    groups = "; ".join(f"{reason} ({_code(names)})" for reason, names in workload_rules.pods.UNSEARCHED.items())
    parts = [_HEAD.read_text(encoding="utf-8").replace("UNSEARCHED", groups).replace("FORMS", "\n".join(_table()))]
    for folder, pack in PACKS.items():
        sets = {name: read_set(folder, name) for name in SETS}
        rules = Evaluator(pack).rules
        parts += _pack(folder, pack, rules, sets)
    return "\n".join(parts).rstrip() + "\n"


def _table() -> Iterator[str]:
    yield "| form | rules evaluate | rules that report nothing |\n|---|---|---|"
    for form in FORMS.values():
        silent = [f"{reason}: {_code(names)}" for reason, names in form.silent.items()]
        yield f"| {form.title} | {form.evaluated} | {'all' if form.is_silent else '<br>'.join(silent) or 'none'} |"


def _pack(folder: str, pack: Pack, rules: Iterable[AnyRule], sets: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    listed = list(rules)
    common = _common(listed)
    yield f"## Pack `{folder}`: {pack.name} {pack.version}\n"
    yield f"{pack.description} {len(listed)} rules.\n"
    yield "| rule | requirement | severity | default | dev | prod | settings |\n|---|---|---|---|---|---|---|"
    for rule in listed:
        levels = " | ".join(level(rule, sets[name]).value for name in SETS)
        link = f"[`{rule.name}`](#{folder}-{rule.name})"
        settings = ", ".join(
            _short(name, schema) for name, schema in rule.schema().items() if common.get(name) != schema
        )
        yield f"| {link} | {_cell(rule.title)} | {rule.severity.value} | {rule.level.value} | {levels} | {settings} |"
    if common:
        yield "\nSettings shared by several rules of this pack:\n"
        yield "| setting | description | default |\n|---|---|---|"
        for name, schema in common.items():
            yield f"| `{name}` | {_cell(schema.get('description', ''))} | {_value(schema.get('default'))} |"
    if folder in NOT_EVALUATED:
        yield f'\n<a id="{folder}-not-evaluated"></a>'
        yield "Not evaluated by this pack, and reported by `gpu-machines-evaluated`:\n"
        yield from (f"- {item}." for item in NOT_EVALUATED[folder]())
    for rule in listed:
        yield from _rule(folder, rule, common, sets)


def _rule(
    folder: str, rule: AnyRule, common: Mapping[str, Mapping[str, Any]], sets: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    yield f'\n<a id="{folder}-{rule.name}"></a>\n### `{rule.name}`\n'
    facts = ["checks " + rule.on.name, "evaluated on the whole stack" if rule.whole else "evaluated on each resource"]
    facts += ["supports remediate"] if rule.remedy else []
    yield f"{rule.title} *{rule.severity.value.capitalize()}; {'; '.join(facts)}.*\n"
    yield f"- Why: {rule.rationale}\n- Fix: {rule.fix}\n- Documentation: <{rule.link}>"
    own = {name: schema for name, schema in rule.schema().items() if common.get(name) != schema}
    settings_by_set = {name: _settings(rule, sets[name]) for name in SETS}
    shown = {
        name: schema for name, schema in rule.schema().items() if name in own or _is_configured(name, settings_by_set)
    }
    if shown:
        yield "\n| setting | description | default | dev | prod |\n|---|---|---|---|---|"
    for name, schema in shown.items():
        values = " | ".join(
            _value(settings_by_set[environment][name]) if name in settings_by_set[environment] else ""
            for environment in SETS
        )
        yield f"| `{name}` | {_cell(schema.get('description', ''))} | {_value(schema.get('default'))} | {values} |"
    shared = [f"`{name}`" for name in rule.schema() if name not in shown]
    if shared:
        yield f"\nShared settings: {', '.join(shared)}."


def _is_configured(name: str, settings_by_set: Mapping[str, Mapping[str, Any]]) -> bool:
    return any(name in settings for settings in settings_by_set.values())


def _settings(rule: AnyRule, config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in _object(config.get(rule.name)).items() if key != "enforcementLevel"}


def _object(value: object) -> dict[str, Any]:
    """A JSON object; an empty one instead of any other value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _common(rules: Iterable[AnyRule]) -> dict[str, dict[str, Any]]:
    """Settings that several rules have in exactly the same form."""
    schemas = [(name, schema) for rule in rules for name, schema in rule.schema().items()]
    count = Counter((name, json.dumps(schema, sort_keys=True)) for name, schema in schemas)
    often = {name: text for (name, text), times in count.most_common() if times >= _MANY}
    return {name: json.loads(text) for name, text in sorted(often.items())}


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _short(name: str, schema: Mapping[str, Any]) -> str:
    value = _value(schema.get("default"))
    return f"`{name}: {value.strip('`')}`" if len(value) <= _SHORT else f"`{name}`"


def _value(value: object) -> str:
    """A default or a setting as JSON."""
    if value in (None, "", [], {}):
        return "none" if value is None else f"`{json.dumps(value)}`"
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= _WIDE or not isinstance(value, list):
        return f"`{_cell(text)}`"
    return ", ".join(f"`{item}`" for item in cast("list[str]", value))


FORMS: Final = _forms()
"""The forms by name, from `forms.yaml`."""


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
