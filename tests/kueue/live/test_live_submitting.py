"""The objects of docs/submitting.md, submitted as the page says: checked by `tenancy fit`, then admitted by Kueue."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from builders import job, pool, stack, team
from queueing import Queueing
from repository import ROOT
from typer.testing import CliRunner

from gpu_tenancy.base.json import Json, at, text_at
from gpu_tenancy.cli.main import app
from gpu_tenancy.embedded.nodes import NodeShape, add_node
from gpu_tenancy.inspect.target import owners
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.operators.kueue import TEAM_LABEL
from gpu_tenancy.model.source import Source

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
TEAM: Final = "ml-research"
NODE: Final = "node-of-submitting"
PAGE: Final = (ROOT / "docs" / "submitting.md").read_text(encoding="utf-8")
BLOCKS: Final[list[Any]] = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
OBJECTS: Final[dict[str, Any]] = {block["metadata"]["name"]: block for block in BLOCKS if "kind" in block}
JOBS: Final[dict[str, Any]] = {name: spec for block in BLOCKS for name, spec in block.get("training", {}).items()}
PODS: Final = {
    "nightly-by-hand": 2,
    "sweep-by-hand": 4,
    "finetune-by-hand": 2,
    "simulate-by-hand": 2,
    "label-by-hand": 3,
    "tune-by-hand": 3,
    "rollout-by-hand": 4,
    "search-by-hand": 8,
}
GROUPS: Final = {"rollout-by-hand": 2}
"""Objects whose groups of pods Kueue admits separately, and how many."""


@pytest.fixture(scope="module")
def page(queueing: Queueing) -> Iterator[Queueing]:
    """A team with a queue and a node, where JAX's runtime, KubeRay and LeaderWorkerSet are installed."""
    frameworks = ("jax", "ray", "leader-worker")
    jobs = {f"j-{name}": job(framework=name, command=["/run"]) for name in frameworks}
    queueing.run(load(Source(stack(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, training=jobs)}))))
    cluster = queueing.cluster
    labels: Json = {TEAM_LABEL[0]: TEAM_LABEL[1]}
    amounts: dict[str, str] = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "16"}
    flavor: Json = {"name": TEAM, "resources": [{"name": name, "nominalQuota": n} for name, n in amounts.items()]}
    groups: Json = [{"coveredResources": list(amounts), "flavors": [flavor]}]
    objects: list[Manifest] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM, "labels": labels}},
        {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": TEAM}},
        _object("ClusterQueue", {"namespaceSelector": {}, "resourceGroups": groups}),
        _object("LocalQueue", {"clusterQueue": TEAM}, TEAM),
    ]
    for item in objects:
        cluster.apply(item)
    add_node(cluster, NodeShape(NODE, {}, (), amounts))
    yield queueing
    for kind in ("LocalQueue", "ClusterQueue", "ResourceFlavor"):
        cluster.delete(Reference(KUEUE, kind, TEAM, TEAM if kind == "LocalQueue" else ""))
    cluster.delete(Reference("v1", "Node", NODE))
    cluster.delete(Reference("v1", "Namespace", TEAM))
    cluster.wait_for(lambda: cluster.get("v1", "Namespace", TEAM) is None or None, what=f"the end of {TEAM}")
    queueing.run(load(Source(stack())))


def _object(kind: str, spec: Json, namespace: str = "") -> Manifest:
    metadata: Json = {"name": TEAM, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}


def test_the_page_has_an_object_of_each_kind_that_teams_submit() -> None:
    assert OBJECTS.keys() == PODS.keys()


def test_the_page_has_a_job_of_each_kind_as_stacks_have_it() -> None:
    frameworks = {spec.get("framework", "job") for spec in JOBS.values()}
    assert frameworks == {"job", "pytorch", "jax", "mpi", "jobset", "ray", "leader-worker"}
    pools = {"h100": pool(nodes=8), "cpu": pool("m7i.8xlarge", nodes=2)}
    of_cpus = {"cpu": {"guaranteed": 40}, "memory": {"guaranteed": "160Gi"}}
    own = team(gpus={"h100": {"guaranteed": 8, "limit": 64}}, quota={"cpu": of_cpus}, training=JOBS)
    loaded = load(Source(stack(pools=pools, teams={"a": own})))
    assert loaded.teams["a"].training.keys() == JOBS.keys()


@pytest.mark.parametrize("name", PODS)
def test_each_object_fits_and_becomes_its_pods(page: Queueing, tmp_path: Path, name: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(OBJECTS[name]), encoding="utf-8")
    command = ["fit", TEAM, "-f", str(file), "--kubeconfig", str(page.platform.kubeconfig)]
    seen = CliRunner(env={"COLUMNS": "200"}).invoke(app, command)
    assert seen.exit_code == 0, seen.output
    made = page.cluster.create(OBJECTS[name])
    uid = text_at(made, "metadata", "uid")
    try:
        page.cluster.wait_for(lambda: len(_pods(page, name)) == PODS[name] or None, what=f"the pods of {name}")
        workloads = [one for one in page.cluster.list(KUEUE, "Workload", namespace=TEAM) if uid in owners(one)]
        queues = [at(workload, "status", "admission", "clusterQueue") for workload in workloads]
        assert queues == [TEAM] * GROUPS.get(name, 1)
    finally:
        page.cluster.delete(Reference(text_at(made, "apiVersion"), text_at(made, "kind"), name, TEAM))
        page.cluster.wait_for(lambda: not _pods(page, name) or None, what=f"the end of {name}")


def _pods(page: Queueing, name: str) -> list[Manifest]:
    pods = page.cluster.list("v1", "Pod", namespace=TEAM)
    return [pod for pod in pods if text_at(pod, "metadata", "name").startswith(f"{name}-")]
