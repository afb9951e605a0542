"""PromQL of service levels: how long workloads waited until they were admitted, and how many waited too long."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from gpu_tenancy.base.quantity import format_duration
from gpu_tenancy.model.observability.expressions import RECORDED_EVERY
from gpu_tenancy.model.spec.operators import ServiceLevel, ServiceLevels

if TYPE_CHECKING:
    from gpu_tenancy.model.plan.workloads import ServerPlan


_BOUNDS: Final = (1.0, *(2.5 * 2**power for power in range(15)))
"""Upper bounds of the buckets of kueue_admission_wait_time_seconds (`generateExponentialBuckets(16)` of
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/metrics/metrics.go)."""
_MOST: Final = 0.9
"""Largest share of late workloads that an alert waits for: an error budget of 20 % times 6 would never be reached."""


def _limit(share: float, factor: float) -> str:
    """Share of late workloads at which the error budget of 30 days is used up `factor` times as fast."""
    return f"{min(factor * (1 - share / 100), _MOST):.4g}"


@dataclass(frozen=True, slots=True)
class Level:
    """A service level with its PromQL."""

    series: str  # buckets of the waiting times of its workloads, recorded every `RECORDED_EVERY` seconds
    kind: str  # label `level` of `gpu_tenancy:admissions` and `gpu_tenancy:admissions_late`: `guarantee` or `waiting`
    selected: str  # label matchers of both series
    spec: ServiceLevel

    @property
    def within(self) -> str:
        """The time, as Prometheus writes it."""
        return format_duration(self.spec.within)

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
        """Late workloads of the last interval; within a bucket they are assumed to be spread evenly."""
        place = bisect_right(_BOUNDS, self.spec.within)
        low, high = _BOUNDS[place - 1], _BOUNDS[place]
        low_bucket, high_bucket = (self._up_to(f"{bound:g}([.]0)?") for bound in (low, high))
        part = (self.spec.within - low) / (high - low)
        return f"{self.total} - ({low_bucket} + {part:.4g} * ({high_bucket} - {low_bucket}))"

    def _up_to(self, bound: str) -> str:
        name, _, own = self.series.partition("{")
        matchers = ", ".join(filter(None, (f'le=~"{bound}"', own.rstrip("}"))))
        return f"sum by (cluster_queue) ({name}{{{matchers}}})"

    def over(self, what: str, window: str, more: str = "") -> str:
        """A recorded series in a window, such as `admissions_late` in `30d`; `more` are further matchers."""
        return f"sum_over_time(gpu_tenancy:{what}{{{self.selected}{more}}}[{window}])"

    def burning(self, long: str, short: str, factor: float) -> str:
        """Percent of late workloads in the long window, by queue, if both windows use up the error budget too fast.

        One late workload alone is not a trend.
        https://sre.google/workbook/alerting-on-slos/: 6 times in 6 hours and in 30 minutes, once in 3 days and 6 hours.
        """
        limit = _limit(self.spec.share, factor)
        late, total = self.over("admissions_late", long), self.over("admissions", long)
        lately = f"{self.over('admissions_late', short)} > {limit} * {self.over('admissions', short)}"
        return f"100 * {late} / {total} > 100 * {limit} and {late} >= 2 and {lately}"


def levels(spec: ServiceLevels) -> Mapping[str, Level]:
    """The service levels of a stack by priority class; the level of guarantees has the key ""."""
    found = {"": Level("gpu_tenancy:guaranteed_wait_seconds_bucket", "guarantee", 'level="guarantee"', spec.guarantee)}
    for name, level in spec.waiting.items():
        of_class = f'priority_class="{name}"'
        series = f"gpu_tenancy:wait_seconds_bucket{{{of_class}}}"
        found[name] = Level(series, "waiting", f'level="waiting", {of_class}', level)
    return found


def series(metric: str, server: "ServerPlan", suffix: str = "", more: str = "") -> str:
    """A metric of a server's pods, by the labels that Prometheus adds for a ServiceMonitor."""
    name, _, own = metric.partition("{")
    matchers = (f'namespace="{server.team}", service="{server.name}"', own.rstrip("}"), more)
    return f"{name}{suffix}{{{', '.join(filter(None, matchers))}}}"


def rate(metric: str, server: "ServerPlan", window: str = "5m", suffix: str = "", more: str = "") -> str:
    """Growth per second of a counter of all pods of a server."""
    return f"sum(rate({series(metric, server, suffix, more)}[{window}]))"


def quantile(of: float, histogram: str, server: "ServerPlan") -> str:
    """A quantile of the last 5 minutes over all pods of a server, in the unit of the histogram."""
    return f"histogram_quantile({of:g}, sum by (le) (rate({series(histogram, server, '_bucket')}[5m])))"


@dataclass(frozen=True, slots=True)
class Promise:
    """One service level of a server: `within` seconds of a histogram (`metric`), or a counter of failures."""

    server: "ServerPlan"
    what: str  # the requests that violate it, for texts
    metric: str
    within: float | None = None  # a bucket's upper bound; None for failures
    requests: str = ""  # counter of all requests, for failures

    def burning(self, long: str, short: str, factor: float) -> str:
        """Percent of bad requests in the long window, if both windows use up the error budget too fast.

        https://sre.google/workbook/alerting-on-slos/.
        """
        limit = _limit(self.server.level.share, factor)
        return f"100 * ({self.bad(long)}) > 100 * {limit} and ({self.bad(short)}) > {limit}"

    def bad(self, window: str) -> str:
        """Share of the violating requests in a window; it has no value without requests."""
        if self.within is None:
            return f"{rate(self.metric, self.server, window)} / {rate(self.requests, self.server, window)}"
        bound = f'le=~"{self.within:g}([.]0)?"'
        good = rate(self.metric, self.server, window, "_bucket", bound)
        return f"1 - {good} / {rate(self.metric, self.server, window, '_count')}"


def promises(servers: "Iterable[ServerPlan]") -> Mapping[str, Promise]:
    """The service levels of all servers; the level of failures needs no key of the stack."""
    found: list[Promise] = []
    for server in servers:
        names, level = server.metrics, server.level
        if level.first_token and names.first_token:
            text = f"had no token after {format_duration(level.first_token)}"
            found.append(Promise(server, text, names.first_token, level.first_token))
        if level.latency and names.latency:
            text = f"took longer than {format_duration(level.latency)}"
            found.append(Promise(server, text, names.latency, level.latency))
        if names.requests and names.failures:
            found.append(Promise(server, "failed", names.failures, requests=names.requests))
    return {f"{one.server.team}/{one.server.name}/{one.what}": one for one in found}
