"""Exemptions: a resource that may violate a rule until a date, for a stated reason."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from pulumi_policy import EnforcementLevel, Severity
from pydantic import Field

from rule_engine.resources import Resource, Subject
from rule_engine.rules import Rule, Settings

NAME: Final = "exemptions-in-order"
_FORM: Final = re.compile(r"(\d{4}-\d{2}-\d{2})[\s_,;:-]+(\S.{3,})", re.DOTALL)
_HOW: Final = "set an expiry date and a reason, such as `2027-01-31 waits for the new driver`"
ANNOTATION: Final = "exempt.gpu-rules/"  # annotation of a Kubernetes object: `exempt.gpu-rules/RULE: 2027-01-31 why`


def annotated_exemptions(resource: Resource) -> dict[str, str]:
    """The exemptions in an object's annotations, keyed by rule name."""
    return {
        key.removeprefix(ANNOTATION): annotation.text()
        for key, annotation in resource.props.entries("metadata", "annotations").items()
        if key.startswith(ANNOTATION)
    }


@dataclass(frozen=True, slots=True)
class Exemption:
    """The last day of an exemption (inclusive) and its reason."""

    until: date
    reason: str

    @classmethod
    def of(cls, text: str) -> "Exemption | None":
        """Parses `2027-01-31 why`; None if the date or the reason is missing."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            return None
        try:
            return cls(date.fromisoformat(match[1]), match[2])
        except ValueError:
            return None


@dataclass(frozen=True, slots=True, eq=False)
class Exempted:
    """An exemption from one rule, as written on a resource."""

    resource: Resource
    rule: str
    text: str

    @property
    def place(self) -> str:
        """The resource, and the rule that it is exempted from."""
        return f"{self.resource.place}, exemption from {self.rule}"


class ExemptionSettings(Settings):
    """Limits for exemptions."""

    days: int = Field(180, ge=1)
    """Maximum number of days from today until an exemption expires."""
    forbidden: list[str] = Field([])
    """Rules that do not allow exemptions."""


def exemption_rule(
    read: Callable[[Resource], Mapping[str, str]], rules: frozenset[str], today: Callable[[], date]
) -> Rule[Exempted, ExemptionSettings]:
    """The rule about exemptions themselves; an exemption that violates it has no effect.

    `read` returns the exemptions of a resource by rule name, or raises `UnknownValueError`.
    """

    def find(resource: Resource) -> Iterator[Exempted]:
        yield from (Exempted(resource, rule, text) for rule, text in read(resource).items())

    def check(part: Exempted, settings: ExemptionSettings) -> Iterator[str]:
        exemption = Exemption.of(part.text)
        if part.rule not in rules:
            yield "unknown rule of this pack; correct the name, or remove the exemption"
        elif exemption is None:
            yield f"{part.text!r} is not a valid exemption; {_HOW}"
        elif part.rule in (NAME, *settings.forbidden):
            yield "this rule does not allow exemptions; fix the resource and remove the exemption"
        elif exemption.until < today():
            yield f"expired on {exemption.until}; fix the resource and remove the exemption"
        elif (exemption.until - today()).days > settings.days:
            yield f"{exemption.until} is more than {settings.days} days away; set an earlier date"

    return Rule(
        name=NAME,
        title="An exemption must name a rule of this pack, an expiry date within the allowed period, and a reason.",
        rationale="An exemption without an expiry date disables the rule permanently.",
        fix=f"{_HOW[0].upper()}{_HOW[1:]}.",
        link="https://www.pulumi.com/docs/insights/policy/",
        severity=Severity.MEDIUM,
        level=EnforcementLevel.MANDATORY,
        on=Subject("exemptions", lambda _: True, find),
        check=check,
        settings=ExemptionSettings,
    )
