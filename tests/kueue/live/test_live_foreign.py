"""`tenancy cluster inspect` on foreign clusters, applied as by kubectl, with the real Kueue."""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from foreign_clusters import FOREIGN, objects
from queueing import Queueing, a_job
from typer.testing import CliRunner

from gpu_tenancy.base.json import at, maps_at, text_at, texts_at
from gpu_tenancy.cli.main import app
from gpu_tenancy.embedded.definitions import fetch
from gpu_tenancy.embedded.definitions.pins import needed, read_pins
from gpu_tenancy.embedded.nodes import NodeShape, bring_nodes
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import condition, is_true
from gpu_tenancy.model.plan.operators.kueue import TEAM_LABEL
from gpu_tenancy.model.plan.pools import NodeTaint

QUEUE: Final = ("kueue.x-k8s.io/v1beta2", "ClusterQueue")
VOLCANO: Final = "scheduling.volcano.sh"
EVERYWHERE: Final = {"gpus-without-queue"}  # broken rules on every real cluster, which has the namespace `default`


def shape(node: Any) -> NodeShape:
    taints = [
        NodeTaint(text_at(one, "key"), text_at(one, "value"), "NoSchedule") for one in maps_at(node, "spec", "taints")
    ]
    capacity = texts_at(node, "status", "allocatable")
    return NodeShape(node["metadata"]["name"], node["metadata"]["labels"], tuple(taints), capacity)


@contextmanager
def applied(queueing: Queueing, name: str) -> Generator[list[Manifest]]:
    """Applies a cluster, waits until Kueue has processed its queues, and deletes all but its namespaces in the end."""
    cluster, made = queueing.cluster, objects(name)
    bring_nodes(cluster, [shape(each) for each in made if each["kind"] == "Node"])
    found = [each for each in made if each["kind"] != "Node"]
    for each in found:
        cluster.apply(each)
    for each in found:
        if each["kind"] == "ClusterQueue":
            seen = partial(_seen, cluster, each["metadata"]["name"])
            cluster.wait_for(seen, what=f"Kueue to see {each['metadata']['name']}")
    try:
        yield found
    finally:
        removed(cluster, found)


def _seen(cluster: Cluster, name: str) -> bool | None:
    return bool(condition(cluster.get(*QUEUE, name) or {}, "Active")) or None


def removed(cluster: Cluster, made: list[Manifest]) -> None:
    for each in reversed(made):
        if each["kind"] != "Namespace":
            cluster.delete(Reference.of(each), wait=60)
    bring_nodes(cluster, ())


def inspected(kubeconfig: Path) -> Any:
    result = CliRunner().invoke(app, ["cluster", "inspect", "-o", "json", "--kubeconfig", str(kubeconfig)])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def broken(found: Any) -> set[str]:
    return {finding["rule"] for finding in found["findings"]}


@pytest.fixture(scope="module", autouse=True)
def volcano(queueing: Queueing) -> Iterator[None]:
    """Volcano's definitions, without its controllers, and without the queues that they made for other tests."""
    definitions = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    before = {text_at(each, "metadata", "name") for each in queueing.cluster.list(*definitions, metadata_only=True)}
    platform = queueing.platform
    platform.install(fetch(needed(read_pins(), {VOLCANO}, ()), platform.cache, queueing.report), queueing.report)
    for each in queueing.cluster.list(f"{VOLCANO}/v1beta1", "Queue", metadata_only=True):
        queueing.cluster.delete(Reference.of(each), wait=60)
    yield
    for each in queueing.cluster.list(*definitions, metadata_only=True):
        if text_at(each, "metadata", "name") not in before:
            queueing.cluster.delete(Reference.of(each), wait=60)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_cluster_that_others_made_is_inspected_and_unchanged(name: str, queueing: Queueing) -> None:
    with applied(queueing, name) as made:
        before = [queueing.cluster.get(*Reference.of(each)) for each in made]
        found = inspected(queueing.platform.kubeconfig)
        # This platform's Kueue only manages namespaces with a label of a team.
        closed = {"local-queue-closed" for each in made if each["kind"] == "LocalQueue"}
        assert broken(found) == FOREIGN[name] | EVERYWHERE | closed
        assert found["notReadable"] == {}
        after = [queueing.cluster.get(*Reference.of(each)) for each in made]
        assert [at(each or {}, "spec") for each in after] == [at(each or {}, "spec") for each in before]


def job(name: str, side: str, gpus: int) -> Manifest:
    found: Any = a_job(name, f"test-{side}", {"nvidia.com/gpu": str(gpus)}, **{"kueue.x-k8s.io/queue-name": "jobs"})
    found["spec"]["template"]["spec"]["nodeSelector"] = {"price": "kept"}
    return found


def is_admitted(cluster: Cluster, side: str, *, evicted: bool = False) -> bool | None:
    which = "Evicted" if evicted else "Admitted"
    found = cluster.list("kueue.x-k8s.io/v1beta2", "Workload", namespace=f"test-{side}")
    return any(is_true(each, which) for each in found) or None


def test_who_is_preempted_next_is_who_kueue_preempts(queueing: Queueing) -> None:
    cluster, kubeconfig = queueing.cluster, queueing.platform.kubeconfig
    with applied(queueing, "kueue-cohort-v1beta1"):
        for side in ("left", "right"):  # The Kueue of this platform only has jobs wait in labelled namespaces.
            cluster.patch(Reference("v1", "Namespace", f"test-{side}"), {"metadata": {"labels": dict([TEAM_LABEL])}})
        borrower = cluster.create(job("long", "left", 8))
        cluster.wait_for(partial(is_admitted, cluster, "left"), what="the borrower to be admitted")
        found = cluster.wait_for(lambda: _simulated(kubeconfig), what="Kueue to count the borrower")
        assert found["preemptions"] == [
            {"queue": "right", "by": "", "amount": 4, "flavor": "kept", "preempted": ["test-left/long"]}
        ]
        assert "used-outside-queues" not in broken(found)
        claim = cluster.create(job("short", "right", 4))
        cluster.wait_for(partial(is_admitted, cluster, "left", evicted=True), what="the borrower to be preempted")
        for each in (claim, borrower):
            cluster.delete(Reference.of(each), wait=60)


def _simulated(kubeconfig: Path) -> Any:
    """The survey once the pod of the borrower is on its node and Kueue has written its usage."""
    found = inspected(kubeconfig)
    return found if found["gpus"][0]["used"] and not found["notSimulated"] else None


def test_what_a_researcher_may_not_read_is_named(queueing: Queueing, tmp_path: Path) -> None:
    cluster = queueing.cluster
    role: Manifest = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "guest", "namespace": "test-alpha"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "guest"}],
    }
    config: Any = yaml.safe_load(queueing.platform.kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"]["as"] = "guest"
    config["contexts"][0]["context"]["namespace"] = "test-alpha"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")
    with applied(queueing, "slack-queue"):
        cluster.apply(role)
        cluster.wait_for(
            lambda: "ResourceQuota" in inspected(kubeconfig)["readInOwnNamespace"] or None, what="the role"
        )
        found = inspected(kubeconfig)
        unread = {kind for kinds in found["notReadable"].values() for kind in kinds}
        assert {"ClusterQueue", "Node"} <= unread
        assert found["gpus"] == []
        assert "promised-beyond-nodes" in found["rules"]["notEvaluated"]
        assert broken(found) == set()
        cluster.delete(Reference.of(role))
