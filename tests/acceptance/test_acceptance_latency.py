"""Serving metrics before a real API server, which has the definitions of KEDA and of the Prometheus operator."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from acceptance_builders import declared, moved, only, refusal
from builders import Data, server, stack, team

from gpu_tenancy.base.json import at
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

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
    """A server that scales on each of the signals."""
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
def test_all_that_a_measured_server_needs_is_accepted_and_kept_as_written(
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
