"""Reads the samples of the rules, which `samples/README.md` explains."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, cast

import yaml
from policy_builders import PACKS, UNKNOWN, Sample, resource_of, sample_of, set_field

from rule_engine.rules import AnyRule

Data = dict[str, Any]
Outcome = Literal["allowed", "denied", "unknown"]
RULES: Final[Mapping[str, AnyRule]] = {rule.name: rule for pack in PACKS for rule in pack.rules}
ENDING: Final = "; check again after deployment, or set a literal value"  # the fix of all messages about unknown values
_HERE: Final = Path(__file__).parent
_OUTCOMES: Final[tuple[Outcome, ...]] = ("allowed", "denied", "unknown")
_KEYS_OF_FILE: Final = frozenset({"objects", "settings", *_OUTCOMES})
_KEYS_OF_CASE: Final = frozenset({"name", "objects", "settings", "message", "messages"})


@dataclass(frozen=True, slots=True)
class Case:
    """A program, and a rule's result for it."""

    rule: AnyRule
    outcome: Outcome
    name: str
    program: Mapping[str, Sample]  # resources by their names in the file
    changes: Mapping[str, Data]  # of each resource, the fields that the case changes
    derived: Mapping[str, Data]  # of each resource, the fields that its object changes of another one
    settings: Data
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Object:
    """An object as written in full, as changed, and the last changes, with those before them."""

    written: Data
    changed: Data
    changes: Data
    before: Data

    def sample(self) -> Sample:
        """A manifest keeps its written type and name, because Pulumi knows them in any case."""
        if "kind" not in self.written:
            return resource_of(_known(self.changed))
        return replace(sample_of(_known(self.written)), props=_known(self.changed))


@cache
def all_cases() -> tuple[Case, ...]:
    files = sorted((_HERE / "samples").glob("*.yaml"))
    return tuple(case for file in files for case in cases_in(file.stem, _read(file)))


def cases_of(rule: str, outcome: Outcome) -> list[Case]:
    return [case for case in all_cases() if (case.rule.name, case.outcome) == (rule, outcome)]


@cache
def shared(name: str) -> Sample:
    return _defined(name, _shared()).sample()


def cases_in(name: str, file: Data) -> Iterator[Case]:
    assert name in RULES, f"{name}.yaml: no rule has this name; rename the file"
    _check(f"{name}.yaml", file, _KEYS_OF_FILE)
    objects = {**_shared(), **file.get("objects", {})}
    for outcome in _OUTCOMES:
        for entry in file.get(outcome, ()):
            yield from _cases(RULES[name], outcome, {"settings": file.get("settings", {}), **entry}, objects)


def _cases(rule: AnyRule, outcome: Outcome, entry: Data, objects: Data) -> Iterator[Case]:
    messages: list[str] = entry.get("messages", [entry["message"]] if "message" in entry else [])
    name = entry["name"] if "name" in entry else messages[0]
    _check(f"{rule.name}.yaml: {name}", entry, _KEYS_OF_CASE)
    objects_of_case: Data | list[Data] = entry["objects"]
    programs = objects_of_case if isinstance(objects_of_case, list) else [objects_of_case]
    for number, program in enumerate(programs, 1):
        made = {key: _object(key, fields or {}, objects) for key, fields in program.items()}
        yield Case(
            rule,
            outcome,
            name if len(programs) == 1 else f"{name} ({number})",
            {key: item.sample() for key, item in made.items()},
            {key: item.changes for key, item in made.items()},
            {key: item.before for key, item in made.items()},
            entry["settings"],
            tuple(messages),
        )


def _check(place: str, fields: Data, known: frozenset[str]) -> None:
    unknown = sorted(fields.keys() - known)
    assert not unknown, f"{place}: unknown keys {', '.join(unknown)}; use {', '.join(sorted(known))}"


def _object(name: str, fields: Data, objects: Data) -> _Object:
    base = fields.get("like", name)
    return _with(_defined(base, objects), fields) if base in objects else _in_full(name, fields)


def _defined(name: str, objects: Data) -> _Object:
    fields = objects[name]
    return _with(_defined(fields["like"], objects), fields) if "like" in fields else _in_full(name, fields)


def _in_full(name: str, fields: Data) -> _Object:
    assert "kind" in fields or "type" in fields, f"unknown object {name}; add it to `objects`, or write it in full"
    written = fields if "kind" in fields else {"name": name, **fields}
    return _Object(written, written, {}, {})


def _with(base: _Object, fields: Data) -> _Object:
    changes = {path: value for path, value in fields.items() if path != "like"}
    changed = deepcopy(base.changed)
    for path, value in changes.items():
        set_field(changed, path, value)
    return _Object(base.written, changed, changes, {**base.before, **base.changes})


def _known(value: Any) -> Any:
    """A value as the engine sends it."""
    if isinstance(value, dict):
        return {key: _known(item) for key, item in cast("Data", value).items()}
    if isinstance(value, list):
        return [_known(item) for item in cast("list[Any]", value)]
    return UNKNOWN if value == "UNKNOWN" else value


@cache
def _shared() -> Data:
    files = sorted((_HERE / "objects").glob("*.yaml"))
    return {name: fields for file in files for name, fields in _read(file).items()}


def _read(file: Path) -> Data:
    return yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)
