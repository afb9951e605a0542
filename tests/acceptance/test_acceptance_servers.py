"""Metrics, routes and gates of servers before a real API server."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
from acceptance_builders import (
    Manifest,
    Server,
    admitted,
    an_account,
    declared,
    flat,
    in_waves,
    moved,
    only,
    refusal,
    refused_soon,
)
from builders import Data, server, stack, team
from removing import remove

from gpu_tenancy.base.json import at
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.catalogue.operators import Probe, charts

MADE = {"HorizontalPodAutoscaler", "NetworkPolicy", "ScaledObject", "Service", "ServiceMonitor"}


def measured(metrics: Data, **fields: object) -> Data:
    scaled = server(replicas={"min": 1, "max": 4}, scaleOn={"cpu": 70, "latencyP99": "100ms"}, **fields)
    return stack(metrics=metrics, teams={"a": team(gpus={"h100": {"guaranteed": 8}}, serving={"s": scaled})})


@pytest.fixture(scope="module")
def by_keda() -> tuple[KubernetesObject, ...]:
    return declared(measured({"histogram": "inference_latency_seconds"}, metricsPort=9400))


@pytest.fixture(scope="module")
def by_adapter() -> tuple[KubernetesObject, ...]:
    return declared(measured({"histogram": "inference_latency_seconds", "by": "adapter"}))


@pytest.fixture(scope="module")
def by_signals() -> tuple[KubernetesObject, ...]:
    series = {"running": "running", "waiting": "waiting", "cache": "cache_used", "requests": "requests_total"}
    query = {"expr": "sum(rate(gateway_requests_total[2m]))", "perReplica": 200}
    signals = {"queue": 4, "concurrency": 8, "rate": "20/s", "cache": 80, "gpu": 70, "query": query}
    scaled = server(replicas={"min": 0, "max": 4}, scaleOn={"cpu": None, **signals}, metrics=series)
    made = declared(stack(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, serving={"s": scaled})}))
    triggers = at(only(made, "ScaledObject"), "spec", "triggers")
    assert isinstance(triggers, list)
    assert len(triggers) == len(signals)
    return made


@pytest.mark.parametrize("form", ["by_keda", "by_signals", "by_adapter"])
def test_objects_of_measured_servers_are_kept_as_written(
    cluster: Cluster, namespace: str, form: str, request: pytest.FixtureRequest
) -> None:
    objects: tuple[KubernetesObject, ...] = request.getfixturevalue(form)
    made = [moved(dict(one.manifest), namespace) for one in objects if one.kind in MADE and one.namespace == "a"]
    scaler = "HorizontalPodAutoscaler" if form == "by_adapter" else "ScaledObject"
    assert {one["kind"] for one in made} == MADE - {"ScaledObject", "HorizontalPodAutoscaler"} | {scaler}
    for one in made:
        cluster.apply(one)
    for one in made:
        kept = cluster.get(*Reference.of(one))
        assert kept
        if one["kind"] in {"ScaledObject", "ServiceMonitor"}:
            assert at(kept, "spec") == one["spec"]


def free() -> Data:
    """A stack with the keys whose defaults builders have: of a namespace, probes, paces, limits and an endpoint."""
    pace = {"up": {"stabilizationWindow": "0s", "pods": 4}, "down": {"percent": 50, "period": "30m"}}
    chat = server(
        replicas={"min": 1, "max": 2},
        scaleOn=pace,
        cpu=2,
        memory="16Gi",
        limits={"cpu": 3, "memory": "24Gi"},
        probes={"period": "5s", "timeout": "2s", "failures": 6, "readyAfter": "0s", "aliveAfter": "2m"},
        surge=0,
    )
    budget = {"requests": {"cpu": 4, "memory": "32Gi"}, "limits": {"cpu": 6, "memory": "48Gi"}}
    of_namespace = {"labels": {"example.com/unit": "vision"}, "annotations": {"example.com/contact": "x" * 1000}}
    quota = {"h100": {"cpu": {"guaranteed": 4}, "memory": {"guaranteed": "32Gi"}}}
    h100 = {"h100": {"guaranteed": 2}}
    own = team(gpus=h100, quota=quota, serving={"s": chat}, compute=budget, **of_namespace)
    endpoint = {"bucket": "s3://ml/v3", "endpoint": "http://minio.storage.svc:9000"}
    return stack(teams={"a": own}, datasets={"d": endpoint})


def test_own_settings_of_a_team_are_accepted(cluster: Cluster, namespace: str) -> None:
    assert Server(cluster, namespace).refusals(declared(free())) == []


def test_limits_above_requests_fit_the_quota(cluster: Cluster, namespace: str) -> None:
    made = declared(free())
    bounds = [moved(dict(only(made, kind)), namespace) for kind in ("ResourceQuota", "LimitRange")]
    template = only(made, "Deployment")["spec"]["template"]
    try:
        an_account(cluster, namespace)
        for one in bounds:
            cluster.apply(one)
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
        for number in range(2):  # as many as the server can have
            cluster.create(admitted(cluster, {**pod, "metadata": {"name": f"s-{number}", "namespace": namespace}}))
        refused_soon(cluster, "exceeded quota", {**pod, "metadata": {"name": "s-2", "namespace": namespace}})
        greedy = deepcopy(pod)
        greedy["spec"]["containers"][0]["resources"]["limits"]["memory"] = "25Gi"
        place: Any = {"name": "greedy", "namespace": namespace}
        assert "limit to request ratio" in refusal(lambda: cluster.create({**greedy, "metadata": place}, dry_run=True))
    finally:
        remove(cluster, bounds)


def _set(*path: str | int, value: object) -> Callable[[Any], None]:
    def change(manifest: Any) -> None:
        *way, last = path
        for key in way:
            manifest = manifest[key]
        manifest[last] = value

    return change


WRONG: Mapping[str, tuple[str, Callable[[Any], None], str]] = {
    "a fallback that KEDA does not know": (
        "ScaledObject",
        _set("spec", "fallback", "behavior", value="keep"),
        "spec.fallback.behavior: Unsupported value",
    ),
    "the autoscaler's word for the most replicas": (
        "ScaledObject",
        _set("spec", "maxReplicas", value=4),
        ".spec.maxReplicas: field not declared in schema",
    ),
    "a number where KEDA reads text": (
        "ScaledObject",
        _set("spec", "triggers", 0, "metadata", "value", value=70),
        "metadata.value",
    ),
    "the SDK's spelling of a key": (
        "ScaledObject",
        _set("spec", "advanced", "horizontalPodAutoscalerConfig", "behavior", "scale_up", value={}),
        "scale_up: field not declared in schema",
    ),
    "an interval without its unit": (
        "ServiceMonitor",
        _set("spec", "endpoints", 0, "interval", value="15"),
        "spec.endpoints[0].interval",
    ),
    "labels outside of matchLabels": (
        "ServiceMonitor",
        _set("spec", "selector", "labels", value={}),
        "labels: field not declared in schema",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_rejected_object_has_an_accepted_twin(
    cluster: Cluster, namespace: str, by_keda: tuple[KubernetesObject, ...], wrong: str
) -> None:
    kind, change, words = WRONG[wrong]
    one = moved(only(by_keda, kind), namespace)
    cluster.apply(one, dry_run=True)
    change(one)
    assert words in refusal(lambda: cluster.apply(one, dry_run=True))


# Routes.

TEAM = "exposed"
HTTP_ROUTE = "gateway.networking.k8s.io/v1", "HTTPRoute"


@pytest.fixture(scope="module")
def objects() -> list[Manifest]:
    network = {"expose": {"hosts": ["*.ml.example.com"], "classes": ["infra/edge"]}}
    lab = {"domain": "lab.ml.example.com", "gateway": "infra/edge", "names": ["ann"]}
    offer: Data = {
        "images": ["registry.example.com/lab:1"],
        "sizes": {"small": {}},
        "home": {"size": "1Gi"},
        "expose": lab,
    }
    expose = {"host": "chat.ml.example.com", "gateway": "infra/edge", "timeout": "24h", "fromCidrs": ["10.1.0.0/16"]}
    serving = {"chat": server(expose=expose), "next": server(canary={"of": "chat", "weight": 0})}
    owner = team(gpus={"h100": {"guaranteed": 8}}, network=network, serving=serving, notebooks=offer)
    kinds = {"Namespace", "NetworkPolicy", "Service", "HTTPRoute"}
    made = declared(stack(teams={TEAM: owner}))
    return flat(in_waves([one for one in made if one.kind in kinds and TEAM in {one.name, one.namespace}]))


@pytest.fixture(scope="module")
def applied(cluster: Cluster, objects: list[Manifest]) -> Iterator[Cluster]:
    try:
        for manifest in objects:
            cluster.apply(manifest)
        yield cluster
    finally:
        remove(cluster, objects)


def test_routes_keep_a_weight_of_zero(applied: Cluster) -> None:
    route: Any = applied.get(*HTTP_ROUTE, "chat", TEAM)
    (rule,) = route["spec"]["rules"]
    assert [(one["name"], one["kind"], one["weight"]) for one in rule["backendRefs"]] == [
        ("chat", "Service", 100),
        ("next", "Service", 0),
    ]
    assert rule["timeouts"] == {"request": "86400s"}


def test_routes_of_notebooks_have_no_timeout(applied: Cluster) -> None:
    route: Any = applied.get(*HTTP_ROUTE, "ann", TEAM)
    assert route["spec"]["hostnames"] == ["ann.lab.ml.example.com"]
    (rule,) = route["spec"]["rules"]
    assert rule["timeouts"] == {"request": "0s"}
    service: Any = applied.get("v1", "Service", "ann", TEAM)
    assert service["spec"]["publishNotReadyAddresses"] is True


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("hostnames", ["chat_1.example.com"], "hostnames[0]"),
        ("backendRefs", [{"name": "chat"}], "Must have port for Service reference"),
        ("timeouts", {"request": "100000s"}, "timeouts.request"),
        ("timeout", "10s", "timeout"),
    ],
)
def test_the_definition_refuses_another_route(
    applied: Cluster, objects: list[Manifest], field: str, value: Any, words: str
) -> None:
    route: Any = deepcopy(
        next(one for one in objects if Reference.of(one).name == "chat" and one["kind"] == "HTTPRoute")
    )
    target = route["spec"] if field == "hostnames" else route["spec"]["rules"][0]
    target[field] = value
    assert words in refusal(lambda: applied.apply(route, dry_run=True))
    assert applied.exists(*Reference.of(route))


# Gates.

PROBES = {name: chart.probe for name, chart in charts().items() if chart.probe}


def asked(probe: Probe, namespace: str) -> Any:
    """The object in the pod's namespace, which kubectl uses if a manifest names none."""
    manifest: Any = deepcopy(dict(probe.manifest))
    if probe.resource in {"trainjobs", "leaderworkersets", "secretstores"}:
        manifest["metadata"] = {**manifest["metadata"], "namespace": namespace}
    return manifest


@pytest.mark.parametrize("name", PROBES)
def test_a_gate_has_a_right_to_a_valid_object(cluster: Cluster, namespace: str, name: str) -> None:
    manifest, probe = asked(PROBES[name], namespace), PROBES[name]
    assert cluster.apply(manifest, dry_run=True)["kind"] == manifest["kind"]
    broken = {**manifest, "spec": {**manifest["spec"], "naem": "x"}}
    assert "naem" in refusal(lambda: cluster.apply(broken, dry_run=True))
    definition = "apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{probe.resource}.{probe.group}"
    assert at(cluster.get(*definition) or {}, "spec", "names", "kind") == manifest["kind"]
