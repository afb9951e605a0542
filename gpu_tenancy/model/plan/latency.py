"""Latency that servers scale on: what is scraped, how it is queried, and under which name the autoscaler sees it.

The histogram's name in the stack is the only source: the ServiceMonitor, the query of KEDA's ScaledObject and the rule
of prometheus-adapter all follow from it, and both queries hold the same expression.
"""

from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import Metrics, Prometheus
from gpu_tenancy.model.spec.workloads import Server

SCRAPE_INTERVAL: Final = 15
"""Seconds between two scrapes: as often as an autoscaler looks."""
METRICS_PATH: Final = "/metrics"

_WINDOW: Final = "2m"
"""What a percentile is taken over: eight scrapes, so that some may fail."""
_CHART: Final = "kube-prometheus-stack"
_LONGEST: Final = 26
"""To how many characters that chart cuts its own name: `kube-prometheus-stack.fullname` in its templates/_helpers.tpl
(https://github.com/prometheus-community/helm-charts, read 2026-11-21)."""
_PORT: Final = 9090
"""Port of its service: `prometheus.service.port` in the chart's values."""


@dataclass(frozen=True, slots=True)
class Monitor:
    """How Prometheus scrapes the pods of a server.

    Attributes:
        port: of the container.
        release: the label by which Prometheus knows the monitors that it is to take.
        namespace: from where it scrapes.
    """

    port: int
    release: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Query:
    """A number that KEDA asks Prometheus for.

    Attributes:
        address: of Prometheus' HTTP API.
        expression: PromQL; no value where the metric is missing, which is not the same as 0.
    """

    address: str
    expression: str


def monitor(stack: Stack, server: Server) -> Monitor | None:
    """How a server is scraped; None where nothing reads it, or it is not ours to arrange."""
    prometheus = stack.metrics.prometheus
    if stack.metrics.histogram is None or target(server) is None:
        return None
    return Monitor(server.metrics_port or server.port, prometheus.release, prometheus.namespace)


def target(server: Server) -> float | None:
    """The latency in seconds that a server's pods are to keep, where it scales on that."""
    return server.scale_on.latency_p99 if server.scale_on and server.autoscaled else None


def metric_name(metrics: Metrics) -> str | None:
    """Under which name an autoscaler sees the 99th percentile of a pod, in seconds; None where nothing serves it."""
    if metrics.latency_p99 or metrics.histogram is None:
        return metrics.latency_p99
    return f"{metrics.histogram.removesuffix('_seconds')}_p99_seconds"


def per_pod(stack: Stack, team: str, server: str) -> str | None:
    """PromQL of each pod's percentile; None without a histogram, where only the adapter's own metric has it."""
    # The labels that a ServiceMonitor gives to all that is scraped through it.
    matchers = f'namespace="{team}",service="{server}"'
    return pod_p99(stack.metrics.histogram, matchers, "pod") if stack.metrics.histogram else None


def query(stack: Stack, team: str, server: str) -> Query | None:
    """What KEDA asks for a server: the percentile averaged over its pods, as an autoscaler does with a pod metric.

    Returns:
        None where KEDA is not the one to scale on latency.
    """
    each = per_pod(stack, team, server)
    if each is None or stack.metrics.by == "adapter":
        return None
    return Query(prometheus_address(stack.metrics.prometheus), f"avg({each})")


def pod_p99(histogram: str, matchers: str, by: str) -> str:
    """PromQL of the 99th percentile of latency in the last minutes, in seconds.

    A pod that served nothing has none (0/0 is not a number, which a comparison drops); it counts as 0, so that an idle
    server shrinks. A pod that is not scraped, or that counts requests without buckets, has no value at all.

    Args:
        histogram: name of a classic histogram in seconds.
        matchers: of labels, without braces.
        by: the labels to tell pods by, separated by commas.
    """
    buckets, count = f"{histogram}_bucket{{{matchers}}}", f"{histogram}_count{{{matchers}}}"
    return (
        f"histogram_quantile(0.99, sum by (le, {by}) (rate({buckets}[{_WINDOW}]))) >= 0"
        f" or sum by ({by}) (rate({count}[{_WINDOW}])) == 0"
    )


def adapter_rules(stack: Stack) -> list[dict[str, object]]:
    """Rules by which prometheus-adapter serves what the stack's servers scale on.

    For the chart's value `rules.custom`; empty where the adapter is not the one to serve it, or has its rule already
    (`metrics.latencyP99` without a histogram). The form: docs/config.md of kubernetes-sigs/prometheus-adapter.
    """
    metrics, name = stack.metrics, metric_name(stack.metrics)
    if metrics.histogram is None or metrics.by != "adapter" or name is None:
        return []
    return [
        {
            # One series a pod is enough to find the pods; the buckets would be a dozen each.
            "seriesQuery": f'{metrics.histogram}_count{{namespace!="",pod!=""}}',
            "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
            "name": {"matches": f"^{metrics.histogram}_count$", "as": name},
            "metricsQuery": pod_p99(metrics.histogram, "<<.LabelMatchers>>", "<<.GroupBy>>"),
        }
    ]


def prometheus_address(prometheus: Prometheus) -> str:
    """Where Prometheus answers queries: as the stack says, else the service of the chart's release."""
    return prometheus.address or f"http://{_service(prometheus.release)}.{prometheus.namespace}.svc:{_PORT}"


def _service(release: str) -> str:
    """The name that the chart gives to its Prometheus' service (templates/prometheus/service.yaml)."""
    full = release if _CHART in release else f"{release}-{_CHART}"
    return f"{full[:_LONGEST].removesuffix('-')}-prometheus"
