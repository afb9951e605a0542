"""A server that scales on a histogram of its own: scraped, and scaled by KEDA or an adapter's metric, never by both."""

from functools import cache
from typing import Any, cast

import pytest
from builders import Data, server, stack, team
from components_builders import Program, tenancy

from gpu_tenancy.base.json import text_at
from gpu_tenancy.engine.details import details
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.signals import adapter_rules
from gpu_tenancy.model.source import Source

HISTOGRAM = "inference_latency_seconds"
SERVED = {"latencyP99": "inference_latency_p99_seconds"}
KEDA = {"histogram": HISTOGRAM}
ADAPTER = {"histogram": HISTOGRAM, "by": "adapter"}
FORMS = [SERVED, KEDA, ADAPTER]


def sections(metrics: Data, **fields: Any) -> Data:
    """A server that scales on cpu and latency, and one that scales on cpu alone."""
    scaled = {"replicas": {"min": 3, "max": 8}, "scaleOn": {"cpu": 70, "latencyP99": "100ms"}, **fields}
    serving = {"s": server(**scaled), "cpu": server(replicas={"min": 1, "max": 2})}
    return stack(metrics=metrics, teams={"a": team(gpus={"h100": {"guaranteed": 16}}, serving=serving)})


@cache
def _made(form: int) -> Program:
    return tenancy(sections(FORMS[form]))


def made(metrics: Data) -> Program:
    return _made(FORMS.index(metrics))


def named(program: Program, name: str) -> list[KubernetesObject]:
    """What is made under a server's name."""
    return [
        resource
        for resource in program.objects
        if name in {resource.name, resource.name.rpartition("-")[2]} and resource.namespace == "a"
    ]


def manifest(one: KubernetesObject) -> Any:
    return cast("Any", one.manifest)


def test_keda_scales_on_the_seconds_of_prometheus_within_the_servers_bounds() -> None:
    spec = made(KEDA).spec("ScaledObject")
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "s"}
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (3, 8)
    cpu, latency = spec["triggers"]
    assert cpu == {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "70"}}
    query = latency["metadata"].pop("query")
    assert latency == {
        "type": "prometheus",
        "name": "inference_latency_p99_seconds",
        "metricType": "Value",
        "metadata": {
            "serverAddress": "http://kube-prometheus-stack-prometheus.monitoring.svc:9090",
            "threshold": "0.1",
            "ignoreNullValues": "false",
        },
    }
    assert query.startswith("avg(histogram_quantile(0.99, ")
    assert f'{HISTOGRAM}_bucket{{namespace="a",service="s"}}' in query


def test_a_missing_metric_never_takes_a_pod_away() -> None:
    assert made(KEDA).spec("ScaledObject")["fallback"] == {
        "failureThreshold": 3,
        "replicas": 3,
        "behavior": "currentReplicasIfHigher",
    }


def test_keda_grows_and_shrinks_a_server_as_an_autoscaler_does_and_takes_it_over_by_its_name() -> None:
    config = made(KEDA).spec("ScaledObject")["advanced"]["horizontalPodAutoscalerConfig"]
    former = made(SERVED).only("HorizontalPodAutoscaler", "s")
    assert config == {"name": former.name, "behavior": manifest(former)["spec"]["behavior"]}
    annotations = manifest(made(KEDA).only("ScaledObject"))["metadata"]["annotations"]
    assert annotations == {"scaledobject.keda.sh/transfer-hpa-ownership": "true"}


def test_without_cpu_latency_alone_counts() -> None:
    only = sections(KEDA, scaleOn={"cpu": None, "latencyP99": "1.5s"})
    (trigger,) = tenancy(only).spec("ScaledObject")["triggers"]
    assert (trigger["type"], trigger["metadata"]["threshold"]) == ("prometheus", "1.5")


@pytest.mark.parametrize(
    ("target", "threshold"), [("1ms", "0.001"), ("250ms", "0.25"), ("2s", "2"), ("10m", "600"), ("100.4ms", "0.1")]
)
def test_a_target_is_written_in_seconds_to_the_millisecond(target: str, threshold: str) -> None:
    scaled = tenancy(sections(KEDA, scaleOn={"cpu": 70, "latencyP99": target}))
    (_, trigger) = scaled.spec("ScaledObject")["triggers"]
    assert trigger["metadata"]["threshold"] == threshold


@pytest.mark.parametrize("metrics", FORMS, ids=["served", "keda", "adapter"])
def test_each_deployment_has_one_autoscaler(metrics: Data) -> None:
    scalers = [
        resource for resource in made(metrics).objects if resource.kind in {"HorizontalPodAutoscaler", "ScaledObject"}
    ]
    assert sorted(text_at(resource.manifest, "spec", "scaleTargetRef", "name") for resource in scalers) == ["cpu", "s"]
    kinds = {resource.name: resource.kind for resource in scalers}
    assert kinds["cpu"] == "HorizontalPodAutoscaler"
    assert kinds["s"] == ("ScaledObject" if metrics is KEDA else "HorizontalPodAutoscaler")


