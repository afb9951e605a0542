"""Rules: a requirement for one kind of part, its rationale, and the fix for a violation."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from inspect import getdoc, signature
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeAlias, TypeVar, cast

import yaml
from pulumi_policy import EnforcementLevel, Severity
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from rule_engine.resources import Placed, Resource, Subject
from rule_engine.stacks import Stack
from rule_engine.values import format_duration


class Settings(BaseModel):
    """The configurable settings of a rule: each field has a default, and its docstring is its description."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


S = TypeVar("S", bound=Placed)
C = TypeVar("C", bound=Settings)
Check: TypeAlias = "Callable[[S, C], Iterable[str]] | Callable[[S, C, Stack], Iterable[str]]"


@dataclass(frozen=True, slots=True)
class Rule(Generic[S, C]):
    """One rule: a requirement (`title`), the consequence of a violation (`rationale`), and how to fix it."""

    name: str
    title: str
    rationale: str
    fix: str
    link: str
    severity: Severity
    level: EnforcementLevel  # the default
    on: Subject[S]
    # A message for each violation of a part, `VALUE problem; fix`, without the place; may raise `UnknownValueError`.
    check: "Check[S, C]"
    settings: type[C]
    whole: bool = False  # whether the check needs the whole stack, which is known only after all resources are
    # Fixes properties if that is safe, at the level `remediate`: takes the type and the properties in the protocol's
    # JSON form (unknown values and secrets marked), changes these in place, and returns whether it did.
    remedy: Callable[[str, dict[str, Any], C], bool] | None = None
    # The fix for resources of a GPU tenancy stack; `{fix}` is the fix of the message, `{duration}` its last number, of
    # seconds. Empty if the fix of the message is right there too.
    stack_fix: str = ""

    def messages(self, part: S, settings: C, stack: Stack) -> Iterable[str]:
        """The violations of one part; violations before an `UnknownValueError` remain valid."""
        check: Callable[..., Iterable[str]] = self.check
        return check(part, settings, stack) if self.whole else check(part, settings)

    def message(self, text: str, resource: Resource) -> str:
        """A message of its check, with the fix for the stack if the resource is part of one."""
        if not self.stack_fix or not resource.of_stack:
            return text
        problem, _, fix = text.partition("; ")
        words = self.stack_fix.replace("{fix}", fix)
        numbers = re.findall(r"\d+", fix)
        return f"{problem}; {words.replace('{duration}', format_duration(Decimal(numbers[-1]))) if numbers else words}"

    def schema(self) -> dict[str, dict[str, Any]]:
        """JSON schema of each setting, by name: without references, as Pulumi requires, and without titles."""
        schemas: dict[str, dict[str, Any]] = self.settings.model_json_schema().get("properties", {})
        for schema in schemas.values():
            schema.pop("title", None)
            schema["description"] = " ".join(schema.get("description", "").split())
        return schemas

    def parse_settings(self, values: Mapping[str, Any]) -> C:
        """Validates the given settings and adds defaults; a `ConfigError` has all errors in them."""
        try:
            return self.settings.model_validate(dict(values))
        except ValidationError as error:
            raise ConfigError("\n".join([self._problem(problem) for problem in error.errors()])) from error

    def _problem(self, problem: ErrorDetails) -> str:
        place = ".".join((self.name, *(str(part) for part in problem["loc"])))
        if problem["type"] == "extra_forbidden":
            known = ", ".join(self.settings.model_fields) or "none"
            return f"{place}: unknown setting; settings of this rule: {known}"
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "value_error":  # of a setting's own check, which names the value
            return f"{place}: {message}"
        return f"{place}: {problem['input']!r}: {message[:1].lower()}{message[1:]}"


AnyRule = Rule[Any, Any]


def read_table(file: Path) -> Any:
    """Reads a YAML file of a pack."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, if PyYAML has it
    return yaml.load(file.read_bytes(), loader)  # noqa: S506 - both are safe ones


@cache
def _texts(folder: Path) -> Mapping[str, Mapping[str, str]]:
    return read_table(folder / "rules.yaml")


def rule(
    name: str, on: Subject[S], *, remedy: Callable[[str, dict[str, Any], Any], bool] | None = None
) -> "Callable[[Check[S, C]], Rule[S, C]]":
    """Makes a rule of its check: a function of a part, the settings and, if it needs the whole stack, a `Stack`.

    The check's docstring is the requirement, and the annotation of its second parameter the type of the settings. All
    other texts are in `rules.yaml` in the folder of its module. `Rule` describes `remedy`.
    """

    def of(check: "Check[S, C]") -> Rule[S, C]:
        _, settings, *stack = signature(check).parameters.values()
        texts = _texts(Path(str(sys.modules[check.__module__].__file__)).parent)[name]
        return Rule(
            name=name,
            title=" ".join((getdoc(check) or "").split()),
            rationale=texts["rationale"],
            fix=texts["fix"],
            link=texts["link"],
            severity=Severity(texts["severity"]),
            level=EnforcementLevel(texts["level"]),
            on=on,
            check=check,
            settings=settings.annotation,
            whole=bool(stack),
            remedy=remedy,
            stack_fix=texts.get("stack_fix", ""),
        )

    return of


def rules_of(*modules: ModuleType) -> tuple[AnyRule, ...]:
    """The rules of some modules of one folder, in the order of its `rules.yaml`."""
    values: Iterable[object] = (value for module in modules for value in vars(module).values())
    defined = [cast("AnyRule", value) for value in values if isinstance(value, Rule)]
    rules = {rule.name: rule for rule in defined}
    return tuple(rules[name] for name in _texts(Path(str(modules[0].__file__)).parent) if name in rules)


class ConfigError(ValueError):
    """A pack's configuration is invalid; the text has rule, setting, value and fix."""


@dataclass(frozen=True, slots=True)
class Pack:
    """A policy pack; `exemptions` reads a resource's exemptions, keyed by rule name: `2027-01-31 why`."""

    name: str
    version: str
    description: str
    rules: tuple[AnyRule, ...]
    exemptions: Callable[[Resource], Mapping[str, str]]

    def __post_init__(self) -> None:
        names = [rule.name for rule in self.rules]
        if duplicates := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"pack {self.name} has duplicate rules: {', '.join(duplicates)}")
