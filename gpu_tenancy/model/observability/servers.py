"""What servers measure about themselves, as PromQL, and their service levels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpu_tenancy.base.quantity import format_duration

if TYPE_CHECKING:  # The plan imports this package, so importing it at run time would be a cycle.
    from gpu_tenancy.model.plan.workloads import ServerPlan

_MOST: Final = 0.9
"""Largest share of bad requests that an alert waits for: an error budget of 20 % times 14 would never be reached."""


def series(metric: str, server: "ServerPlan", suffix: str = "", more: str = "") -> str:
    """A metric of a server's pods. The labels are those that Prometheus adds to what a ServiceMonitor scrapes."""
    name, _, own = metric.partition("{")
    matchers = (f'namespace="{server.team}", service="{server.name}"', own.rstrip("}"), more)
    return f"{name}{suffix}{{{', '.join(filter(None, matchers))}}}"


def rate(metric: str, server: "ServerPlan", window: str = "5m", suffix: str = "", more: str = "") -> str:
    """How fast a counter of all pods of a server grows, per second."""
    return f"sum(rate({series(metric, server, suffix, more)}[{window}]))"


def quantile(of: float, histogram: str, server: "ServerPlan") -> str:
    """A quantile of the last 5 minutes over all pods of a server, in the unit of the histogram."""
    return f"histogram_quantile({of:g}, sum by (le) (rate({series(histogram, server, '_bucket')}[5m])))"


@dataclass(frozen=True, slots=True)
class Promise:
    """One service level of a server: which requests count against it.

    Attributes:
        what: of the requests that count against it, for texts.
        metric: a histogram of seconds, or a counter of failures.
        within: upper bound of a bucket of the histogram in seconds; None for failures.
        requests: counter of requests, for failures.
    """

    server: "ServerPlan"
    what: str
    metric: str
    within: float | None = None
    requests: str = ""

    def burning(self, long: str, short: str, factor: float) -> str:
        """Percent of bad requests in the long window, if both windows use up the error budget too fast.

        The budget is for 30 days, and `factor` times as fast is too fast: https://sre.google/workbook/alerting-on-slos/.
        """
        limit = f"{min(factor * (1 - self.server.level.share / 100), _MOST):.4g}"
        return f"100 * ({self.bad(long)}) > 100 * {limit} and ({self.bad(short)}) > {limit}"

    def bad(self, window: str) -> str:
        """Share of the requests in a window that count against it; without requests, it has no value."""
        if self.within is None:
            return f"{rate(self.metric, self.server, window)} / {rate(self.requests, self.server, window)}"
        bound = f'le=~"{self.within:g}([.]0)?"'
        good = rate(self.metric, self.server, window, "_bucket", bound)
        return f"1 - {good} / {rate(self.metric, self.server, window, '_count')}"


def promises(servers: "Iterable[ServerPlan]") -> Mapping[str, Promise]:
    """The service levels of all servers; that of failures needs no key of the stack."""
    return {f"{one.server.team}/{one.server.name}/{one.what}": one for server in servers for one in _of(server)}


def _of(server: "ServerPlan") -> Iterable[Promise]:
    names, level = server.metrics, server.level
    if level.first_token and names.first_token:
        text = f"had no token after {format_duration(level.first_token)}"
        yield Promise(server, text, names.first_token, level.first_token)
    if level.latency and names.latency:
        yield Promise(server, f"took longer than {format_duration(level.latency)}", names.latency, level.latency)
    if names.requests and names.failures:
        yield Promise(server, "failed", names.failures, requests=names.requests)
