"""How long a pending workload waits: from deadlines of what runs ahead of it, and from durations of recorded jobs.

Deadlines give a bound. Durations of the same team's jobs, of as many GPUs where there are enough of them, give a span:
from a tenth of them, of those that ran longer than a running job has by now, to nine tenths.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final

from gpu_tenancy.base.json import at, int_at, text_at
from gpu_tenancy.base.quantity import is_extended
from gpu_tenancy.cluster.pods import Manifest, named
from gpu_tenancy.cluster.workloads import Workload
from gpu_tenancy.kube.waiting import condition
from gpu_tenancy.kueue import Simulation
from gpu_tenancy.kueue.replay import waits

ENDS: Final = 100
"""Ends that are simulated at most: one or two seconds in a tree of 2,000 workloads."""
ENOUGH: Final = 10
"""Recorded jobs of which a span can be told."""
LOW: Final = 0.1
HIGH: Final = 0.9
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_LITTLE: Final = 0.1


@dataclass(frozen=True, slots=True)
class History:
    """Durations of recorded jobs in seconds, sorted, by team and number of GPUs; by None for all of a team."""

    durations: Mapping[tuple[str, int | None], list[float]] = field(
        default_factory=dict[tuple[str, int | None], list[float]]
    )

    @classmethod
    def of(cls, jobs: Iterable[tuple[str, int, float]]) -> "History":
        """From teams, GPUs and durations."""
        found: dict[tuple[str, int | None], list[float]] = {}
        for team, gpus, seconds in jobs:
            for key in ((team, gpus), (team, None)):
                found.setdefault(key, []).append(seconds)
        return cls({key: sorted(durations) for key, durations in found.items()})

    def left(self, team: str, gpus: int, ran: float, share: float) -> float | None:
        """Seconds that such a job runs on, after it ran for some; a share of them at most. None: too few are known."""
        for key in ((team, gpus), (team, None)):
            durations = self.durations.get(key, [])
            longer = len(durations) - (first := bisect_right(durations, ran))
            if longer >= ENOUGH:
                return durations[first + int(share * (longer - 1))] - ran
        return None


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a pending workload is admitted, in seconds from now, if nothing is submitted that comes first.

    `low` is 0 if only a bound is known, `high` None if nothing bounds it: nobody knows for how long the `unbounded`
    workloads run. `beyond`: it is not among those that the simulated ends admit; later ones might.
    """

    low: float = 0.0
    high: float | None = None
    unbounded: tuple[str, ...] = ()
    recorded: bool = False
    beyond: bool = False

    @property
    def text(self) -> str:
        """`about 40 min to 2 h`, `at most 2 h`, or why it is unknown."""
        if self.beyond:
            return f"wait unknown: the next {ENDS} ends do not admit it"
        if self.high is None:
            who = f" of {named(self.unbounded)}" if self.unbounded else ""
            return f"wait unknown: no deadline and no recorded job tells the end{who}"
        return f"expected wait: {self.short}{'' if self.recorded else ', by deadlines'}"

    @property
    def short(self) -> str:
        """`about 40 min to 2 h`, `at most 2 h` or `unknown`."""
        if self.high is None:
            return "unknown"
        low, high = about(min(self.low, self.high)), about(self.high)
        if not self.recorded:
            return f"at most {high}"
        return f"about {high if low == high else f'{low} to {high}'}"


def about(seconds: float) -> str:
    """A duration as one would say it, rounded up from a tenth of a step on: `5 min`, `40 min`, `2 h`, `3 d`."""
    for unit, size, step, most in (("min", _MINUTE, 5, 90), ("h", _HOUR, 1, 48)):
        steps = math.ceil(seconds / size / step - _LITTLE) * step
        if steps <= most:
            return f"{max(steps, step)} {unit}"
    return f"{math.ceil(seconds / _DAY - _LITTLE)} d"


@dataclass(frozen=True, slots=True)
class Expected:
    """How long workloads run; workloads are by label, and Jobs that may be read by uid."""

    workloads: Mapping[str, Workload]
    jobs: Mapping[str, Manifest]
    history: History = field(default_factory=History)
    now: datetime = field(default_factory=partial(datetime.now, UTC))

    def lasts(self, name: str, *, share: float, whole: bool = False) -> float | None:
        """Of `waiting.Lasts`: the share of recorded durations, or the deadline if that is earlier.

        The deadline is that at which Kueue or the Job's controller ends it, in seconds after the admission.
        """
        workload = self.workloads.get(name)
        if workload is None:
            return None
        ran, manifest = 0.0, workload.manifest
        if not whole and (since := text_at(condition(manifest, "Admitted"), "lastTransitionTime")):
            ran = max(0.0, (self.now - datetime.fromisoformat(since)).total_seconds())
        deadlines = [at(self.jobs.get(owner, {}), "spec", "activeDeadlineSeconds") for owner in workload.owners]
        most = at(manifest, "spec", "maximumExecutionTimeSeconds")
        if isinstance(most, int):
            deadlines.append(most - int_at(manifest, "status", "accumulatedPastExecutionTimeSeconds"))
        bounds = [max(0.0, deadline - ran) for deadline in deadlines if isinstance(deadline, int)]
        gpus = sum(amount for resource, amount in workload.total.items() if is_extended(resource))
        recorded = self.history.left(workload.namespace, gpus, ran, share)
        return min(bounds if recorded is None else [*bounds, recorded], default=None)


def estimate(fork: Callable[[], Simulation], name: str, expected: Expected, needed: Sequence[str] = ()) -> Estimate:
    """How long a workload waits, which is pending in each copy that `fork` gives of a simulation at rest.

    Workloads whose end is `needed` to admit it are named if nothing bounds them; without any, all that run.
    """
    (found,) = estimates(fork, [name], expected, until=name).values()
    if found.high is not None or found.beyond:
        return found
    running = needed or sorted(fork().running)
    unknown = (other for other in running if expected.lasts(other, share=HIGH) is None)
    return Estimate(unbounded=tuple(other for other in unknown if other in expected.workloads))


def estimates(
    fork: Callable[[], Simulation], names: Iterable[str], expected: Expected, until: str | None = None
) -> dict[str, Estimate]:
    """How long each of several workloads waits; arguments as of `estimate` and `waiting.waits`."""

    def by(share: float) -> tuple[dict[str, float], bool]:
        left, whole = partial(expected.lasts, share=share), partial(expected.lasts, share=share, whole=True)
        return waits(fork(), left, whole, most=ENDS, until=until)

    recorded = bool(expected.history.durations)
    high, beyond = by(HIGH)
    low = by(LOW)[0] if recorded and high.keys() & set(names) else {}
    return {
        name: Estimate(low.get(name, high[name] if recorded else 0.0), high[name], recorded=recorded)
        if name in high
        else Estimate(beyond=beyond)
        for name in names
    }
