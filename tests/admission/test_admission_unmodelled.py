"""What the simulation leaves out is said where a cluster's objects use it."""

from typing import Any

import pytest

from gpu_tenancy.model.admission import Unmodelled, unmodelled


def made(kind: str, **spec: Any) -> dict[str, Any]:
    """An object that uses nothing of what is left out, but for what is said."""
    plain: dict[str, Any] = {"namespaceSelector": {}} if kind == "ClusterQueue" else {}
    return {"kind": kind, "metadata": {"name": "x"}, "spec": {**plain, **spec}}


def test_plain_objects_use_nothing_that_is_left_out() -> None:
    kinds = ("ClusterQueue", "LocalQueue", "Cohort", "ResourceFlavor", "Workload", "Job")
    assert unmodelled([made(kind) for kind in kinds]) == ()
    assert unmodelled([{"kind": "Configuration", "fairSharing": {}}]) == ()


USED: list[tuple[dict[str, Any], Unmodelled]] = [
    (made("ResourceFlavor", topologyName="racks"), Unmodelled.TOPOLOGY),
    (made("Workload", podSets=[{"topologyRequest": {"required": "rack"}}]), Unmodelled.TOPOLOGY),
    (made("Workload", podSets=[{"minCount": 1}]), Unmodelled.PARTIAL_ADMISSION),
    (
        made("ClusterQueue", admissionChecksStrategy={"admissionChecks": [{"name": "x"}]}),
        Unmodelled.ADMISSION_CHECKS,
    ),
    (made("AdmissionCheck"), Unmodelled.ADMISSION_CHECKS),
    (made("MultiKueueConfig"), Unmodelled.MULTIKUEUE),
    (made("ClusterQueue", stopPolicy="Hold"), Unmodelled.STOPPED_QUEUES),
    (made("LocalQueue", stopPolicy="HoldAndDrain"), Unmodelled.STOPPED_QUEUES),
    (made("ClusterQueue", admissionScope={"admissionMode": "x"}), Unmodelled.ADMISSION_FAIR_SHARING),
    (made("ClusterQueue", namespaceSelector={"matchLabels": {"team": "a"}}), Unmodelled.NAMESPACES),
    ({"kind": "ClusterQueue", "spec": {}}, Unmodelled.NAMESPACES),
    ({"kind": "Configuration", "waitForPodsReady": {"timeout": "5m"}}, Unmodelled.PODS_READY),
    ({"kind": "Configuration", "featureGates": {"PartialAdmission": False}}, Unmodelled.FEATURE_GATES),
    ({"kind": "Configuration", "resources": {"transformations": [{}]}}, Unmodelled.TRANSFORMATIONS),
    (
        {"kind": "Workload", "metadata": {"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}},
        Unmodelled.ELASTIC_JOBS,
    ),
]


@pytest.mark.parametrize(("manifest", "what"), USED)
def test_what_is_used_is_said(manifest: dict[str, Any], what: Unmodelled) -> None:
    assert unmodelled([made("Job"), manifest]) == (what,)
