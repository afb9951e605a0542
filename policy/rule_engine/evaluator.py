"""Evaluates rules on resources: violations, exemptions, unknown values and internal errors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final, Literal

from pulumi_policy import EnforcementLevel

from rule_engine.exemptions import NAME, Exempted, Exemption, ExemptionSettings, exemption_rule
from rule_engine.reading import UnknownValueError
from rule_engine.resources import Placed, Resource
from rule_engine.rules import AnyRule, ConfigError, Pack, Settings
from rule_engine.stacks import Stack


class Outcome(StrEnum):
    """What a finding is about; `BROKEN` and `ERROR` have the level of their rule, all others are advisory."""

    BROKEN = "broken"
    EXEMPTED = "exempted"
    UNKNOWN = "unknown"
    ERROR = "error"


_ENFORCED: Final = frozenset({Outcome.BROKEN, Outcome.ERROR})
_LONGEST: Final = 2000
"""Maximum number of characters of a message."""
_EMPTY: Final = Stack(())
_LISTED: Final = 5
"""Maximum number of rule names in an error."""
_ALL: Final = "all"
"""Instead of a rule's name: all rules. The engine has applied it already."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One message about one resource.

    Attributes:
        rule: the rule that reports it.
        outcome: violation, exempted violation, unknown value, or internal error of the rule.
        level: the enforcement level; advisory unless the outcome is `BROKEN` or `ERROR`.
        urn: of the resource.
        message: `PLACE: VALUE problem; fix`, with secrets hidden.
    """

    rule: AnyRule
    outcome: Outcome
    level: EnforcementLevel
    urn: str
    message: str


@dataclass(slots=True)
class Configuration:
    """An organisation's configuration of a pack: level and settings of each rule."""

    levels: dict[str, EnforcementLevel] = field(default_factory=dict[str, EnforcementLevel])
    settings: dict[str, Settings] = field(default_factory=dict[str, Settings])

    def level(self, rule: AnyRule) -> EnforcementLevel:
        """The enforcement level of a rule."""
        return self.levels.get(rule.name, rule.level)

    def of(self, rule: AnyRule) -> Settings:
        """The settings of a rule, with defaults for those not set."""
        if rule.name not in self.settings:
            self.settings[rule.name] = rule.parse_settings({})
        return self.settings[rule.name]


