"""Findings of policy packs about a stack."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal


class Outcome(StrEnum):
    """The subject of a finding; foreign packs report only violations and remedies."""

    BROKEN = "broken"  # a violation, mandatory or advisory
    EXEMPTED = "exempted"  # a violation by an exempted resource
    UNKNOWN = "unknown"  # the rule needs a value that the preview does not know
    ERROR = "error"  # the rule failed with an internal error
    REMEDIED = "remedied"  # a remedy changed the resource before it was evaluated


Kind = Literal["broken", "advice", "exempted", "mended"]
"""The weight of a finding: a mandatory violation, anything advisory, an exempted violation, an applied remedy."""
_ORDER: Final[tuple[Kind, ...]] = ("broken", "mended", "advice", "exempted")
_SEVERITIES: Final = ("critical", "high", "medium", "low", "unspecified")


@dataclass(frozen=True, slots=True)
class Finding:
    """One message of a pack about one resource: `PLACE: VALUE problem; fix`."""

    pack: str
    rule: str
    kind: Kind
    severity: str  # `critical`, `high`, `medium`, `low` or `unspecified`
    urn: str  # empty if the pack named no resource
    message: str
    outcome: Outcome = Outcome.BROKEN


@dataclass(frozen=True, slots=True)
class RuleState:
    """How a pack evaluates a rule: `disabled`, `advisory`, `remediate` or `mandatory`; settings with their defaults."""

    level: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PackResult:
    """The result of one pack for a stack; `states` has each of its rules by name, including disabled rules."""

    pack: str
    version: str
    states: Mapping[str, RuleState]
    findings: tuple[Finding, ...]

    @property
    def rules(self) -> int:
        """Number of its enabled rules."""
        return sum(1 for state in self.states.values() if state.level != "disabled")


def by_weight(findings: Iterable[Finding]) -> list[Finding]:
    """Findings sorted for reading: mandatory violations first, by severity."""

    def key(finding: Finding) -> tuple[int, int, str, str, str, str]:
        kind, severity = _ORDER.index(finding.kind), _SEVERITIES.index(finding.severity)
        return kind, severity, finding.pack, finding.rule, finding.message, finding.urn

    return sorted(findings, key=key)
