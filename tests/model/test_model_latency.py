"""Latency that servers scale on: one name in the stack, for scraping, query and metric."""

from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
import yaml
from builders import Data, environment_of, planned, server, stack, team
from originals import original
from prometheus_tool import promtool

from gpu_tenancy.model.plan.signals import Monitor, Query, adapter_rules, metric_name, prometheus_address
from gpu_tenancy.model.plan.workloads import Scaling, ServerPlan
from gpu_tenancy.model.spec.cluster import Metrics, Prometheus
from gpu_tenancy.model.spec.workloads import Server, ServerReplicas

HISTOGRAM = "inference_latency_seconds"
SCALED = {"replicas": {"min": 2, "max": 4}, "scaleOn": {"cpu": 70, "latencyP99": "100ms"}}


def measured(metrics: Data, **servers: Data) -> Data:
    serving = servers or {"s": server(**SCALED)}
    return stack(metrics=metrics, teams={"a": team(gpus={"h100": {"guaranteed": 16}}, serving=serving)})


def the_server(sections: Data) -> ServerPlan:
    (plan,) = planned(sections).teams[0].servers
    return plan


def rules(sections: Data) -> list[dict[str, Any]]:
    return adapter_rules(environment_of(sections))


def scaling(sections: Data) -> Scaling:
    server_plan = the_server(sections).scaling
    assert server_plan
    return server_plan


def expression(sections: Data) -> str:
    query = scaling(sections).query
    assert query
    return query.expression


def test_a_served_metric_needs_no_objects() -> None:
    sections = measured({"latencyP99": "p99_seconds"})
    assert scaling(sections) == Scaling(2, 4, 70, ("p99_seconds", 0.1))
    assert the_server(sections).monitor is None
    assert planned(sections).teams[0].namespace.monitors == {}
    assert rules(sections) == []


def test_a_histogram_is_scraped_and_queried_by_keda() -> None:
    sections = measured({"histogram": HISTOGRAM})
    planned_scaling = scaling(sections)
    assert planned_scaling.latency == ("inference_latency_p99_seconds", 0.1)
    assert planned_scaling.query
    assert planned_scaling.query.address == "http://kube-prometheus-stack-prometheus.monitoring.svc:9090"
    assert the_server(sections).monitor == Monitor(8080, "kube-prometheus-stack", "monitoring")
    assert planned(sections).teams[0].namespace.monitors == {"s": Monitor(8080, "kube-prometheus-stack", "monitoring")}
    assert rules(sections) == []


def test_adapter_serves_the_metric_of_the_autoscaler() -> None:
    sections = measured({"histogram": HISTOGRAM, "by": "adapter"})
    assert scaling(sections).query is None
    assert the_server(sections).monitor == Monitor(8080, "kube-prometheus-stack", "monitoring")
    (rule,) = rules(sections)
    assert rule["name"] == {"matches": f"^{HISTOGRAM}_count$", "as": "inference_latency_p99_seconds"}
    assert scaling(sections).latency == (rule["name"]["as"], 0.1)
    assert rule["seriesQuery"] == f'{HISTOGRAM}_count{{namespace!="",pod!=""}}'
    assert rule["resources"] == {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}}


@pytest.mark.parametrize("by", ["adapter", "keda"])
def test_the_pod_metric_may_have_a_name_of_its_own(by: str) -> None:
    sections = measured({"histogram": HISTOGRAM, "latencyP99": "slowest_seconds", "by": by})
    assert scaling(sections).latency == ("slowest_seconds", 0.1)
    assert [rule["name"]["as"] for rule in rules(sections)] == (["slowest_seconds"] if by == "adapter" else [])


@pytest.mark.parametrize("by", ["adapter", "keda"])
def test_only_a_server_that_scales_on_latency_is_scraped(by: str) -> None:
    sections = measured(
        {"histogram": HISTOGRAM, "by": by},
        cpu=server(replicas={"min": 1, "max": 2}, scaleOn={"cpu": 70}),
        fixed=server(replicas=1),
        slow=server(**SCALED),
    )
    plan = planned(sections).teams[0]
    assert [server.name for server in plan.servers if server.monitor] == ["slow"]
    assert list(plan.namespace.monitors) == ["slow"]
    assert [server.name for server in plan.servers if server.scaling and server.scaling.query] == (
        ["slow"] if by == "keda" else []
    )


def test_a_port_of_metrics_is_the_one_that_is_scraped() -> None:
    server_plan = the_server(measured({"histogram": HISTOGRAM}, s=server(**SCALED, metricsPort=9400)))
    assert (server_plan.spec.port, server_plan.monitor) == (8080, Monitor(9400, "kube-prometheus-stack", "monitoring"))


@pytest.mark.parametrize(
    ("prometheus", "address"),
    [
        ({}, "http://kube-prometheus-stack-prometheus.monitoring.svc:9090"),
        ({"namespace": "observe"}, "http://kube-prometheus-stack-prometheus.observe.svc:9090"),
        ({"release": "kube-prometheus-stack"}, "http://kube-prometheus-stack-prometheus.monitoring.svc:9090"),
        ({"release": "kps"}, "http://kps-kube-prometheus-stack-prometheus.monitoring.svc:9090"),
        ({"release": "metrics-of-all-the-teams-a"}, "http://metrics-of-all-the-teams-a-prometheus.monitoring.svc:9090"),
        ({"release": "metrics-of-all-the-teams"}, "http://metrics-of-all-the-teams-k-prometheus.monitoring.svc:9090"),
        ({"release": "metrics-of-all-the-team-a"}, "http://metrics-of-all-the-team-a-prometheus.monitoring.svc:9090"),
        ({"address": "https://thanos.example.com/api"}, "https://thanos.example.com/api"),
    ],
)
def test_prometheus_is_where_its_chart_puts_it(prometheus: Data, address: str) -> None:
    assert prometheus_address(Prometheus(**prometheus)) == address


