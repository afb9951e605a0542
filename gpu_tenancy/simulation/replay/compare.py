"""Two replays of the same jobs: who gains and who loses."""

from dataclasses import dataclass
from typing import Final

from gpu_tenancy.simulation.replay.outcome import Group, Outcome

NOTICED: Final = 0.05
"""The part of a value by which it must differ to be a gain or a loss: more than the steps of durations."""
_SECONDS: Final = 60.0
_GPU_HOURS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Change:
    """A team before and after.

    Attributes:
        verdict: `gains`, `loses`, `both` or `same`; `new` or `gone` where only one of the replays has its jobs.
    """

    team: str
    before: Group
    after: Group
    verdict: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two replays of the same jobs.

    Attributes:
        ref: the git ref of the first.
    """

    ref: str
    before: Outcome
    after: Outcome
    teams: tuple[Change, ...]


def compare(ref: str, before: Outcome, after: Outcome) -> Comparison:
    """Compares each team's waiting, and what it loses by preemption."""
    first, second = before.teams, after.teams
    return Comparison(
        ref,
        before,
        after,
        tuple(
            Change(team, one, other, _verdict(one, other))
            for team in dict.fromkeys((*second, *first))
            for one, other in ((first.get(team, Group()), second.get(team, Group())),)
        ),
    )


def _verdict(before: Group, after: Group) -> str:
    if not before.jobs or not after.jobs:
        return "new" if after.jobs else "gone"
    pairs = (
        (before.waits.mean, after.waits.mean, _SECONDS),
        (before.waits.quantile(0.95), after.waits.quantile(0.95), _SECONDS),
        (before.lost_gpu_hours, after.lost_gpu_hours, _GPU_HOURS),
        (float(before.never), float(after.never), 1.0),
    )
    worse = any(new - old >= max(least, NOTICED * old) for old, new, least in pairs)
    better = any(old - new >= max(least, NOTICED * old) for old, new, least in pairs)
    return "both" if worse and better else "loses" if worse else "gains" if better else "same"
