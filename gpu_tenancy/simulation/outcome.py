"""Results of a replay, and of two replays of the same jobs: which teams gain or lose."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

_STEP: Final = math.log(1.02)  # durations are counted in steps of 2 %
BINS: Final = 512  # most points of a curve; with more, two neighbours become one
HOUR: Final = 3600.0


@dataclass(slots=True)
class Durations:
    """Many durations in seconds, with an exact sum and quantiles within 2 %."""

    total: float = 0.0
    longest: float = 0.0
    _steps: Counter[int] = field(default_factory=Counter[int])

    def add(self, seconds: float) -> None:
        """Adds a duration; less than a second counts as 0."""
        self.total += seconds
        self.longest = max(self.longest, seconds)
        self._steps[0 if seconds < 1 else 1 + int(math.log(seconds) / _STEP)] += 1

    def include(self, other: "Durations") -> None:
        """Adds all durations of another."""
        self.total += other.total
        self.longest = max(self.longest, other.longest)
        self._steps.update(other._steps)

    @property
    def count(self) -> int:
        """Number of durations."""
        return self._steps.total()

    @property
    def mean(self) -> float:
        """Mean in seconds; 0 for no durations."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Quantile in seconds; 0 for no durations."""
        left = share * self.count
        for step in sorted(self._steps):
            left -= self._steps[step]
            if left <= 0:
                return 0.0 if step == 0 else min(self.longest, math.exp((step - 0.5) * _STEP))
        return 0.0


@dataclass(slots=True)
class Curve:
    """A level over time, as means of equal spans; `span` is in seconds."""

    span: float = 60.0
    _level: float = 0.0
    _since: float = 0.0
    _areas: list[float] = field(default_factory=list[float])

    def change(self, now: float, by: float) -> None:
        """Changes the level at a time in seconds from the start."""
        self._fill(now)
        self._level += by

    def means(self, until: float) -> tuple[float, ...]:
        """Means of all spans that end by a time, at least of the first span."""
        self._fill(until)
        return tuple(area / self.span for area in self._areas[: max(1, int(until / self.span))])

    def _fill(self, now: float) -> None:
        while now >= self.span * BINS:
            self._areas = [sum(self._areas[at : at + 2]) for at in range(0, len(self._areas), 2)]
            self.span *= 2
        missing = int(now / self.span) + 1 - len(self._areas)
        if missing > 0:
            self._areas += [0.0] * missing
        if self._level:
            for index in range(int(self._since / self.span), int(now / self.span) + 1):
                start = max(self._since, index * self.span)
                self._areas[index] += self._level * (min(now, (index + 1) * self.span) - start)
        self._since = now


@dataclass(slots=True)
class Group:
    """The jobs of one team and priority class; waits are from submission to the first start."""

    jobs: int = 0
    waits: Durations = field(default_factory=Durations)
    never: int = 0  # exceed the queue's capacity, so could not start
    gpu_hours: float = 0.0  # including lost ones
    lost_gpu_hours: float = 0.0  # of work that jobs had to repeat after a preemption
    preemptions: int = 0

    def add(self, other: "Group") -> None:
        """Adds the jobs of another group."""
        self.jobs += other.jobs
        self.never += other.never
        self.gpu_hours += other.gpu_hours
        self.lost_gpu_hours += other.lost_gpu_hours
        self.preemptions += other.preemptions
        self.waits.include(other.waits)


@dataclass(frozen=True, slots=True)
class FlavorOutcome:
    """The GPUs of a flavor of all queues, and the GPUs in use over time."""

    gpus: int
    held: Curve


@dataclass(slots=True)
class Outcome:
    """Result of a replay; hours are of the recorded time.

    `groups` are by team and priority class (empty if the stack has none), `preempted_by` by preempting and preempted
    team.
    """

    groups: dict[tuple[str, str], Group] = field(default_factory=dict[tuple[str, str], Group])
    flavors: dict[str, FlavorOutcome] = field(default_factory=dict[str, FlavorOutcome])  # with GPUs
    waiting: dict[str, Curve] = field(default_factory=dict[str, Curve])  # by team, GPUs that pending jobs request
    preempted_by: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    left_out: Counter[str] = field(default_factory=Counter[str])  # jobs that the stack cannot have, by the reason
    dealt: int = 0  # jobs without a team, which were given one
    arrivals: float = 0.0  # seconds from the first submission to the last
    livelocks: int = 0

    @property
    def jobs(self) -> int:
        """Number of played jobs."""
        return sum(group.jobs for group in self.groups.values())

    @property
    def teams(self) -> dict[str, Group]:
        """One group for each team, in the order of the stack."""
        found: dict[str, Group] = {}
        for (team, _), group in self.groups.items():
            found.setdefault(team, Group()).add(group)
        return found

    @property
    def total(self) -> Group:
        """One group for all jobs."""
        found = Group()
        for group in self.groups.values():
            found.add(group)
        return found

    def utilisation(self) -> Iterator[tuple[str, int, float]]:
        """Each flavor with its GPUs, and their share in use while jobs arrived."""
        for name, flavor in self.flavors.items():
            means = flavor.held.means(self.arrivals)
            mean = sum(means) / len(means) if means else 0.0
            yield name, flavor.gpus, mean / flavor.gpus if flavor.gpus else 0.0


NOTICED: Final = 0.05
"""Relative difference that counts as a gain or a loss; larger than the steps of durations."""
_SECONDS: Final = 60.0
_GPU_HOURS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """A replay of the same jobs at a git ref; a verdict is `gains`, `loses`, `both`, `same`, `new` or `gone`."""

    ref: str  # empty: at the same stack, where idle jobs are not stopped
    before: Outcome
    verdicts: Mapping[str, str]  # by team

    @property
    def place(self) -> str:
        """Such as `at origin/main`, after `than`."""
        return f"at {self.ref}" if self.ref else "without idle"


def compare(ref: str, before: Outcome, after: Outcome) -> Comparison:
    """Compares each team's waits, and its losses by preemption."""
    old, new = before.teams, after.teams
    teams = dict.fromkeys((*new, *old))
    return Comparison(ref, before, {team: _verdict(old.get(team, Group()), new.get(team, Group())) for team in teams})


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
