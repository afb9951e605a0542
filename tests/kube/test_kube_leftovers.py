"""Which existing objects a killed run of the Pulumi CLI left, and which are somebody else's."""

import json

import pytest
from cluster_builders import Manifest, a_bare_account, a_config_map, created_by

from gpu_tenancy.deploy.leftovers import State, leftovers
from gpu_tenancy.kube.apply import ApplyError
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference


def state(known: list[Manifest], creating: list[Manifest]) -> State:
    """As the engine exports a state."""
    component = {"type": "gpu-tenancy:tenancy:Tenancy", "urn": "urn:x"}
    resources = [component, *({"type": "kubernetes:core/v1:Thing", "inputs": manifest} for manifest in known)]
    pending = [
        {"type": "creating", "resource": {"type": "kubernetes:core/v1:Thing", "inputs": manifest}}
        for manifest in creating
    ]
    deleting = [{"type": "deleting", "resource": {"type": "kubernetes:core/v1:Thing", "inputs": known[0]}}]
    return State.read(json.dumps({"deployment": {"resources": resources, "pending_operations": pending + deleting}}))


def test_only_pending_creations_are_leftovers(cluster: Cluster, namespace: str) -> None:
    known, left, new, adopted = (a_config_map(name, namespace, a="1") for name in ("known", "left", "new", "adopted"))
    bare = a_bare_account("bare", namespace)
    created_by(cluster, "pulumi-kubernetes", known)
    created_by(cluster, "pulumi-kubernetes", left)
    created_by(cluster, "kubectl", adopted)
    cluster.create(bare)
    objects = [Reference.of(manifest) for manifest in (known, left, new, adopted, bare)]
    found = leftovers(cluster, objects, state([known], [left, new, bare]), [f"ConfigMap/{namespace}/adopted"])
    assert found == [f"ConfigMap/{namespace}/left", f"ServiceAccount/{namespace}/bare"]


def test_objects_of_others_are_refused_despite_a_pending_creation(cluster: Cluster, namespace: str) -> None:
    known, theirs, another = (a_config_map(name, namespace, a="1") for name in ("known", "theirs", "another"))
    created_by(cluster, "kubectl", theirs)
    created_by(cluster, "pulumi-kubernetes", another)
    objects = [Reference.of(manifest) for manifest in (theirs, another)]
    with pytest.raises(ApplyError) as refused:
        leftovers(cluster, objects, state([known], [theirs]), ())
    assert [str(failure) for failure in refused.value.failures] == [
        f"ConfigMap {namespace}/{name}: already exists, owned by {owner}; rename it in the stack, delete the existing"
        f" object, or add ConfigMap/{namespace}/{name} to cluster.adopt to take it over"
        for name, owner in (("theirs", "kubectl"), ("another", "pulumi-kubernetes"))
    ]


def test_a_stack_that_was_never_deployed_has_an_empty_state() -> None:
    assert State.read('{"version": 3, "deployment": {"manifest": {}}}') == State(frozenset(), frozenset())
    assert State.read('{"version": 3}') == State(frozenset(), frozenset())
