"""Writes docs/policies.md from the rules themselves: `make facts`."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pulumi_policy import EnforcementLevel

import cloud_rules
import workload_rules
import workload_rules.pods
from rule_engine import Pack, read_table
from rule_engine.evaluator import Evaluator
from rule_engine.rules import AnyRule

_FOLDER: Final = Path(__file__).parent
PAGE: Final = _FOLDER.parent / "docs" / "policies.md"
PACKS: Final[Mapping[str, Pack]] = {"workloads": workload_rules.PACK, "clouds": cloud_rules.PACK}
"""Packs by the name of their folder."""
SETS: Final = ("dev", "prod")
_MANY: Final = 4  # minimum number of rules for a shared setting to be described once, at the top of its pack
_SHORT: Final = 24  # maximum length of a default in the first table
_WIDE: Final = 100  # maximum length of a default that is shown as JSON


@dataclass(frozen=True, slots=True)
class Form:
    """A form in which a program can have an object, from `forms.yaml`; `is_silent` if all rules are."""

    title: str
    evaluated: str
    silent: Mapping[str, list[str]]
    is_silent: bool

    @property
    def rules(self) -> list[str]:
        """The rules that report nothing of a violation."""
        return [name for names in self.silent.values() for name in names]


FORMS: Final = {
    name: Form(row["title"], row["evaluated"], row.get("silent", {}), row.get("silent") == "all")
    for name, row in read_table(_FOLDER / "forms.yaml").items()
}


def read_set(pack: str, name: str) -> dict[str, Any]:
    """A configuration from policy/config."""
    return json.loads((_FOLDER / "config" / f"{pack}-{name}.json").read_text(encoding="utf-8"))


def level(rule: AnyRule, config: Mapping[str, Any]) -> EnforcementLevel:
    """The enforcement level of a rule under a configuration."""
    values = [_object(config.get(name)).get("enforcementLevel", config.get(name)) for name in (rule.name, "all")]
    levels = [value for value in values if isinstance(value, str)]
    return EnforcementLevel(levels[0]) if levels else rule.level


def page() -> str:
    """The whole page."""
    loader = FileSystemLoader(_FOLDER)
    # A page in Markdown, of texts in this repository: nothing to escape.
    pages = Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)  # noqa: S701
    pages.filters |= {"cell": _cell, "code": _code, "short": _short, "value": _value}
    packs = [_pack(folder, pack) for folder, pack in PACKS.items()]
    packs[-1]["not_evaluated"] = list(cloud_rules.coverage.not_evaluated())
    unsearched = workload_rules.pods.UNSEARCHED
    return pages.get_template("policies.md.j2").render(forms=FORMS.values(), unsearched=unsearched, packs=packs)


def _pack(folder: str, pack: Pack) -> dict[str, Any]:
    rules = Evaluator(pack).rules
    # Settings that several rules have in exactly the same form.
    count = Counter((name, json.dumps(schema)) for rule in rules for name, schema in rule.schema().items())
    often = sorted((name, text) for (name, text), times in count.items() if times >= _MANY)
    common = {name: json.loads(text) for name, text in often}
    sets = [read_set(folder, name) for name in SETS]
    rows = [_rule(rule, common, sets) for rule in rules]
    return {"folder": folder, "pack": pack, "common": common, "rules": rows, "not_evaluated": list[str]()}


def _rule(rule: AnyRule, common: Mapping[str, Any], sets: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A rule for the page: its own settings, settings that a set configures too, and its levels."""
    dev, prod = sets
    schemas = rule.schema()
    own = {name: schema for name, schema in schemas.items() if common.get(name) != schema}
    configured = [_object(config.get(rule.name)) for config in (dev, prod)]
    shown = {name: schema for name, schema in schemas.items() if name in own or any(name in one for one in configured)}
    return {
        "rule": rule,
        "dev": level(rule, dev),
        "prod": level(rule, prod),
        "own": own,
        "shown": shown,
        "shared": [name for name in schemas if name not in shown],
        "configured": configured,
    }


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _short(default: object) -> str:
    value = _value(default)
    return f": {value.strip('`')}" if len(value) <= _SHORT else ""


def _value(value: object) -> str:
    """A default or a setting as JSON."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= _WIDE or not isinstance(value, list):
        return f"`{_cell(text)}`"
    return _code(cast("list[str]", value))


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
