"""The stack summary, measures of CPU and memory, and the origin of a team's numbers."""

from itertools import product
from pathlib import Path

import pytest
from builders import EXISTING, Data, h100, job, patched, pool, server, stack, stack_of, team, tree_of
from cpu_stacks import CPUS, MIXED
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_tenancy.base.usd import Usd
from gpu_tenancy.model.outlook import StackOutlook, outlook
from gpu_tenancy.model.outlook.explain import Reason, explain
from gpu_tenancy.model.outlook.shares import Holding, Span
from gpu_tenancy.model.plan.shares import Measure, measures, measures_of
from gpu_tenancy.model.yaml import read_table
from gpu_tenancy.simulation.scenes import CPU_JOBS, alone, busy
from gpu_tenancy.simulation.stage import holdings


def seen(sections: Data) -> StackOutlook:
    return outlook(stack_of(sections))


def held(found: StackOutlook, team_name: str, flavor: str, scheduler: str = "Kueue") -> Holding:
    (team_found,) = [team for team in found.teams if team.name == team_name]
    (holding,) = [
        holding for holding in team_found.holdings if (holding.flavor, holding.scheduler) == (flavor, scheduler)
    ]
    return holding


def test_shares_range_from_everyone_busy_to_alone() -> None:
    summary = seen(stack(teams={"a": team(gpus=h100(4, 16)), "b": team(gpus=h100(0, 6))}))
    assert held(summary, "a", "h100").busy == Span(10, 16)
    assert held(summary, "b", "h100").busy == Span(0, 6)
    assert (held(summary, "a", "h100").alone, held(summary, "b", "h100").alone) == (16, 6)


def test_guarantees_that_are_never_lent_are_not_reachable() -> None:
    serving = team(gpus=h100(10, 10), serving={"api": server()})
    summary = seen(stack(teams={"a": serving, "b": team(gpus=h100(2, 16))}))
    assert held(summary, "b", "h100").alone == 6
    assert (held(summary, "a", "h100").lends, held(summary, "a", "h100").back) == (False, "never lent")


def test_even_fairness_borrows_by_weight_up_to_limits() -> None:
    teams = {"a": team(gpus=h100(4, 16)), "b": team(gpus=h100(0, 16), weight=3), "c": team(gpus=h100(0, 1))}
    summary = seen(stack(fairness="even", teams=teams))
    assert [held(summary, name, "h100").busy for name in "abc"] == [Span(6, 6), Span(8, 8), Span(1, 1)]


def test_gangs_have_volcanos_guarantee_only() -> None:
    gangs = {"h100": {"guaranteed": 4, "limit": 6}}
    summary = seen(stack(teams={"a": team(gangs=gangs), "b": team(gpus=h100(0, 10))}))
    assert held(summary, "a", "h100", "Volcano").busy == Span(4, 6)
    assert held(summary, "b", "h100").busy == Span(10, 10)


@pytest.mark.parametrize(("reclaim", "words"), [("Any", "immediately"), ("Never", "when borrowers finish")])
def test_the_way_to_reclaim_a_guarantee_is_shown(reclaim: str, words: str) -> None:
    lender = team(gpus=h100(8, 8), preemption={"reclaimWithinCohort": reclaim})
    assert held(seen(stack(teams={"a": lender})), "a", "h100").back == words


def test_a_class_of_teams_that_preempts_is_a_warning() -> None:
    classes = {"priorities": {"usual": 10, "agents": {"value": 20, "preempts": True}}}
    (warning,) = seen(stack(**classes)).warnings
    assert warning.startswith("priorities.agents.preempts: true lets the scheduler end admitted pods of other teams")
    own = {"a": team(gpus=h100(8, 8), compute={"priorities": ["usual"]})}
    assert seen(stack(**classes, teams=own)).warnings == ()


def test_an_unknown_gpu_model_is_a_warning() -> None:
    described = {"gpusPerNode": 8, "cpu": 90, "memory": "900Gi", "nodes": 2}
    pools = {
        "unknown": {**described, "gpu": "H100"},
        "labelled": {**described, "gpu": "H100", "labels": {"nvidia.com/gpu.product": "H100-X"}},
        "known": {**described, "gpu": "h100-80gb"},
        "product": {**described, "gpu": "NVIDIA-A30"},
        "amd": {**described, "gpu": "mi999", "resource": "amd.com/gpu"},
    }
    (warning,) = seen(stack(pools=pools, teams={})).warnings
    assert warning.startswith("pools.unknown: GPU model H100 is not in the catalogue (did you mean 'h100-")
    assert warning.endswith("or check that its nodes have nvidia.com/gpu.product=H100")


amounts = st.integers(0, 6)


