"""Operators come before what they judge, go after it, and answer before anything is asked of them."""

from functools import cache
from typing import Any, Final, cast

import pytest
import yaml
from builders import Data, pool, stack, team
from components_builders import Program, program
from dependency_graph import Graph, name_of
from rendered_stacks import stack_of_repository
from repository import ROOT

from gpu_tenancy.base.json import text_at
from gpu_tenancy.engine.checks import problems
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import render
from gpu_tenancy.model.catalogue.operators import charts
from gpu_tenancy.model.source import Source, to_config

RELEASE: Final = "kubernetes:helm.sh/v3:Release"
JUDGES: Final = {
    "kueue.x-k8s.io": "kueue",
    "scheduling.volcano.sh": "volcano",
    "batch.volcano.sh": "volcano",
    "trainer.kubeflow.org": "kubeflow-trainer",
    "monitoring.coreos.com": "kube-prometheus-stack",
    "keda.sh": "keda",
}
"""The release by the API group of its objects."""
STACKS: Final = ["dev-aws", "prod-aws", "prod-gcp", "prod-azure"]


@cache
def graph(name: str) -> Graph:
    return Graph(stack_of_repository(name).rendered)


def group_of(one: Registration) -> str:
    return one.type.removeprefix("kubernetes:").partition("/")[0]


def judged(found: Graph) -> list[Registration]:
    return [
        registration
        for registration in found.known.values()
        if registration.type.startswith("kubernetes:") and group_of(registration) in JUDGES
    ]


def release(found: Graph, name: str) -> Registration:
    (registration,) = found.find(RELEASE, name)
    return registration


@pytest.mark.parametrize("name", STACKS)
def test_every_custom_resource_waits_for_the_release_of_its_operator(name: str) -> None:
    dependencies = graph(name)
    resources = judged(dependencies)
    assert {group_of(resource) for resource in resources} >= {"kueue.x-k8s.io", "scheduling.volcano.sh"}
    early = [
        resource.urn
        for resource in resources
        if release(dependencies, JUDGES[group_of(resource)]).urn not in dependencies.all_needs(resource)
    ]
    assert early == []


@pytest.mark.parametrize("name", STACKS)
def test_it_waits_for_the_webhook_too_and_not_for_its_pods_alone(name: str) -> None:
    dependencies = graph(name)
    gates = {
        name_of(registration).rpartition("-gate-")[0]: registration.urn
        for registration in dependencies.find("kubernetes:batch/v1:Job")
        if "-gate-" in name_of(registration)
    }
    probed = {name for name, row in charts().items() if row.probe}
    assert set(gates) == probed & {JUDGES[group_of(resource)] for resource in judged(dependencies)}
    for resource in judged(dependencies):
        gate = gates.get(JUDGES[group_of(resource)])
        assert gate is None or gate in dependencies.all_needs(resource), resource.urn


@pytest.mark.parametrize("name", STACKS)
def test_on_the_way_down_what_holds_finalizers_goes_before_who_clears_them(name: str) -> None:
    dependencies = graph(name)
    gone = {urn: number for number, urn in enumerate(reversed(dependencies.order()))}
    for resource in judged(dependencies):
        assert gone[resource.urn] < gone[release(dependencies, JUDGES[group_of(resource)]).urn], resource.urn


@pytest.mark.parametrize("name", ["dev-aws", "prod-aws", "prod-gcp"])
def test_system_nodes_come_before_the_operators_that_run_on_them(name: str) -> None:
    dependencies = graph(name)
    (system,) = (
        urn for urn in dependencies.known if urn.endswith(("::cluster-gpu-tenancy-system", "::cluster-system-group"))
    )
    assert system in dependencies.all_needs(release(dependencies, "kueue"))


def test_a_stack_without_the_dependency_is_noticed() -> None:
    """The graph sees what is missing: queues beside their operator, not after it."""
    body = """
    from components.operators import Operators
    from components.queues import Queues
    Operators("operators", made.operators)
    Queues("queues", made.queues)
    """
    dependencies = Graph(program(on_a_cloud(), body).rendered)
    flavor = dependencies.find("kubernetes:kueue.x-k8s.io/v1beta2:ResourceFlavor")[0]
    assert release(dependencies, "kueue").urn not in dependencies.all_needs(flavor)


def on_a_cloud(**sections: Any) -> Data:
    cluster = {"cloud": "gcp", "name": "ml", "project": "ml-platform", "location": "us-central1-a"}
    pools = {"cpu": pool("n2-standard-32", 3, labels={"node-type": "cpu"}), "h100": pool("a3-highgpu-8g")}
    return stack(cluster=cluster, pools=pools, **sections)


def operators(**sections: Any) -> Program:
    return program(
        on_a_cloud(**sections), 'from components.operators import Operators\nOperators("operators", made.operators)'
    )


