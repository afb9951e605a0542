"""What reports count where nodes have no GPUs: CPU and memory."""

import pytest
from builders import pool, stack, team
from cpu_stacks import CPUS, MIXED

from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import StackOutlook, outlook
from gpu_tenancy.model.outlook.shares import Span
from gpu_tenancy.model.plan.shares import Measure, Tree, measures, measures_of
from gpu_tenancy.model.source import Source
from gpu_tenancy.simulation.scenarios import alone, busy, holdings
from gpu_tenancy.simulation.scenarios.scenes import CPU_JOBS

GI = 2**30


def tree(sections: object) -> Tree:
    return Tree(load(Source(sections)))  # pyright: ignore[reportArgumentType]


def summary(sections: object) -> StackOutlook:
    return outlook(tree(sections).stack)


def test_cpu_and_memory_are_counted_where_nodes_have_no_gpus() -> None:
    assert [measure.label for measure in measures(tree(CPUS))] == ["general CPUs", "general memory"]
    assert [measure.label for measure in measures(tree(MIXED))] == ["h100", "general CPUs", "general memory"]
    assert [measure.label for measure in measures_of(tree(MIXED), "vision")] == ["h100"]


def test_the_cpu_nodes_of_teams_with_gpus_are_not_counted() -> None:
    found = tree(stack(cluster={"cloud": "existing", "provides": ["networkPolicies"]}))
    assert found.team_shares["a"]["cpu"]["cpu"].limit
    assert {measure.label for measure in measures(found)} == {"a100", "h100"}


def test_the_summary_has_guarantees_limits_and_capacity_of_cpu_and_memory() -> None:
    found = summary(CPUS)
    etl, web = found.teams
    assert [(held.flavor, held.guaranteed, held.limit, held.alone) for held in etl.holdings] == [
        ("general CPUs", 40_000, 80_000, 80_000),
        ("general memory", 128 * GI, 256 * GI, 256 * GI),
    ]
    assert [held.busy for held in web.holdings] == [Span(44_000, 60_000), Span(64 * GI, 64 * GI)]
    cpus, memory = found.supply
    assert (cpus.capacity, cpus.guaranteed, cpus.limits) == (Span(124_000, 124_000), 60_000, 140_000)
    assert (memory.capacity.maximum, memory.guaranteed) == (464 * GI, 192 * GI)
    assert found.totals == (cpus,)
    assert summary(MIXED).totals == (summary(MIXED).supply[0],)


def test_a_cpu_costs_its_part_of_the_node_and_memory_nothing_more() -> None:
    found = summary(CPUS)
    (pool_,) = found.pools
    assert pool_.node_price
    etl, _ = found.teams
    assert etl.cost.guaranteed == pytest.approx(pool_.node_price / 31 * 40 * 730)
    assert found.supply[1].price == 0


def test_the_simulation_fills_cpus_and_memory_up_to_the_limits() -> None:
    found = tree(CPUS)
    last, first, only = busy(found, last="etl"), busy(found, first="etl"), alone(found, "etl")
    cpus = Measure("general", "cpu")
    assert [moment.amount("etl", cpus) for moment in (last, first, only)] == [64_000, 80_000, 80_000]
    assert [(held.flavor, held.runs) for held in holdings(found, only) if held.team == "etl"] == [
        ("general CPUs", 80_000),
        ("general memory", 256 * GI),
    ]


def test_large_cpu_pools_are_simulated_with_few_jobs() -> None:
    sections = {
        **CPUS,
        "pools": {"general": pool("m7i.8xlarge", 100)},
        "teams": {"etl": team(quota={"general": {"cpu": {"guaranteed": 3001}, "memory": {"guaranteed": "1Ti"}}})},
        "cohorts": {},
    }
    moment = alone(tree(sections), "etl")
    assert len(moment.running) == CPU_JOBS
    assert moment.amount("etl", Measure("general", "cpu")) == 3_001_000
    assert moment.amount("etl", Measure("general", "memory")) == 2**40


def test_jobs_of_a_mixed_tree_do_not_take_gpus() -> None:
    """Everyone includes the team with GPUs, which may use the CPU nodes too, up to the guarantees of the others."""
    moment = busy(tree(MIXED))
    assert moment.amount("vision", Measure("h100", "nvidia.com/gpu")) == 16
    cpus = [moment.amount(name, Measure("general", "cpu")) for name in ("etl", "web", "vision")]
    assert all(cpus)
    assert cpus[0] >= 40_000
    assert 0.9 * 124_000 < sum(cpus) <= 124_000
