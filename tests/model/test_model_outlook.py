"""The stack summary: GPUs of teams when everyone is busy and when alone, and costs."""

from itertools import product

import pytest
from builders import EXISTING, Data, job, pool, server, stack, team
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import StackOutlook, outlook
from gpu_tenancy.model.outlook.shares import Holding, Span
from gpu_tenancy.model.source import Source


def seen(sections: Data) -> StackOutlook:
    return outlook(load(Source(sections)))


def held(found: StackOutlook, team_name: str, flavor: str, scheduler: str = "Kueue") -> Holding:
    (team_found,) = [team for team in found.teams if team.name == team_name]
    (holding,) = [
        holding for holding in team_found.holdings if (holding.flavor, holding.scheduler) == (flavor, scheduler)
    ]
    return holding


def h100(guaranteed: int, limit: int) -> Data:
    return {"h100": {"guaranteed": guaranteed, "limit": limit}}


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


def test_with_even_fairness_all_borrow_by_weight_until_their_limits() -> None:
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


amounts = st.integers(0, 6)


@st.composite
def trees(draw: st.DrawFn) -> Data:
    """Teams in two groups and beside them, on the 16 H100s; guarantees fit, limits and bounds are whatever they are."""
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
    """Counted the long way: every way to share all that can be shared, with guarantees kept and bounds held."""
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


def test_a_month_is_the_gpus_part_of_a_node_at_its_price_for_730_hours() -> None:
    summary = seen(stack(prices={"p5.48xlarge": {"onDemand": 80.0}}, teams={"a": team(gpus=h100(2, 3))}))
    (cost,) = [team.cost for team in summary.teams]
    assert (cost.guaranteed, cost.limit) == (2 * 10 * 730, 3 * 10 * 730)
    assert summary.cost_centers == {"rd-001": cost}


def test_an_unknown_price_stays_unknown() -> None:
    pools = {"h100": {"gpu": "h100-80gb", "gpusPerNode": 8, "cpu": 190, "memory": "2000Gi", "nodes": 2}}
    teams = {"a": team(gpus=h100(0, 3)), "b": team(gpus=h100(1, 1))}
    summary = seen({"cluster": EXISTING, "pools": pools, "teams": teams})
    assert [(team.cost.guaranteed, team.cost.limit) for team in summary.teams] == [(0.0, None), (None, None)]
    assert summary.cost_centers["rd-001"].guaranteed is None


def test_of_several_pools_a_gpu_costs_the_mean_by_their_gpus() -> None:
    pools = {
        "small": pool("g6.12xlarge", 1, flavor="l4"),
        "large": pool("g6.48xlarge", 2, flavor="l4"),
    }
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
    assert costs["b"] == 0.0
    assert (costs["a"] or 0) > 0
    assert held(summary, "b", "h100").limit == 8


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
