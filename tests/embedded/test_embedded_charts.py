"""The operators' descriptions of their pods, compared with the charts."""

from collections.abc import Callable
from typing import Final

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
_LISTS: Final = ("containers", "initContainers")


# Charts whose programs create pods that need the node; their rows count these pods too.
CREATE_PODS = {
    "gpu-operator": "drivers and plugins",
    "gpu-operator-charts": "plugins, in class system-node-critical",
    "intel-device-plugins-gpu": "one object, of which the operator makes a DaemonSet",
    "intel-device-plugins-operator": "the plugin",
    "network-operator": "drivers and plugins",
}


@pytest.fixture(scope="module")
def objects(report: Report) -> Callable[[str], list[Manifest]]:
    """The objects of a chart; the test is skipped for charts that cannot be rendered here."""
    releases = {release.name: release for release in every_release()}
    made: dict[str, list[Manifest]] = {}

    def of(chart: str) -> list[Manifest]:
        if chart not in made:
            made[chart] = rendered(releases[chart], report)
        return made[chart]

    return of


@pytest.fixture(scope="module")
def pods(objects: Callable[[str], list[Manifest]]) -> Callable[[str], Pods]:
    return lambda chart: list(templates(objects(chart)))


def test_each_chart_is_rendered_or_has_a_reason_why_not() -> None:
    assert {*RENDERED, *NOT_RENDERED} == set(charts())


@pytest.mark.parametrize("chart", charts())
def test_names_priority_classes_of_all_pods(chart: str, pods: Callable[[str], Pods]) -> None:
    classes, row = {text_at(pod, "priorityClassName") for _, pod in pods(chart)} - {""}, charts()[chart]
    assert classes <= set(row.priority_classes)
    assert chart in CREATE_PODS or classes == set(row.priority_classes)


@pytest.mark.parametrize("chart", charts())
def test_a_row_tells_whether_pods_need_the_node(chart: str, pods: Callable[[str], Pods]) -> None:
    own = any(beyond_baseline(pod) for _, pod in pods(chart))
    assert charts()[chart].privileged == (own or chart in CREATE_PODS)


@pytest.mark.parametrize("chart", charts())
def test_a_row_tells_whether_daemons_run_on_nodes_with_gpus(chart: str, pods: Callable[[str], Pods]) -> None:
    own = any(owner["kind"] == "DaemonSet" for owner, _ in pods(chart))
    assert (charts()[chart].daemons is not None) == (own or chart in CREATE_PODS)


@pytest.mark.parametrize("chart", charts())
def test_a_row_sums_the_requests_of_deployments(chart: str, pods: Callable[[str], Pods]) -> None:
    row, deployed = charts()[chart].requests, [pod for owner, pod in pods(chart) if owner["kind"] == "Deployment"]
    assert row.cpu == sum(parse_cpu(amount) for pod in deployed for amount in requested(pod, "cpu"))
    assert row.memory == sum(parse_bytes(amount) for pod in deployed for amount in requested(pod, "memory"))


@pytest.mark.parametrize("chart", charts())
def test_no_pod_runs_an_image_that_changes_under_its_name(chart: str, pods: Callable[[str], Pods]) -> None:
    images = {text_at(one, "image") for _, pod in pods(chart) for key in _LISTS for one in maps_at(pod, key)}
    assert not [image for image in images if image.endswith(":latest") or ":" not in image.rpartition("/")[2]]


# Charts whose webhooks fail closed, and why no gate waits for them.
WITHOUT_PROBE = {
    "cert-manager": "a hook of its chart waits for them",
    "intel-device-plugins-operator": "the release waits for its Deployment, and its only object is a release after it",
    "fluid": "they receive only pods with a label of Fluid, which no pod of this program has",
}


@pytest.mark.parametrize("chart", charts())
def test_a_gate_waits_for_webhooks_that_fail_closed(chart: str, objects: Callable[[str], list[Manifest]]) -> None:
    hooks = [hook for found in objects(chart) for hook in maps_at(found, "webhooks")]
    closed = any(text_at(hook, "failurePolicy") != "Ignore" for hook in hooks)
    assert closed == (charts()[chart].probe is not None or chart in WITHOUT_PROBE)
