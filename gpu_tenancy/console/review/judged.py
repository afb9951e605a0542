"""Results of policy packs, as a review shows them."""

from collections.abc import Mapping, Sequence
from typing import Final

from gpu_tenancy.console.offline.render import Rendered
from gpu_tenancy.console.policies.findings import Finding, Kind, Outcome, by_weight
from gpu_tenancy.console.policies.judging import PackChoice, judge
from gpu_tenancy.console.review.changes import kind_of, name_of
from gpu_tenancy.console.review.review import RuleLine, Rules

_OUTCOMES: Final[Mapping[Kind, str]] = {
    "broken": "broken",
    "advice": "broken",
    "exempted": "exempted",
    "mended": "mended",
}


def judged(rendered: Rendered, chosen: Sequence[PackChoice]) -> Rules:
    """Evaluates policy packs; mandatory violations come first.

    Raises:
        ConsoleError: a pack fails or its configuration is invalid.
    """
    packs = judge(rendered, chosen)
    findings = by_weight([finding for pack in packs for finding in pack.findings])
    places = {
        registration.urn: f"{kind_of(registration)} {name_of(registration)}" for registration in rendered.registrations
    }
    not_passed = {(finding.pack, finding.rule) for finding in findings}
    return Rules(
        lines=tuple(_line(finding, places.get(finding.urn, "the stack")) for finding in findings),
        held=sum(pack.rules for pack in packs) - len(not_passed),
        packs=tuple(f"{pack.pack} {pack.version}" for pack in packs),
    )


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
