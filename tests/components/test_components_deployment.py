"""The order of a deployment: operators before their objects, stacks in parts, and adopted objects."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final, cast

import pulumi
import pytest
import yaml
from builders import EXISTING, GKE, Data, pool, stack, team
from components_builders import Graph, Program, name_of, program
from operators_builders import made_here
from rendered_stacks import stack_of_repository
from repository import ROOT

from gpu_tenancy.base.json import text_at
from gpu_tenancy.engine.checks import adoption_problems, problems
from gpu_tenancy.engine.objects import is_object, kubernetes_objects
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered, render
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.catalogue.operators import charts
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.project import read_stack
from gpu_tenancy.model.source import Source, to_config

RELEASE: Final = "kubernetes:helm.sh/v3:Release"
# The release by the API group of its objects.
JUDGES: Final = {
    "kueue.x-k8s.io": "kueue",
    "scheduling.volcano.sh": "volcano",
    "batch.volcano.sh": "volcano",
    "trainer.kubeflow.org": "kubeflow-trainer",
    "monitoring.coreos.com": "kube-prometheus-stack",
    "keda.sh": "keda",
}
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
def test_custom_resources_wait_for_the_release_of_their_operator(name: str) -> None:
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
def test_objects_with_finalizers_go_before_their_operator(name: str) -> None:
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
    """The graph sees the missing dependency: queues beside their operator, not after it."""
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
    pools = {"cpu": pool("n2-standard-32", 3, labels={"node-type": "cpu"}), "h100": pool("a3-highgpu-8g")}
    return stack(cluster=GKE, pools=pools, **sections)


def operators(**sections: Any) -> Program:
    return program(
        on_a_cloud(**sections), 'from components.operators import Operators\nOperators("operators", made.operators)'
    )


def test_a_gate_asks_the_webhook_by_a_dry_run_until_it_passes() -> None:
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


def test_another_image_or_version_has_a_gate_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def gates(**sections: Any) -> set[str]:
        every = operators(**sections).every("Job")
        return {resource.name for resource in every if resource.name.startswith("kueue-gate-")}

    before = gates()
    assert before.isdisjoint(gates(operators={"kueue": {"version": "0.19.1"}}))
    monkeypatch.setattr("components.operators.KUBECTL", "registry.k8s.io/kubectl:v1.0.0")
    assert before.isdisjoint(gates())


def test_a_release_with_definitions_is_never_deleted() -> None:
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
def test_the_quota_for_critical_pods_comes_first_on_gke(sections: Data, critical: set[str]) -> None:
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


@pytest.mark.parametrize(
    ("sections", "pages", "read"),
    [
        (on_a_cloud(operators={"prometheus": "here"}), 5, False),
        (on_a_cloud(operators={"prometheus": "installed"}), 5, True),
        (stack(operators={"prometheus": "installed"}), 5, True),
        (stack(), 0, False),
    ],
    ids=["here", "installed", "in a cluster that exists", "without Prometheus"],
)
def test_dashboards_go_where_prometheus_is_whoever_installed_it(sections: Data, pages: int, *, read: bool) -> None:
    made = rendered(sections)
    assert problems(made) == ()
    assert len([one for one in made.registrations if name_of(one).startswith("dashboard-")]) == pages
    namespaces = [one.external_id for one in made.registrations if one.type == "kubernetes:core/v1:Namespace"]
    assert ("monitoring" in namespaces) == read


# An environment in several Pulumi stacks has the same objects as in one


STACKS_PARTS: Final = (
    *("dev-aws", "example-shared-queue", "example-three-teams", "example-tree"),
    *("local", "prod-aws", "prod-azure", "prod-gcp"),
)
CONNECTION: Final[dict[str, Any]] = {"kubeconfig": "{}", "identifier": "eu-central-1/ml"}
ANSWERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "pulumi:pulumi:StackReference": {"outputs": {"connection": CONNECTION}}
}


def divided(name: str) -> tuple[Source, Plan]:
    source = read_stack(name, ROOT)
    source = replace(source, sections={**source.sections, "split": {}})
    return source, plan(load(source))


def rendered_part(name: str, source: Source, part: str) -> Rendered:
    config = {**to_config(source), "gpu-tenancy:part": part}
    return render(ROOT, project="gpu-tenancy", stack=f"{name}.{part}", config=config, answers=ANSWERS)


def resources(rendered: Rendered, name: str) -> dict[str, Registration]:
    """Real resources by URN, with the environment in place of the stack."""
    return {
        one.urn.replace(f"urn:pulumi:{rendered.stack}::", f"urn:pulumi:{name}::"): one
        for one in rendered.registrations
        if one.custom and not one.type.startswith("pulumi:")
    }


@cache
def in_parts(name: str) -> dict[str, dict[str, Registration]]:
    source, planned = divided(name)
    return {part: resources(rendered_part(name, source, part), name) for part in planned.parts}


@pytest.mark.parametrize("name", STACKS_PARTS)
def test_the_parts_have_each_resource_of_the_whole_once(name: str) -> None:
    whole = resources(stack_of_repository(name).rendered, name)
    urns = [urn for own in in_parts(name).values() for urn in own]
    assert len(urns) == len(set(urns))
    found = {urn: one.inputs for own in in_parts(name).values() for urn, one in own.items()}
    assert found == {urn: one.inputs for urn, one in whole.items()}


@pytest.mark.parametrize("name", STACKS_PARTS)
def test_dependencies_are_in_the_same_or_an_earlier_part(name: str) -> None:
    home = {urn: number for number, own in enumerate(in_parts(name).values()) for urn in own}
    for urn, one in resources(stack_of_repository(name).rendered, name).items():
        for needed in set(one.dependencies) & set(home):
            assert home[needed] <= home[urn], (urn, needed)


def test_objects_of_a_part_use_the_provider_of_its_cluster() -> None:
    source, planned = divided("prod-aws")
    assert planned.parts == ("cluster", "operators", "tenancy")
    rendered = rendered_part("prod-aws", source, "tenancy")
    provider, reference = (
        next(one for one in rendered.registrations if one.type == kind)
        for kind in ("pulumi:providers:kubernetes", "pulumi:pulumi:StackReference")
    )
    assert provider.inputs["kubeconfig"] == CONNECTION["kubeconfig"]
    assert provider.inputs["clusterIdentifier"] == CONNECTION["identifier"]
    assert reference.external_id == "organization/gpu-tenancy/prod-aws.cluster"
    used = {one.provider.rpartition("::")[0] for one in rendered.registrations if is_object(one)}
    assert used == {provider.urn}


def test_a_divided_environment_is_deployed_by_known_parts() -> None:
    source, _ = divided("example-tree")
    with pytest.raises(pulumi.RunError) as refused:
        render(ROOT, project="gpu-tenancy", stack="example-tree", config=to_config(source))
    assert str(refused.value) == (
        "split: example-tree is divided into the stacks example-tree.tenancy;"
        " run `tenancy up example-tree`, or remove split"
    )
    with pytest.raises(pulumi.RunError, match=r"cohort\.gone is not a part of example-tree; known: tenancy;"):
        rendered_part("example-tree", source, "cohort.gone")


# Objects that a stack adopts have another provider under Pulumi's engine; all others keep theirs


ADOPTED = ("Namespace/vision", "LocalQueue.kueue.x-k8s.io/vision/vision", "ResourceQuota/vision/budget")


def adopting(*names: str) -> Data:
    vision = team(gpus={"h100": {"guaranteed": 8}}, objects={"services": 3})
    return stack(cluster={**EXISTING, "adopt": list(names)}, teams={"vision": vision})


def rendered(sections: Data) -> Rendered:
    return render(ROOT, project="p", stack="s", config=to_config(Source(sections)))


def by_provider(program: Rendered, provider: str) -> set[str]:
    """The objects with this provider, by the names under which they can be adopted."""
    urns = {one.urn for one in program.registrations if is_object(one) and f"::{provider}::" in one.provider}
    return {Reference.of(one.manifest).adoptable for one in kubernetes_objects(program) if one.urn in urns}


def names(program: Rendered) -> set[str]:
    return {Reference.of(one.manifest).adoptable for one in kubernetes_objects(program)}


def test_adopted_objects_have_the_adopting_provider() -> None:
    program = rendered(adopting(*ADOPTED))
    assert by_provider(program, "cluster-adopting") == {*ADOPTED}
    assert by_provider(program, "cluster") == names(program) - {*ADOPTED}
    plain, takes_over = sorted(
        (one for one in program.registrations if one.type == "pulumi:providers:kubernetes"), key=lambda one: one.urn
    )
    assert takes_over.inputs == {**plain.inputs, "upsertExistingObjects": "true", "enablePatchForce": "true"}
    # The engine replaces resources whose provider changes, unless this is the same.
    assert plain.inputs["clusterIdentifier"]


def test_without_names_there_is_no_second_provider() -> None:
    program = rendered(adopting())
    assert [one.urn.rpartition("::")[2] for one in program.registrations if "providers" in one.type] == ["cluster"]


def test_a_stack_exports_the_access_to_its_cluster_of_a_cloud() -> None:
    tenancy = {"environment", "namespaces", "queues"}
    in_a_cloud, existing = rendered(made_here()).outputs, rendered(adopting()).outputs
    assert in_a_cloud.keys() == {*tenancy, "cluster", "kubeconfig"}
    assert (in_a_cloud["cluster"], in_a_cloud["kubeconfig"]) == ("ml", "[secret]")
    assert existing.keys() == {*tenancy, "gpuOperatorValues"}


def test_every_object_of_a_stack_can_be_named() -> None:
    every = names(rendered(adopting()))
    assert by_provider(rendered(adopting(*every)), "cluster-adopting") == every


def test_a_name_that_no_object_has_is_told_with_the_nearest_one() -> None:
    sections = adopting("Namespace/visoin", *ADOPTED)
    source = Source(sections)
    (problem,) = adoption_problems(source, load(source), rendered(sections))
    assert str(problem).startswith(
        "cluster.adopt[0]: Namespace/visoin is no object that this stack can adopt; remove it, or correct it: did you"
        " mean 'Namespace/vision'?"
    )