@st.composite
def trees(draw: st.DrawFn) -> Data:
    """Teams in two groups and beside them, on the 16 H100s; guarantees fit, limits and bounds are random."""
    teams: Data = {}
    for name, cohort in (("a", "left"), ("b", "left"), ("c", "right"), ("d", None)):
        sure = draw(st.integers(0, 3))
        where = {"cohort": cohort} if cohort else {"cohort": "org"}
        teams[name] = team(gpus=h100(sure, sure + draw(amounts)), **where)
    cohorts: Data = {"org": {}}
    for group, members in (("left", "ab"), ("right", "c")):
        minimum = sum(teams[name]["gpus"]["h100"]["guaranteed"] for name in members)
        cohorts[group] = {"parent": "org"}
        if draw(st.booleans()):
            extra = draw(st.integers(0, 2)) if group == "right" else 0
            cohorts[group]["gpus"] = h100(minimum + extra, minimum + extra + draw(amounts))
    return stack(teams=teams, cohorts=cohorts)


@settings(max_examples=60, deadline=None)
@given(trees())
def test_everyone_busy_is_a_valid_distribution(sections: Data) -> None:
    """By enumeration: every distribution of all quota, within guarantees and bounds."""
    summary = seen(sections)
    names = list(sections["teams"])
    shares = {name: sections["teams"][name]["gpus"]["h100"] for name in names}
    groups = {group: [n for n in names if sections["teams"][n]["cohort"] == group] for group in ("left", "right")}

    def bound(group: str) -> Data:
        together = sum(shares[name]["limit"] for name in groups[group])
        share = sections["cohorts"][group].get("gpus", {}).get("h100")
        if share is None:
            return {"guaranteed": sum(shares[name]["guaranteed"] for name in groups[group]), "limit": together}
        return {
            "guaranteed": min(share["guaranteed"], share["limit"], together),
            "limit": min(share["limit"], together),
        }

    bounds = {group: bound(group) for group in groups}

    def allowed(use: dict[str, int]) -> bool:
        within = all(sum(use[name] for name in groups[group]) <= bounds[group]["limit"] for group in groups)
        return within and sum(use.values()) <= 16

    def kept(use: dict[str, int]) -> bool:
        return all(sum(use[name] for name in groups[group]) >= bounds[group]["guaranteed"] for group in groups)

    ways = [
        use
        for amounts_used in product(*(range(shares[n]["guaranteed"], shares[n]["limit"] + 1) for n in names))
        if allowed(use := dict(zip(names, amounts_used, strict=True)))
        and kept(use)
        and not any(use[n] < shares[n]["limit"] and allowed({**use, n: use[n] + 1}) for n in names)
    ]
    for name in names:
        expected = Span(min(use[name] for use in ways), max(use[name] for use in ways))
        assert held(summary, name, "h100").busy == expected, (name, shares, bounds)


# Costs.


def test_a_month_costs_730_hours_of_the_part_of_a_node() -> None:
    summary = seen(stack(prices={"p5.48xlarge": {"onDemand": 80.0}}, teams={"a": team(gpus=h100(2, 3))}))
    (cost,) = [team.cost for team in summary.teams]
    assert (cost.guaranteed, cost.limit) == (Usd(2 * 10 * 730), Usd(3 * 10 * 730))
    assert summary.cost_centers == {"rd-001": cost}


def test_unknown_price_makes_sums_lower_bounds() -> None:
    pools = {"h100": {"gpu": "h100-80gb", "gpusPerNode": 8, "cpu": 190, "memory": "2000Gi", "nodes": 2}}
    teams = {"a": team(gpus=h100(0, 3)), "b": team(gpus=h100(1, 1))}
    summary = seen({"cluster": EXISTING, "pools": pools, "teams": teams})
    costs = [(str(team.cost.guaranteed), str(team.cost.limit)) for team in summary.teams]
    assert costs == [("$0", "unknown"), ("unknown", "unknown")]
    assert summary.cost_centers["rd-001"].guaranteed == Usd(0, ("h100",))
    assert str(summary.cost_centers["rd-001"].guaranteed + Usd(7)) == "at least $7"


def test_of_several_pools_a_gpu_costs_the_mean_by_their_gpus() -> None:
    pools = {"small": pool("g6.12xlarge", 1, flavor="l4"), "large": pool("g6.48xlarge", 2, flavor="l4")}
    summary = seen(
        {
            "cluster": EXISTING,
            "pools": pools,
            "prices": {"g6.12xlarge": {"onDemand": 4.0}, "g6.48xlarge": {"onDemand": 16.0}},
            "teams": {"a": team()},
        }
    )
    assert [supply.price for supply in summary.supply] == [pytest.approx((1 * 4 + 2 * 16) / (4 + 16))]


def test_who_uses_anothers_queue_is_not_charged_for_it() -> None:
    owner = team(gpus=h100(8, 8))
    summary = seen(stack(teams={"a": owner, "b": team(queue="a", costCenter="rd-002")}))
    costs = {team.name: team.cost.guaranteed for team in summary.teams}
    assert costs["b"] == Usd()
    assert costs["a"].known > 0
    assert [(team.shares, sum(held.guaranteed for held in team.holdings)) for team in summary.teams] == [
        ("", 8),
        ("queue of a", 0),
    ]


