"""Exemptions: a resource that may break a rule until a day, for a reason."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from pulumi_policy import EnforcementLevel, Severity
from pydantic import Field

from judge.resources import Resource, Subject
from judge.rules import Rule, Settings

NAME: Final = "exemptions-in-order"
_FORM: Final = re.compile(r"(\d{4}-\d{2}-\d{2})[\s_,;:-]+(\S.{3,})", re.DOTALL)
_HOW: Final = "write a day and a reason, as in `2027-01-31 waits for the new driver`"


@dataclass(frozen=True, slots=True)
class Exemption:
    """Until which day (that day included) a rule does not bind, and why."""

    until: date
    reason: str

    @classmethod
    def of(cls, text: str) -> "Exemption | None":
        """Reads `2027-01-31 why`; None where it says no day or no reason."""
        found = _FORM.fullmatch(text.strip())
        if found is None:
            return None
        try:
            return cls(date.fromisoformat(found[1]), found[2])
        except ValueError:
            return None


@dataclass(frozen=True, slots=True, eq=False)
class Exempted:
    """What one resource says of one rule."""

    resource: Resource
    rule: str
    text: str

    @property
    def place(self) -> str:
        """The resource, and the rule from which it wants to be exempted."""
        return f"{self.resource.place}, exemption from {self.rule}"


class ExemptionSettings(Settings):
    """Bounds for exemptions."""

    longest: int = Field(180, ge=1, description="Days that an exemption may last from today.")
    never: list[str] = Field([], description="Rules from which nobody is exempted.")


Says = Callable[[Resource], Mapping[str, str]]
"""What a resource says of exemptions, by the name of the rule; may raise `CannotTellError`."""


def exemption_rule(says: Says, rules: frozenset[str], today: Callable[[], date]) -> Rule[Exempted, ExemptionSettings]:
    """The rule that exemptions themselves keep; one that breaks it exempts from nothing.

    Args:
        says: finds exemptions.
        rules: names of all rules of the pack.
        today: the day.
    """

    def find(resource: Resource) -> Iterator[Exempted]:
        for rule, text in says(resource).items():
            yield Exempted(resource, rule, text)

    def judge(part: Exempted, settings: ExemptionSettings) -> Iterator[str]:
        found = Exemption.of(part.text)
        if part.rule not in rules:
            yield "there is no such rule in this pack; mend the name, or take the exemption out"
        elif found is None:
            yield f"{part.text!r} is no exemption; {_HOW}"
        elif part.rule in (NAME, *settings.never):
            yield "nobody is exempted from this rule; mend the resource and take the exemption out"
        elif found.until < today():
            yield f"it ended on {found.until}; mend the resource and take the exemption out"
        elif (found.until - today()).days > settings.longest:
            yield f"{found.until} is more than {settings.longest} days away; choose an earlier day"

    return Rule(
        name=NAME,
        says="An exemption names a rule of this pack, a day that is not too far away, and a reason.",
        why="An exemption without an end is a rule that nobody has.",
        mend=f"{_HOW[0].upper()}{_HOW[1:]}.",
        link="https://www.pulumi.com/docs/insights/policy/",
        severity=Severity.MEDIUM,
        level=EnforcementLevel.MANDATORY,
        on=Subject("exemptions", lambda _: True, find),
        judge=judge,
        settings=ExemptionSettings,
    )
