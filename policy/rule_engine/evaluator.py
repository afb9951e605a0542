"""Evaluates rules on resources: violations, exemptions, unknown values and internal errors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches
from functools import cache, partial
from typing import Any, Final

from pulumi_policy import EnforcementLevel

from rule_engine.exemptions import NAME, Exempted, Exemption, ExemptionSettings, exemption_rule
from rule_engine.outcomes import Outcome, PartOfPatch, place_of, unread
from rule_engine.patches import item_type, object_type
from rule_engine.reading import Plain, UnknownValueError
from rule_engine.reads import Reads
from rule_engine.resources import Placed, Resource
from rule_engine.rules import AnyRule, ConfigError, Pack, Settings
from rule_engine.stacks import Stack

_ENFORCED: Final = frozenset({Outcome.BROKEN, Outcome.ERROR})
_LONGEST: Final = 2000
"""Maximum number of characters of a message."""
_EMPTY: Final = Stack(())
_LISTED: Final = 5
"""Maximum number of rule names in an error."""
_LIST: Final = "kubernetes:core/v1:List"
_ANY: Final[Plain] = {"apiVersion": "v1", "kind": "Any"}
"""An item of a list of any kinds."""
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
        token, _ = object_type(type_)
        if item := item_type(token, _ANY):
            return item == item_type(_LIST, _ANY) or self.covers(item)
        return bool(self._rules(Resource(token)))

    def evaluate(self, resource: Resource) -> list[Finding]:
        """The findings of rules that check single resources."""
        return [
            finding
            for found in resource.objects()
            for rule in self._rules(found)
            if not rule.whole
            for finding in self.findings(rule, found, _EMPTY)
        ]

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
        exemption = cache(partial(self.exemption, resource, rule))
        if resource.reads is None:
            messages = self._messages(rule, resource, stack)
        else:
            messages = [*self._messages_of_patch(rule, resource, resource.reads, stack)]
        for outcome, text in messages:
            message, reported = text, outcome
            exempted = exemption() if outcome in _ENFORCED else None
            if isinstance(exempted, Exemption):
                reported = Outcome.EXEMPTED
                message = f"exempted until {exempted.until} ({exempted.reason}): {text}"
            elif exempted is not None:
                message = f"{text} (exemption not evaluated: {exempted})"
            shown = _cut(stack.hide(resource.secrets.hide(message)))
            its_level = level if reported in _ENFORCED else EnforcementLevel.ADVISORY
            yield Finding(rule, reported, its_level, resource.urn, shown)

    def _messages(self, rule: AnyRule, resource: Resource, stack: Stack) -> Iterator[tuple[Outcome, str]]:
        parts = list[Placed]()
        unknown = self._find(rule, resource, parts)
        if unknown is not None:
            yield unknown
        for part in parts:
            yield from self._messages_of_part(rule, part, resource, stack)

    def _find(self, rule: AnyRule, resource: Resource, parts: list[Placed]) -> tuple[Outcome, str] | None:
        """Adds the parts of a resource that a rule checks; returns why they are not known, if so."""
        try:
            parts += resource.parts(rule.on)
        except UnknownValueError as error:
            return unread(place_of(resource, resource), error)
        except Exception as error:  # noqa: BLE001 - a failing rule must not stop the others
            return Outcome.ERROR, _internal_error(rule, place_of(resource, resource), error)
        return None

    def _messages_of_part(
        self, rule: AnyRule, part: Placed, resource: Resource, stack: Stack
    ) -> Iterator[tuple[Outcome, str]]:
        try:
            for text in rule.messages(part, self.configuration.of(rule), stack):
                yield Outcome.BROKEN, f"{place_of(part, resource)}: {self.pack.message(rule.name, text, resource)}"
        except UnknownValueError as error:
            yield unread(place_of(part, resource), error)
        except Exception as error:  # noqa: BLE001 - as above
            yield Outcome.ERROR, _internal_error(rule, place_of(part, resource), error)

    def _messages_of_patch(
        self, rule: AnyRule, resource: Resource, reads: Reads, stack: Stack
    ) -> Iterator[tuple[Outcome, str]]:
        """The messages about the object that a patch leaves.

        A rule that reads nothing of what the patch sets has none: the patch changes nothing for it. Messages name the
        fields that the rule read and the patch does not set. Without a message, the object is not evaluated, at the
        level of the rule, if there are such fields.
        """
        parts = list[Placed]()
        reads.take()
        unknown = self._find(rule, resource, parts)
        found = reads.take()
        if not parts:
            messages = [] if unknown is None else [(*unknown, found)]
            yield from PartOfPatch(resource, resource, messages, found).outcomes()
        for part in parts:
            messages, read = list[tuple[Outcome, str, Reads]](), Reads()
            for outcome, text in self._messages_of_part(rule, part, resource, stack):
                since = reads.take()
                read.add(since)
                messages.append((outcome, text, since))
            read.add(reads.take())
            if messages:
                read.present.update(found.present)
            yield from PartOfPatch(part, resource, messages, read).outcomes()

    def exemption(self, resource: Resource, rule: AnyRule) -> Exemption | UnknownValueError | None:
        """The exemption of a resource from a rule, if it has a valid one."""
        try:
            text = self.pack.exemptions(resource).get(rule.name)
        except UnknownValueError as error:
            return error
        except Exception:  # noqa: BLE001 - as above; the rule about exemptions reports it, and there is no exemption
            return None
        if text is None:
            return None
        settings = self.configuration.of(self._exemptions)
        assert isinstance(settings, ExemptionSettings)  # noqa: S101 - the type of its rule
        invalid = any(self._exemptions.messages(Exempted(resource, rule.name, text), settings, _EMPTY))
        return None if invalid else Exemption.of(text)

    def _date(self) -> date:
        return self._today or date.today()  # noqa: DTZ011 - the local date of the evaluation


def _cut(message: str) -> str:
    """A message of a length that can be read, although a value in it has megabytes."""
    return message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"


def _internal_error(rule: AnyRule, place: str, error: Exception) -> str:
    return (
        f"{place}: rule {rule.name}: internal error ({type(error).__name__}); not evaluated. Report it to the pack"
        " owner, or exempt the resource from the rule"
    )


def _unknown_rule(name: str, known: Mapping[str, AnyRule]) -> str:
    similar = get_close_matches(name, known)
    if similar:
        return f"unknown rule {name!r} (did you mean {similar[0]!r}?)"
    first = sorted(known)[:_LISTED]
    more = ", …" if len(known) > _LISTED else ""
    return f"unknown rule {name!r}; rules of this pack: {', '.join(first)}{more}"
