"""The platform of these tests: Kueue's manager decides there, with the configuration of a stack."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml
from builders import stack
from queueing import QUEUES, Queueing

from gpu_tenancy.base.json import Json, at, text_at
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import condition, is_true
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.operators.kueue import TEAM_LABEL
from gpu_tenancy.model.source import Source

KUEUE = "kueue.x-k8s.io/v1beta2"
NAME = "test-queueing"


def kueue_object(kind: str, namespace: str = "", **spec: Json) -> Manifest:
    metadata: Json = {"name": NAME, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}


def job(name: str) -> Manifest:
    """A job of two CPUs."""
    container: Json = {"name": "main", "image": "example.com/job:1", "resources": {"requests": {"cpu": "2"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAME, "labels": {"kueue.x-k8s.io/queue-name": NAME}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


@pytest.fixture
def queue(queueing: Queueing) -> Iterator[None]:
    """A queue with three CPUs."""
    quota: Json = [{"name": NAME, "resources": [{"name": "cpu", "nominalQuota": 3}]}]
    labels: Json = {TEAM_LABEL[0]: TEAM_LABEL[1]}
    objects: list[Manifest] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME, "labels": labels}},
        kueue_object("ResourceFlavor"),
        kueue_object(
            "ClusterQueue",
            namespaceSelector={},
            resourceGroups=[{"coveredResources": ["cpu"], "flavors": quota}],
        ),
        kueue_object("LocalQueue", NAME, clusterQueue=NAME),
    ]
    for item in objects:
        queueing.cluster.apply(item)
    yield
    for kind in ("LocalQueue", "ClusterQueue", "ResourceFlavor"):
        queueing.cluster.delete(Reference(KUEUE, kind, NAME, NAME if kind == "LocalQueue" else ""))


def configuration(queueing: Queueing) -> dict[str, Json]:
    """Of Kueue's manager."""
    found = queueing.cluster.get("v1", "ConfigMap", "kueue-manager-config", "kueue-system") or {}
    return yaml.safe_load(text_at(found, "data", "controller_manager_config.yaml"))


@pytest.mark.usefixtures("queue")
def test_what_exceeds_the_quota_is_pending(queueing: Queueing) -> None:
    for name in ("first", "second"):
        queueing.cluster.create(job(name))
        queueing.cluster.wait_for(partial(workload, queueing, name), what=f"the Workload of {name}")
    queueing.cluster.wait_for(lambda: is_true(workload(queueing, "first"), "Admitted"))
    pending = queueing.cluster.wait_for(lambda: condition(workload(queueing, "second"), "QuotaReserved") or None)
    assert "insufficient unused quota for cpu" in text_at(pending, "message")
    for name in ("first", "second"):
        queueing.cluster.delete(Reference("batch/v1", "Job", name, NAME))


def workload(queueing: Queueing, name: str) -> Any:
    """Of a job; None if it has none yet."""
    found = queueing.cluster.list(KUEUE, "Workload", namespace=NAME)
    return next((one for one in found if text_at(one, "metadata", "name").startswith(f"job-{name}-")), None)


def test_kueue_has_the_configuration_of_the_stack_that_runs(queueing: Queueing) -> None:
    queueing.run(load(Source(stack(fairness="even", operators={"lws": "installed"}))))
    assert "fairSharing" in configuration(queueing)
    before = converted(queueing)
    assert f"workloads.{QUEUES}" in before
    assert webhooks(queueing) == {"kueue", "lws"}
    queueing.run(load(Source(stack())))
    assert "fairSharing" not in configuration(queueing)
    assert webhooks(queueing) == {"kueue"}
    assert converted(queueing) == before


def webhooks(queueing: Queueing) -> set[str]:
    """The operators whose webhooks the API server calls."""
    registered = queueing.cluster.list("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")
    return {text_at(one, "metadata", "name").partition("-")[0] for one in registered}


def converted(queueing: Queueing) -> dict[str, Json]:
    """The generations of the definitions whose objects Kueue converts: a change has the API server serve them anew."""
    found = queueing.cluster.list("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    return {
        text_at(one, "metadata", "name"): at(one, "metadata", "generation")
        for one in found
        if at(one, "spec", "conversion", "strategy") == "Webhook"
    }
