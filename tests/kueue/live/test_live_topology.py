"""Placement of jobs' pods by the real Kueue, and `why` and `fit` for jobs that do not fit."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from builders import Data, job, pool, server, stack, team
from queueing import Queueing

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import text_at
from gpu_tenancy.cluster.demand import demand, target_of
from gpu_tenancy.cluster.pods import ended
from gpu_tenancy.cluster.queueing import STATE_PLACE
from gpu_tenancy.cluster.reading import read
from gpu_tenancy.explain import fit
from gpu_tenancy.explain.running import Why
from gpu_tenancy.explain.why import KINDS, OWN, why
from gpu_tenancy.jobs.requeueing import requeue
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.local.checks import workloads
from gpu_tenancy.local.checks.workloads import check_topology
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.source import Source

TEAM = "topology"
RACK = "example.com/rack"
APPLIED = (
    "Namespace", "ServiceAccount", "Topology", "ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue", "Job",
    "Deployment",
)  # fmt: skip
PATIENCE = 60
SECTIONS: Data = stack(
    pools={
        "cpu": pool("m7i.8xlarge", 1, labels={"node-type": "cpu"}),
        "h100": pool(nodes=6, topology={"block": "example.com/block", "rack": RACK}),
    },
    teams={
        TEAM: team(
            gpus={"h100": {"guaranteed": 48}},
            compute={"requests": {"cpu": 1160, "memory": "11520Gi"}},
            training={
                "fits": job(workers=4, gpus=4, together="rack"),
                "larger": job(workers=6, gpus=4, together="rack"),
            },
            serving={"serve": server()},
        )
    },
)
"""Racks of two nodes with eight GPUs each: `fits` is a rack, `larger` is a rack and a half, and both have quota."""


@dataclass(frozen=True)
class Placed:
    cluster: Cluster
    plan: Plan
    jobs: dict[str, Manifest]


@pytest.fixture(scope="module")
def placed(queueing: Queueing) -> Iterator[Placed]:
    with queueing.deployed(SECTIONS, TEAM, APPLIED) as made:
        jobs = {Reference.of(one).name: one for one in made if one["kind"] == "Job"}
        yield Placed(queueing.cluster, plan(load(Source(SECTIONS))), jobs)


def nodes_of(cluster: Cluster, name: str) -> list[str]:
    pods = cluster.list("v1", "Pod", namespace=TEAM, labels=f"app.kubernetes.io/name={name}")
    return [node for pod in pods if not ended(pod) and (node := text_at(pod, "spec", "nodeName"))]


def run_whole(placed: Placed, name: str, pods: int) -> None:
    placed.cluster.wait_for(
        lambda: len(nodes_of(placed.cluster, name)) == pods, timeout=PATIENCE, what=f"{pods} pods of {name} on nodes"
    )


def asked(placed: Placed, name: str) -> Why:
    state = read(placed.cluster, KINDS, TEAM, only=OWN)
    return why(target_of(placed.cluster.get("batch/v1", "Job", name, TEAM) or {}, state), state)


def judged(placed: Placed, manifest: Manifest) -> fit.Fitting:
    return fit.judge(read(placed.cluster, fit.KINDS, TEAM), TEAM, demand(manifest, TEAM))


def test_all_pods_of_a_job_run_in_one_rack(placed: Placed) -> None:
    run_whole(placed, "fits", 4)
    checks = {check.promise: check.holds for check in check_topology(placed.cluster, placed.plan)}
    assert checks == {
        f"all pods of {TEAM}/fits run on nodes with one {RACK}": True,
        f"all pods of {TEAM}/larger run on nodes with one {RACK}": None,
    }


def test_a_server_without_a_condition_is_admitted(placed: Placed) -> None:
    run_whole(placed, "serve", 1)


def test_why_explains_a_job_that_is_larger_than_a_rack(placed: Placed) -> None:
    run_whole(placed, "fits", 4)
    placed.cluster.wait_for(
        lambda: "no part of the network" in asked(placed, "larger").reason,
        timeout=PATIENCE,
        what="Kueue's message about the topology",
    )
    answer = asked(placed, "larger")
    assert answer.waits
    assert 'topology "h100" allows to fit only 4 out of 6 pod(s)' in answer.reason
    assert "kueue.x-k8s.io/podset-preferred-topology" in answer.fix


def test_fit_foresees_that_no_rack_is_large_enough(placed: Placed) -> None:
    found = judged(placed, placed.jobs["larger"])
    assert found.verdict == "never"
    assert any(
        f"6 pods must run where nodes have one value of {RACK}, but no value has room for more than 4" in line
        for answer in found.answers
        for line in answer.lines
    )


def test_fit_and_why_name_a_missing_annotation(placed: Placed) -> None:
    """The queue has CPU nodes without a topology, so Kueue ignores the topology for pods without the annotation."""
    plain: Any = deepcopy(placed.jobs["fits"])
    plain["metadata"]["name"] = "plain"
    del plain["spec"]["template"]["metadata"]["annotations"]
    placed.cluster.create(plain)
    try:
        placed.cluster.wait_for(
            lambda: any("supports only TopologyAwareScheduling" in line for line in asked(placed, "plain").messages),
            timeout=PATIENCE,
            what="Kueue's message about the topology",
        )
        answer = asked(placed, "plain")
        assert "topology" in answer.reason
        assert answer.fix == STATE_PLACE
        assert judged(placed, plain).verdict == "never"
    finally:
        placed.cluster.delete(Reference.of(plain))


@pytest.mark.parametrize("evicted", [False, True])
def test_a_job_whose_node_is_taken_is_requeued(placed: Placed, monkeypatch: Any, *, evicted: bool) -> None:
    """As by a gang of Volcano, which Kueue does not see before it assigns the nodes; Kueue can be first to evict it."""

    def requeue_late(*job: Any) -> str:
        requeue(*job)
        raise ConsoleError("Job fits: is pending in its queue already", "no action needed")

    if evicted:
        monkeypatch.setattr(workloads, "requeue", requeue_late)
    run_whole(placed, "fits", 4)
    (taken, *_) = nodes_of(placed.cluster, "fits")
    container = {"name": "c", "image": "a:1", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    spec: Any = {"nodeName": taken, "containers": [container], "tolerations": [{"operator": "Exists"}]}
    blocker: Any = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taker", "namespace": "default"}}
    pods = placed.cluster.list("v1", "Pod", namespace=TEAM, labels="app.kubernetes.io/name=fits")
    own = next(pod for pod in pods if text_at(pod, "spec", "nodeName") == taken)
    reference = Reference.of({"apiVersion": "v1", "kind": "Pod", **own})
    placed.cluster.patch(reference, {"status": {"phase": "Failed"}}, subresource="status")
    placed.cluster.create({**blocker, "spec": spec})
    try:
        placed.cluster.wait_for(
            lambda: "tenancy requeue" in asked(placed, "fits").fix, timeout=PATIENCE, what="the pod without a node"
        )
        (fits, _) = check_topology(placed.cluster, placed.plan)
        assert fits.holds, fits.seen
        assert ("not requeued: Job fits: is pending" if evicted else "requeued once, because other") in fits.seen
    finally:
        placed.cluster.delete(Reference.of(blocker), grace=0, wait=0)
