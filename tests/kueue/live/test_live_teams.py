"""Teams that are renamed, are pending or have GPUs of the DRA driver, on the real Kueue."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from builders import GPU, Data, job, pool, stack, team
from queueing import Queueing, a_job, workload_of
from removing import remove
from repository import ROOT
from researchers import Researcher, researching, sections
from typer.testing import CliRunner

from gpu_tenancy.base.json import Json, at, text_at
from gpu_tenancy.cli.main import app
from gpu_tenancy.cluster import bound
from gpu_tenancy.cluster.demand import demand
from gpu_tenancy.cluster.reading import read
from gpu_tenancy.embedded.nodes import NodeShape, bring_nodes, node_shapes
from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.render import render
from gpu_tenancy.explain import fit
from gpu_tenancy.explain.proposal import KINDS, Effect, Proposal, effect
from gpu_tenancy.jobs import listing as queues
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import condition, is_true
from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.source import Source, read_file, to_config
from gpu_tenancy.review.reasons import claims_lost
from gpu_tenancy.ui.board import read_board
from gpu_tenancy.ui.page import sections as sections_of

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
STACK: Final = "renaming"
OLD, NEW = "renamed-old", "renamed-new"
APPLIED: Final = (
    "Namespace", "ResourceQuota", "ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue", "PersistentVolumeClaim",
)  # fmt: skip
STORAGE: Final[Data] = {"scratch": {"size": "1Gi"}}


def renamed_sections(old: int | None, new: int | None, storage: Data) -> Data:
    """Both teams with their guarantees; None if a team is not in the stack. Limits are unchanged."""
    shares = {name: amount for name, amount in ((OLD, old), (NEW, new)) if amount is not None}
    teams = {name: team(gpus={"h100": {"guaranteed": amount, "limit": 16}}) for name, amount in shares.items()}
    if storage:
        teams[OLD]["storage"] = storage
    return stack(pools={"cpu": pool("m7i.8xlarge", 1, labels={"node-type": "cpu"}), "h100": pool()}, teams=teams)


@dataclass(slots=True)
class Deployed:
    queueing: Queueing
    objects: list[Manifest] = field(default_factory=list[Manifest])
    sections: Data = field(default_factory=dict[str, Any])

    def rendered(self, wanted: Data) -> list[Manifest]:
        found = kubernetes_objects(render(ROOT, project="gpu-tenancy", stack=STACK, config=to_config(Source(wanted))))
        return [dict(item.manifest) for kind in APPLIED for item in found if item.kind == kind]

    def foreseen(self, wanted: Data) -> tuple[Effect, list[str]]:
        """The effects of a change, and the reasons for which it is blocked."""
        seen = effect(read(self.queueing.cluster, KINDS), Proposal(self.rendered(wanted), STACK))
        before, after = (outlook(load(Source(one))) for one in (self.sections, wanted))
        return seen, list(claims_lost(before, after, seen))

    def deploy(self, wanted: Data) -> None:
        """Applies a version of the stack, and deletes objects that it no longer has."""
        cluster, objects = self.queueing.cluster, self.rendered(wanted)
        for manifest in objects:
            cluster.apply(manifest)
        kept = {Reference.of(one) for one in objects}
        for manifest in reversed(self.objects):
            if Reference.of(manifest) not in kept:
                cluster.delete(Reference.of(manifest), wait=60)
        self.objects, self.sections = objects, wanted

    def submit(self, name: str, space: str) -> Manifest:
        return self.queueing.cluster.create(a_job(name, space, {"cpu": "1", "memory": "1Gi", GPU: "8"}))

    def workload(self, job: Manifest) -> Manifest:
        return workload_of(self.queueing.cluster, Reference.of(job).name, Reference.of(job).namespace)

    def admitted(self, job: Manifest) -> None:
        name = text_at(job, "metadata", "name")
        self.queueing.cluster.wait_for(lambda: is_true(self.workload(job), "Admitted") or None, what=f"{name} to run")

    def hold(self, name: str) -> None:
        words = ["cluster", "hold", name, "--yes", "--kubeconfig", str(self.queueing.platform.kubeconfig)]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output


@pytest.fixture
def deployed(queueing: Queueing) -> Iterator[Deployed]:
    start = renamed_sections(8, None, STORAGE)
    with queueing.deployed(start, STACK, ()):
        found = Deployed(queueing)
        found.deploy(start)
        yield found
        remove(queueing.cluster, found.objects)


def test_a_team_is_renamed_while_its_jobs_run(deployed: Deployed) -> None:
    cluster, last = deployed.queueing.cluster, renamed_sections(None, 8, {})
    first, second = deployed.submit("first", OLD), deployed.submit("second", OLD)
    for one in (first, second):
        deployed.admitted(one)
    # 1. The new team is added without a guarantee.
    deployed.deploy(renamed_sections(8, 0, STORAGE))
    # 2. The old team is held: it starts nothing, and the new one gets what it leaves.
    deployed.hold(OLD)
    late, moved = deployed.submit("late", OLD), deployed.submit("moved", NEW)
    cluster.delete(Reference.of(first), wait=60)
    deployed.admitted(moved)
    assert not is_true(deployed.workload(late), "Admitted")
    seen, blocked = deployed.foreseen(last)
    assert {one.label for one in seen.deleted} == {f"{OLD}/late", f"{OLD}/second"}
    assert blocked[0].startswith(f"Removing team {OLD} deletes its namespace with 1 claim (1Gi: scratch)")
    # 3. Once the old team runs nothing, its guarantee moves, and its storage goes.
    for one in (second, late):
        cluster.delete(Reference.of(one), wait=60)
    deployed.deploy(renamed_sections(0, 8, {}))
    # 4. The old team is removed.
    seen, blocked = deployed.foreseen(last)
    assert (seen.deleted, seen.preempted, blocked) == ((), (), [])
    deployed.deploy(last)
    cluster.wait_for(lambda: not cluster.exists("v1", "Namespace", OLD) or None, what="the old namespace to be gone")
    assert is_true(deployed.workload(moved), "Admitted")
    assert not condition(deployed.workload(moved), "Evicted")
    cluster.delete(Reference.of(moved), wait=60)


def test_a_moved_guarantee_is_reclaimed_from_the_old_team(deployed: Deployed) -> None:
    """Therefore the guarantee moves last: the job of the new team preempts one of the old."""
    jobs = [deployed.submit(name, OLD) for name in ("first", "second")]
    for one in jobs:
        deployed.admitted(one)
    deployed.deploy(renamed_sections(0, 8, STORAGE))
    claim = deployed.submit("claim", NEW)
    deployed.admitted(claim)
    assert [one for one in jobs if text_at(condition(deployed.workload(one), "Evicted"), "reason") == "Preempted"]
    for one in (*jobs, claim):
        deployed.queueing.cluster.delete(Reference.of(one), wait=60)


# Deployments whose pods wait in the queue.

pytestmark = pytest.mark.platform
HOME: Final = "namespace1"
SERVER: Final = yaml.safe_load("""
apiVersion: apps/v1
kind: Deployment
metadata: {name: elastic, namespace: namespace1}
spec:
  replicas: 8
  selector: {matchLabels: {app: elastic}}
  template:
    metadata: {labels: {app: elastic}}
    spec:
      containers:
        - {name: work, image: "registry.example.com/ml/serve:1.4.0", resources: {limits: {cpu: 5, memory: 20Gi}}}