# Supply, servers, access.


def test_supply_shows_minimum_maximum_and_guarantees() -> None:
    pools = {"h100": pool(nodes={"min": 1, "max": 2})}
    cluster = {**EXISTING, "autoscaler": True}
    summary = seen({"pools": pools, "cluster": cluster, "teams": {"a": team(gpus=h100(4, 12))}})
    (supply,) = summary.supply
    assert (supply.capacity, supply.guaranteed, supply.limits) == (Span(8, 16), 4, 12)


def test_a_servers_peak_is_compared_with_its_queue() -> None:
    api = server(replicas={"min": 1, "max": 3}, gpus=2, surge=1)
    summary = seen(stack(teams={"a": team(gpus=h100(8, 8), serving={"api": api}, training={"t": job()})}))
    (serving,) = summary.serving
    assert (serving.peak, serving.limit, serving.replicas) == (8, 8, Span(1, 3))


# CPU and memory.

GI = 2**30


def test_cpu_and_memory_are_counted_where_nodes_have_no_gpus() -> None:
    assert [measure.label for measure in measures(tree_of(CPUS))] == ["general CPUs", "general memory"]
    assert [measure.label for measure in measures(tree_of(MIXED))] == ["h100", "general CPUs", "general memory"]
    assert [measure.label for measure in measures_of(tree_of(MIXED), "vision")] == ["h100"]


def test_the_cpu_nodes_of_teams_with_gpus_are_not_counted() -> None:
    found = tree_of(stack(cluster={"cloud": "existing", "provides": ["networkPolicies"]}))
    assert found.team_shares["a"]["cpu"]["cpu"].limit
    assert {measure.label for measure in measures(found)} == {"a100", "h100"}


def test_the_summary_has_shares_of_cpu_and_memory() -> None:
    found = seen(CPUS)
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
    assert seen(MIXED).totals == (seen(MIXED).supply[0],)


def test_a_cpu_costs_its_part_of_the_node() -> None:
    found = seen(CPUS)
    (pool_,) = found.pools
    assert pool_.node_price
    etl, _ = found.teams
    assert etl.cost.guaranteed.known == pytest.approx(pool_.node_price / 31 * 40 * 730)
    assert found.supply[1].price == 0


def test_the_simulation_fills_cpus_and_memory_up_to_the_limits() -> None:
    found = tree_of(CPUS)
    last, first, only = busy(found, last="etl"), busy(found, first="etl"), alone(found, "etl")
    cpus = Measure("general", "cpu")
    assert [moment.amount("etl", cpus) for moment in (last, first, only)] == [64_000, 80_000, 80_000]
    assert [(held.flavor, held.runs) for held in holdings(found, only) if held.team == "etl"] == [
        ("general CPUs", 80_000),
        ("general memory", 256 * GI // 80 * 80),
    ]


def test_large_cpu_pools_are_simulated_with_few_jobs() -> None:
    sections = {
        **CPUS,
        "pools": {"general": pool("m7i.8xlarge", 100)},
        "teams": {"etl": team(quota={"general": {"cpu": {"guaranteed": 3001}, "memory": {"guaranteed": "1Ti"}}})},
        "cohorts": {},
    }
    moment = alone(tree_of(sections), "etl")
    assert len(moment.running) == CPU_JOBS
    assert moment.amount("etl", Measure("general", "cpu")) == 3_001_000
    assert moment.amount("etl", Measure("general", "memory")) == 2**40 // CPU_JOBS * CPU_JOBS


def test_jobs_of_a_mixed_tree_do_not_take_gpus() -> None:
    """Everyone includes the team with GPUs, which may use the CPU nodes too, up to the guarantees of the others."""
    moment = busy(tree_of(MIXED))
    assert moment.amount("vision", Measure("h100", "nvidia.com/gpu")) == 16
    cpus = [moment.amount(name, Measure("general", "cpu")) for name in ("etl", "web", "vision")]
    assert all(cpus)
    assert cpus[0] >= 40_000
    assert 0.9 * 124_000 < sum(cpus) <= 124_000


# The origin of a team's numbers.


def reasons(sections: Data, name: str = "a") -> dict[tuple[str, str], Reason]:
    explanations = explain(tree_of(sections), name)
    assert len({(reason.object, reason.field) for reason in explanations}) == len(explanations)
    return {(reason.object, reason.field): reason for reason in explanations}


ORIGINS = read_table(Path(__file__).with_name("origins.yaml"))


@pytest.mark.parametrize("case", ORIGINS.values(), ids=ORIGINS)
def test_numbers_have_their_origin(case: Data) -> None:
    found = reasons(patched(stack(), case["patch"]))
    for place, origin in case["origins"].items():
        of, _, field = place.partition("|")
        paths = " ".join(".".join(map(str, path)) for path in found[of, field].paths)
        assert [found[of, field].value, found[of, field].because, paths] == origin, place
