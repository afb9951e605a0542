"""The descriptions of operators say what the pods of their charts are: compared with the charts themselves."""

from collections.abc import Mapping

import pytest
from operators_builders import every_release
from rendered_charts import NOT_RENDERED, RENDERED, beyond_baseline, rendered, requested, templates

from gpu_tenancy.base.json import Json, maps_at, text_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.base.quantity import parse_bytes, parse_cpu
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.model.catalogue.operators import charts

pytestmark = [pytest.mark.process, pytest.mark.slow]

Pods = list[tuple[Manifest, dict[str, Json]]]


@pytest.fixture(scope="module")
def objects(report: Report) -> Mapping[str, list[Manifest]]:
    """What each chart that can be rendered creates."""
    return {release.name: rendered(release, report) for release in every_release() if release.name in RENDERED}


@pytest.fixture(scope="module")
def pods(objects: Mapping[str, list[Manifest]]) -> Mapping[str, Pods]:
    return {name: list(templates(found)) for name, found in objects.items()}


def test_each_chart_is_rendered_or_has_a_reason_why_not(pods: Mapping[str, Pods]) -> None:
    assert {*pods, *NOT_RENDERED} == set(charts())
    assert all(pods.values())


@pytest.mark.parametrize("chart", RENDERED)
def test_a_row_names_the_priority_classes_of_all_pods_those_of_hooks_too(chart: str, pods: Mapping[str, Pods]) -> None:
    classes = {text_at(pod, "priorityClassName") for _, pod in pods[chart]} - {""}
    assert set(charts()[chart].priority_classes) == classes


@pytest.mark.parametrize("chart", RENDERED)
def test_a_row_tells_whether_pods_need_the_node(chart: str, pods: Mapping[str, Pods]) -> None:
    assert charts()[chart].privileged == any(beyond_baseline(pod) for _, pod in pods[chart])


@pytest.mark.parametrize("chart", RENDERED)
def test_a_row_sums_the_requests_of_deployments(chart: str, pods: Mapping[str, Pods]) -> None:
    row, deployed = charts()[chart].requests, [pod for owner, pod in pods[chart] if owner["kind"] == "Deployment"]
    assert row.cpu == sum(parse_cpu(requested(pod, "cpu")) for pod in deployed)
    assert row.memory == sum(parse_bytes(requested(pod, "memory")) for pod in deployed)


WITHOUT_PROBE = {
    "cert-manager": "a hook of its chart waits for them",
    "fluid": "they receive only pods with a label of Fluid, which no pod of this program has",
}
"""Charts whose webhooks fail closed, and why no gate waits for them."""


@pytest.mark.parametrize("chart", RENDERED)
def test_a_gate_waits_for_webhooks_that_fail_closed(chart: str, objects: Mapping[str, list[Manifest]]) -> None:
    hooks = [hook for found in objects[chart] for hook in maps_at(found, "webhooks")]
    closed = any(text_at(hook, "failurePolicy") != "Ignore" for hook in hooks)
    assert closed == (charts()[chart].probe is not None or chart in WITHOUT_PROBE)
