"""Results of policy packs, as a review shows them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.packs.findings import Finding, Kind, Outcome, PackResult, by_weight
from gpu_tenancy.review.changes import kind_of, name_of
from gpu_tenancy.review.review import RuleLine, Rules

_OUTCOMES: Final[Mapping[Kind, str]] = {
    "broken": "broken",
    "advice": "broken",
    "exempted": "exempted",
    "mended": "mended",
}


def judged(rendered: Rendered, packs: Sequence[PackResult]) -> Rules:
    """The results of policy packs; mandatory violations come first."""
    findings = [finding for pack in packs for finding in pack.findings]
    not_passed = {(finding.pack, finding.rule) for finding in findings}
    return Rules(
        lines=rule_lines(rendered, findings),
        held=sum(pack.rules for pack in packs) - len(not_passed),
        packs=tuple(f"{pack.pack} {pack.version}" for pack in packs),
        levels=dict(Counter(state.level for pack in packs for state in pack.states.values())),
    )


def rule_lines(rendered: Rendered, findings: Iterable[Finding]) -> tuple[RuleLine, ...]:
    """Findings with the names of their resources; mandatory violations come first."""
    places = {
        registration.urn: f"{kind_of(registration)} {name_of(registration)}" for registration in rendered.registrations
    }
    return tuple(_line(finding, places.get(finding.urn, "the stack")) for finding in by_weight(list(findings)))


def _line(finding: Finding, place: str) -> RuleLine:
    unknown = finding.outcome is Outcome.UNKNOWN
    return RuleLine(
        pack=finding.pack,
        rule=finding.rule,
        severity=finding.severity,
        level="mandatory" if finding.kind == "broken" else "advisory",
        outcome="unknown" if unknown else _OUTCOMES[finding.kind],
        place=place,
        says=finding.message,
    )
