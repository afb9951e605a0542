"""What servers scale on besides CPU and latency: PromQL of each pod, for KEDA and for prometheus-adapter.

An autoscaler compares the average of the pods with a target, whoever serves the metric.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from gpu_tenancy.base.quantity import format_duration
from gpu_tenancy.model.plan.latency import WINDOW, Query, of_server, prometheus_address
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import Metrics
from gpu_tenancy.model.spec.workloads import ScaleOn, Server

GPU_UTILISATION: Final = "DCGM_FI_DEV_GPU_UTIL"
"""Of NVIDIA's dcgm-exporter, in percent. Its scrape renames namespace and pod to `exported_…`."""
_EXPORTED: Final = {"namespace": "exported_namespace", "pod": "exported_pod"}
_OWN: Final = {"namespace": "namespace", "pod": "pod"}


@dataclass(frozen=True, slots=True)
class Signal:
    """A metric that a server scales on.

    Attributes:
        name: as an adapter serves it.
        target: for the average of the pods; for `total`, what one pod carries of the whole.
        query: KEDA's query; None if an adapter serves the metric.
        total: whether the query is of the whole server, not the average of its pods.
    """

    name: str
    target: float
    query: Query | None
    total: bool = False


_Expression: TypeAlias = Callable[[tuple[str, ...], str, str], str]
"""PromQL by pod, from names of metrics, label matchers and the labels of a pod."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A key of `scaleOn`.

    Attributes:
        metrics: keys of the server's `metrics` that it needs, the first of which names it.
    """

    metrics: tuple[str, ...]
    expression: _Expression
    labels: Mapping[str, str]


def _series(metric: str, matchers: str) -> str:
    name, _, own = metric.partition("{")
    return f"{name}{{{', '.join(filter(None, (matchers, own.rstrip('}'))))}}}"


def _sum(names: tuple[str, ...], matchers: str, by: str) -> str:
    return " + ".join(f"sum by ({by}) ({_series(name, matchers)})" for name in names)


def _rate(names: tuple[str, ...], matchers: str, by: str) -> str:
    return f"sum by ({by}) (rate({_series(names[0], matchers)}[{WINDOW}]))"


def _percent(names: tuple[str, ...], matchers: str, by: str) -> str:
    return f"100 * max by ({by}) ({_series(names[0], matchers)})"


def _mean(names: tuple[str, ...], matchers: str, by: str) -> str:
    return f"avg by ({by}) ({_series(names[0], matchers)})"


KINDS: Final[Mapping[str, Kind]] = {
    "queue": Kind(("waiting",), _sum, _OWN),
    "concurrency": Kind(("running", "waiting"), _sum, _OWN),
    "rate": Kind(("requests",), _rate, _OWN),
    "cache": Kind(("cache",), _percent, _OWN),
    "gpu": Kind((), _mean, _EXPORTED),
}
"""The signals by their keys of `scaleOn`."""


def names_of(kind: Kind, server: Server) -> tuple[str, ...] | None:
    """The metrics that a signal needs of a server; None if the server does not name one of them."""
    names = tuple(getattr(server.metrics, key) for key in kind.metrics) or (GPU_UTILISATION,)
    return names if all(names) else None


def targets(scale_on: ScaleOn) -> Mapping[str, float]:
    """Targets of the signals that are set, by key."""
    rate = None if scale_on.rate is None else scale_on.rate / 1000
    values = {"queue": scale_on.queue, "concurrency": scale_on.concurrency, "rate": rate}
    values |= {"cache": scale_on.cache, "gpu": scale_on.gpu}
    return {key: float(value) for key, value in values.items() if value is not None}


def signals(metrics: Metrics, team: str, name: str, server: Server) -> tuple[Signal, ...]:
    """The signals of a server that scales; metrics that it does not name are reported by `model.checks`."""
    return tuple(_signals(metrics, team, name, server)) if server.autoscaled and server.scale_on else ()


def _signals(metrics: Metrics, team: str, name: str, server: Server) -> Iterator[Signal]:
    scale_on = server.scale_on or ScaleOn()
    address = prometheus_address(metrics.prometheus)
    for key, target in targets(scale_on).items():
        kind = KINDS[key]
        if names := names_of(kind, server):
            pods = of_server(team, server.burst_of or name) if kind.labels is _OWN else _of_gpus(team, name, server)
            expression = f"avg({kind.expression(names, pods, kind.labels['pod'])})"
            query = None if metrics.by == "adapter" else Query(address, expression)
            yield Signal(_name(key, names), target, query)
    if scale_on.query:
        query = Query(address, scale_on.query.expr)
        yield Signal("query", scale_on.query.per_replica, query, total=True)


def cold_starts(stack: Stack) -> list[str]:
    """Servers that can have no replicas, with the time that their first request waits: `a/chat up to 13m`."""
    return [
        f"{team}/{name} up to {format_duration(server.starts_within)}"
        for team, spec in stack.teams.items()
        for name, server in spec.serving.items()
        if server.replicas.min == 0 and not server.burst_of
    ]


def _of_gpus(team: str, name: str, server: Server) -> str:
    """Matchers of the GPUs that the pods of a server hold: with parts of the names of ReplicaSet, or of group."""
    rest = "[0-9]+(-[0-9]+)?" if server.grouped else "[^-]+-[^-]+"
    return f'exported_namespace="{team}", exported_pod=~"{name}-{rest}"'


def _name(key: str, names: tuple[str, ...]) -> str:
    return f"{names[0].partition('{')[0].replace(':', '_').lower()}_{key}"


def signal_rules(stack: Stack) -> list[dict[str, object]]:
    """Rules of prometheus-adapter for the signals of all servers, each once; see `latency.adapter_rules`."""
    rules: dict[str, dict[str, object]] = {}
    servers = (server for team in stack.teams.values() for server in team.serving.values() if server.scale_on)
    for server in servers if stack.metrics.by == "adapter" else ():
        for key in targets(server.scale_on or ScaleOn()):
            if names := names_of(KINDS[key], server):
                rules[_name(key, names)] = _rule(key, names)
    return list(rules.values())


def _rule(key: str, names: tuple[str, ...]) -> dict[str, object]:
    kind = KINDS[key]
    found = ", ".join(f'{label}!=""' for label in kind.labels.values())
    return {
        "seriesQuery": _series(names[0], found),
        "resources": {"overrides": {label: {"resource": resource} for resource, label in kind.labels.items()}},
        "name": {"matches": f"^{names[0].partition('{')[0]}$", "as": _name(key, names)},
        "metricsQuery": kind.expression(names, "<<.LabelMatchers>>", "<<.GroupBy>>"),
    }