def test_a_gate_asks_the_webhook_by_a_dry_run_of_one_object_until_it_is_let_pass() -> None:
    rendered = operators()
    (gate,) = (resource for resource in rendered.every("Job") if resource.name.startswith("kueue-gate-"))
    spec = cast("Any", gate.manifest)["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert container["args"] == ["create", "--dry-run=server", "--filename=/gate/object.yaml"]
    assert spec["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert spec["backoffLimit"] > 10
    # One that gave up must not fail every later `up`, whatever was mended since.
    assert cast("Any", gate.manifest)["metadata"]["annotations"] == {"pulumi.com/replaceUnready": "true"}
    words = cast("Any", rendered.only("ConfigMap", "kueue-gate").manifest)["data"]["object.yaml"]
    assert yaml.safe_load(words)["kind"] == "ResourceFlavor"


def test_a_gate_may_create_that_kind_and_nothing_else() -> None:
    rules = cast("Any", operators().only("ClusterRole", "gpu-tenancy-kueue-gate").manifest)["rules"]
    assert rules == [{"apiGroups": ["kueue.x-k8s.io"], "resources": ["resourceflavors"], "verbs": ["create"]}]


def test_another_image_has_a_gate_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def gates() -> set[str]:
        return {resource.name for resource in operators().every("Job") if resource.name.startswith("kueue-gate-")}

    before = gates()
    monkeypatch.setattr("components.operators.KUBECTL", "registry.k8s.io/kubectl:v1.0.0")
    assert not before & gates()


def test_another_version_has_a_gate_of_its_own() -> None:
    before, after = (
        {resource.name for resource in operators(**more).every("Job") if resource.name.startswith("kueue-gate-")}
        for more in ({}, {"operators": {"kueue": {"version": "0.19.1"}}})
    )
    assert before.isdisjoint(after)


def test_a_release_whose_definitions_would_go_with_it_is_never_deleted() -> None:
    dependencies = Graph(operators().rendered)
    assert release(dependencies, "kueue").retain_on_delete
    assert not release(dependencies, "kube-prometheus-stack").retain_on_delete


QUOTA: Final = "kubernetes:core/v1:ResourceQuota"


@pytest.mark.parametrize(
    ("sections", "critical"),
    [
        pytest.param({}, set[str](), id="charts without such pods"),
        pytest.param({"teams": {"a": team(gangs={"h100": {"guaranteed": 8}})}}, {"volcano-system"}, id="a chart's own"),
        pytest.param({"operators": {"kueue": {"version": "0.19.1"}}}, {"kueue-system"}, id="another version"),
        pytest.param(
            {"operators": {"prometheus": {"values": {"grafana": {"priorityClassName": "system-cluster-critical"}}}}},
            {"monitoring"},
            id="values of a stack",
        ),
    ],
)
def test_where_pods_can_have_a_class_of_the_system_the_quota_that_gke_wants_comes_first(
    sections: Data, critical: set[str]
) -> None:
    found = Graph(operators(**sections).rendered)
    quotas = {text_at(one.inputs, "metadata", "namespace"): one for one in found.find(QUOTA)}
    assert set(quotas) == {"gpu-operator", *critical}
    for one in found.find(RELEASE):
        quota = quotas.get(text_at(one.inputs, "namespace"))
        assert quota is None or quota.urn in found.all_needs(one), one.urn


def test_every_release_names_one_version() -> None:
    for registration in Graph(operators().rendered).find(RELEASE):
        assert str(registration.inputs["version"])[0] in "v0123456789"
        assert registration.inputs["atomic"] is True


@pytest.mark.parametrize("said", ["here", "installed"])
def test_dashboards_go_where_prometheus_is_whoever_installed_it(said: str) -> None:
    config = to_config(Source(on_a_cloud(operators={"prometheus": said})))
    rendered = render(ROOT, project="gpu-tenancy", stack="x", config=config)
    assert problems(rendered) == ()
    pages = [registration for registration in rendered.registrations if name_of(registration).startswith("dashboard-")]
    assert len(pages) == 5
    read = [
        registration.external_id
        for registration in rendered.registrations
        if registration.type == "kubernetes:core/v1:Namespace"
    ]
    assert ("monitoring" in read) == (said == "installed")


def test_a_cluster_that_exists_gets_dashboards_only_where_the_stack_says_that_prometheus_is_there() -> None:
    for operators, count in (({}, 0), ({"prometheus": "installed"}, 5)):
        rendered = render(ROOT, project="gpu-tenancy", stack="x", config=to_config(Source(stack(operators=operators))))
        pages = [
            registration for registration in rendered.registrations if name_of(registration).startswith("dashboard-")
        ]
        assert len(pages) == count
