"""Evaluates rules on resources: violations, exemptions, unknown values, internal errors, and patches."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from enum import StrEnum
from functools import cache, partial
from typing import Any, Final, TypeAlias

from pulumi_policy import EnforcementLevel

from rule_engine.exemptions import NAME, Exempted, Exemption, ExemptionSettings, exemption_rule
from rule_engine.reading import Plain, Reads, UnknownValueError
from rule_engine.resources import Placed, Resource, item_type, object_type
from rule_engine.rules import AnyRule, ConfigError, Pack, Settings
from rule_engine.stacks import NOT_SET, Stack

_LONGEST: Final = 2000  # maximum number of characters of a message
_EMPTY: Final = Stack(())
_LISTED: Final = 5  # maximum number of rules or fields in a message
_LIST: Final = "kubernetes:core/v1:List"
_ANY: Final[Plain] = {"apiVersion": "v1", "kind": "Any"}  # an item of a list of any kinds
_ALL: Final = "all"  # instead of a rule's name: all rules. The engine has applied it already
_SET_IT: Final = "set it in the patch too, or change the object in its own stack"


class Outcome(StrEnum):
    """What a finding is about; `BROKEN` and `ERROR` have the level of their rule, all others are advisory."""

    BROKEN = "broken"
    EXEMPTED = "exempted"
    UNKNOWN = "unknown"
    ERROR = "error"


_ENFORCED: Final = frozenset({Outcome.BROKEN, Outcome.ERROR})
Message: TypeAlias = tuple[Outcome, str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One message about one resource: `PLACE: VALUE problem; fix`, with secrets hidden."""

    rule: AnyRule
    outcome: Outcome
    level: EnforcementLevel
    urn: str
    message: str


class Evaluator:
    """Evaluates the configured rules of a pack; `today` is the date for exemptions, by default the current date.

    A failing rule does not stop the others: unknown values become advisory findings, internal errors findings at the
    level of their rule, because a resource passes a mandatory rule only if the rule was evaluated.
    """

    def __init__(self, pack: Pack, today: date | None = None) -> None:
        self.pack = pack
        names = frozenset(rule.name for rule in pack.rules) | {NAME}
        # Without a date, that of the evaluation: a pack's process can run over midnight.
        self._exemptions = exemption_rule(pack.exemptions, names, lambda: today or date.today())  # noqa: DTZ011 - local
        self.rules: tuple[AnyRule, ...] = (*pack.rules, self._exemptions)
        self.by_name = {rule.name: rule for rule in self.rules}
        self._by_type: dict[str, tuple[AnyRule, ...]] = {}
        self._levels: dict[str, EnforcementLevel] = {}
        self._settings: dict[str, Settings] = {}

    def configure(self, levels: Mapping[str, EnforcementLevel], settings: Mapping[str, Mapping[str, Any]]) -> None:
        """Applies an organisation's configuration, with defaults for all else; raises ConfigError if it is invalid."""
        if unknown := sorted({*levels, *settings} - {_ALL, *self.by_name}):
            raise ConfigError("\n".join(_unknown_rule(name, self.by_name) for name in unknown))
        self._settings = {
            name: self.by_name[name].parse_settings(values) for name, values in settings.items() if name != _ALL
        }
        self._levels = dict(levels)

    def level(self, rule: AnyRule) -> EnforcementLevel:
        """The enforcement level of a rule."""
        return self._levels.get(rule.name, rule.level)

    def settings(self, rule: AnyRule) -> Settings:
        """The settings of a rule, with defaults."""
        if rule.name not in self._settings:
            self._settings[rule.name] = rule.parse_settings({})
        return self._settings[rule.name]

    def covers(self, type_: str) -> bool:
        """Whether any rule, for a resource or for a stack, checks resources of this type."""
        token, _ = object_type(type_)
        if item := item_type(token, _ANY):
            return item == item_type(_LIST, _ANY) or self.covers(item)
        return bool(self._rules(Resource(token)))

    def evaluate(self, resource: Resource) -> list[Finding]:
        """The findings of rules that check single resources."""
        found = [(rule, part) for part in resource.objects() for rule in self._rules(part) if not rule.whole]
        return [finding for rule, part in found for finding in self.findings(rule, part, _EMPTY)]

    def evaluate_stack(self, stack: Stack) -> list[Finding]:
        """The findings of rules that compare resources."""
        found = [(rule, part) for part in stack.resources for rule in self._rules(part) if rule.whole]
        return [finding for rule, part in found for finding in self.findings(rule, part, stack)]

    def _rules(self, resource: Resource) -> tuple[AnyRule, ...]:
        if resource.type not in self._by_type:
            specific = tuple(rule for rule in self.rules[:-1] if rule.on.selects(resource))
            self._by_type[resource.type] = (*specific, self._exemptions) if specific else ()
        return self._by_type[resource.type]

    def findings(self, rule: AnyRule, resource: Resource, stack: Stack) -> Iterator[Finding]:
        """The findings of one rule about one resource, at the configured level."""
        level = self.level(rule)
        if level is EnforcementLevel.DISABLED:
            return
        if level is EnforcementLevel.REMEDIATE:
            level = EnforcementLevel.MANDATORY
        exemption = cache(partial(self.exemption, resource, rule))
        # All first: an exemption is read from the resource too.
        for outcome, text in [*self._messages(rule, resource, stack)]:
            message, reported = text, outcome
            exempted = exemption() if outcome in _ENFORCED else None
            if isinstance(exempted, Exemption):
                reported = Outcome.EXEMPTED
                message = f"exempted until {exempted.until} ({exempted.reason}): {text}"
            elif exempted is not None:
                message = f"{text} (exemption not evaluated: {exempted})"
            shown = stack.hide(resource.secrets.hide(message))
            if len(shown) > _LONGEST:  # a value in it can have megabytes
                shown = f"{shown[:_LONGEST]}…"
            its_level = level if reported in _ENFORCED else EnforcementLevel.ADVISORY
            yield Finding(rule, reported, its_level, resource.urn, shown)

    def _find(self, rule: AnyRule, resource: Resource, parts: list[Placed]) -> Message | None:
        """Adds the parts of a resource that a rule checks; returns the reason if they are unknown."""
        try:
            parts += resource.parts(rule.on)
        except UnknownValueError as error:
            return _unread(place_of(resource, resource), error)
        except Exception as error:  # noqa: BLE001 - a failing rule must not stop the others
            return Outcome.ERROR, _internal_error(rule, place_of(resource, resource), error)
        return None

    def _messages_of_part(self, rule: AnyRule, part: Placed, resource: Resource, stack: Stack) -> Iterator[Message]:
        try:
            for text in rule.messages(part, self.settings(rule), stack):
                yield Outcome.BROKEN, f"{place_of(part, resource)}: {rule.message(text, resource)}"
        except UnknownValueError as error:
            yield _unread(place_of(part, resource), error)
        except Exception as error:  # noqa: BLE001 - as above
            yield Outcome.ERROR, _internal_error(rule, place_of(part, resource), error)

    def _messages(self, rule: AnyRule, resource: Resource, stack: Stack) -> Iterator[Message]:
        """The messages about a resource, or a patched object; none if the rule reads no field that the patch sets."""
        # Messages name fields that the rule read and a patch does not set. With such fields but no message, a finding
        # at the rule's level says that the object is not evaluated.
        parts = list[Placed]()
        reads = resource.reads or Reads()
        reads.take()
        unknown = self._find(rule, resource, parts)
        if resource.reads is None:
            if unknown is not None:
                yield unknown
            for part in parts:
                yield from self._messages_of_part(rule, part, resource, stack)
            return
        found = reads.take()
        if not parts:
            messages = [] if unknown is None else [(*unknown, found)]
            yield from patch_messages(resource, resource, messages, found)
        for part in parts:
            messages, read = list[tuple[Outcome, str, Reads]](), Reads()
            for outcome, text in self._messages_of_part(rule, part, resource, stack):
                since = reads.take()
                read.add(since)
                messages.append((outcome, text, since))
            read.add(reads.take())
            if messages:
                read.present.update(found.present)
            yield from patch_messages(part, resource, messages, read)

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
        settings = self.settings(self._exemptions)
        assert isinstance(settings, ExemptionSettings)  # noqa: S101 - the type of its rule
        invalid = any(self._exemptions.messages(Exempted(resource, rule.name, text), settings, _EMPTY))
        return None if invalid else Exemption.of(text)


