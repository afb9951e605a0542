from dataclasses import replace

import pytest
from offline_builders import (
    NAMESPACE,
    QUEUE,
    QUOTA,
    Rendering,
    component,
    manifest,
    metadata_changed,
    registered,
    stack_of,
)

from gpu_tenancy.engine.checks import problems
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.wire import UNKNOWN

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


def test_a_valid_stack_has_none() -> None:
    assert problems(stack_of(NAMESPACE, QUOTA, QUEUE)) == ()


def test_a_urn_declared_twice_is_one(rendering: Rendering) -> None:
    rendered = rendering("""
    k8s.core.v1.Namespace("same", metadata={"name": "a"})
    k8s.core.v1.Namespace("same", metadata={"name": "b"})
    """)
    assert problems(rendered) == (
        (
            "urn:pulumi:dev::gpu-tenancy::kubernetes:core/v1:Namespace::same: declared 2 times, but a URN must be "
            "unique in a stack; give each resource a unique name"
        ),
    )


def test_one_object_declared_by_two_resources_is_one() -> None:
    again = replace(QUOTA, urn=QUOTA.urn + "-again")
    assert problems(stack_of(NAMESPACE, QUOTA, again)) == (
        (
            f"ResourceQuota gpus in namespace ml-research: declared by {QUOTA.urn} and by {again.urn}, but a "
            "name must be unique; rename or remove all but one"
        ),
    )


def test_an_object_declared_in_two_versions_of_its_group_is_one() -> None:
    older = registered(manifest("ClusterQueue", "ml-research", api="kueue.x-k8s.io/v1beta1", spec={}))
    (message,) = problems(stack_of(QUEUE, older))
    assert message.startswith("ClusterQueue.kueue.x-k8s.io ml-research in the cluster: declared by ")


def test_the_same_name_in_another_group_or_namespace_is_none() -> None:
    volcano = registered(manifest("Job", "train", "default", api="batch.volcano.sh/v1alpha1"))
    batch = registered(manifest("Job", "train", "default", api="batch/v1"))
    elsewhere = registered(manifest("Job", "train", "kube-system", api="batch/v1"))
    assert problems(stack_of(volcano, batch, elsewhere)) == ()


def test_an_object_without_a_name_is_one() -> None:
    nameless = metadata_changed(QUOTA, name=None)
    assert problems(stack_of(NAMESPACE, nameless)) == (
        (
            f"{QUOTA.urn}: metadata.name is missing, so this ResourceQuota would get another random name in "
            "every preview; set metadata.name"
        ),
    )


def test_a_generated_name_is_one() -> None:
    generated = metadata_changed(QUOTA, name=None, generateName="gpus-")
    (message,) = problems(stack_of(NAMESPACE, generated))
    assert "metadata.generateName is gpus-, so this ResourceQuota would get another random name" in message


@pytest.mark.parametrize("key", ["name", "namespace"])
def test_a_name_that_only_a_cloud_knows_is_one(key: str) -> None:
    unknown = replace(metadata_changed(QUOTA, **{key: UNKNOWN}), unknown_paths=(("metadata", key),))
    assert problems(stack_of(NAMESPACE, unknown)) == (
        (
            f"{QUOTA.urn}: metadata.{key} is unknown, but a preview must show the {key} of each object; "
            "set it from the stack's configuration"
        ),
    )


def test_unknown_metadata_as_a_whole_is_two() -> None:
    unknown = replace(QUOTA, inputs={**QUOTA.inputs, "metadata": UNKNOWN}, unknown_paths=(("metadata",),))
    assert [message.split(" is ")[0] for message in problems(stack_of(NAMESPACE, unknown))] == [
        f"{QUOTA.urn}: metadata.name",
        f"{QUOTA.urn}: metadata.namespace",
    ]


def test_a_secret_name_is_a_problem_without_its_value() -> None:
    secret = replace(metadata_changed(QUOTA, name="hunter2"), secret_paths=(("metadata", "name"),))
    (message,) = problems(stack_of(NAMESPACE, secret))
    assert message.startswith(f"{QUOTA.urn}: metadata.name is secret")
    assert "hunter2" not in message


