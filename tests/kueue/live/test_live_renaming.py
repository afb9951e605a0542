"""The steps of `docs/day-two.md` by which a team is renamed, on the real Kueue with jobs that run through them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from builders import Data, pool, stack, team
from queueing import Queueing
from removing import remove
from repository import ROOT
from typer.testing import CliRunner

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.cli.main import app
from gpu_tenancy.cluster.reading import read
from gpu_tenancy.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.render import render
from gpu_tenancy.explain.proposal import KINDS, Effect, Proposal, effect
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import condition, is_true
from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.source import Source, to_config
from gpu_tenancy.review.reasons import claims_lost

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
STACK: Final = "renaming"
OLD, NEW = "renamed-old", "renamed-new"
APPLIED: Final = (
    "Namespace", "ResourceQuota", "ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue", "PersistentVolumeClaim",
)  # fmt: skip
STORAGE: Final[Data] = {"scratch": {"size": "1Gi"}}


def sections(old: int | None, new: int | None, storage: Data) -> Data:
    """Both teams with their guarantees; None where a team is not there. What they may use stays."""
    shares = {name: amount for name, amount in ((OLD, old), (NEW, new)) if amount is not None}
    teams = {name: team(gpus={"h100": {"guaranteed": amount, "limit": 16}}) for name, amount in shares.items()}
    if storage:
        teams[OLD]["storage"] = storage
    return stack(pools={"cpu": pool("m7i.8xlarge", 1, labels={"node-type": "cpu"}), "h100": pool()}, teams=teams)


@dataclass(slots=True)
class Deployed:
    """A platform with the present version of the stack."""

    queueing: Queueing
    objects: list[Manifest] = field(default_factory=list[Manifest])
    sections: Data = field(default_factory=dict[str, Any])

    def rendered(self, wanted: Data) -> list[Manifest]:
        config = to_config(Source(wanted))
        found = kubernetes_objects(render(ROOT, project="gpu-tenancy", stack=STACK, config=config))
        return [dict(item.manifest) for kind in APPLIED for item in found if item.kind == kind]

    def foreseen(self, wanted: Data) -> tuple[Effect, list[str]]:
        """What a change does, and why it is blocked."""
        seen = effect(read(self.queueing.cluster, KINDS), Proposal(self.rendered(wanted), STACK))
        before, after = (outlook(load(Source(one))) for one in (self.sections, wanted))
        return seen, list(claims_lost(before, after, seen))

    def deploy(self, wanted: Data) -> None:
        """Applies a version of the stack, and deletes what it has no more."""
        cluster, objects = self.queueing.cluster, self.rendered(wanted)
        for manifest in objects:
            cluster.apply(manifest)
        kept = {Reference.of(one) for one in objects}
        for manifest in reversed(self.objects):
            if Reference.of(manifest) not in kept:
                cluster.delete(Reference.of(manifest), wait=60)
        self.objects, self.sections = objects, wanted

    def submit(self, name: str, space: str) -> Manifest:
        """A job with eight GPUs."""
        amounts: Json = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "8"}
        container: Json = {
            "name": "main",
            "image": "example.com/job:1",
            "resources": {"requests": amounts, "limits": amounts},
        }
        toleration: Json = {"key": "nvidia.com/gpu", "operator": "Exists"}
        pod: Json = {"restartPolicy": "Never", "containers": [container], "tolerations": [toleration]}
        metadata: Json = {"name": name, "namespace": space, "labels": {"kueue.x-k8s.io/queue-name": space}}
        return self.queueing.cluster.create(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}}
        )

    def workload(self, job: Manifest) -> Manifest:
        space, start = text_at(job, "metadata", "namespace"), f"job-{text_at(job, 'metadata', 'name')}-"
        found = self.queueing.cluster.list(KUEUE, "Workload", namespace=space)
        return next((one for one in found if text_at(one, "metadata", "name").startswith(start)), dict[str, Json]())

    def admitted(self, job: Manifest) -> None:
        name = text_at(job, "metadata", "name")
        self.queueing.cluster.wait_for(lambda: is_true(self.workload(job), "Admitted") or None, what=f"{name} to run")

    def hold(self, name: str) -> None:
        words = ["cluster", "hold", name, "--yes", "--kubeconfig", str(self.queueing.platform.kubeconfig)]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output


@pytest.fixture
def deployed(queueing: Queueing) -> Iterator[Deployed]:
    start = sections(8, None, STORAGE)
    declared = load(Source(start))
    queueing.run(declared)
    bring_nodes(queueing.cluster, node_shapes(declared))
    found = Deployed(queueing)
    found.deploy(start)
    yield found
    remove(queueing.cluster, found.objects)
    bring_nodes(queueing.cluster, ())
    queueing.run(load(Source(stack())))


def test_a_team_is_renamed_while_its_jobs_run_and_nothing_is_lost(deployed: Deployed) -> None:
    cluster, last = deployed.queueing.cluster, sections(None, 8, {})
    first, second = deployed.submit("first", OLD), deployed.submit("second", OLD)
    for job in (first, second):
        deployed.admitted(job)
    # 1. The new team is added without a guarantee.
    deployed.deploy(sections(8, 0, STORAGE))
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
    for job in (second, late):
        cluster.delete(Reference.of(job), wait=60)
    deployed.deploy(sections(0, 8, {}))
    # 4. The old team is removed.
    seen, blocked = deployed.foreseen(last)
    assert (seen.deleted, seen.preempted, blocked) == ((), (), [])
    deployed.deploy(last)
    cluster.wait_for(lambda: not cluster.exists("v1", "Namespace", OLD) or None, what="the old namespace to be gone")
    assert is_true(deployed.workload(moved), "Admitted")
    assert not condition(deployed.workload(moved), "Evicted")
    cluster.delete(Reference.of(moved), wait=60)


def test_a_guarantee_that_moves_while_the_old_team_runs_is_reclaimed_from_it(deployed: Deployed) -> None:
    """Why the guarantee moves last: the job of the new team ends one of the old."""
    jobs = [deployed.submit(name, OLD) for name in ("first", "second")]
    for job in jobs:
        deployed.admitted(job)
    deployed.deploy(sections(0, 8, STORAGE))
    claim = deployed.submit("claim", NEW)
    deployed.admitted(claim)
    assert [one for one in jobs if text_at(condition(deployed.workload(one), "Evicted"), "reason") == "Preempted"]
    for job in (*jobs, claim):
        deployed.queueing.cluster.delete(Reference.of(job), wait=60)
