"""Each kind of job in Kueue: `tenancy fit` must count the pods and requests of Kueue's Workload."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from builders import job, pool, stack, team
from queueing import Queueing
from repository import ROOT

from gpu_tenancy.base.json import Json, at, int_at, maps_at, text_at
from gpu_tenancy.cluster.demand import demand, owners, with_runtime
from gpu_tenancy.cluster.pods import requests
from gpu_tenancy.cluster.reading import read
from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.render import render
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.operators.kueue import TEAM_LABEL
from gpu_tenancy.model.source import Source, to_config
from gpu_tenancy.model.spec.roles import KINDS

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
HOME: Final = "test-kinds"
JOBS: Final = {
    "plain": job(workers=2, gpus=4),
    "elastic": job(workers={"min": 2, "max": 4}, gpus=2),
    "torch": job(framework="pytorch", workers=2, gpus=4),
    "flax": job(framework="jax", workers=3, gpus=2),
    "horovod": job(framework="mpi", workers=2, gpus=4, command=["mpirun", "/train"]),
    "zero": job(framework="deepspeed", gpus=4, roles={"launcher": {"gpus": 4}, "worker": {"pods": 3}}),
    "parts": job(framework="jobset", gpus=4, roles={"driver": {"gpus": 0, "cpu": 2}, "worker": {"pods": 2}}),
    "tune": job(framework="ray", workers=2, gpus=4, command=["python", "/tune.py"]),
    "actors": job(
        framework="ray", gpus=1, command=["/run"], roles={"head": {"gpus": 1}, "actor": {"pods": 2}, "env": {"gpus": 0}}
    ),
    "pair": job(framework="leader-worker", gpus=2, workers=3, groups=2),
}
SECTIONS: Final = stack(
    pools={"h100": pool(nodes=4)}, teams={"a": team(gpus={"h100": {"guaranteed": 16, "limit": 32}}, training=JOBS)}
)


@pytest.fixture(scope="module")
def workloads(queueing: Queueing) -> Iterator[dict[str, tuple[Manifest, Manifest]]]:
    """Each job of the stack with Kueue's Workload; its queue has no quota, so that no pod starts."""
    queueing.run(load(Source(SECTIONS)))
    cluster = queueing.cluster
    labels: Json = {TEAM_LABEL[0]: TEAM_LABEL[1]}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME, "labels": labels}})
    queue: Json = {"namespaceSelector": {}, "stopPolicy": "Hold"}
    cluster.apply({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": HOME}, "spec": queue})
    local: Json = {"name": "a", "namespace": HOME}
    cluster.apply({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": HOME}})
    objects = kubernetes_objects(render(ROOT, project="gpu-tenancy", stack="kinds", config=to_config(Source(SECTIONS))))
    for item in objects:
        if item.kind == "TrainingRuntime":
            cluster.apply(moved(item.manifest))
    kinds = {kind.api for kind in KINDS.values()}
    submitted = [
        cluster.apply(moved(item.manifest))
        for item in objects
        if (text_at(item.manifest, "apiVersion"), item.kind) in kinds and item.name in JOBS
    ]
    yield {text_at(one, "metadata", "name"): (one, _workload(queueing, one)) for one in submitted}
    for one in submitted:
        name = text_at(one, "metadata", "name")
        cluster.delete(Reference(text_at(one, "apiVersion"), text_at(one, "kind"), name, HOME))
    cluster.delete(Reference(KUEUE, "LocalQueue", "a", HOME))
    cluster.delete(Reference(KUEUE, "ClusterQueue", HOME))
    queueing.run(load(Source(stack())))


def moved(manifest: Any) -> Any:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": HOME}}


def _workload(queueing: Queueing, submitted: Manifest) -> Manifest:
    uid = text_at(submitted, "metadata", "uid")

    def find() -> Any:
        made = queueing.cluster.list(KUEUE, "Workload", namespace=HOME)
        return next((one for one in made if uid in owners(one)), None)

    return queueing.cluster.wait_for(find, what=f"the Workload of {text_at(submitted, 'metadata', 'name')}")


def asked(template: Json) -> dict[str, int]:
    spec = at(template, "spec") if isinstance(template, dict) else None
    return requests(spec if isinstance(spec, dict) else {})


@pytest.mark.parametrize("name", JOBS)
def test_fit_counts_what_kueue_counts(
    queueing: Queueing, workloads: dict[str, tuple[Manifest, Manifest]], name: str
) -> None:
    submitted, workload = workloads[name]
    state = read(queueing.cluster, ("ClusterTrainingRuntime",), HOME, only=("TrainingRuntime",))
    counted = with_runtime(demand(submitted, HOME), state)
    pods = [(template.count, requests(template.spec)) for template in counted.templates]
    counted_by_kueue = [
        (int_at(one, "count") * counted.groups, asked(at(one, "template")))
        for one in maps_at(workload, "spec", "podSets")
    ]
    assert pods == counted_by_kueue
    assert len(pods) == len(load(Source(SECTIONS)).teams["a"].training[name].pods_by_role)


def test_elastic_jobs_can_be_admitted_with_min_pods(workloads: dict[str, tuple[Manifest, Manifest]]) -> None:
    (pods,) = maps_at(workloads["elastic"][1], "spec", "podSets")
    assert (int_at(pods, "count"), int_at(pods, "minCount")) == (4, 2)
