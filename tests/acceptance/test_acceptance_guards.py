"""What the tenancy's own admission policies refuse, on a real API server."""

from collections.abc import Iterator
from typing import Any

import pytest
from rendered_stacks import stack_of_repository

from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference

GPU = "nvidia.com/gpu"
QUEUE = "kueue.x-k8s.io/queue-name"


@pytest.fixture(scope="module")
def tenant(cluster: Cluster) -> Iterator[str]:
    """The namespace of `local` that has a default of 0 GPUs, bare of all else, with the policies in force."""
    name = "ml-research"
    objects = stack_of_repository("local").objects
    guards = [each.manifest for each in objects if each.name == "gpu-tenancy-gpu-requests"]
    assert len(guards) == 2
    (space,) = (each.manifest for each in objects if (each.kind, each.name) == ("Namespace", name))
    for manifest in (*guards, space):
        cluster.apply(manifest)
    cluster.wait_for(lambda: refusal(cluster, job(name, limits={GPU: "1"})), what="the policies to be in force")
    yield name
    for reference in (*map(Reference.of, guards), Reference("v1", "Namespace", name)):
        cluster.delete(reference)


def job(namespace: str, *, queue: bool = True, **resources: dict[str, str]) -> Manifest:
    container: dict[str, Any] = {"name": "c", "image": "a:1", "resources": resources}
    template: dict[str, Any] = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    labels: dict[str, Any] = {QUEUE: "tenant"} if queue else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": namespace, "labels": labels},
        "spec": {"template": template},
    }


def refusal(cluster: Cluster, manifest: Manifest) -> str | None:
    try:
        cluster.create(manifest, dry_run=True)
    except ApiError as error:
        return str(error)
    return None


def test_a_queued_job_that_states_its_gpus_as_limits_alone_is_refused_with_the_mend(
    cluster: Cluster, tenant: str
) -> None:
    words = refusal(cluster, job(tenant, limits={GPU: "8"}))
    assert words is not None
    assert "sets nvidia.com/gpu under limits only, and Kueue would count 0; set the same number under requests" in words


def test_a_queued_job_that_states_both_or_no_gpus_passes(cluster: Cluster, tenant: str) -> None:
    assert refusal(cluster, job(tenant, limits={GPU: "8"}, requests={GPU: "8"})) is None
    assert refusal(cluster, job(tenant, limits={"cpu": "2"})) is None
    assert refusal(cluster, job(tenant)) is None


def test_pods_that_no_queue_counts_are_admitted(cluster: Cluster, tenant: str) -> None:
    assert refusal(cluster, job(tenant, queue=False, limits={GPU: "8"})) is None
    assert refusal(cluster, job("default", limits={GPU: "8"})) is None