class Evaluator:
    """Evaluates the configured rules of a pack.

    Rules are selected once per resource type, and a resource is read once for all rules. A failing rule does not stop
    the others: unknown values become advisory findings, and internal errors findings at the level of their rule,
    because a resource passes a mandatory rule only if the rule was evaluated.

    Args:
        pack: the rules.
        today: the date for exemptions; by default the current date.
    """

    def __init__(self, pack: Pack, today: date | None = None) -> None:
        self.pack = pack
        self._today = today
        exemptions = exemption_rule(pack.exemptions, frozenset(rule.name for rule in pack.rules) | {NAME}, self._date)
        self.rules: tuple[AnyRule, ...] = (*pack.rules, exemptions)
        self.by_name = {rule.name: rule for rule in self.rules}
        self._exemptions = exemptions
        self._by_type: dict[str, tuple[AnyRule, ...]] = {}
        self.configuration = Configuration()

    def configure(self, levels: Mapping[str, EnforcementLevel], settings: Mapping[str, Mapping[str, Any]]) -> None:
        """Applies an organisation's configuration; rules and settings that it does not name get their defaults.

        Raises:
            ConfigError: a rule or a setting is invalid.
        """
        unknown = sorted({*levels, *settings} - {_ALL, *self.by_name})
        if unknown:
            raise ConfigError("\n".join(_unknown_rule(name, self.by_name) for name in unknown))
        parsed: dict[str, Settings] = {
            name: self.by_name[name].parse_settings(values) for name, values in settings.items() if name != _ALL
        }
        self.configuration = Configuration(dict(levels), parsed)

    def covers(self, type_: str) -> bool:
        """Whether any rule, for a resource or for a stack, checks resources of this type."""
        return bool(self._rules(Resource(type_)))

    def evaluate(self, resource: Resource) -> list[Finding]:
        """The findings of rules that check single resources."""
        rules = [rule for rule in self._rules(resource) if not rule.whole]
        return [finding for rule in rules for finding in self.findings(rule, resource, _EMPTY)]

    def evaluate_stack(self, stack: Stack) -> list[Finding]:
        """The findings of rules that compare resources."""
        return [
            finding
            for resource in stack.resources
            for rule in self._rules(resource)
            if rule.whole
            for finding in self.findings(rule, resource, stack)
        ]

    def _rules(self, resource: Resource) -> tuple[AnyRule, ...]:
        if resource.type not in self._by_type:
            specific = tuple(rule for rule in self.rules[:-1] if rule.on.selects(resource))
            self._by_type[resource.type] = (*specific, self._exemptions) if specific else ()
        return self._by_type[resource.type]

    def findings(self, rule: AnyRule, resource: Resource, stack: Stack) -> Iterator[Finding]:
        """The findings of one rule about one resource, at the configured level.

        Args:
            rule: the rule.
            resource: the resource.
            stack: all resources; empty for a rule that checks single resources.
        """
        level = self.configuration.level(rule)
        if level is EnforcementLevel.DISABLED:
            return
        if level is EnforcementLevel.REMEDIATE:
            level = EnforcementLevel.MANDATORY
        exemption: Exemption | UnknownValueError | Literal["unread"] | None = "unread"
        for outcome, text in self._messages(rule, resource, stack):
            enforced = outcome in _ENFORCED
            if enforced and exemption == "unread":
                exemption = self.exemption(resource, rule)
            message, reported = text, outcome
            if enforced and isinstance(exemption, Exemption):
                reported, enforced = Outcome.EXEMPTED, False
                message = f"exempted until {exemption.until} ({exemption.reason}): {text}"
            elif enforced and isinstance(exemption, UnknownValueError):
                message = f"{text} (exemption not evaluated: {exemption})"
            shown = _cut(stack.hide(resource.secrets.hide(message)))
            yield Finding(rule, reported, level if enforced else EnforcementLevel.ADVISORY, resource.urn, shown)

    def _messages(self, rule: AnyRule, resource: Resource, stack: Stack) -> Iterator[tuple[Outcome, str]]:
        try:
            parts = resource.parts(rule.on)
        except UnknownValueError as error:
            yield Outcome.UNKNOWN, _unknown(_place(resource, resource), error)
            return
        except Exception as error:  # noqa: BLE001 - a failing rule must not stop the others
            yield Outcome.ERROR, _internal_error(rule, _place(resource, resource), error)
            return
        for part in parts:
            try:
                for text in rule.messages(part, self.configuration.of(rule), stack):
                    yield Outcome.BROKEN, f"{_place(part, resource)}: {self.pack.message(rule.name, text, resource)}"
            except UnknownValueError as error:
                yield Outcome.UNKNOWN, _unknown(_place(part, resource), error)
            except Exception as error:  # noqa: BLE001 - as above
                yield Outcome.ERROR, _internal_error(rule, _place(part, resource), error)

    def exemption(self, resource: Resource, rule: AnyRule) -> Exemption | UnknownValueError | None:
        """The exemption of a resource from a rule, if it has a valid one."""
        try:
            text = self.pack.exemptions(resource).get(rule.name)
        except UnknownValueError as error:
            return error
        except Exception:  # noqa: BLE001 - as above; the rule about exemptions reports it, and there is no exemption
            return None
        if text is None or rule is self._exemptions:
            return None
        settings = self.configuration.of(self._exemptions)
        assert isinstance(settings, ExemptionSettings)  # noqa: S101 - the type of its rule
        invalid = any(self._exemptions.messages(Exempted(resource, rule.name, text), settings, _EMPTY))
        return None if invalid else Exemption.of(text)

    def _date(self) -> date:
        return self._today or date.today()  # noqa: DTZ011 - the local date of the evaluation


def _place(part: Placed, resource: Resource) -> str:
    """The place of a part; that of its resource if it is unknown, and the type if that fails too."""
    for placed in (part, resource):
        try:
            return placed.place
        except Exception:  # noqa: BLE001, S112 - an error message must not fail
            continue
    return f"{resource.kind} {resource.name}"


def _cut(message: str) -> str:
    """A message of a length that can be read, although a value in it has megabytes."""
    return message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"


def _unknown(place: str, error: UnknownValueError) -> str:
    return f"{place}: not evaluated: {error}; check again after deployment, or set a literal value"


def _internal_error(rule: AnyRule, place: str, error: Exception) -> str:
    return (
        f"{place}: rule {rule.name}: internal error ({type(error).__name__}); not evaluated. Report it to the pack"
        " owner, or exempt the resource from the rule"
    )


def _unknown_rule(name: str, known: Mapping[str, AnyRule]) -> str:
    similar = get_close_matches(name, known, n=1)
    if similar:
        return f"unknown rule {name!r} (did you mean {similar[0]!r}?)"
    first = sorted(known)[:_LISTED]
    more = ", …" if len(known) > _LISTED else ""
    return f"unknown rule {name!r}; rules of this pack: {', '.join(first)}{more}"
