"""What the gates ask, as a real API server with the operators' own definitions takes it."""

from copy import deepcopy
from typing import Any

import pytest
from acceptance_builders import refusal

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.model.catalogue.operators import Probe, charts

PROBES = {name: chart.probe for name, chart in charts().items() if chart.probe}


def asked(probe: Probe, namespace: str) -> Any:
    """The object in the namespace of the pod that asks, which kubectl takes where a manifest names none."""
    manifest: Any = deepcopy(dict(probe.manifest))
    if probe.resource in {"trainjobs", "leaderworkersets", "secretstores"}:
        manifest["metadata"] = {**manifest["metadata"], "namespace": namespace}
    return manifest


@pytest.mark.parametrize("name", PROBES)
def test_the_object_of_a_gates_dry_run_is_valid(cluster: Cluster, namespace: str, name: str) -> None:
    manifest = asked(PROBES[name], namespace)
    assert cluster.apply(manifest, dry_run=True)["kind"] == manifest["kind"]


@pytest.mark.parametrize("name", PROBES)
def test_a_misspelt_field_of_it_would_be_refused(cluster: Cluster, namespace: str, name: str) -> None:
    manifest = asked(PROBES[name], namespace)
    manifest["spec"] = {**manifest["spec"], "naem": "x"}
    assert "naem" in refusal(lambda: cluster.apply(manifest, dry_run=True))


@pytest.mark.parametrize("name", PROBES)
def test_the_gates_right_is_to_the_resource_of_its_object(cluster: Cluster, name: str) -> None:
    definition = cluster.get(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{PROBES[name].resource}.{PROBES[name].group}"
    )
    kind: Any = definition
    assert kind["spec"]["names"]["kind"] == PROBES[name].manifest["kind"]
