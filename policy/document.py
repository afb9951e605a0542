"""Writes docs/policies.md from the rules themselves: `make policies`."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import cloud_rules
import workload_rules
from judge import EnforcementLevel, Pack
from judge.rules import AnyRule
from judge.verdicts import Court

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "policies.md"
PACKS: Final[Mapping[str, Pack]] = {"workloads": workload_rules.PACK, "clouds": cloud_rules.PACK}
"""Packs by the name of their folder."""
SETS: Final = ("dev", "prod")
_MANY: Final = 4
"""Rules from which on a setting that they share is described once, at the top of its pack."""
_SHORT: Final = 24
"""Letters up to which a default stands in the first table."""
_WIDE: Final = 100
"""Letters up to which a default stands in a table as it is."""

_HEAD: Final = Path(__file__).with_suffix(".md")
"""What the page says before its tables."""


def read_set(pack: str, name: str) -> dict[str, Any]:
    """An organisation's configuration out of policy/config; empty where there is none."""
    file = ROOT / "policy" / "config" / f"{pack}-{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def level(rule: AnyRule, given: Mapping[str, Any]) -> EnforcementLevel:
    """How a rule is enforced under a configuration."""
    said = [_object(given.get(name)).get("enforcementLevel", given.get(name)) for name in (rule.name, "all")]
    levels = [each for each in said if isinstance(each, str)]
    return EnforcementLevel(levels[0]) if levels else rule.level


def page() -> str:
    """The whole page."""
    parts = [_HEAD.read_text(encoding="utf-8")]
    for folder, pack in PACKS.items():
        sets = {name: read_set(folder, name) for name in SETS}
        rules = Court(pack).rules
        parts += _pack(folder, pack, rules, sets)
    return "\n".join(parts).rstrip() + "\n"


def _pack(folder: str, pack: Pack, rules: Iterable[AnyRule], sets: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    listed = list(rules)
    common = _common(listed)
    yield f"## Pack `{folder}`: {pack.name} {pack.version}\n"
    yield f"{pack.description} {len(listed)} rules.\n"
    yield "| rule | what must hold | severity | default | dev | prod | settings |\n|---|---|---|---|---|---|---|"
    for rule in listed:
        levels = " | ".join(level(rule, sets[name]).value for name in SETS)
        link = f"[`{rule.name}`](#{folder}-{rule.name})"
        settings = ", ".join(_short(name, each) for name, each in rule.schema().items() if common.get(name) != each)
        yield f"| {link} | {_cell(rule.says)} | {rule.severity.value} | {rule.level.value} | {levels} | {settings} |"
    if common:
        yield "\nSettings that many rules of this pack have:\n"
        yield "| setting | says | default |\n|---|---|---|"
        for name, schema in common.items():
            yield f"| `{name}` | {_cell(schema.get('description', ''))} | {_value(schema.get('default'))} |"
    for rule in listed:
        yield from _rule(folder, rule, common, sets)


def _rule(
    folder: str, rule: AnyRule, common: Mapping[str, Mapping[str, Any]], sets: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    yield f'\n<a id="{folder}-{rule.name}"></a>\n### `{rule.name}`\n'
    more = ["about " + rule.on.name, "looks at the whole stack" if rule.whole else "looks at one resource"]
    more += ["has a remedy"] if rule.remedy else []
    yield f"{rule.says} *{rule.severity.value.capitalize()}; {'; '.join(more)}.*\n"
    yield f"- Why: {rule.why}\n- Mend: {rule.mend}\n- More: <{rule.link}>"
    own = {name: schema for name, schema in rule.schema().items() if common.get(name) != schema}
    given = {name: _settings(rule, sets[name]) for name in SETS}
    shown = {name: schema for name, schema in rule.schema().items() if name in own or _set(name, given)}
    if shown:
        yield "\n| setting | says | default | dev | prod |\n|---|---|---|---|---|"
    for name, schema in shown.items():
        values = " | ".join(_value(given[each][name]) if name in given[each] else "" for each in SETS)
        yield f"| `{name}` | {_cell(schema.get('description', ''))} | {_value(schema.get('default'))} | {values} |"
    shared = [f"`{name}`" for name in rule.schema() if name not in shown]
    if shared:
        yield f"\nAlso {', '.join(shared)}, as above."


def _set(name: str, given: Mapping[str, Mapping[str, Any]]) -> bool:
    return any(name in each for each in given.values())


def _settings(rule: AnyRule, given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in _object(given.get(rule.name)).items() if key != "enforcementLevel"}


def _object(value: object) -> dict[str, Any]:
    """An object of JSON; an empty one in place of anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _common(rules: Iterable[AnyRule]) -> dict[str, dict[str, Any]]:
    """Settings that many rules have, word for word the same."""
    schemas = [(name, schema) for rule in rules for name, schema in rule.schema().items()]
    count = Counter((name, json.dumps(schema, sort_keys=True)) for name, schema in schemas)
    often = {name: text for (name, text), times in count.most_common() if times >= _MANY}
    return {name: json.loads(text) for name, text in sorted(often.items())}


def _cell(text: str) -> str:
    """Text within a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _short(name: str, schema: Mapping[str, Any]) -> str:
    """A setting with its default, where that is a word or two."""
    value = _value(schema.get("default"))
    return f"`{name}: {value.strip('`')}`" if len(value) <= _SHORT else f"`{name}`"


def _value(value: object) -> str:
    """A default or a setting as one would write it in JSON."""
    if value in (None, "", [], {}):
        return "none" if value is None else f"`{json.dumps(value)}`"
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= _WIDE or not isinstance(value, list):
        return f"`{_cell(text)}`"
    return ", ".join(f"`{each}`" for each in cast("list[str]", value))


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
