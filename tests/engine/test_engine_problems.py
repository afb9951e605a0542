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
from gpu_tenancy.engine.recording import UNKNOWN, Registration

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
    "one object by two resources": (
        [NAMESPACE, QUOTA, AGAIN],
        (
            f"ResourceQuota gpus in namespace ml-research: declared by {QUOTA.urn} and by {AGAIN.urn}, but a name must "
            "be unique; rename or remove all but one"
        ),
    ),
    "one object in two versions of its group": (
        [QUEUE, OLDER],
        (
            f"ClusterQueue.kueue.x-k8s.io ml-research in the cluster: declared by {QUEUE.urn} and by {OLDER.urn}, but "
            "a name must be unique; rename or remove all but one"
        ),
    ),
    "no name": ([NAMESPACE, NAMELESS], f"{QUOTA.urn}: metadata.name is missing, {RANDOM}"),
    "a generated name": (
        [NAMESPACE, metadata_changed(NAMELESS, generateName="gpus-")],
        f"{QUOTA.urn}: metadata.generateName is gpus-, {RANDOM}",
    ),
    "an unknown name": ([NAMESPACE, unknown("name")], of_metadata("name")),
    "an unknown namespace": ([NAMESPACE, unknown("namespace")], of_metadata("namespace")),
    "unknown metadata": ([NAMESPACE, ALL_UNKNOWN], "\n".join(map(of_metadata, ("name", "namespace")))),
    "a secret name": ([NAMESPACE, SECRET], of_metadata("name", "secret")),
    "no namespace": (
        [NAMESPACE, metadata_changed(QUOTA, namespace=None)],
        (
            f"{QUOTA.urn}: metadata.namespace is missing, so this ResourceQuota would be created in the default "
            "namespace of the kubeconfig; set it"
        ),
    ),
    "an unknown kind in a namespace": ([NAMESPACE, metadata_changed(CUSTOM, namespace="ml-research")], ""),
    "an unknown kind without a namespace": (
        [NAMESPACE, CUSTOM],
        (
            f"{CUSTOM.urn}: metadata.namespace is missing, and the scope of Widget.example.org is unknown; "
            "set the namespace, or add the kind to scopes_documented.yaml if it is cluster-scoped"
        ),
    ),
    "a cluster-scoped object with a namespace": (
        [NAMESPACE, metadata_changed(QUEUE, namespace="ml-research")],
        (
            f"{QUEUE.urn}: metadata.namespace is ml-research, but ClusterQueue is cluster-scoped; remove "
            "metadata.namespace"
        ),
    ),
    "a kind that the stack defines as cluster-scoped": ([definition("Cluster"), CUSTOM], ""),
    "a kind that the stack defines as namespaced": ([definition("Namespaced"), IN_DEFAULT], ""),
    "a kind defined as cluster-scoped, with a namespace": (
        [definition("Cluster"), IN_DEFAULT],
        f"{CUSTOM.urn}: metadata.namespace is default, but Widget is cluster-scoped; remove metadata.namespace",
    ),
    "a kind defined as namespaced, without a namespace": (
        [definition("Namespaced"), CUSTOM],
        (
            f"{CUSTOM.urn}: metadata.namespace is missing, so this Widget would be created in the default namespace of "
            "the kubeconfig; set it"
        ),
    ),
    "a missing namespace with a similar name": (
        [NAMESPACE, metadata_changed(QUOTA, namespace="ml-reserch")],
        (
            f"{QUOTA.urn}: metadata.namespace is ml-reserch, but the stack has no Namespace with this name; "
            "did you mean ml-research?"
        ),
    ),
    "a missing namespace without a similar name": (
        [QUOTA],
        (
            f"{QUOTA.urn}: metadata.namespace is ml-research, but the stack has no Namespace with this name; "
            "declare a Namespace with this name, or read an existing one"
        ),
    ),
}


@pytest.mark.parametrize(("registrations", "messages"), CASES.values(), ids=CASES)
def test_each_problem_of_a_stack_is_one_message(registrations: list[Registration], messages: str) -> None:
    assert "\n".join(problems(stack_of(*registrations))) == messages


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


def test_a_urn_declared_twice_is_a_problem(rendering: Rendering) -> None:
    rendered = rendering("""
    k8s.core.v1.Namespace("same", metadata={"name": "a"})
    k8s.core.v1.Namespace("same", metadata={"name": "b"})
    """)
    (message,) = problems(rendered)
    assert message == (
        "urn:pulumi:dev::gpu-tenancy::kubernetes:core/v1:Namespace::same: declared 2 times, but a URN must be "
        "unique in a stack; give each resource a unique name"
    )


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
    found = problems(stack_of(NAMELESS, metadata_changed(QUEUE, namespace="default")))
    assert len(found) == 3
    assert list(found) == sorted(found)
