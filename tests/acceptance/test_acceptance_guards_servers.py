"""Servers whose pods Kueue releases by itself: what a tenant may change while they wait, beside what is allowed."""

from typing import Any

from acceptance_guards import RESEARCH, Person, pod_of, replicas

from gpu_tenancy.base.json import int_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

NEWER: Any = {"spec": {"template": {"metadata": {"annotations": {"note": "newer"}}}}}


def test_a_pod_stays_with_the_server_that_kueue_counts_it_by(tenant: Person, server: tuple[Any, Any]) -> None:
    own, child = server
    words = "is deleted without its pods, whose GPUs no queue would count; delete it without --cascade=orphan"
    assert words in tenant.delete_refusal(own, propagationPolicy="Orphan")
    assert not tenant.delete_refusal(own, propagationPolicy="Background")
    assert not tenant.delete_refusal(child)
    words = "changes labels or owners of a pod with GPUs, so that StatefulSet server would lose it"
    for label in ("controller-revision-hash", "app"):
        assert words in tenant.patch_refusal(child, {"metadata": {"labels": {label: "other"}}})
    assert not tenant.patch_refusal(child, {"metadata": {"labels": {"note": "x"}, "finalizers": ["example.com/own"]}})
    assert not tenant.patch_refusal(own, {"metadata": {"labels": {"note": "x"}, "finalizers": ["example.com/own"]}})


def test_a_server_that_waits_keeps_its_pods_and_one_that_is_admitted_rolls_out(
    cluster: Cluster, tenant: Person, server: tuple[Any, Any]
) -> None:
    own, _ = server

    def created() -> bool:
        return int_at(cluster.get(*Reference.of(own)) or {}, "status", "replicas") == 1

    cluster.wait_for(created, what="the status of the server")
    words = "changes its pods while Workload server is not admitted, and Kueue would start the old ones without quota"
    cluster.wait_for(lambda: words in tenant.patch_refusal(own, NEWER), what="the Workload to be read")
    assert not tenant.patch_refusal(own, {"spec": {"replicas": 0}})
    assert not tenant.patch_refusal(own, {"metadata": {"annotations": {"note": "x"}}})
    admitted: Any = {"type": "Admitted", "status": "True", "reason": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    counted = Reference("kueue.x-k8s.io/v1beta2", "Workload", "server", RESEARCH)
    cluster.patch(counted, {"status": {"conditions": [{**admitted, "message": ""}]}}, subresource="status")
    cluster.wait_for(lambda: not tenant.patch_refusal(own, NEWER), what="the Workload to be read again")


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
