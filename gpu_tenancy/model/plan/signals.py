"""Metrics for the scaling of servers besides CPU: latency and PromQL, and their provider for the autoscaler.

The ServiceMonitor, the query of KEDA's ScaledObject and the rule of prometheus-adapter are all derived from the
histogram's name in the stack; both queries have the same expression.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.quantity import format_duration
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import there
from gpu_tenancy.model.resolve import ResolvedServer
from gpu_tenancy.model.spec.cluster import Metrics, Prometheus
from gpu_tenancy.model.spec.serving import NO_METRICS
from gpu_tenancy.model.spec.workloads import ScaleOn, Server

SCRAPE_INTERVAL: Final = 15  # scrape interval in seconds: the same as an autoscaler's sync period
METRICS_PATH: Final = "/metrics"

WINDOW: Final = "2m"  # time window of a percentile: eight scrapes, so that some can fail
_CHART: Final = "kube-prometheus-stack"
_LONGEST: Final = 26
"""Length to which that chart truncates its full name: `kube-prometheus-stack.fullname` in its templates/_helpers.tpl
(https://github.com/prometheus-community/helm-charts, read 2026-11-21)."""
_PORT: Final = 9090  # port of its service: `prometheus.service.port` in the chart's values


@dataclass(frozen=True, slots=True)
class Monitor:
    """Scraping of a server's pods by Prometheus in its `namespace`; `release` is its label of ServiceMonitors."""

    port: int
    release: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Query:
    """A query of KEDA to Prometheus' HTTP API: PromQL that has no value, not 0, if the metric is missing."""

    address: str
    expression: str


def monitor(environment: Environment, server: ResolvedServer) -> Monitor | None:
    """How a server is scraped; None if nothing uses its metrics, or this program does not configure it."""
    metrics = environment.stack.metrics
    shown = server.metrics != NO_METRICS and there(environment, "prometheus")
    scaled = histogram_of(metrics, server) is not None and target(server) is not None
    if not shown and not scaled:
        return None
    return Monitor(server.metrics_port or server.port, metrics.prometheus.release, metrics.prometheus.namespace)


def histogram_of(metrics: Metrics, server: Server) -> str | None:
    """The histogram of a server's latency: its own, else the stack's; None if an adapter serves the metric."""
    return server.metrics.latency or metrics.histogram


def target(server: ResolvedServer) -> float | None:
    """A server's latency target in seconds; None if it does not scale on latency."""
    return server.scale_on.latency_p99 if server.autoscaled else None


def metric_name(metrics: Metrics, server: Server) -> str | None:
    """Name of the autoscaler's metric: a pod's 99th percentile in seconds; None if nothing serves it."""
    if server.metrics.latency:
        return p99_name(server.metrics.latency)
    return p99_name(metrics.histogram, metrics.latency_p99) if metrics.histogram else metrics.latency_p99


def p99_name(histogram: str, name: str | None = None) -> str:
    """Name of the metric with the 99th percentile of a histogram: as in the stack, else from the histogram's."""
    return name or f"{histogram.removesuffix('_seconds').replace(':', '_')}_p99_seconds"


def per_pod(metrics: Metrics, server: ResolvedServer) -> str | None:
    """PromQL of each pod's percentile; None without a histogram."""
    histogram = histogram_of(metrics, server)
    return pod_p99(histogram, of_service(server), "pod") if histogram else None


def of_service(server: ResolvedServer) -> str:
    """Matchers of the labels that Prometheus adds to everything it scrapes through a server's ServiceMonitor."""
    return f'namespace="{server.team}",service="{server.service}"'


def query(metrics: Metrics, server: ResolvedServer) -> Query | None:
    """KEDA's query: the average of the pods' percentiles, like a pod metric's; None if KEDA does not scale."""
    percentile = per_pod(metrics, server)
    if percentile is None or metrics.by == "adapter":
        return None
    return Query(prometheus_address(metrics.prometheus), f"avg({percentile})")


def pod_p99(histogram: str, matchers: str, by: str) -> str:
    """PromQL of the 99th percentile of latency in the last minutes, in seconds, of a classic histogram.

    A pod without requests has no percentile (0/0 is NaN, which a comparison drops); it counts as 0, so that an idle
    server scales down. A pod that is not scraped, or without buckets, has no value.
    `by` are labels that identify a pod, separated by commas.
    """
    buckets, count = f"{histogram}_bucket{{{matchers}}}", f"{histogram}_count{{{matchers}}}"
    return (
        f"histogram_quantile(0.99, sum by (le, {by}) (rate({buckets}[{WINDOW}]))) >= 0"
        f" or sum by ({by}) (rate({count}[{WINDOW}])) == 0"
    )


def adapter_rules(environment: Environment) -> list[dict[str, object]]:
    """Rules of prometheus-adapter for the metrics that the stack's servers scale on: the chart's `rules.custom`.

    Empty if the adapter does not serve the metric, or has a rule already (`metrics.latencyP99` without a histogram).
    The format: docs/config.md of kubernetes-sigs/prometheus-adapter.
    """
    metrics = environment.stack.metrics
    if metrics.by != "adapter":
        return []
    servers = [server for server in environment.stack.servers if target(server)]
    named = {metrics.histogram: p99_name(metrics.histogram, metrics.latency_p99)} if metrics.histogram else {}
    named |= {server.metrics.latency: p99_name(server.metrics.latency) for server in servers if server.metrics.latency}
    return [
        {
            # One series per pod is enough to discover the pods; buckets would be a dozen each.
            "seriesQuery": f'{histogram}_count{{namespace!="",pod!=""}}',
            "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
            "name": {"matches": f"^{histogram}_count$", "as": name},
            "metricsQuery": pod_p99(histogram, "<<.LabelMatchers>>", "<<.GroupBy>>"),
        }
        for histogram, name in named.items()
    ]


def prometheus_address(prometheus: Prometheus) -> str:
    """URL of the Prometheus API: of the stack, else the Service in the chart's templates/prometheus/service.yaml."""
    full = prometheus.release if _CHART in prometheus.release else f"{prometheus.release}-{_CHART}"
    service = f"{full[:_LONGEST].removesuffix('-')}-prometheus"
    return prometheus.address or f"http://{service}.{prometheus.namespace}.svc:{_PORT}"


GPU_UTILISATION: Final = "DCGM_FI_DEV_GPU_UTIL"
"""Of NVIDIA's dcgm-exporter, in percent. Its scrape renames namespace and pod to `exported_…`."""
_EXPORTED: Final = {"namespace": "exported_namespace", "pod": "exported_pod"}
_OWN: Final = {"namespace": "namespace", "pod": "pod"}


@dataclass(frozen=True, slots=True)
class Signal:
    """A metric that a server scales on, named as an adapter serves it."""

    name: str
    target: float  # for the average of the pods; for `total`, the part of the whole for one pod
    query: Query | None  # KEDA's; None if an adapter serves the metric
    total: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A key of `scaleOn`; its signal needs keys of the server's `metrics`, the first of which names it."""

    metrics: tuple[str, ...]
    template: str  # PromQL of one metric, by the labels of a pod; several are summed
    labels: Mapping[str, str]

    def expression(self, names: tuple[str, ...], matchers: str, by: str) -> str:
        """PromQL by pod, from names of metrics, label matchers and the labels of a pod."""
        return " + ".join(self.template.format(by=by, series=_series(name, matchers)) for name in names)


def _series(metric: str, matchers: str) -> str:
    name, _, own = metric.partition("{")
    return f"{name}{{{', '.join(filter(None, (matchers, own.rstrip('}'))))}}}"


KINDS: Final[Mapping[str, Kind]] = {
    "queue": Kind(("waiting",), "sum by ({by}) ({series})", _OWN),
    "concurrency": Kind(("running", "waiting"), "sum by ({by}) ({series})", _OWN),
    "rate": Kind(("requests",), f"sum by ({{by}}) (rate({{series}}[{WINDOW}]))", _OWN),
    "cache": Kind(("cache",), "100 * max by ({by}) ({series})", _OWN),
    "gpu": Kind((), "avg by ({by}) ({series})", _EXPORTED),
}  # the signals by their keys of `scaleOn`


def names_of(kind: Kind, server: ResolvedServer) -> tuple[str, ...] | None:
    """The metrics that a signal needs of a server; None if the server does not name one of them."""
    names = tuple(getattr(server.metrics, key) for key in kind.metrics) or (GPU_UTILISATION,)
    return names if all(names) else None


def targets(scale_on: ScaleOn) -> Mapping[str, float]:
    """Targets of the signals that are set, by key."""
    values = {key: getattr(scale_on, key) for key in KINDS}
    return {key: value / (1000 if key == "rate" else 1) for key, value in values.items() if value is not None}


def signals(metrics: Metrics, server: ResolvedServer) -> Iterator[Signal]:
    """The signals of a server that scales; metrics that it does not name are reported by `model.checks`."""
    scale_on = server.scale_on
    address = prometheus_address(metrics.prometheus)
    for key, target in targets(scale_on).items():
        kind = KINDS[key]
        if names := names_of(kind, server):
            pods = of_service(server)
            if (
                kind.labels is _EXPORTED
            ):  # of GPUs that its pods hold: with parts of the names of ReplicaSet, or of group
                rest = "[0-9]+(-[0-9]+)?" if server.grouped else "[^-]+-[^-]+"
                pods = f'exported_namespace="{server.team}", exported_pod=~"{server.name}-{rest}"'
            expression = f"avg({kind.expression(names, pods, kind.labels['pod'])})"
            yield Signal(_name(key, names), target, None if metrics.by == "adapter" else Query(address, expression))
    if scale_on.query:
        yield Signal("query", scale_on.query.per_replica, Query(address, scale_on.query.expr), total=True)


def cold_starts(environment: Environment) -> list[str]:
    """Servers that can have no replicas, with the time that their first request waits: `a/chat up to 13m`."""
    return [
        f"{server.team}/{server.name} up to {format_duration(server.ready_within)}"
        for server in environment.stack.servers
        if server.replicas.min == 0 and server.has_service
    ]


def _name(key: str, names: tuple[str, ...]) -> str:
    return f"{names[0].partition('{')[0].replace(':', '_').lower()}_{key}"


def signal_rules(environment: Environment) -> list[dict[str, object]]:
    """Rules of prometheus-adapter for the signals of all servers, each once; see `adapter_rules`."""
    rules: dict[str, dict[str, object]] = {}
    stack = environment.stack
    for server in stack.servers if stack.metrics.by == "adapter" else ():
        for key in targets(server.scale_on):
            kind = KINDS[key]
            if names := names_of(kind, server):
                found = ", ".join(f'{label}!=""' for label in kind.labels.values())
                overrides = {label: {"resource": resource} for resource, label in kind.labels.items()}
                rules[_name(key, names)] = {
                    "seriesQuery": _series(names[0], found),
                    "resources": {"overrides": overrides},
                    "name": {"matches": f"^{names[0].partition('{')[0]}$", "as": _name(key, names)},
                    "metricsQuery": kind.expression(names, "<<.LabelMatchers>>", "<<.GroupBy>>"),
                }
    return list(rules.values())