""")


def test_replicas_beyond_the_limit_are_pending(queueing: Queueing, tmp_path: Path) -> None:
    found: Any = dict(read_file(ROOT / "stacks" / "Pulumi.example-elastic.yaml").sections)
    found |= {"cluster": {**found["cluster"], "version": "1.36"}, "guards": "deny"}
    with researching(queueing, tmp_path, found, HOME) as member:
        made = member.own.create(SERVER)
        try:

            def stand() -> bool:
                pods = member.own.list("v1", "Pod", namespace=HOME)
                return (len(pods), sum(bool(at(pod, "spec", "nodeName")) for pod in pods)) == (8, 4)

            member.cluster.wait_for(lambda: stand() or None, timeout=60, what="4 running pods of 8")
            jobs = queues.listing(read(member.own, queues.KINDS, HOME), HOME).jobs
            assert [job.stands for job in jobs] == ["admitted"] * 4 + [f"pending, place {n}" for n in (1, 2, 3, 4)]
            events = member.own.list("v1", "Event", namespace=HOME)
            assert [event for event in events if text_at(event, "reason") == "FailedCreate"] == []
        finally:
            member.cluster.delete(Reference.of(made))
            member.cluster.wait_for(
                lambda: not member.cluster.list("v1", "Pod", namespace=HOME) or None, what="the end of its pods"
            )


# GPUs of NVIDIA's DRA driver.

RESOURCE: Final = "resource.k8s.io/v1"
DRIVER: Final = "gpu.nvidia.com"
TEAM: Final = "dra"
DRIVEN: Final = (
    "Namespace", "ResourceQuota", "ServiceAccount", "ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue", "Job",
)  # fmt: skip
PATIENCE: Final = 60
# A node with eight GPUs, of which a team may use six: one of its two jobs runs.
SECTIONS: Data = stack(
    pools={"cpu": pool("m7i.8xlarge", 1, labels={"node-type": "cpu"}), "h100": pool(nodes=1)},
    teams={
        TEAM: team(
            gpus={"h100": {"guaranteed": 6}},
            compute={"requests": {"cpu": 200, "memory": "1900Gi"}},
            training={"runs": job(gpus=4, cpu=8, memory="64Gi"), "waits": job(gpus=4, cpu=8, memory="64Gi")},
        )
    },
)
CLASS: Manifest = {
    "apiVersion": RESOURCE,
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}], "extendedResourceName": GPU},
}


def slice_of(node: NodeShape) -> Manifest:
    """The driver's ResourceSlice of a node."""
    devices: Json = [{"name": f"gpu-{number}"} for number in range(int(node.capacity[GPU]))]
    published: Json = {"name": node.name, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node.name}-gpus"},
        "spec": {"driver": DRIVER, "nodeName": node.name, "pool": published, "devices": devices},
    }


