"""Charts of clouds with the values of releases: where their pods run, and the definitions of the objects of pools.

They are rendered only if `originals.FOLDER` has them.
"""

from collections.abc import Callable
from typing import Final

import pytest
import yaml
from builders import Data
from cloud_stacks import eks_creation, eks_pool, eks_section, eks_stack, sent
from rendered_charts import of_upstream, rendered, requested, templates

from gpu_tenancy.base.json import Json, map_at, maps_at, text_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.base.quantity import CPU, MEMORY, parse_bytes, parse_cpu
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.model.catalogue import allocatable, machines
from gpu_tenancy.model.catalogue.chart_values import ChartValues, described
from gpu_tenancy.model.catalogue.operators import CRITICAL
from gpu_tenancy.model.catalogue.releases import cloud_charts
from gpu_tenancy.model.plan.operators import ReleasePlan

pytestmark = [pytest.mark.process, pytest.mark.slow]

SYSTEM: Final = "m7i.4xlarge"
TAINT: Final = {"key": "example.com/team", "value": "a", "effect": "NoExecute"}
Objects = Callable[[str], list[Manifest]]


def with_fabric(cluster: Data) -> Data:
    wired = {"fabric": True, "zones": ["eu-central-1a"]}
    return eks_stack(
        cluster,
        gpu=eks_pool("p5.48xlarge", {"min": 1, "max": 2}, taints=[TAINT], **wired),
        slices=eks_pool("p4de.24xlarge", {"min": 0, "max": 1}, sharing={"mig": {"profile": "1g.10gb"}}),
    )


@pytest.fixture(scope="module")
def releases() -> dict[str, ReleasePlan]:
    """The releases of clusters with either autoscaler."""
    made: dict[str, ReleasePlan] = {}
    for cluster in (eks_creation(), eks_section(autoscaler="karpenter")):
        for resource in sent(with_fabric(cluster)):
            if resource.type == "kubernetes:helm.sh/v3:Release":
                given = resource.inputs
                name, version = text_at(given, "name"), text_at(given, "version")
                values = map_at(given, "values")
                made[name] = ReleasePlan(name, name, None, version, text_at(given, "namespace"), values, ())
    return made


@pytest.fixture(scope="module")
def objects(releases: dict[str, ReleasePlan], report: Report) -> Objects:
    """What a chart creates; the test is skipped for charts that cannot be rendered here."""
    return lambda chart: rendered(releases[chart], report)


def test_every_chart_of_a_cloud_is_a_release(releases: dict[str, ReleasePlan]) -> None:
    assert set(releases) == set(cloud_charts())


@pytest.mark.parametrize("chart", cloud_charts())
def test_every_value_that_is_set_is_one_of_the_charts(chart: str, releases: dict[str, ReleasePlan]) -> None:
    defaults = yaml.safe_load((of_upstream(chart) / "values.yaml").read_text(encoding="utf-8"))
    accepted = ChartValues.model_construct(keys=described(defaults), contains=())
    # Flags of Cluster Autoscaler, of which the file has some.
    assert [keys for keys, _ in accepted.unknown(releases[chart].values) if keys[0] != "extraArgs"] == []


@pytest.mark.parametrize("chart", cloud_charts())
def test_pods_are_critical_in_the_namespace_that_needs_no_quota_for_it(chart: str, objects: Objects) -> None:
    for owner, pod in templates(objects(chart)):
        assert pod.get("priorityClassName") in CRITICAL
        assert text_at(owner, "metadata", "namespace") in {"", "kube-system"}


def test_they_are_released_to_the_namespace_of_the_system(releases: dict[str, ReleasePlan]) -> None:
    assert {release.namespace for release in releases.values()} == {"kube-system"}


@pytest.mark.parametrize("chart", cloud_charts())
def test_deployments_fit_on_one_system_node_and_are_not_on_the_nodes_of_karpenter(chart: str, objects: Objects) -> None:
    cpu, memory = allocatable(machines()["aws", SYSTEM])
    for owner, pod in templates(objects(chart)):
        asked = {resource: list(requested(pod, resource)) for resource in (CPU, MEMORY)}
        assert 0 < sum(map(parse_cpu, asked[CPU])) < cpu / 4
        assert 0 < sum(map(parse_bytes, asked[MEMORY])) < memory / 4
        if chart == "karpenter" and owner["kind"] == "Deployment":
            assert {"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"} in list(_required(pod))


def test_the_efa_plugin_runs_on_tainted_nodes_with_efa_and_on_no_others(objects: Objects) -> None:
    ((_, pod),) = templates(objects("aws-efa-k8s-device-plugin"))
    types = [row["values"] for row in _required(pod) if row["key"] == "node.kubernetes.io/instance-type"]
    assert types == [["p5.48xlarge"]]
    tolerated = [(row.get("key"), row.get("effect")) for row in maps_at(pod, "tolerations")]
    assert {("nvidia.com/gpu", "NoSchedule"), ("example.com/team", "NoExecute")} <= set(tolerated)


def test_no_webhook_of_theirs_fails_closed(objects: Objects) -> None:
    hooks = [hook for chart in cloud_charts() for made in objects(chart) for hook in maps_at(made, "webhooks")]
    assert [hook for hook in hooks if text_at(hook, "failurePolicy") != "Ignore"] == []


def test_every_object_of_karpenter_has_its_definition_and_its_version(objects: Objects) -> None:
    """The chart's own folder `crds` is skipped: Helm would never update it."""
    served = {
        (f"{text_at(made, 'spec', 'group')}/{text_at(version, 'name')}", text_at(made, "spec", "names", "kind"))
        for made in objects("karpenter-crd")
        for version in maps_at(made, "spec", "versions")
    }
    used = {
        (text_at(made.inputs, "apiVersion"), text_at(made.inputs, "kind"))
        for made in sent(with_fabric(eks_section(autoscaler="karpenter")))
        if "karpenter" in text_at(made.inputs, "apiVersion")
    }
    assert {kind for _, kind in used} == {"EC2NodeClass", "NodePool", "NodeOverlay"}
    assert used <= served


def _required(pod: dict[str, Json]) -> list[dict[str, Json]]:
    """The expressions that a node must match."""
    path = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    return [dict(row) for term in maps_at(pod, *path) for row in maps_at(term, "matchExpressions")]
