"""Findings of policy packs about a stack."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal


class Outcome(StrEnum):
    """What a finding is about; packs of others report only violations and remedies."""

    BROKEN = "broken"
    """A violation, mandatory or advisory."""
    EXEMPTED = "exempted"
    """A violation by an exempted resource."""
    UNKNOWN = "unknown"
    """The rule needs a value that the preview does not know."""
    ERROR = "error"
    """The rule failed with an internal error."""
    REMEDIED = "remedied"
    """A remedy changed the resource before it was evaluated."""


Kind = Literal["broken", "advice", "exempted", "mended"]
"""The weight of a finding: a mandatory violation, anything advisory, an exempted violation, an applied remedy."""
_ORDER: Final[tuple[Kind, ...]] = ("broken", "mended", "advice", "exempted")
_SEVERITIES: Final = ("critical", "high", "medium", "low", "unspecified")


@dataclass(frozen=True, slots=True)
class Finding:
    """One message of a pack about one resource.

    Attributes:
        pack: the pack's name.
        rule: the rule's name.
        kind: its weight.
        says: the rule's requirement.
        severity: `critical`, `high`, `medium`, `low` or `unspecified`.
        level: as the pack reported it: `advisory`, `mandatory` or `remediate`.
        urn: of the resource; empty if the pack named none.
        message: `PLACE: VALUE problem; fix`.
        outcome: what it is about.
    """

    pack: str
    rule: str
    kind: Kind
    says: str
    severity: str
    level: str
    urn: str
    message: str
    outcome: Outcome = Outcome.BROKEN


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of one pack for a stack.

    Attributes:
        pack: its name.
        version: its version.
        rules: number of its enabled rules.
        findings: its findings.
    """

    pack: str
    version: str
    rules: int
    findings: tuple[Finding, ...]


def by_weight(findings: "tuple[Finding, ...] | list[Finding]") -> list[Finding]:
    """Findings sorted for reading: mandatory violations first, by severity."""
    return sorted(
        findings,
        key=lambda finding: (
            _ORDER.index(finding.kind),
            _SEVERITIES.index(finding.severity),
            finding.pack,
            finding.rule,
            finding.message,
            finding.urn,
        ),
    )