def test_the_adapter_serves_what_the_autoscaler_asks_for() -> None:
    scaler = made(ADAPTER).only("HorizontalPodAutoscaler", "s")
    assert manifest(scaler) == manifest(made(SERVED).only("HorizontalPodAutoscaler", "s"))
    (rule,) = cast("list[Any]", adapter_rules(load(Source(sections(ADAPTER)))))
    (metric_name,) = [
        metric["pods"]["metric"]["name"] for metric in manifest(scaler)["spec"]["metrics"] if "pods" in metric
    ]
    assert rule["name"]["as"] == metric_name


@pytest.mark.parametrize("metrics", [KEDA, ADAPTER], ids=["keda", "adapter"])
def test_prometheus_finds_the_servers_port_through_its_service(metrics: Data) -> None:
    program = made(metrics)
    monitor, service = manifest(program.only("ServiceMonitor")), manifest(program.only("Service", "s"))
    assert (monitor["metadata"]["name"], monitor["metadata"]["namespace"]) == ("s", "a")
    assert monitor["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert monitor["spec"]["endpoints"] == [{"port": "http", "path": "/metrics", "interval": "15s"}]
    assert [port["name"] for port in service["spec"]["ports"]] == ["http"]
    # Its query tells servers by the name of their Service.
    others = [resource for resource in program.every("Service") if resource.name != "s"]
    assert all(manifest(resource)["metadata"]["labels"] != service["metadata"]["labels"] for resource in others)


def test_a_port_of_metrics_reaches_from_the_pod_to_the_monitor_and_through_the_policy() -> None:
    program = tenancy(sections({**KEDA, "prometheus": {"namespace": "observe", "release": "kps"}}, metricsPort=80))
    (container,) = program.spec("Deployment", "s")["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 80}]
    assert program.spec("Service", "s")["ports"] == [
        {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"},
        {"name": "metrics", "port": 9090, "targetPort": "metrics", "protocol": "TCP"},
    ]
    assert [end["port"] for end in program.spec("ServiceMonitor")["endpoints"]] == ["metrics"]
    assert manifest(program.only("ServiceMonitor"))["metadata"]["labels"]["release"] == "kps"
    assert program.spec("NetworkPolicy", "allow-metrics-s") == {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "s"}},
        "policyTypes": ["Ingress"],
        "ingress": [
            {
                "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "observe"}}}],
                "ports": [{"port": 80, "protocol": "TCP"}],
            }
        ],
    }


@pytest.mark.parametrize("metrics", FORMS, ids=["served", "keda", "adapter"])
def test_only_what_is_scraped_is_opened_to_prometheus(metrics: Data) -> None:
    policies = [
        resource.name for resource in made(metrics).every("NetworkPolicy") if resource.name.startswith("allow-metrics")
    ]
    monitors = [resource.name for resource in made(metrics).every("ServiceMonitor")]
    assert (policies, monitors) == (([], []) if metrics is SERVED else (["allow-metrics-s"], ["s"]))


def test_a_histogram_adds_to_a_server_and_changes_nothing_else_of_the_stack() -> None:
    before = {
        (resource.kind, resource.namespace, resource.name): resource.manifest for resource in made(SERVED).objects
    }
    after = {
        (resource.kind, resource.namespace, resource.name): resource.manifest for resource in made(ADAPTER).objects
    }
    assert after.keys() - before.keys() == {("ServiceMonitor", "a", "s"), ("NetworkPolicy", "a", "allow-metrics-s")}
    assert {key: after[key] for key in before} == before


def test_the_autoscaler_and_the_monitor_come_after_what_they_name() -> None:
    registered = {registration.urn: registration for registration in made(KEDA).rendered.registrations}
    for kind, named_kind in (("ScaledObject", "Deployment"), ("ServiceMonitor", "Service")):
        (registration,) = (resource for resource in registered.values() if resource.type.endswith(f":{kind}"))
        assert named_kind in {registered[urn].type.rpartition(":")[2] for urn in registration.dependencies}


def test_the_preview_shows_bounds_triggers_and_what_is_scraped() -> None:
    assert details(made(KEDA).only("ScaledObject").manifest) == "s 3 → 8 on cpu, prometheus"
    assert details(made(KEDA).only("ServiceMonitor").manifest) == "http/metrics"
    for kind, api in (("ScaledObject", "keda.sh/v1alpha1"), ("ServiceMonitor", "monitoring.coreos.com/v1")):
        assert details({"apiVersion": api, "kind": kind, "spec": "[unknown]"}) == ""
