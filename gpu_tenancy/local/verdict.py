"""The verdict of `tenancy up`: how many checks passed, which failed, and which were not made and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gpu_tenancy.base.texts import plural
from gpu_tenancy.local.checks.check import Check

Tone: TypeAlias = Literal["good", "notice", "bad"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checks of a stack say together.

    Attributes:
        tone: good only if every check was made and passed; a check that was not made is a notice.
        title: the counts: `26 of 28 checks passed, 2 not checked`.
        reasons: a line for each failed check, and one for each reason for which checks were not made.
    """

    tone: Tone
    title: str
    reasons: tuple[str, ...]


def verdict(checks: Sequence[Check]) -> Verdict:
    """Counts checks; a stack without any has no verdict that is good."""
    failed = [check for check in checks if check.holds is False]
    skipped: dict[str, list[str]] = {}
    for check in checks:
        if check.holds is None:
            skipped.setdefault(check.seen, []).append(check.promise)
    unchecked = sum(map(len, skipped.values()))
    passed = len(checks) - len(failed) - unchecked
    if checks and passed == len(checks):
        return Verdict("good", f"All {plural(passed, 'check')} passed", ())
    counts = [
        f"{passed} of {plural(len(checks), 'check')} passed",
        *([f"{len(failed)} failed"] if failed else ()),
        *([f"{unchecked} not checked"] if unchecked else ()),
    ]
    reasons = [f"failed: {check.promise}" for check in failed]
    reasons += [f"{len(promises)} not checked: {reason}" for reason, promises in skipped.items()]
    return Verdict("bad" if failed else "notice", ", ".join(counts), tuple(reasons))
