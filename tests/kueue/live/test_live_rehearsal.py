"""Scenarios and checks on the live Kueue, with the queues of the stack `example-elastic`."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from queueing import Queueing
from repository import ROOT

from gpu_tenancy.base.json import Json
from gpu_tenancy.cluster.cluster_queues import Hold
from gpu_tenancy.cluster.reading import read
from gpu_tenancy.engine.project import preview
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.local.checks.queueing import check_queueing, manifest_of_anyone
from gpu_tenancy.maintenance import holding
from gpu_tenancy.model.names import KUEUE
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.simulation.copies import COPY, copied, own_places
from gpu_tenancy.simulation.live import LivePlayer
from gpu_tenancy.simulation.player import Event, SimulatedPlayer, StepResult
from gpu_tenancy.simulation.scenario import read_scenario

KINDS = ("Namespace", "ServiceAccount", "ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue")
TABLE = [[4, 0, 0, 0], [4, 4, 0, 0], [3, 3, 2, 0], [2, 2, 2, 2]]
GUARANTEE = "namespace1 gets 10 CPUs with 40Gi back at once"


@dataclass(frozen=True)
class Elastic:
    cluster: Cluster
    tree: Tree


@pytest.fixture(scope="module")
def elastic(queueing: Queueing) -> Iterator[Elastic]:
    made = preview("example-elastic", ROOT, onto=queueing.platform.kubeconfig)
    queueing.run(made.declared)
    objects = [item.manifest for kind in KINDS for item in made.objects if item.kind == kind]
    for manifest in objects:
        queueing.cluster.apply(manifest)
    yield Elastic(queueing.cluster, Tree(made.stack))
    for manifest in reversed(objects):
        queueing.cluster.delete(Reference.of(manifest))


def test_the_elastic_table_agrees_with_the_simulation(elastic: Elastic) -> None:
    scenario = read_scenario(ROOT / "stacks" / "scenarios" / "example-elastic.yaml", elastic.tree)
    places = own_places(elastic.tree)
    simulated, live = SimulatedPlayer(elastic.tree), LivePlayer(elastic.cluster, elastic.tree, places)
    events: list[Event] = []
    try:
        results = [
            StepResult(step, simulated.play(step, lambda _: None), live.play(step, events.append)) for step in scenario
        ]
    finally:
        live.clear()
    found = [[sum(job.team == team for job in each.shown.running) for team in places] for each in results]
    assert found == TABLE
    assert all(result.agrees for result in results)
    preempted = [event for event in events if event.kind == "preempted"]
    assert {(event.reason, event.by_team) for event in preempted} == {
        ("InCohortReclamation", "namespace3"),
        ("InCohortReclamation", "namespace4"),
    }
    assert all(event.message.startswith("Preempted to accommodate a workload due to") for event in preempted)
    for place in places.values():
        assert elastic.cluster.list(KUEUE, "Workload", namespace=place.namespace) == ()


def test_guarantee_and_limit_are_checked_and_no_object_is_left(elastic: Elastic) -> None:
    with copied(elastic.cluster, elastic.tree, more=(manifest_of_anyone(elastic.tree),)) as places:
        checks = list(check_queueing(elastic.cluster, elastic.tree, places))
    assert {check.promise: check.holds for check in checks} == {
        GUARANTEE: True,
        "namespace1 cannot use more than its limit, 20 CPUs, although more is idle": True,
        "a job without a queue does not run in namespace1": True,
    }
    assert "Preempted to accommodate a workload" in checks[0].message
    for kind in ("ClusterQueue", "Cohort"):
        for item in elastic.cluster.list(KUEUE, kind, labels=COPY, metadata_only=True):
            elastic.cluster.wait_gone(Reference.of(item))


def test_guarantees_are_checked_during_holds(elastic: Elastic) -> None:
    names = (*list(elastic.tree.queue_owners)[:2], *elastic.tree.flavors)
    held: list[tuple[holding.Subject, Hold]] = []
    try:
        for name in names:
            subject = holding.find(read(elastic.cluster, holding.KINDS), name)
            held.append((subject, subject.held_by("ada", None, drain=False)))
            holding.hold(elastic.cluster, *held[-1])
        with copied(elastic.cluster, elastic.tree, more=(manifest_of_anyone(elastic.tree),)) as places:
            checks = list(check_queueing(elastic.cluster, elastic.tree, places))
    finally:
        for subject, hold in held:
            holding.release(elastic.cluster, subject, hold)
    assert {subject.kind for subject, _ in held} == {"ClusterQueue", "ResourceFlavor"}
    assert [check.promise for check in checks if not check.holds] == []
    assert GUARANTEE in {check.promise for check in checks}


def test_the_check_of_a_guarantee_fails_without_reclaim(elastic: Elastic) -> None:
    never: dict[str, Json] = {"spec": {"preemption": {"reclaimWithinCohort": "Never"}}}
    always: dict[str, Json] = {"spec": {"preemption": {"reclaimWithinCohort": "Any"}}}
    queues = [Reference(KUEUE, "ClusterQueue", name) for name in elastic.tree.queue_owners]
    for queue in queues:
        elastic.cluster.patch(queue, never)
    try:
        with copied(elastic.cluster, elastic.tree, more=(manifest_of_anyone(elastic.tree),)) as places:
            checks = {check.promise: check for check in check_queueing(elastic.cluster, elastic.tree, places)}
    finally:
        for queue in queues:
            elastic.cluster.patch(queue, always)
    assert checks[GUARANTEE].holds is False
    assert "is pending; none preempted" in checks[GUARANTEE].seen