def test_a_namespaced_object_without_a_namespace_is_one() -> None:
    homeless = metadata_changed(QUOTA, namespace=None)
    assert problems(stack_of(NAMESPACE, homeless)) == (
        (
            f"{QUOTA.urn}: metadata.namespace is missing, so this ResourceQuota would be created in the default "
            "namespace of the kubeconfig; set it"
        ),
    )


def test_an_object_of_an_unknown_kind_needs_a_namespace() -> None:
    assert problems(stack_of(NAMESPACE, metadata_changed(CUSTOM, namespace="ml-research"))) == ()
    assert problems(stack_of(NAMESPACE, CUSTOM)) == (
        (
            f"{CUSTOM.urn}: metadata.namespace is missing, and the scope of Widget.example.org is unknown; "
            "set the namespace, or add the kind to scopes_documented.yaml if it is cluster-scoped"
        ),
    )


def test_a_cluster_scoped_object_with_a_namespace_is_one() -> None:
    assert problems(stack_of(NAMESPACE, metadata_changed(QUEUE, namespace="ml-research"))) == (
        (
            f"{QUEUE.urn}: metadata.namespace is ml-research, but ClusterQueue is cluster-scoped; remove "
            "metadata.namespace"
        ),
    )


def test_the_scope_of_a_kind_that_the_stack_defines_is_read_from_its_definition() -> None:
    in_namespace = metadata_changed(CUSTOM, namespace="default")
    assert problems(stack_of(definition("Cluster"), CUSTOM)) == ()
    assert problems(stack_of(definition("Namespaced"), in_namespace)) == ()
    assert len(problems(stack_of(definition("Cluster"), in_namespace))) == 1
    assert len(problems(stack_of(definition("Namespaced"), CUSTOM))) == 1


def test_a_missing_namespace_is_a_problem_with_the_nearest_name() -> None:
    misspelt = metadata_changed(QUOTA, namespace="ml-reserch")
    assert problems(stack_of(NAMESPACE, misspelt)) == (
        (
            f"{QUOTA.urn}: metadata.namespace is ml-reserch, but the stack has no Namespace with this name; "
            "did you mean ml-research?"
        ),
    )


def test_a_missing_namespace_without_a_similar_name_has_a_general_fix() -> None:
    (message,) = problems(stack_of(QUOTA))
    assert message.endswith("no Namespace with this name; declare a Namespace with this name, or read an existing one")


def test_a_cluster_own_namespaces_releases_and_read_ones_are_there(rendering: Rendering) -> None:
    rendered = rendering("""
    k8s.core.v1.Namespace.get("read", "shared")
    k8s.helm.v3.Release("gpu-operator", chart="gpu-operator", namespace="gpu-operator", create_namespace=True)
    for namespace in ["default", "kube-system", "gpu-operator", "shared"]:
        k8s.core.v1.ConfigMap(f"in-{namespace}", metadata={"name": "c", "namespace": namespace})
    """)
    assert len(rendered.registrations) == 6
    assert problems(rendered) == ()


def test_a_release_without_a_namespace_does_not_provide_it(rendering: Rendering) -> None:
    rendered = rendering("""
    k8s.helm.v3.Release("gpu-operator", chart="gpu-operator", namespace="gpu-operator")
    k8s.core.v1.ConfigMap("c", metadata={"name": "c", "namespace": "gpu-operator"})
    """)
    assert len(problems(rendered)) == 1


def test_objects_that_wait_for_one_another_are_one() -> None:
    one = component("one", dependencies=[component("two").urn])
    two = component("two", dependencies=[one.urn])
    rendered = stack_of(one, two, replace(NAMESPACE, parent=one.urn), replace(QUEUE, parent=two.urn))
    (message,) = problems(rendered)
    assert message.startswith("dependency cycle: ")
    assert NAMESPACE.urn in message
    assert QUEUE.urn in message
    assert message.endswith("; remove one of them from depends_on")


def test_all_problems_are_reported_at_once_and_sorted() -> None:
    found = problems(stack_of(metadata_changed(QUOTA, name=None), metadata_changed(QUEUE, namespace="default")))
    assert len(found) == 3
    assert list(found) == sorted(found)