def place_of(part: Placed, resource: Resource) -> str:
    """The place of a part; if it is unknown, its resource's place; if that fails too, the type."""
    for placed in (part, resource):
        try:
            return placed.place
        except Exception:  # noqa: BLE001, S112 - an error message must not fail
            continue
    return f"{resource.kind} {resource.name}"


def _unread(place: str, error: UnknownValueError) -> Message:
    """The message about an unknown value: at the level of the rule if a patch does not set it."""
    if error.why == NOT_SET:
        return Outcome.BROKEN, f"{place}: not evaluated: {error}; {_SET_IT}"
    return Outcome.UNKNOWN, f"{place}: not evaluated: {error}; check again after deployment, or set a literal value"


def patch_messages(
    part: Placed, resource: Resource, messages: Sequence[tuple[Outcome, str, Reads]], read: Reads
) -> Iterator[Message]:
    """The messages about the patched object and its unevaluated fields; none if the rule reads nothing of the patch.

    Each message about the part comes with the fields that were read for it; `read` are all of them.
    """
    reads_all = any(not since.absent for _, _, since in messages)  # of the whole object, as all strings in it
    is_read = read.present or (reads_all and resource.content())
    if not is_read and not any(outcome is Outcome.ERROR for outcome, _, _ in messages):
        return
    place = place_of(part, resource)
    for outcome, text, since in messages:
        lacks = outcome is Outcome.UNKNOWN or (outcome is Outcome.BROKEN and not read.present)
        if lacks and since.absent:
            yield Outcome.BROKEN, f"{place}: not evaluated: {_not_set(since)}; {_SET_IT}"
        else:
            yield outcome, f"{text} ({_not_set(since)})" if since.absent else text
    if not messages and read.absent:
        yield Outcome.BROKEN, f"{place}: not evaluated: {_not_set(read)}; {_SET_IT}"


def _not_set(read: Reads) -> str:
    paths = [".".join(path) for path in read.absent]
    more = ", …" if len(paths) > _LISTED else ""
    return f"{', '.join(paths[:_LISTED])}{more} {'is' if len(paths) == 1 else 'are'} not set by the patch"


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
