"""Curves of a replay: GPUs in use by flavor, and GPUs that pending jobs ask for by team."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.texts import plural
from gpu_tenancy.simulation.replay.outcome import Curve, Outcome
from gpu_tenancy.whatif.replayed import Replayed

WIDTH: Final = 1000
HEIGHT: Final = 120
_HUES: Final = 6


@dataclass(frozen=True, slots=True)
class Line:
    """A curve.

    Attributes:
        path: of an SVG of `WIDTH` by `HEIGHT`.
        area: the same, closed at the bottom.
    """

    path: str
    area: str


@dataclass(frozen=True, slots=True)
class Picture:
    """One diagram.

    Attributes:
        most: value at the top.
        now: the curve.
        before: at the ref; None without one.
        says: what it shows, in words.
    """

    name: str
    note: str
    hue: int
    most: str
    now: Line
    before: Line | None
    says: str


def held(replayed: Replayed) -> Iterator[Picture]:
    """Each flavor's GPUs in use."""
    outcome, against = replayed.outcome, replayed.against
    for number, (name, flavor) in enumerate(outcome.flavors.items()):
        means = flavor.held.means(outcome.arrivals)
        before = against.before.flavors.get(name) if against else None
        earlier = before.held.means(against.before.arrivals) if before and against else ()
        if not any(means) and not any(earlier):
            continue
        top = max(flavor.gpus, before.gpus if before else 0, *means, *earlier)
        mean = sum(means) / len(means) if means else 0.0
        says = (
            f"{name}: {mean:.1f} of {plural(flavor.gpus, 'GPU')} in use on average, at most {max(means, default=0):.0f}"
        )
        earlier_line = _line(earlier, top) if earlier else None
        note = f"of {plural(flavor.gpus, 'GPU')}"
        yield Picture(name, note, number % _HUES, f"{top:.0f}", _line(means, top), earlier_line, says)


def waiting(replayed: Replayed) -> Iterator[Picture]:
    """What each team's pending jobs ask for."""
    outcome, against = replayed.outcome, replayed.against
    for number, team in enumerate(replayed.teams):
        means = _means(outcome, team)
        earlier = _means(against.before, team) if against else ()
        if not any(means) and not any(earlier):
            continue
        top = max((*means, *earlier))
        mean = sum(means) / len(means) if means else 0.0
        says = f"{team}: pending jobs ask for {mean:.1f} GPUs on average, at most {max(means, default=0):.0f}"
        earlier_line = _line(earlier, top) if earlier else None
        yield Picture(team, "GPUs", number % _HUES, f"{top:.0f}", _line(means, top), earlier_line, says)


def _means(outcome: Outcome, team: str) -> tuple[float, ...]:
    curve = outcome.waiting.get(team, Curve())
    return curve.means(outcome.arrivals)


def _line(means: tuple[float, ...], top: float) -> Line:
    if not means:
        return Line("", "")
    width = WIDTH / len(means)
    heights = [HEIGHT - HEIGHT * mean / top if top else HEIGHT for mean in means]
    points = " ".join(f"V{height:.1f}H{(index + 1) * width:.1f}" for index, height in enumerate(heights))
    path = f"M0 {heights[0]:.1f} {points}"
    return Line(path, f"{path} V{HEIGHT}H0Z")
