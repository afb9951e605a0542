"""Rules put to resources: what is wrong, what cannot be known, what is exempted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches
from typing import Any, Final, Literal

from pulumi_policy import EnforcementLevel

from judge.exemptions import NAME, Exempted, Exemption, ExemptionSettings, exemption_rule
from judge.reading import CannotTellError
from judge.resources import Resource
from judge.rules import AnyRule, ConfigError, Pack, Settings
from judge.stacks import Stack

Outcome = Literal["broken", "exempted", "unknown", "mistake"]
_EMPTY: Final = Stack(())
_ALL: Final = "all"
"""In place of a rule's name: all of them; the engine has applied it already."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about one resource.

    Attributes:
        rule: the rule that says it.
        outcome: broken; broken but exempted; cannot be known; or the rule itself failed.
        level: how it is enforced. All but `broken` is advice.
        urn: of the resource.
        message: place, value and mend; no secret is in it.
    """

    rule: AnyRule
    outcome: Outcome
    level: EnforcementLevel
    urn: str
    message: str


@dataclass(slots=True)
class Configuration:
    """How an organisation configured a pack: for each rule its level and its settings."""

    levels: dict[str, EnforcementLevel] = field(default_factory=dict[str, EnforcementLevel])
    settings: dict[str, Settings] = field(default_factory=dict[str, Settings])

    def level(self, rule: AnyRule) -> EnforcementLevel:
        """How a rule is enforced."""
        return self.levels.get(rule.name, rule.level)

    def of(self, rule: AnyRule) -> Settings:
        """Its settings, defaults where nobody set them."""
        if rule.name not in self.settings:
            self.settings[rule.name] = rule.configured({})
        return self.settings[rule.name]


class Court:
    """A pack's rules, configured, ready to judge.

    Rules are chosen by a resource's type once for each type; a resource is read once for all of them. Nothing that a
    rule does ends the judgement of others: a value that cannot be known, and a mistake in a rule, become advice.

    Args:
        pack: the rules.
        today: the day, by which exemptions end.
    """

    def __init__(self, pack: Pack, today: date | None = None) -> None:
        self.pack = pack
        self._today = today
        exemptions = exemption_rule(pack.exemptions, frozenset(rule.name for rule in pack.rules) | {NAME}, self._day)
        self.rules: tuple[AnyRule, ...] = (*pack.rules, exemptions)
        self.by_name = {rule.name: rule for rule in self.rules}
        self._exemptions = exemptions
        self._by_type: dict[str, tuple[AnyRule, ...]] = {}
        self.configuration = Configuration()

    def configure(self, levels: Mapping[str, EnforcementLevel], settings: Mapping[str, Mapping[str, Any]]) -> None:
        """Takes an organisation's configuration; what it does not name goes back to the defaults.

        Raises:
            ConfigError: a rule or a setting is wrong.
        """
        wrong = [_no_rule(name, self.by_name) for name in sorted({*levels, *settings} - {_ALL, *self.by_name})]
        if wrong:
            raise ConfigError("\n".join(wrong))
        given: dict[str, Settings] = {
            name: self.by_name[name].configured(each) for name, each in settings.items() if name != _ALL
        }
        self.configuration = Configuration(dict(levels), given)

    def about(self, type_: str) -> bool:
        """Whether any rule, for a resource or for a stack, is about resources of this type."""
        return bool(self._rules(Resource(type_)))

    def judge(self, resource: Resource) -> list[Finding]:
        """What rules about single resources say of one."""
        rules = [rule for rule in self._rules(resource) if not rule.whole]
        return [found for rule in rules for found in self._judged(rule, resource, _EMPTY)]

    def judge_stack(self, stack: Stack) -> list[Finding]:
        """What rules that compare resources say of all of them."""
        return [
            found
            for resource in stack.resources
            for rule in self._rules(resource)
            if rule.whole
            for found in self._judged(rule, resource, stack)
        ]

    def _rules(self, resource: Resource) -> tuple[AnyRule, ...]:
        if resource.type not in self._by_type:
            specific = tuple(rule for rule in self.rules[:-1] if rule.on.takes(resource))
            self._by_type[resource.type] = (*specific, self._exemptions) if specific else ()
        return self._by_type[resource.type]

    def _judged(self, rule: AnyRule, resource: Resource, stack: Stack) -> Iterator[Finding]:
        level = self.configuration.level(rule)
        if level is EnforcementLevel.DISABLED:
            return
        if level is EnforcementLevel.REMEDIATE:
            level = EnforcementLevel.MANDATORY
        exemption: Exemption | CannotTellError | Literal["unread"] | None = "unread"
        for outcome, sentence in self._sentences(rule, resource, stack):
            if outcome == "broken" and exemption == "unread":
                exemption = self.exemption(resource, rule)
            words, as_found, enforced = sentence, outcome, level if outcome == "broken" else EnforcementLevel.ADVISORY
            if outcome == "broken" and isinstance(exemption, Exemption):
                as_found, enforced = "exempted", EnforcementLevel.ADVISORY
                words = f"exempted until {exemption.until} ({exemption.reason}): {sentence}"
            elif outcome == "broken" and isinstance(exemption, CannotTellError):
                words = f"{sentence} (whether it is exempted cannot be told: {exemption})"
            yield Finding(rule, as_found, enforced, resource.urn, stack.hide(resource.secrets.hide(words)))

    def _sentences(self, rule: AnyRule, resource: Resource, stack: Stack) -> Iterator[tuple[Outcome, str]]:
        try:
            parts = resource.parts(rule.on)
        except CannotTellError as error:
            yield "unknown", _unknown(resource.place, error)
            return
        except Exception as error:  # noqa: BLE001 - no rule may end somebody's deployment
            yield "mistake", _mistake(rule, resource.place, error)
            return
        for part in parts:
            place = resource.place
            try:
                place = part.place
                for sentence in rule.sentences(part, self.configuration.of(rule), stack):
                    yield "broken", f"{place}: {sentence}"
            except CannotTellError as error:
                yield "unknown", _unknown(place, error)
            except Exception as error:  # noqa: BLE001 - as above
                yield "mistake", _mistake(rule, place, error)

    def exemption(self, resource: Resource, rule: AnyRule) -> Exemption | CannotTellError | None:
        """The exemption of a resource from a rule, if it says one that is in order."""
        try:
            text = self.pack.exemptions(resource).get(rule.name)
        except CannotTellError as error:
            return error
        except Exception:  # noqa: BLE001 - as above; the rule about exemptions says that it has a mistake
            return None
        if text is None or rule is self._exemptions:
            return None
        settings = self.configuration.of(self._exemptions)
        assert isinstance(settings, ExemptionSettings)  # noqa: S101 - what its rule made
        wrong = any(self._exemptions.sentences(Exempted(resource, rule.name, text), settings, _EMPTY))
        return None if wrong else Exemption.of(text)

    def _day(self) -> date:
        return self._today or date.today()  # noqa: DTZ011 - the day where it is judged


def _unknown(place: str, error: CannotTellError) -> str:
    return f"{place}: cannot be told, since {error}; look at it again when it is deployed, or write the value down"


def _mistake(rule: AnyRule, place: str, error: Exception) -> str:
    return f"{place}: rule {rule.name} has a mistake ({type(error).__name__}) and was not judged; tell its owners"


def _no_rule(name: str, known: Mapping[str, AnyRule]) -> str:
    near = get_close_matches(name, known, n=1)
    mend = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
    return f"there is no rule {name} in this pack; {mend}"
