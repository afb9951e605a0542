from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from offline_builders import NAMESPACE, QUEUE, QUOTA, Rendering, an_object, component, manifest, registered, stack_of

from gpu_tenancy.engine.objects import DependencyCycleError, KubernetesObject, kubernetes_objects, waves


def depends_on(objects: tuple[KubernetesObject, ...], name: str) -> list[str]:
    """The names of what an object waits for."""
    names = {one.urn: one.name for one in objects}
    (found,) = (one for one in objects if one.name == name)
    return [names[urn] for urn in found.depends_on]


def test_objects_are_the_kubernetes_resources_that_the_api_server_gets(rendering: Rendering) -> None:
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
    assert (queue.group, queue.kind, queue.namespace, queue.name) == (
        "kueue.x-k8s.io",
        "ClusterQueue",
        "",
        "ml",
    )


def test_keys_come_in_the_usual_order(rendering: Rendering) -> None:
    rendered = rendering("""
    k8s.core.v1.ConfigMap("c", metadata={"name": "c"}, immutable=True, data={"b": "1", "a": "2"})
    """)
    (one,) = kubernetes_objects(rendered)
    assert list(one.manifest) == ["apiVersion", "kind", "metadata", "data", "immutable"]


def test_components_providers_releases_and_read_resources_are_not_objects(rendering: Rendering) -> None:
    rendered = rendering("""
    k8s.Provider("cluster", kubeconfig="{}")
    pulumi.ComponentResource("gpu-tenancy:team:Team", "team")
    k8s.helm.v3.Release("kueue", chart="oci://registry.example/kueue", namespace="kueue-system")
    k8s.core.v1.Namespace.get("read", "kube-system")
    k8s.core.v1.Namespace("declared", metadata={"name": "declared"})
    """)
    assert len(rendered.registrations) == 5
    assert [one.name for one in kubernetes_objects(rendered)] == ["declared"]


def test_the_data_of_a_secret_is_secret_even_where_the_program_forgot() -> None:
    plain = registered(manifest("Secret", "token", "ml", data={"token": "aHVudGVyMg=="}))
    (one,) = kubernetes_objects(stack_of(plain))
    assert one.shown["data"] == "[secret]"
    assert one.manifest["data"] == {"token": "aHVudGVyMg=="}
    assert "aHVudGVyMg" not in repr(one)


def test_an_object_waits_for_what_it_refers_to(rendering: Rendering) -> None:
    rendered = rendering("""
    namespace = k8s.core.v1.Namespace("a", metadata={"name": "ml"})
    k8s.core.v1.ConfigMap("c", metadata={"name": "c", "namespace": namespace.metadata.name})
    """)
    assert depends_on(kubernetes_objects(rendered), "c") == ["ml"]


def test_depending_on_a_component_means_all_objects_beneath_it() -> None:
    team = component("ml")
    inner = component("inner", parent=team.urn)
    first = replace(NAMESPACE, parent=team.urn)
    second = replace(QUEUE, parent=inner.urn)
    last = registered(manifest("ConfigMap", "last", "ml-research"), dependencies=[team.urn])
    objects = kubernetes_objects(stack_of(team, inner, first, second, last))
    assert set(next(one for one in objects if one.name == "last").depends_on) == {first.urn, second.urn}


def test_children_of_a_component_wait_for_what_it_waits_for(rendering: Rendering) -> None:
    rendered = rendering("""
    crd = k8s.core.v1.Namespace("a", metadata={"name": "first"})
    team = pulumi.ComponentResource("t:t:T", "team", None, pulumi.ResourceOptions(depends_on=[crd]))
    k8s.core.v1.Namespace("b", metadata={"name": "second"}, opts=pulumi.ResourceOptions(parent=team))
    """)
    assert depends_on(kubernetes_objects(rendered), "second") == ["first"]


def test_a_release_between_two_objects_passes_the_dependency_on(rendering: Rendering) -> None:
    rendered = rendering("""
    namespace = k8s.core.v1.Namespace("a", metadata={"name": "kueue-system"})
    after = pulumi.ResourceOptions(depends_on=[namespace])
    release = k8s.helm.v3.Release("kueue", chart="oci://registry.example/kueue", opts=after)
    after = pulumi.ResourceOptions(depends_on=[release])
    k8s.core.v1.Namespace("b", metadata={"name": "second"}, opts=after)
    """)
    assert depends_on(kubernetes_objects(rendered), "second") == ["kueue-system"]


def test_a_child_of_an_object_waits_for_it() -> None:
    objects = kubernetes_objects(stack_of(NAMESPACE, replace(QUOTA, parent=NAMESPACE.urn)))
    assert depends_on(objects, "gpus") == ["ml-research"]


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
    """Objects of which each may wait for any of those drawn before it, in any order."""
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
