"""Features that are not modelled are reported if a cluster's objects use them."""

from typing import Any

import pytest

from gpu_tenancy.kueue import Unmodelled, unmodelled


def manifest(kind: str, **spec: Any) -> dict[str, Any]:
    """An object that uses no such feature, except in `spec`."""
    plain: dict[str, Any] = {"namespaceSelector": {}} if kind == "ClusterQueue" else {}
    return {"kind": kind, "metadata": {"name": "x"}, "spec": {**plain, **spec}}


def test_plain_objects_use_no_feature_that_is_not_modelled() -> None:
    kinds = ("ClusterQueue", "LocalQueue", "Cohort", "ResourceFlavor", "Workload", "Job")
    assert unmodelled([manifest(kind) for kind in kinds]) == ()
    assert unmodelled([{"kind": "Configuration", "fairSharing": {}}]) == ()


USED: list[tuple[dict[str, Any], Unmodelled]] = [
    (manifest("ResourceFlavor", topologyName="racks"), Unmodelled.TOPOLOGY),
    (manifest("Workload", podSets=[{"topologyRequest": {"required": "rack"}}]), Unmodelled.TOPOLOGY),
    (manifest("Workload", podSets=[{"minCount": 1}]), Unmodelled.PARTIAL_ADMISSION),
    (
        manifest("ClusterQueue", admissionChecksStrategy={"admissionChecks": [{"name": "x"}]}),
        Unmodelled.ADMISSION_CHECKS,
    ),
    (manifest("AdmissionCheck"), Unmodelled.ADMISSION_CHECKS),
    (manifest("MultiKueueConfig"), Unmodelled.MULTIKUEUE),
    (manifest("ClusterQueue", stopPolicy="Hold"), Unmodelled.STOPPED_QUEUES),
    (manifest("LocalQueue", stopPolicy="HoldAndDrain"), Unmodelled.STOPPED_QUEUES),
    (manifest("ClusterQueue", admissionScope={"admissionMode": "x"}), Unmodelled.ADMISSION_FAIR_SHARING),
    (manifest("ClusterQueue", namespaceSelector={"matchLabels": {"team": "a"}}), Unmodelled.NAMESPACES),
    ({"kind": "ClusterQueue", "spec": {}}, Unmodelled.NAMESPACES),
    ({"kind": "Configuration", "waitForPodsReady": {"timeout": "5m"}}, Unmodelled.PODS_READY),
    ({"kind": "Configuration", "featureGates": {"PartialAdmission": False}}, Unmodelled.FEATURE_GATES),
    ({"kind": "Configuration", "resources": {"transformations": [{}]}}, Unmodelled.TRANSFORMATIONS),
    (
        {"kind": "Workload", "metadata": {"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}},
        Unmodelled.ELASTIC_JOBS,
    ),
]


@pytest.mark.parametrize(("used", "feature"), USED)
def test_each_used_feature_is_reported(used: dict[str, Any], feature: Unmodelled) -> None:
    assert unmodelled([manifest("Job"), used]) == (feature,)
