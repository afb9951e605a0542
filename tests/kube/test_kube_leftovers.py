"""Which existing objects a killed run of the Pulumi CLI left, and which are somebody else's."""

import json

import pytest
from cluster_builders import Manifest, a_bare_account, a_config_map, created_by

from gpu_tenancy.deploy.states import exported_keys, keys, leftovers
from gpu_tenancy.kube.apply import ApplyError
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

MARK = "gpu-tenancy/prod"


def marked(manifest: Manifest, mark: str = MARK) -> Manifest:
    metadata = manifest["metadata"]
    assert isinstance(metadata, dict)
    return {**manifest, "metadata": {**metadata, "annotations": {"gpu-tenancy.dev/deployed-by": mark}}}


def resources(*manifests: Manifest) -> list[Manifest]:
    component: Manifest = {"type": "gpu-tenancy:tenancy:Tenancy", "urn": "urn:x"}
    release: Manifest = {"type": "kubernetes:helm.sh/v3:Release", "inputs": {"chart": "kueue"}}
    return [component, release, *({"type": "kubernetes:core/v1:Thing", "inputs": manifest} for manifest in manifests)]


def test_only_objects_with_the_mark_are_leftovers(cluster: Cluster, namespace: str) -> None:
    known, left, new, adopted = (a_config_map(name, namespace, a="1") for name in ("known", "left", "new", "adopted"))
    bare = marked(a_bare_account("bare", namespace))
    created_by(cluster, "pulumi-kubernetes", marked(known))
    created_by(cluster, "pulumi-kubernetes", marked(left))
    created_by(cluster, "kubectl", adopted)
    cluster.create(bare)
    objects = [Reference.of(manifest) for manifest in (known, left, new, adopted, bare)]
    found = leftovers(cluster, objects, keys(resources(known)), [f"ConfigMap/{namespace}/adopted"], MARK)
    assert found == [Reference.of(left), Reference.of(bare)]


def test_objects_without_the_mark_and_of_other_stacks_are_refused(cluster: Cluster, namespace: str) -> None:
    known, theirs, another = (a_config_map(name, namespace, a="1") for name in ("known", "theirs", "another"))
    created_by(cluster, "kubectl", theirs)
    created_by(cluster, "pulumi-kubernetes", marked(another, f"{MARK}-2"))
    objects = [Reference.of(manifest) for manifest in (theirs, another)]
    with pytest.raises(ApplyError) as refused:
        leftovers(cluster, objects, keys(resources(known)), (), MARK)
    assert [str(failure) for failure in refused.value.failures] == [
        f"ConfigMap {namespace}/{name}: already exists, owned by {owner}; rename it in the stack, delete the existing"
        f" object, or add ConfigMap/{namespace}/{name} to cluster.adopt to take it over"
        for name, owner in (("theirs", "kubectl"), ("another", "pulumi-kubernetes"))
    ]


def test_a_stack_that_was_never_deployed_has_an_empty_state() -> None:
    assert exported_keys('{"version": 3, "deployment": {"manifest": {}}}') == frozenset()
    assert exported_keys('{"version": 3}') == frozenset()
    known: Manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}
    exported = json.dumps({"deployment": {"resources": resources(known)}})
    assert exported_keys(exported) == {Reference.of(known).key}
