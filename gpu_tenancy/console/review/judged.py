"""What policy packs say of a stack, as a review shows it."""

from collections.abc import Mapping, Sequence
from typing import Final

from gpu_tenancy.console.offline.render import Rendered
from gpu_tenancy.console.policies.findings import Finding, Kind, by_weight
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
    """Asks policy packs, and puts first what refuses a deployment.

    Raises:
        ConsoleError: a pack does not start or answer, or its configuration is wrong.
    """
    found = judge(rendered, chosen)
    findings = by_weight([each for pack in found for each in pack.findings])
    places = {one.urn: f"{kind_of(one)} {name_of(one)}" for one in rendered.registrations}
    said = {(each.pack, each.rule) for each in findings}
    return Rules(
        lines=tuple(_line(each, places.get(each.urn, "the stack")) for each in findings),
        held=sum(pack.rules for pack in found) - len(said),
        packs=tuple(f"{pack.pack} {pack.version}" for pack in found),
    )


_UNKNOWN: Final = ": cannot be told, since "
"""How our own packs say that a preview cannot know a value; the protocol has no word for it."""


def _line(finding: Finding, place: str) -> RuleLine:
    unknown = finding.kind == "advice" and _UNKNOWN in finding.message
    return RuleLine(
        pack=finding.pack,
        rule=finding.rule,
        severity=finding.severity,
        level="mandatory" if finding.kind == "broken" else "advisory",
        outcome="unknown" if unknown else _OUTCOMES[finding.kind],
        place=place,
        says=finding.message,
    )
