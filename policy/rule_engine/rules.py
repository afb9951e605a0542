"""Rules: a requirement for one kind of part, its rationale, and the fix for a violation."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from inspect import getdoc, signature
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from pulumi_policy import EnforcementLevel, Severity
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from rule_engine.resources import Placed, Resource, Subject
from rule_engine.stacks import Stack


class Settings(BaseModel):
    """The configurable settings of a rule: each field has a default and a description."""

    model_config = ConfigDict(frozen=True, extra="forbid")


S = TypeVar("S", bound=Placed)
C = TypeVar("C", bound=Settings)


@dataclass(frozen=True, slots=True)
class Rule(Generic[S, C]):
    """One rule.

    Attributes:
        name: its id in configurations: `gpu-request-equals-limit`.
        title: the requirement, in one sentence.
        rationale: the consequence of a violation.
        fix: how to fix a violation.
        link: documentation of the requirement.
        severity: the severity of a violation.
        level: the default enforcement level.
        on: the kind of part that it checks.
        check: yields a message for each violation of a part, `VALUE problem; fix`, without the place. It may raise
            `UnknownValueError`.
        settings: its settings.
        whole: whether the check needs the whole stack, which is known only after all resources are.
        remedy: fixes a resource's properties if that is safe: takes the type and the properties in the protocol's JSON
            form (unknown values and secrets marked), changes these in place, and returns whether it changed them. Used
            if the level is `remediate`.
    """

    name: str
    title: str
    rationale: str
    fix: str
    link: str
    severity: Severity
    level: EnforcementLevel
    on: Subject[S]
    check: "Callable[[S, C], Iterable[str]] | Callable[[S, C, Stack], Iterable[str]]"
    settings: type[C]
    whole: bool = False
    remedy: Callable[[str, dict[str, Any], C], bool] | None = None

    def messages(self, part: S, settings: C, stack: Stack) -> Iterable[str]:
        """The violations of one part.

        Raises:
            UnknownValueError: the next result is unknown; earlier violations remain valid.
        """
        check: Callable[..., Iterable[str]] = self.check
        return check(part, settings, stack) if self.whole else check(part, settings)

    def schema(self) -> dict[str, dict[str, Any]]:
        """JSON schema of each setting, by name, without references, as Pulumi requires."""
        return {key: _flat(schema) for key, schema in self.settings.model_json_schema().get("properties", {}).items()}

    def parse_settings(self, values: Mapping[str, Any]) -> C:
        """Validates the given settings and adds defaults.

        Raises:
            ConfigError: with all errors in the settings.
        """
        try:
            return self.settings.model_validate(dict(values))
        except ValidationError as error:
            problems = [self._problem(problem) for problem in error.errors()]
            raise ConfigError("\n".join(problems)) from error

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


def rule(  # noqa: PLR0913 - the texts of a rule, by name
    name: str,
    *,
    rationale: str,
    fix: str,
    link: str,
    severity: Severity,
    level: EnforcementLevel,
    on: Subject[S],
    remedy: Callable[[str, dict[str, Any], Any], bool] | None = None,
) -> "Callable[[Callable[[S, C], Iterable[str]] | Callable[[S, C, Stack], Iterable[str]]], Rule[S, C]]":
    """Makes a rule of its check: a function of a part, the settings and, if it needs the whole stack, a `Stack`.

    The docstring of the check is the requirement, and the annotation of its second parameter the type of the settings.
    For the arguments, see `Rule`.
    """

    def of(check: Callable[[S, C], Iterable[str]] | Callable[[S, C, Stack], Iterable[str]]) -> Rule[S, C]:
        _, settings, *stack = signature(check).parameters.values()
        return Rule(
            name=name,
            title=" ".join((getdoc(check) or "").split()),
            rationale=rationale,
            fix=fix,
            link=link,
            severity=severity,
            level=level,
            on=on,
            check=check,
            settings=settings.annotation,
            whole=bool(stack),
            remedy=remedy,
        )

    return of


def rules_of(*modules: ModuleType) -> tuple[AnyRule, ...]:
    """The rules of some modules, in the order in which they are defined."""
    values: Iterable[object] = (value for module in modules for value in vars(module).values())
    return tuple(cast("AnyRule", value) for value in values if isinstance(value, Rule))


class ConfigError(ValueError):
    """A pack's configuration is invalid; the text has rule, setting, value and fix."""


@dataclass(frozen=True, slots=True)
class Pack:
    """A policy pack: its rules, and how exemptions from them are read.

    Attributes:
        exemptions: reads the exemptions of a resource, keyed by rule name: `2027-01-31 why`.
        stack_fixes: fixes by rule, in the words of a GPU tenancy stack, for its resources; `{fix}` is the fix of the
            message, `{number}` its last number.
    """

    name: str
    version: str
    description: str
    rules: tuple[AnyRule, ...]
    exemptions: Callable[[Resource], Mapping[str, str]]
    stack_fixes: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        names = [rule.name for rule in self.rules]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            message = f"pack {self.name} has duplicate rules: {', '.join(duplicates)}"
            raise ValueError(message)
        if unknown := self.stack_fixes.keys() - set(names):
            message = f"pack {self.name} has fixes for unknown rules: {', '.join(sorted(unknown))}"
            raise ValueError(message)

    def message(self, rule: str, text: str, resource: Resource) -> str:
        """The message of a rule, with the fix in the words of the stack if the resource is part of one."""
        if rule not in self.stack_fixes or not resource.of_stack:
            return text
        problem, _, fix = text.partition("; ")
        words = self.stack_fixes[rule].replace("{fix}", fix)
        numbers = re.findall(r"\d+", fix)
        return f"{problem}; {words.replace('{number}', numbers[-1]) if numbers else words}"


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    """A field's schema without the title that pydantic adds."""
    return {key: value for key, value in schema.items() if key != "title"}
