"""Latency that servers scale on: scraping, query, and the autoscaler's metric.

The ServiceMonitor, the query of KEDA's ScaledObject and the rule of prometheus-adapter are all derived from the
histogram's name in the stack; both queries have the same expression.
"""

from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.spec.cluster import Metrics, Prometheus
from gpu_tenancy.model.spec.workloads import Server

SCRAPE_INTERVAL: Final = 15
"""Scrape interval in seconds: the same as an autoscaler's sync period."""
METRICS_PATH: Final = "/metrics"

_WINDOW: Final = "2m"
"""Time window of a percentile: eight scrapes, so that some can fail."""
_CHART: Final = "kube-prometheus-stack"
_LONGEST: Final = 26
"""Length to which that chart truncates its full name: `kube-prometheus-stack.fullname` in its templates/_helpers.tpl
(https://github.com/prometheus-community/helm-charts, read 2026-11-21)."""
_PORT: Final = 9090
"""Port of its service: `prometheus.service.port` in the chart's values."""


@dataclass(frozen=True, slots=True)
class Monitor:
    """How Prometheus scrapes the pods of a server.

    Attributes:
        port: of the container.
        release: value of the label by which Prometheus selects ServiceMonitors.
        namespace: namespace of Prometheus.
    """

    port: int
    release: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Query:
    """A Prometheus query of KEDA.

    Attributes:
        address: of Prometheus' HTTP API.
        expression: PromQL; no value, not 0, if the metric is missing.
    """

    address: str
    expression: str


def monitor(metrics: Metrics, server: Server) -> Monitor | None:
    """How a server is scraped; None if nothing uses the metric, or this program does not configure it."""
    if metrics.histogram is None or target(server) is None:
        return None
    return Monitor(server.metrics_port or server.port, metrics.prometheus.release, metrics.prometheus.namespace)


def target(server: Server) -> float | None:
    """A server's latency target in seconds; None if it does not scale on latency."""
    return server.scale_on.latency_p99 if server.scale_on and server.autoscaled else None


def metric_name(metrics: Metrics) -> str | None:
    """Name of the autoscaler's metric: a pod's 99th percentile in seconds; None if nothing serves it."""
    if metrics.latency_p99 or metrics.histogram is None:
        return metrics.latency_p99
    return f"{metrics.histogram.removesuffix('_seconds')}_p99_seconds"


def per_pod(metrics: Metrics, team: str, server: str) -> str | None:
    """PromQL of each pod's percentile; None without a histogram."""
    # Labels that Prometheus adds to everything it scrapes through a ServiceMonitor.
    matchers = f'namespace="{team}",service="{server}"'
    return pod_p99(metrics.histogram, matchers, "pod") if metrics.histogram else None


def query(metrics: Metrics, team: str, server: str) -> Query | None:
    """KEDA's query for a server: the average of its pods' percentiles, as an autoscaler does with a pod metric.

    Returns:
        None if servers do not scale with KEDA.
    """
    percentile = per_pod(metrics, team, server)
    if percentile is None or metrics.by == "adapter":
        return None
    return Query(prometheus_address(metrics.prometheus), f"avg({percentile})")


def pod_p99(histogram: str, matchers: str, by: str) -> str:
    """PromQL of the 99th percentile of latency in the last minutes, in seconds.

    A pod without requests has no percentile (0/0 is NaN, which a comparison drops); it counts as 0, so that an idle
    server scales down. A pod that is not scraped, or without buckets, has no value.

    Args:
        histogram: name of a classic histogram in seconds.
        matchers: label matchers, without braces.
        by: labels that identify a pod, separated by commas.
    """
    buckets, count = f"{histogram}_bucket{{{matchers}}}", f"{histogram}_count{{{matchers}}}"
    return (
        f"histogram_quantile(0.99, sum by (le, {by}) (rate({buckets}[{_WINDOW}]))) >= 0"
        f" or sum by ({by}) (rate({count}[{_WINDOW}])) == 0"
    )


def adapter_rules(metrics: Metrics) -> list[dict[str, object]]:
    """Rules of prometheus-adapter for the metric that the stack's servers scale on.

    For the chart's value `rules.custom`; empty if the adapter does not serve the metric, or has a rule already
    (`metrics.latencyP99` without a histogram). The format: docs/config.md of kubernetes-sigs/prometheus-adapter.
    """
    name = metric_name(metrics)
    if metrics.histogram is None or metrics.by != "adapter" or name is None:
        return []
    return [
        {
            # One series per pod is enough to discover the pods; buckets would be a dozen each.
            "seriesQuery": f'{metrics.histogram}_count{{namespace!="",pod!=""}}',
            "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
            "name": {"matches": f"^{metrics.histogram}_count$", "as": name},
            "metricsQuery": pod_p99(metrics.histogram, "<<.LabelMatchers>>", "<<.GroupBy>>"),
        }
    ]


def prometheus_address(prometheus: Prometheus) -> str:
    """URL of the Prometheus API: as set in the stack, else the Service of the chart's release."""
    return prometheus.address or f"http://{_service(prometheus.release)}.{prometheus.namespace}.svc:{_PORT}"


def _service(release: str) -> str:
    """Name of the chart's Prometheus Service (templates/prometheus/service.yaml)."""
    full = release if _CHART in release else f"{release}-{_CHART}"
    return f"{full[:_LONGEST].removesuffix('-')}-prometheus"
