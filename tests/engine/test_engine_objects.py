"""Objects of a rendering, their waves and their problems."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from offline_builders import (
    NAMESPACE,
    QUEUE,
    QUOTA,
    Rendering,
    an_object,
    component,
    manifest,
    metadata_changed,
    registered,
    stack_of,
)

from gpu_tenancy.engine.checks import problems
from gpu_tenancy.engine.objects import DependencyCycleError, KubernetesObject, kubernetes_objects, waves
from gpu_tenancy.engine.recording import UNKNOWN, Registration


def test_objects_are_what_the_api_server_gets(rendering: Rendering) -> None:
    rendered = rendering("""
    k8s.apiextensions.CustomResource(
        "queue", api_version="kueue.x-k8s.io/v1beta2", kind="ClusterQueue",
        metadata={"name": "ml", "labels": {"z": "1", "a": "2"}}, spec={"queueingStrategy": "StrictFIFO"},
    )
    """)
    (queue,) = kubernetes_objects(rendered)
    assert queue.manifest == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"labels": {"a": "2", "z": "1"}, "name": "ml"},
        "spec": {"queueingStrategy": "StrictFIFO"},
    }
    assert (queue.group, queue.kind, queue.namespace, queue.name) == ("kueue.x-k8s.io", "ClusterQueue", "", "ml")


def test_keys_come_in_the_usual_order(rendering: Rendering) -> None:
    rendered = rendering("""
    k8s.core.v1.ConfigMap("c", metadata={"name": "c"}, immutable=True, data={"b": "1", "a": "2"})
    """)
    (one,) = kubernetes_objects(rendered)
    assert list(one.manifest) == ["apiVersion", "kind", "metadata", "data", "immutable"]


def test_components_providers_and_releases_are_not_objects(rendering: Rendering) -> None:
    rendered = rendering("""
    k8s.Provider("cluster", kubeconfig="{}")
    pulumi.ComponentResource("gpu-tenancy:team:Team", "team")
    k8s.helm.v3.Release("kueue", chart="oci://registry.example/kueue", namespace="kueue-system")
    k8s.core.v1.Namespace.get("read", "kube-system")
    k8s.core.v1.Namespace("declared", metadata={"name": "declared"})
    """)
    assert len(rendered.registrations) == 5
    assert [one.name for one in kubernetes_objects(rendered)] == ["declared"]


def test_data_of_a_secret_is_always_secret() -> None:
    plain = registered(manifest("Secret", "token", "ml", data={"token": "aHVudGVyMg=="}))
    (one,) = kubernetes_objects(stack_of(plain))
    assert one.shown["data"] == "[secret]"
    assert one.manifest["data"] == {"token": "aHVudGVyMg=="}
    assert "aHVudGVyMg" not in repr(one)


WAITS: dict[str, str] = {
    "an object for its references": """
        first = k8s.core.v1.Namespace("a", metadata={"name": "first"})
        k8s.core.v1.ConfigMap("c", metadata={"name": "last", "namespace": first.metadata.name})
    """,
    "a child for its parent": """
        first = k8s.core.v1.Namespace("a", metadata={"name": "first"})
        k8s.core.v1.ConfigMap("c", metadata={"name": "last"}, opts=pulumi.ResourceOptions(parent=first))
    """,
    "a child of a component for the component's dependencies": """
        first = k8s.core.v1.Namespace("a", metadata={"name": "first"})
        team = pulumi.ComponentResource("t:t:T", "team", None, pulumi.ResourceOptions(depends_on=[first]))
        k8s.core.v1.Namespace("b", metadata={"name": "last"}, opts=pulumi.ResourceOptions(parent=team))
    """,
    "an object for the dependencies of a release": """
        first = k8s.core.v1.Namespace("a", metadata={"name": "first"})
        after = pulumi.ResourceOptions(depends_on=[first])
        release = k8s.helm.v3.Release("kueue", chart="oci://registry.example/kueue", opts=after)
        k8s.core.v1.Namespace("b", metadata={"name": "last"}, opts=pulumi.ResourceOptions(depends_on=[release]))
    """,
}


@pytest.mark.parametrize("source", WAITS.values(), ids=WAITS)
def test_an_object_waits(source: str, rendering: Rendering) -> None:
    objects = kubernetes_objects(rendering(source))
    names = {one.urn: one.name for one in objects}
    assert {one.name: [names[urn] for urn in one.depends_on] for one in objects} == {"first": [], "last": ["first"]}


def test_depending_on_a_component_means_all_objects_beneath_it() -> None:
    team = component("ml")
    inner = component("inner", parent=team.urn)
    first = replace(NAMESPACE, parent=team.urn)
    second = replace(QUEUE, parent=inner.urn)
    last = registered(manifest("ConfigMap", "last", "ml-research"), dependencies=[team.urn])
    objects = kubernetes_objects(stack_of(team, inner, first, second, last))
    assert set(next(one for one in objects if one.name == "last").depends_on) == {first.urn, second.urn}


def test_a_dependency_on_an_ancestor_is_not_one_on_siblings() -> None:
    team = component("ml")
    first = replace(NAMESPACE, parent=team.urn, dependencies=(team.urn,))
    second = replace(QUEUE, parent=team.urn, dependencies=(team.urn,))
    assert [one.depends_on for one in kubernetes_objects(stack_of(team, first, second))] == [(), ()]


def test_components_that_wait_for_each_other_end_the_walk() -> None:
    one = component("one", dependencies=[component("two").urn])
    two = component("two", dependencies=[one.urn])
    inside_one, inside_two = replace(NAMESPACE, parent=one.urn), replace(QUEUE, parent=two.urn)
    objects = kubernetes_objects(stack_of(one, two, inside_one, inside_two))
    assert [found.depends_on for found in objects] == [(inside_two.urn,), (inside_one.urn,)]


def test_waves_put_a_namespace_before_its_objects() -> None:
    namespace, quota = an_object(NAMESPACE.inputs), an_object(QUOTA.inputs)
    assert waves([quota, namespace]) == ((namespace,), (quota,))


def test_waves_put_a_definition_before_objects_of_its_kind() -> None:
    definition = an_object(
        manifest(
            "CustomResourceDefinition",
            "clusterqueues.kueue.x-k8s.io",
            api="apiextensions.k8s.io/v1",
            spec={"group": "kueue.x-k8s.io", "names": {"kind": "ClusterQueue"}, "scope": "Cluster"},
        )
    )
    queue = an_object(QUEUE.inputs)
    assert waves([queue, definition]) == ((definition,), (queue,))


def test_waves_of_a_cycle_name_its_members() -> None:
    first, second = manifest("Namespace", "first"), manifest("Namespace", "second")
    one = an_object(first, depends_on=[registered(second).urn])
    two = an_object(second, depends_on=[one.urn])
    with pytest.raises(DependencyCycleError) as failure:
        waves([one, two])
    assert set(failure.value.cycle) == {one.urn, two.urn}
    assert failure.value.cycle[0] == failure.value.cycle[-1]


@st.composite
def acyclic(draw: st.DrawFn) -> list[KubernetesObject]:
    """Objects each of which may depend on any earlier ones, in any order."""
    bodies = [manifest("PriorityClass", f"p{number}") for number in range(draw(st.integers(0, 12)))]
    urns = [registered(body).urn for body in bodies]
    objects = [
        an_object(body, depends_on=draw(st.lists(st.sampled_from(urns[:index]), unique=True)) if index else ())
        for index, body in enumerate(bodies)
    ]
    return draw(st.permutations(objects))


@given(acyclic())
def test_every_object_is_in_one_wave_and_after_all_it_waits_for(objects: list[KubernetesObject]) -> None:
    found = waves(objects)
    wave_of = {one.urn: number for number, wave in enumerate(found) for one in wave}
    assert sorted(wave_of) == sorted(one.urn for one in objects)
    assert sum(map(len, found)) == len(objects)
    for one in objects:
        awaited = [wave_of[urn] for urn in one.depends_on]
        assert wave_of[one.urn] == max(awaited, default=-1) + 1


@given(acyclic())
def test_a_wave_keeps_the_order_of_its_objects(objects: list[KubernetesObject]) -> None:
    place = {one.urn: index for index, one in enumerate(objects)}
    for wave in waves(objects):
        places = [place[one.urn] for one in wave]
        assert places == sorted(places)


CUSTOM = registered(manifest("Widget", "w", api="example.org/v1"))


def definition(scope: str) -> Registration:
    return registered(
        manifest(
            "CustomResourceDefinition",
            "widgets.example.org",
            api="apiextensions.k8s.io/v1",
            spec={"group": "example.org", "names": {"kind": "Widget"}, "scope": scope},
        )
    )


AGAIN = replace(QUOTA, urn=QUOTA.urn + "-again")
OLDER = registered(manifest("ClusterQueue", "ml-research", api="kueue.x-k8s.io/v1beta1", spec={}))
JOBS = [
    registered(manifest("Job", "train", namespace, api=api))
    for namespace, api in (
        ("default", "batch.volcano.sh/v1alpha1"),
        ("default", "batch/v1"),
        ("kube-system", "batch/v1"),
    )
]
NAMELESS = metadata_changed(QUOTA, name=None)
SECRET = replace(metadata_changed(QUOTA, name="hunter2"), secret_paths=(("metadata", "name"),))
IN_DEFAULT = metadata_changed(CUSTOM, namespace="default")


def unknown(key: str) -> Registration:
    return replace(metadata_changed(QUOTA, **{key: UNKNOWN}), unknown_paths=(("metadata", key),))


def of_metadata(key: str, what: str = "unknown") -> str:
    return (
        f"{QUOTA.urn}: metadata.{key} is {what}, but a preview must show the {key} of each object; "
        "set it from the stack's configuration"
    )


ALL_UNKNOWN = replace(QUOTA, inputs={**QUOTA.inputs, "metadata": UNKNOWN}, unknown_paths=(("metadata",),))
RANDOM = "so this ResourceQuota would get another random name in every preview; set metadata.name"

CASES: dict[str, tuple[list[Registration], str]] = {
    "a valid stack": ([NAMESPACE, QUOTA, QUEUE], ""),
    "one name in two groups and two namespaces": (JOBS, ""),
    "one object by two resources": ([NAMESPACE, QUOTA, AGAIN],
        (f"ResourceQuota gpus in namespace ml-research: declared by {QUOTA.urn} and by {AGAIN.urn}, but a name must "
        "be unique; rename or remove all but one")),
    "one object in two versions of its group": ([QUEUE, OLDER],
        (f"ClusterQueue.kueue.x-k8s.io ml-research in the cluster: declared by {QUEUE.urn} and by {OLDER.urn}, but "
        "a name must be unique; rename or remove all but one")),
    "no name": ([NAMESPACE, NAMELESS], f"{QUOTA.urn}: metadata.name is missing, {RANDOM}"),
    "a generated name": ([NAMESPACE, metadata_changed(NAMELESS, generateName="gpus-")],
        f"{QUOTA.urn}: metadata.generateName is gpus-, {RANDOM}"),
    "an unknown name": ([NAMESPACE, unknown("name")], of_metadata("name")),
    "an unknown namespace": ([NAMESPACE, unknown("namespace")], of_metadata("namespace")),
    "unknown metadata": ([NAMESPACE, ALL_UNKNOWN], "\n".join(map(of_metadata, ("name", "namespace")))),
    "a secret name": ([NAMESPACE, SECRET], of_metadata("name", "secret")),
    "no namespace": ([NAMESPACE, metadata_changed(QUOTA, namespace=None)],
        (f"{QUOTA.urn}: metadata.namespace is missing, so this ResourceQuota would be created in the default "
        "namespace of the kubeconfig; set it")),
    "an unknown kind in a namespace": ([NAMESPACE, metadata_changed(CUSTOM, namespace="ml-research")], ""),
    "an unknown kind without a namespace": ([NAMESPACE, CUSTOM],
        (f"{CUSTOM.urn}: metadata.namespace is missing, and the scope of Widget.example.org is unknown; "
        "set the namespace, or add the kind to scopes_documented.yaml if it is cluster-scoped")),
    "a cluster-scoped object with a namespace": ([NAMESPACE, metadata_changed(QUEUE, namespace="ml-research")],
        (f"{QUEUE.urn}: metadata.namespace is ml-research, but ClusterQueue is cluster-scoped; remove "
        "metadata.namespace")),
    "a kind that the stack defines as cluster-scoped": ([definition("Cluster"), CUSTOM], ""),
    "a kind that the stack defines as namespaced": ([definition("Namespaced"), IN_DEFAULT], ""),
    "a kind defined as cluster-scoped, with a namespace": ([definition("Cluster"), IN_DEFAULT],
        f"{CUSTOM.urn}: metadata.namespace is default, but Widget is cluster-scoped; remove metadata.namespace"),
    "a kind defined as namespaced, without a namespace": ([definition("Namespaced"), CUSTOM],
        (f"{CUSTOM.urn}: metadata.namespace is missing, so this Widget would be created in the default namespace of "
        "the kubeconfig; set it")),
    "a missing namespace with a similar name": ([NAMESPACE, metadata_changed(QUOTA, namespace="ml-reserch")],
        (f"{QUOTA.urn}: metadata.namespace is ml-reserch, but the stack has no Namespace with this name; "
        "did you mean ml-research?")),
    "a missing namespace without a similar name": ([QUOTA],
        (f"{QUOTA.urn}: metadata.namespace is ml-research, but the stack has no Namespace with this name; "
        "declare a Namespace with this name, or read an existing one")),
}  # fmt: skip


@pytest.mark.parametrize(("registrations", "messages"), CASES.values(), ids=CASES)
def test_each_problem_of_a_stack_is_one_message(registrations: list[Registration], messages: str) -> None:
    assert "\n".join(problems(stack_of(*registrations))) == messages


def test_built_in_release_and_read_namespaces_exist(rendering: Rendering) -> None:
    rendered = rendering("""
    k8s.core.v1.Namespace.get("read", "shared")
    k8s.helm.v3.Release("gpu-operator", chart="gpu-operator", namespace="gpu-operator", create_namespace=True)
    for namespace in ["default", "kube-system", "gpu-operator", "shared"]:
        k8s.core.v1.ConfigMap(f"in-{namespace}", metadata={"name": "c", "namespace": namespace})
    """)
    assert len(rendered.registrations) == 6
    assert problems(rendered) == ()


def test_other_problems_are_one_message_each(rendering: Rendering) -> None:
    (without,) = problems(
        rendering("""
        k8s.helm.v3.Release("gpu-operator", chart="gpu-operator", namespace="gpu-operator")
        k8s.core.v1.ConfigMap("c", metadata={"name": "c", "namespace": "gpu-operator"})
        """)
    )
    assert "metadata.namespace is gpu-operator, but the stack has no Namespace with this name" in without
    (twice,) = problems(
        rendering("""
        k8s.core.v1.Namespace("same", metadata={"name": "a"})
        k8s.core.v1.Namespace("same", metadata={"name": "b"})
        """)
    )
    assert twice == (
        "urn:pulumi:dev::gpu-tenancy::kubernetes:core/v1:Namespace::same: declared 2 times, but a URN must be "
        "unique in a stack; give each resource a unique name"
    )
    one = component("one", dependencies=[component("two").urn])
    two = component("two", dependencies=[one.urn])
    (cycle,) = problems(stack_of(one, two, replace(NAMESPACE, parent=one.urn), replace(QUEUE, parent=two.urn)))
    assert cycle.startswith("dependency cycle: ")
    assert all(urn in cycle for urn in (NAMESPACE.urn, QUEUE.urn))
    assert cycle.endswith("; remove one of them from depends_on")


def test_all_problems_are_reported_at_once_and_sorted() -> None:
    found = problems(stack_of(NAMELESS, metadata_changed(QUEUE, namespace="default")))
    assert len(found) == 3
    assert list(found) == sorted(found)
