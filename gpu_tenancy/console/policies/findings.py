"""What policy packs say of a stack."""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["broken", "advice", "exempted", "mended"]
"""A mandatory rule is broken; something is advised, or cannot be told yet; a resource is exempted; a rule's remedy
changed the resource before it was judged."""
_ORDER: Final[tuple[Kind, ...]] = ("broken", "mended", "advice", "exempted")
_SEVERITIES: Final = ("critical", "high", "medium", "low", "unspecified")


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence of a pack about one resource.

    Attributes:
        pack: the pack's name.
        rule: the rule's name.
        says: what must hold.
        severity: `critical`, `high`, `medium`, `low` or `unspecified`.
        level: as the pack answered: `advisory`, `mandatory` or `remediate`.
        urn: of the resource; empty where a pack named none.
        message: place, value and mend.
    """

    pack: str
    rule: str
    kind: Kind
    says: str
    severity: str
    level: str
    urn: str
    message: str


@dataclass(frozen=True, slots=True)
class Judged:
    """What one pack says of a stack.

    Attributes:
        pack: its name.
        version: its version.
        rules: how many of its rules are not switched off.
    """

    pack: str
    version: str
    rules: int
    findings: tuple[Finding, ...]


def by_weight(findings: "tuple[Finding, ...] | list[Finding]") -> list[Finding]:
    """Findings in the order in which a person should read them: broken rules first, the most severe of them on top."""
    return sorted(
        findings,
        key=lambda each: (
            _ORDER.index(each.kind),
            _SEVERITIES.index(each.severity),
            each.pack,
            each.rule,
            each.message,
            each.urn,
        ),
    )