@pytest.fixture
def driven(queueing: Queueing) -> Iterator[Cluster]:
    """Nodes whose GPUs are devices of the driver, and the objects of the stack."""
    nodes = node_shapes(load(Source(SECTIONS)))
    # Without a device plugin, the kubelet reports no GPUs.
    plain = [
        replace(node, capacity={key: value for key, value in node.capacity.items() if key != GPU}) for node in nodes
    ]
    driver = [CLASS, *(slice_of(node) for node in nodes if GPU in node.capacity)]
    with queueing.deployed(SECTIONS, TEAM, ()) as made:
        objects = [*driver, *(one for kind in DRIVEN for one in made if one["kind"] == kind)]
        bring_nodes(queueing.cluster, plain)
        for manifest in objects:
            queueing.cluster.apply(manifest)
        yield queueing.cluster
        remove(queueing.cluster, objects)


def workloads(cluster: Cluster) -> dict[bool, Any]:
    """The workloads of the two jobs by whether they are admitted."""
    return {is_true(workload, "Admitted"): workload for workload in cluster.list(KUEUE, "Workload", namespace=TEAM)}


def allocated(cluster: Cluster) -> list[int]:
    claims: list[Any] = list(cluster.list(RESOURCE, "ResourceClaim", namespace=TEAM))
    return [len(claim["status"]["allocation"]["devices"]["results"]) for claim in claims if claim.get("status")]


