"""Estimates how long a pending workload waits, from deadlines of running workloads and durations of recorded jobs.

Deadlines give an upper bound. Recorded jobs of the team (with as many GPUs, if there are enough) that ran longer than
the running job has run so far give a span, from their 10th to their 90th percentile.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeAlias

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.base.quantity import gpu_count
from gpu_tenancy.cluster.pods import Manifest, named
from gpu_tenancy.cluster.workloads import Workload, executed
from gpu_tenancy.kube.waiting import condition
from gpu_tenancy.kueue import Simulation
from gpu_tenancy.kueue.replay import waits

ENDS: Final = 100  # maximum of simulated ends: one or two seconds in a tree of 2,000 workloads
ENOUGH: Final = 10  # minimum of recorded jobs for a span
LOW: Final = 0.1
HIGH: Final = 0.9
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_LITTLE: Final = 0.1
_Key: TypeAlias = tuple[str, int | None]  # team and number of GPUs; None for all jobs of a team


@dataclass(frozen=True, slots=True)
class History:
    """Sorted durations of recorded jobs in seconds."""

    durations: Mapping[_Key, list[float]] = field(default_factory=dict[_Key, list[float]])

    @classmethod
    def of(cls, jobs: Iterable[tuple[str, int, float]]) -> "History":
        """Groups (team, GPUs, seconds) of jobs."""
        found = grouped((key, seconds) for team, gpus, seconds in jobs for key in ((team, gpus), (team, None)))
        return cls({key: sorted(durations) for key, durations in found.items()})

    def left(self, team: str, gpus: int, ran: float, share: float) -> float | None:
        """Remaining seconds of a job that ran for `ran` seconds, at percentile `share`; None with too few records."""
        for key in ((team, gpus), (team, None)):
            durations = self.durations.get(key, [])
            longer = len(durations) - (first := bisect_right(durations, ran))
            if longer >= ENOUGH:
                return durations[first + int(share * (longer - 1))] - ran
        return None


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds until a pending workload is admitted, if no workload is submitted that comes first."""

    low: float = 0.0  # 0 if only a bound is known
    high: float | None = None  # None if nothing bounds it
    unbounded: tuple[str, ...] = ()  # workloads of unknown duration
    recorded: bool = False
    beyond: bool = False  # none of the simulated ends admits it; later ends might

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
    """A duration, rounded up beyond a tenth of a step: `5 min`, `40 min`, `2 h`, `3 d`."""
    for unit, size, step, most in (("min", _MINUTE, 5, 90), ("h", _HOUR, 1, 48)):
        steps = math.ceil(seconds / size / step - _LITTLE) * step
        if steps <= most:
            return f"{max(steps, step)} {unit}"
    return f"{math.ceil(seconds / _DAY - _LITTLE)} d"


@dataclass(frozen=True, slots=True)
class Expected:
    """Durations of workloads, which are by label, and of readable Jobs, which are by uid."""

    workloads: Mapping[str, Workload]
    jobs: Mapping[str, Manifest]
    history: History = field(default_factory=History)
    now: datetime = field(default_factory=partial(datetime.now, UTC))

    def lasts(self, name: str, *, share: float, whole: bool = False) -> float | None:
        """Seconds that a workload still runs, or runs in all; see `replay.Lasts`.

        The percentile `share` of recorded durations, or the deadline of Kueue or of the Job's controller if that is
        earlier.
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
            deadlines.append(most - executed(manifest))
        bounds = [max(0.0, deadline - ran) for deadline in deadlines if isinstance(deadline, int)]
        recorded = self.history.left(workload.namespace, gpu_count(workload.total), ran, share)
        return min(bounds if recorded is None else [*bounds, recorded], default=None)


def estimate(fork: Callable[[], Simulation], name: str, expected: Expected, needed: Sequence[str] = ()) -> Estimate:
    """Estimates the wait of a workload that is pending in each simulation at rest that `fork` returns.

    If nothing bounds the wait, the result names the unbounded workloads of `needed`, or of all that run.
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
    """Estimates of several workloads; see `estimate` and `replay.waits`."""

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
