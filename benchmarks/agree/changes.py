"""`python -m benchmarks.agree.changes`: changes of queues while workloads run, foreseen and on the real Kueue."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.agree import kueue
from benchmarks.agree.changing import Outcome, with_change
from benchmarks.agree.drawing import draw
from benchmarks.agree.playing import CAREFUL, QUICK, Played, Stage
from benchmarks.agree.tenancies import Data
from gpu_tenancy.base import terminal
from gpu_tenancy.base.progress import measured
from gpu_tenancy.embedded.processes import alone

ENOUGH = 0.99
"""Part of the changes whose outcome is foreseen."""


@dataclass(frozen=True, slots=True)
class Changed:
    """One change.

    Attributes:
        agrees: None where it does not count: Kueue did not come to rest, decided by a random id, or acted differently
            in two plays.
        why: it does not count.
    """

    scenario: Data
    agrees: bool | None
    outcomes: tuple[Outcome, Outcome] | None
    why: str = ""


def play_changes(stage: Stage, scenarios: Sequence[Data]) -> list[Changed]:
    """Plays scenarios with a change at their end, and those that differ twice more: the first play is in a hurry."""

    def play(chosen: Sequence[Data], *, careful: bool) -> dict[str, Played]:
        with measured(terminal.report, "changing queues", len(chosen), "scenarios") as advance:
            played = stage.play_all(chosen, CAREFUL if careful else QUICK, advance)
        return {one["id"]: seen for one, seen in zip(chosen, played, strict=True)}

    first = play(scenarios, careful=False)
    again = [one for one in scenarios if not agrees(first[one["id"]])]
    second, third = (play(again, careful=True) if again else {} for _ in range(2))
    found: list[Changed] = []
    for one in scenarios:
        name = one["id"]
        plays = [second[name], third[name]] if name in second else [first[name]]
        unstable = len({play.change and play.change[1] for play in plays}) > 1
        why = _uncounted(plays[0]) or ("two plays differ" if unstable else "")
        found.append(Changed(one, None if why else agrees(plays[0]), plays[0].change, why))
    return found


def _uncounted(played: Played) -> str:
    if not played.settled or played.change is None:
        return "Kueue did not come to rest"
    if played.tie:
        return "Kueue decided by a random id"
    return "; ".join(played.change[0].missed)


def agrees(played: Played) -> bool:
    """Whether a change did what was foreseen."""
    return not _uncounted(played) and played.change is not None and played.change[0] == played.change[1]


def main(
    seed: Annotated[int, typer.Option(help="Seed of the scenarios.")] = 1,
    count: Annotated[int, typer.Option(min=1, help="Number of changes.")] = 105,
    out: Annotated[Path, typer.Option(help="Folder for the platform's data.")] = Path("out/changes"),
) -> None:
    """Change queues while workloads run on the real Kueue, and report how many outcomes were foreseen.

    Exit code 2: less than 99 %.
    """
    with terminal.errors(), alone(out / "lock", terminal.report, "comparing changes with Kueue"):
        results: list[Changed] = []
        for fair in (False, True):
            chosen = [with_change(one) for one in draw(seed, count) if one["fairSharing"] is fair]
            with (
                kueue.platform(out / "platform", terminal.report) as platform,
                kueue.stage(platform, chosen, terminal.report, fair=fair) as stage,
            ):
                results += play_changes(stage, chosen)
        counted = [one for one in results if one.agrees is not None]
        agreed = [one for one in counted if one.agrees]
        effects = [one for one in agreed if one.outcomes and (one.outcomes[1].preempted or one.outcomes[1].admitted)]
        for one in results:
            if not one.agrees:
                word = "not counted" if one.agrees is None else "differs"
                terminal.out.print(f"{word}: {one.scenario['id']}: {one.why}: {one.outcomes}", highlight=False)
        terminal.out.print(
            f"{len(agreed)} of {len(counted)} changes were foreseen, {len(effects)} of them with an effect;"
            f" {len(results) - len(counted)} do not count",
            highlight=False,
        )
        if len(agreed) < ENOUGH * len(counted):
            raise typer.Exit(terminal.PROMISE_BROKEN)


if __name__ == "__main__":
    typer.run(main)