def test_an_unnamed_metric_is_not_served() -> None:
    idle = Server(image="registry.example.com/serve:1.0", replicas=ServerReplicas(min=1, max=1))
    assert metric_name(Metrics(), idle) is None


def test_a_query_without_a_target_is_refused() -> None:
    with pytest.raises(ValueError, match="the autoscaler has a latency query, but no latency target"):
        Scaling(1, 2, 70, None, Query("http://prometheus:9090", "avg(x)"))


def values_of(chart: str) -> Any:
    """A chart's default values, in the version whose checksum the table of its keys has."""
    return yaml.safe_load(original(f"charts/{chart}/values.yaml").read_text(encoding="utf-8"))


def test_the_charts_have_what_we_rely_on() -> None:
    prometheus = values_of("kube-prometheus-stack")
    assert prometheus["prometheus"]["service"]["port"] == 9090
    assert (prometheus["nameOverride"], prometheus["fullnameOverride"]) == ("", "")
    assert prometheus["prometheus"]["prometheusSpec"]["serviceMonitorSelectorNilUsesHelmValues"] is True
    assert values_of("prometheus-adapter")["rules"]["custom"] == []


COUNTS: Mapping[str, tuple[int, int, int]] = {
    # Requests in each scrape by bucket: up to 0.1 s, up to 0.2 s, all.
    "slow": (0, 100, 100),  # 99 of 100 lie below 0.1 + 0.99 * 0.1 s
    "fast": (99, 100, 100),  # 99 of 100 lie below 0.1 s
    "idle": (0, 0, 0),
}


def series(pod: str, *, team: str = "a", service: str = "s", name: str = HISTOGRAM) -> list[Data]:
    """A pod's metric, scraped each 15 seconds for five minutes."""
    labels, counts = f'namespace="{team}",service="{service}",pod="{service}-{pod}"', COUNTS[pod]
    buckets = [
        (f'{name}_bucket{{{labels},le="{le}"}}', step) for le, step in zip(("0.1", "0.2", "+Inf"), counts, strict=True)
    ]
    return [
        {"series": label, "values": f"0+{step}x20"}
        for label, step in [*buckets, (f"{name}_count{{{labels}}}", counts[2])]
    ]


Answers = Callable[[str, list[Data], list[Data]], None]


@pytest.fixture
def answers(tmp_path: Path) -> Answers:
    """Checks the value of an expression on series, by Prometheus' own promtool."""
    tool = promtool()

    def check(expr: str, given: list[Data], samples: list[Data]) -> None:
        # In tenths of a millisecond, since promtool compares to the last bit.
        test = {"expr": f"round(10000 * ({expr}))", "eval_time": "5m", "exp_samples": samples}
        case = {"interval": "15s", "input_series": given, "promql_expr_test": [test]}
        file = tmp_path / "test.yaml"
        file.write_text(yaml.safe_dump({"evaluation_interval": "15s", "tests": [case]}))
        result = run([tool, "test", "rules", str(file)], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr

    return check


@pytest.mark.process
@pytest.mark.parametrize(
    ("pods", "value"),
    [
        (["slow"], 1990),
        (["fast"], 1000),
        (["slow", "fast"], 1495),
        (["slow", "fast", "idle"], 997),
        (["idle"], 0),
        ([], None),
    ],
    ids=str,
)
def test_keda_queries_the_average_percentile_of_the_pods(answers: Answers, pods: list[str], value: int | None) -> None:
    # Neither of a team, a server or a histogram of another name is asked for.
    others = [*series("slow", team="b"), *series("slow", service="t"), *series("slow", name="other_seconds")]
    samples = [] if value is None else [{"labels": "{}", "value": value}]
    answers(
        expression(measured({"histogram": HISTOGRAM})),
        [*others, *(series_ for pod in pods for series_ in series(pod))],
        samples,
    )


@pytest.mark.process
def test_a_pod_that_counts_requests_without_buckets_is_not_idle(answers: Answers) -> None:
    counted = [series_ for series_ in series("slow") if "_count{" in series_["series"]]
    assert len(counted) == 1
    expr = expression(measured({"histogram": HISTOGRAM}))
    answers(expr, counted, [])
    answers(expr, [*counted, *series("fast")], [{"labels": "{}", "value": 1000}])


@pytest.mark.process
def test_the_adapter_serves_the_percentile_of_each_pod(answers: Answers) -> None:
    (rule,) = rules(measured({"histogram": HISTOGRAM, "by": "adapter"}))
    # As the adapter fills its template in: docs/config.md of kubernetes-sigs/prometheus-adapter.
    expr = rule["metricsQuery"].replace("<<.LabelMatchers>>", 'namespace="a",pod=~"s-slow|s-fast|s-idle"')
    expr = expr.replace("<<.GroupBy>>", "pod")
    inputs = (
        [series_ for pod in COUNTS for series_ in series(pod)] + series("slow", team="b") + series("slow", service="t")
    )
    percentiles = {"slow": 1990, "fast": 1000, "idle": 0}
    answers(expr, inputs, [{"labels": f'{{pod="s-{pod}"}}', "value": value} for pod, value in percentiles.items()])


def test_both_queries_hold_the_same_expression() -> None:
    (rule,) = rules(measured({"histogram": HISTOGRAM, "by": "adapter"}))
    filled = rule["metricsQuery"].replace("<<.LabelMatchers>>", 'namespace="a",service="s"')
    assert expression(measured({"histogram": HISTOGRAM})) == f"avg({filled.replace('<<.GroupBy>>', 'pod')})"
    assert filled.count('{namespace="a",service="s"}[2m]') == 2
