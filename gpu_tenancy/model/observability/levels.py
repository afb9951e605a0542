"""PromQL of service levels: how long workloads waited until they were admitted, and how many waited too long."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final

from gpu_tenancy.model.observability.expressions import RECORDED_EVERY
from gpu_tenancy.model.spec.alerts import ServiceLevel, ServiceLevels

_BOUNDS: Final = (1.0, *(2.5 * 2**power for power in range(15)))
"""Upper bounds of the buckets of kueue_admission_wait_time_seconds (`generateExponentialBuckets(16)` of
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/metrics/metrics.go)."""
_MOST: Final = 0.9
"""Largest share of late workloads that an alert waits for: an error budget of 20 % times 6 would never be reached."""


@dataclass(frozen=True, slots=True)
class Level:
    """A service level with its PromQL.

    Attributes:
        series: buckets of the waiting times of its workloads, recorded every `RECORDED_EVERY` seconds.
        kind: label `level` of `gpu_tenancy:admissions` and `gpu_tenancy:admissions_late`: `guarantee` or `waiting`.
        selected: label matchers of both.
    """

    series: str
    kind: str
    selected: str
    spec: ServiceLevel

    @property
    def within(self) -> str:
        """The time, as Prometheus writes it."""
        return f"{self.spec.within / 60:g}m"

    @property
    def share(self) -> str:
        """Percent of the workloads that must be admitted within the time."""
        return f"{self.spec.share:g}"

    @property
    def clean(self) -> int:
        """Minutes in which a queue must have requested no more than its guarantee.

        The time and an interval of the recording rule, so that no wait within the time was for its own workloads.
        """
        return ceil((self.spec.within + RECORDED_EVERY) / 60)

    @property
    def total(self) -> str:
        """Workloads admitted in the last interval, by queue."""
        return self._up_to("[+]Inf")

    @property
    def late(self) -> str:
        """Those that had waited longer; within a bucket they are assumed to be spread evenly."""
        low, high = self._around()
        low_bucket, high_bucket = (self._up_to(f"{bound:g}([.]0)?") for bound in (low, high))
        part = (self.spec.within - low) / (high - low)
        return f"{self.total} - ({low_bucket} + {part:.4g} * ({high_bucket} - {low_bucket}))"

    def _around(self) -> tuple[float, float]:
        place = bisect_right(_BOUNDS, self.spec.within)
        return _BOUNDS[place - 1], _BOUNDS[place]

    def _up_to(self, bound: str) -> str:
        labels = "{" + ", ".join(filter(None, (f'le=~"{bound}"', self.series.partition("{")[2].rstrip("}")))) + "}"
        return f"sum by (cluster_queue) ({self.series.partition('{')[0]}{labels})"

    def over(self, what: str, window: str, more: str = "") -> str:
        """What was recorded of it in a window, such as `admissions_late` in `30d`; `more` are further matchers."""
        return f"sum_over_time(gpu_tenancy:{what}{{{self.selected}{more}}}[{window}])"

    def burning(self, long: str, short: str, factor: float) -> str:
        """Percent of late workloads in the long window, by queue, if both windows use up the error budget too fast.

        The budget is for 30 days, and `factor` times as fast is too fast. One late workload alone is not a trend.
        https://sre.google/workbook/alerting-on-slos/: 6 times in 6 hours and in 30 minutes, once in 3 days and 6 hours.
        """
        limit = f"{min(factor * (1 - self.spec.share / 100), _MOST):.4g}"
        late, total = self.over("admissions_late", long), self.over("admissions", long)
        lately = f"{self.over('admissions_late', short)} > {limit} * {self.over('admissions', short)}"
        return f"100 * {late} / {total} > 100 * {limit} and {late} >= 2 and {lately}"


def levels(spec: ServiceLevels) -> Mapping[str, Level]:
    """The service levels of a stack by priority class; that of guarantees has none."""
    guarantee = Level("gpu_tenancy:guaranteed_wait_seconds_bucket", "guarantee", 'level="guarantee"', spec.guarantee)
    return {"": guarantee} | {
        name: Level(
            f'gpu_tenancy:wait_seconds_bucket{{priority_class="{name}"}}',
            "waiting",
            f'level="waiting", priority_class="{name}"',
            level,
        )
        for name, level in spec.waiting.items()
    }
