"""The stack `example-elastic`, which has no GPUs: its checks and its summary on a real API server."""

from collections.abc import Iterator

import pytest
from acceptance_builders import declared, flat, in_waves, sections_of
from removing import remove

from gpu_tenancy.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.local.checks.placement import NAMESPACE, check_placement
from gpu_tenancy.local.settling import settle
from gpu_tenancy.local.summary import summarise
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source

TEAMS = ("namespace1", "namespace2", "namespace3", "namespace4")


@pytest.fixture(scope="module")
def elastic(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Plan, Tree]]:
    sections = sections_of("example-elastic")
    stack = load(Source(sections))
    made = plan(stack)
    waves = in_waves(declared(sections))
    bring_nodes(cluster, node_shapes(stack))
    apply(cluster, waves, tmp_path_factory.mktemp("elastic") / "inventory.json")
    settle(cluster, made)
    yield made, Tree(stack)
    remove(cluster, flat(waves))
    bring_nodes(cluster, ())


def test_no_team_can_request_more_cpus_than_may_run_and_wait(cluster: Cluster, elastic: tuple[Plan, Tree]) -> None:
    found = check_placement(cluster, *elastic)
    assert [check.promise for check in found] == [f"{team} cannot request more than its 80 CPUs" for team in TEAMS]
    assert [check.seen for check in found if not check.holds] == []
    for check in found:
        assert check.seen == "0 used; a pod with 80 is admitted, a pod with 81 is rejected"
        assert "exceeded quota: budget, requested: requests.cpu=81, used: requests.cpu=0" in check.message
    cluster.wait_gone(Reference("v1", "Namespace", NAMESPACE))


def test_the_summary_counts_cpus_and_memory(cluster: Cluster, elastic: tuple[Plan, Tree]) -> None:
    found = summarise(cluster, *elastic)
    assert {(holding.team, holding.flavor): (holding.guaranteed, holding.limit) for holding in found.holdings} == {
        key: value
        for team in TEAMS
        for key, value in {
            (team, "CPUs"): (10_000, 20_000),
            (team, "memory"): (40 * 2**30, 80 * 2**30),
        }.items()
    }
    assert {supply.flavor: (supply.nodes, supply.capacity) for supply in found.supply} == {
        "CPUs": (4, 40_000),
        "memory": (4, 160 * 2**30),
    }
