"""Servers whose pods Kueue releases by itself: what a tenant may change while they wait, beside what is allowed."""

from typing import Any

from acceptance_guards import RESEARCH, Person, pod_of, replicas

from gpu_tenancy.base.json import int_at, text_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

NEWER: Any = {"spec": {"template": {"metadata": {"annotations": {"note": "newer"}}}}}


def test_a_pod_stays_with_the_server_that_kueue_counts_it_by(tenant: Person, server: tuple[Any, Any]) -> None:
    own, child = server
    words = "is deleted without its pods, whose GPUs no queue would count; delete it without --cascade=orphan"
    assert words in tenant.delete_refusal(own, propagationPolicy="Orphan")
    assert not tenant.delete_refusal(own, propagationPolicy="Background")
    for options in ({}, {"propagationPolicy": "Orphan"}):
        assert not tenant.delete_refusal(child, **options)
    words = "changes labels or owners of a pod with GPUs, so that StatefulSet server would lose it"
    for label in ("controller-revision-hash", "app"):
        assert words in tenant.patch_refusal(child, {"metadata": {"labels": {label: "other"}}})
    finalizers = ["example.com/own", "orphan"]
    assert not tenant.patch_refusal(child, {"metadata": {"labels": {"note": "x"}, "finalizers": finalizers}})
    assert not tenant.patch_refusal(own, {"metadata": {"labels": {"note": "x"}, "finalizers": ["example.com/own"]}})


def test_a_server_that_waits_keeps_its_pods_and_one_that_is_admitted_rolls_out(
    cluster: Cluster, tenant: Person, server: tuple[Any, Any]
) -> None:
    own, _ = server

    cluster.wait_for(lambda: replicas_of(cluster, Reference.of(own)) == 1, what="the status of the server")
    words = "changes its pods while Workload server is not admitted, and Kueue would start the old ones without quota"
    cluster.wait_for(lambda: words in tenant.patch_refusal(own, NEWER), what="the Workload to be read")
    assert not tenant.patch_refusal(own, {"spec": {"replicas": 0}})
    assert not tenant.patch_refusal(own, {"metadata": {"annotations": {"note": "x"}}})
    admitted: Any = {"type": "Admitted", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    counted = Reference("kueue.x-k8s.io/v1beta2", "Workload", "server", RESEARCH)
    reserved = {**admitted, "type": "QuotaReserved", "status": "True"}
    states: list[Any] = [[reserved, {**admitted, "status": "False"}], [{**admitted, "status": "True"}]]
    for conditions in states:
        assert words in tenant.patch_refusal(own, NEWER)
        cluster.patch(counted, {"status": {"conditions": conditions}}, subresource="status")
    cluster.wait_for(lambda: not tenant.patch_refusal(own, NEWER), what="the Workload to be read again")


def test_a_server_of_two_pods_changes_them_once_the_first_is_created(cluster: Cluster, tenant: Person) -> None:
    own = replicas("StatefulSet", RESEARCH, RESEARCH)
    own["metadata"]["name"] = "pair"
    own["spec"]["replicas"] = 2
    tenant.cluster.create(own)
    cluster.wait_for(lambda: replicas_of(cluster, Reference.of(own)) == 1, what="the status of the server")
    assert not tenant.patch_refusal(own, NEWER)
    tenant.cluster.delete(Reference.of(own))


def workload(own: Any, uid: str, *specs: Any) -> Any:
    """What Kueue counts a server by, which waits; its pods are as a webhook may have changed them."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": own["metadata"]["name"], "uid": uid}
    metadata = {"name": own["metadata"]["name"], "namespace": RESEARCH, "ownerReferences": [owner]}
    sets = [{"name": f"s{n}", "count": 1, "template": {"spec": spec}} for n, spec in enumerate(specs)]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": metadata,
        "spec": {"queueName": RESEARCH, "podSets": sets},
    }


def test_a_server_of_no_pods_changes_them_as_it_waits_and_gpus_of_init_containers_count(
    cluster: Cluster, tenant: Person
) -> None:
    light, starting = pod_of(0), pod_of(0, initContainers=[{**pod_of()["containers"][0], "name": "i"}])
    owns: list[Any] = []
    for name, number, specs in (("two", 2, (light, starting)), ("none", 0, (starting,)), ("without", 2, (light,))):
        own = replicas("StatefulSet", RESEARCH, None, spec=light)
        own["metadata"]["name"] = name
        own["spec"]["replicas"] = number
        made = cluster.create(own)
        counted = workload(own, text_at(made, "metadata", "uid"), *specs)
        cluster.create(counted)
        owns.append((own, counted))
    others = workload(replicas("StatefulSet", RESEARCH, None), "", starting)
    others["metadata"] = {"name": "of-nobody", "namespace": RESEARCH}
    cluster.create(others)
    (two, _), (none, _), (without, _) = owns
    words = "changes its pods while Workload two is not admitted"
    cluster.wait_for(lambda: words in tenant.patch_refusal(two, NEWER), what="the Workload to be read")
    assert not tenant.patch_refusal(none, NEWER)
    assert not tenant.patch_refusal(without, NEWER)
    for own, counted in owns:
        cluster.delete(Reference.of(own))
        cluster.delete(Reference.of(counted))
    cluster.delete(Reference.of(others))


def replicas_of(cluster: Cluster, server: Reference) -> int:
    return int_at(cluster.get(*server) or {}, "status", "replicas")


def test_what_was_set_before_the_guards_may_stay(cluster: Cluster, tenant: Person) -> None:
    old = replicas("StatefulSet", RESEARCH, RESEARCH)
    old["metadata"]["name"] = "older"
    old["spec"] |= {"replicas": 0, "updateStrategy": {"rollingUpdate": {"partition": 1}}}
    cluster.create(old)
    assert not tenant.patch_refusal(old, {"metadata": {"labels": {"note": "x"}}})
    more: Any = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}}
    assert "leaves pods at their old revision by partition 2" in tenant.patch_refusal(old, more)
    cluster.delete(Reference.of(old))


def test_a_rollout_leaves_no_pods_behind(tenant: Person, server: tuple[Any, Any]) -> None:
    own, _ = server
    words = "leaves pods at their old revision by"
    behind: Any = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}}
    assert f"{words} partition 1" in tenant.patch_refusal(own, behind)
    by_hand: Any = {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}
    assert f"{words} spec.updateStrategy.type: OnDelete" in tenant.patch_refusal(own, by_hand)
    for patch in (behind, by_hand):
        light = replicas("StatefulSet", RESEARCH, None, spec=pod_of(0))
        assert words in tenant.refusal({**own, "spec": {**own["spec"], **patch["spec"]}})
        assert not tenant.refusal({**light, "spec": {**light["spec"], **patch["spec"]}})
    assert not tenant.patch_refusal(own, {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})


def test_a_server_is_not_scaled_beyond_what_kueue_counts(tenant: Person, server: tuple[Any, Any]) -> None:
    own, _ = server
    words = (
        "is scaled from 1 to 4 pods, of which Kueue would count 1; delete it and create it with the new spec.replicas"
    )
    assert words in tenant.patch_refusal(own, {"spec": {"replicas": 4}}, subresource="scale")
    for number in (0, 1):
        assert not tenant.patch_refusal(own, {"spec": {"replicas": number}}, subresource="scale")
