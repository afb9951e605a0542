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
def test_a_row_describes_the_pods_of_its_chart(chart: str, pods: Callable[[str], Pods]) -> None:
    """Their priority classes, whether they need the node or run on nodes with GPUs, and requests of Deployments."""
    row, found, creates = charts()[chart], pods(chart), chart in CREATE_PODS
    classes = {text_at(pod, "priorityClassName") for _, pod in found} - {""}
    assert classes <= set(row.priority_classes)
    assert creates or classes == set(row.priority_classes)
    assert row.privileged == (creates or any(beyond_baseline(pod) for _, pod in found))
    assert (row.daemons is not None) == (creates or any(owner["kind"] == "DaemonSet" for owner, _ in found))
    deployed = [pod for owner, pod in found if owner["kind"] == "Deployment"]
    assert row.requests.cpu == sum(parse_cpu(amount) for pod in deployed for amount in requested(pod, "cpu"))
    assert row.requests.memory == sum(parse_bytes(amount) for pod in deployed for amount in requested(pod, "memory"))


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