def test_gpus_of_dra_are_counted_by_kueue_and_quota(driven: Cluster) -> None:
    driven.wait_for(lambda: set(workloads(driven)) == {True, False}, timeout=PATIENCE, what="one job to be admitted")
    driven.wait_for(lambda: allocated(driven) == [4], timeout=PATIENCE, what="a claim with four devices")
    (admission,) = workloads(driven)[True]["status"]["admission"]["podSetAssignments"]
    assert admission["flavors"][GPU] == "h100"
    assert admission["resourceUsage"][GPU] == "4"
    driven.wait_for(
        lambda: [text_at(pod, "spec", "nodeName") for pod in driven.list("v1", "Pod", namespace=TEAM)] == ["h100-0"],
        timeout=PATIENCE,
        what="the pod to be on the node",
    )
    (condition,) = (one for one in workloads(driven)[False]["status"]["conditions"] if one["type"] == "QuotaReserved")
    assert f"insufficient quota for {GPU}" in condition["message"].replace("unused ", "")
    quota = partial(driven.get, "v1", "ResourceQuota", "budget", TEAM)
    driven.wait_for(
        lambda: text_at(quota() or {}, "status", "used", f"requests.{GPU}") == "4",
        timeout=PATIENCE,
        what="the namespace's quota to count them",
    )
    driven.wait_for(lambda: verdict(driven, 4) == "later", timeout=PATIENCE, what="Kueue to report the queue's usage")
    assert verdict(driven, 2) == "now"


def verdict(cluster: Cluster, gpus: int) -> str:
    """Of `tenancy fit`, for a job of one pod: the team has two GPUs left, and the node four."""
    asked = a_job("asked", TEAM, {GPU: str(gpus), "cpu": "8", "memory": "64Gi"})
    return fit.judge(read(cluster, fit.KINDS, TEAM), TEAM, demand(asked, TEAM)).verdict


# GPUs bound beyond what Kueue counts.

WIDE: Final = yaml.safe_load("""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: wide, namespace: ml-research}
spec:
  replicatedJobs:
    - name: w
      template:
        spec:
          parallelism: 1
          completions: 1
          template:
            spec:
              restartPolicy: Never
              containers:
                - {name: work, image: "registry.example.com/ml/train:1.4.0", resources: {limits: {nvidia.com/gpu: 1}}}
""")


def test_reports_name_resized_children_and_their_owner(queueing: Queueing, tmp_path: Path) -> None:
    """A researcher resizes a child of an admitted JobSet, which Kueue does not count; guards only warn."""
    team, admin = str(WIDE["metadata"]["namespace"]), queueing.platform.kubeconfig
    with researching(queueing, tmp_path, {**sections(), "guards": "warn"}, team) as member:
        made = member.own.create(WIDE)
        try:
            member.running("wide", 1)
            assert bound.read_checked(member.cluster, bound.KINDS).breaches == ()
            _resize(member, team, 4)
            told = f"on nodes, 1 counted: JobSet {team}/wide (pods wide-w-0-0"
            for file in (member.kubeconfig, admin):
                assert f"queue {team}: 4 nvidia.com/gpu of flavor " in _shown("usage", team, file)
                assert told in _shown("usage", team, file)
                assert told in _shown("queue", team, file)
            assert told in _shown("cluster", "inspect", admin)
            assert told in sections_of(read_board(member.own, team, team))["usage"]
            _resize(member, team, 1)
            member.cluster.wait_for(
                lambda: not bound.read_checked(member.cluster, bound.KINDS).breaches or None,
                what="the end of the breach",
            )
            for command in (("usage", team), ("queue", team), ("cluster", "inspect")):
                assert " counted: " not in _shown(*command, admin)
        finally:
            member.end(made)


def _resize(member: Researcher, team: str, count: int) -> None:
    spec: Json = {"parallelism": count, "completions": count}
    member.own.patch(Reference("batch/v1", "Job", "wide-w-0", team), {"spec": spec})
    member.cluster.wait_for(
        lambda: sum(bool(at(pod, "spec", "nodeName")) for pod in member.pods("wide")) == count or None,
        timeout=60,
        what=f"{count} pods on nodes",
    )


def _shown(*command: object) -> str:
    """Output in JSON, which wraps no lines, of a command with the kubeconfig at its end."""
    *words, file = map(str, command)
    done = CliRunner().invoke(app, [*words, "--kubeconfig", file, "-o", "json"])
    assert done.exit_code == 0, done.output
    return done.stdout
