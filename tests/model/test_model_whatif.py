"""What a simulation of Kueue says of a stack's own queues, and that the report's arithmetic says the same."""

import random
from pathlib import Path

import pytest
from builders import GPU, Data, stack, team
from repository import ROOT

from gpu_tenancy.base.problems import StackError
from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.outlook.shares import Span
from gpu_tenancy.model.plan.shares import Measure, Tree, measures
from gpu_tenancy.model.source import Source, read_file
from gpu_tenancy.simulation.scenarios import alone, busy, holdings

H100 = Measure("h100", GPU)
STACKS = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))


def tree(sections: Data) -> Tree:
    return Tree(load(Source(sections)))


def h100(guaranteed: int, limit: int) -> Data:
    return {"h100": {"guaranteed": guaranteed, "limit": limit}}


def told_and_simulated(found: Tree) -> list[tuple[str, str, tuple[Span, int], tuple[Span, int]]]:
    """Of each team and flavor: what the report says, and what the simulation does when it comes last, first, alone."""
    rows: list[tuple[str, str, tuple[Span, int], tuple[Span, int]]] = []
    for each in outlook(found.stack).teams:
        if each.queue != each.name:
            continue
        last, first, only = busy(found, last=each.name), busy(found, first=each.name), alone(found, each.name)
        for held in each.holdings:
            if held.scheduler == "Kueue":
                (measure,) = (measure for measure in measures(found) if measure.label == held.flavor)
                have = [moment.amount(each.name, measure) for moment in (last, first, only)]
                told = (held.busy, held.alone)
                rows.append((each.name, held.flavor, told, (Span(have[0], have[1]), have[2])))
    return rows


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.stem)
def test_reports_of_all_stacks_agree_with_the_simulation(file: Path) -> None:
    rows = told_and_simulated(Tree(load(read_file(file))))
    assert rows
    for name, flavor, told, simulated in rows:
        assert told == simulated, (name, flavor)


def drawn(seed: int) -> Data:
    """Teams in two groups and beside them, on 16 H100s, with whatever guarantees, limits and bounds fit."""
    dice = random.Random(seed)  # noqa: S311 - no secret
    teams: Data = {}
    for name, cohort in (("a", "left"), ("b", "left"), ("c", "right"), ("d", "org")):
        sure = dice.randint(0, 3)
        keeps = {"lends": False} if sure and dice.random() < 0.2 else {}
        teams[name] = team(cohort=cohort, gpus=h100(sure, sure + dice.randint(0, 8)), **keeps)
    cohorts: Data = {"org": {}}
    for group, members in (("left", "ab"), ("right", "c")):
        least = sum(teams[name]["gpus"]["h100"]["guaranteed"] for name in members)
        cohorts[group] = {"parent": "org"}
        if dice.random() < 0.5:
            cohorts[group]["gpus"] = h100(least, least + dice.randint(0, 6))
    return stack(teams=teams, cohorts=cohorts)


@pytest.mark.slow
def test_reports_of_random_trees_agree_with_the_simulation() -> None:
    seen = 0
    for seed in range(60):
        try:
            found = tree(drawn(seed))
        except StackError:
            continue
        seen += 1
        for name, flavor, told, simulated in told_and_simulated(found):
            assert told == simulated, (seed, name, flavor)
    assert seen > 30


def test_even_fairness_shares_by_weight_as_far_as_whole_gpus_go() -> None:
    found = tree(stack(fairness="even", teams={"a": team(gpus=h100(0, 16)), "b": team(gpus=h100(0, 16), weight=3)}))
    moment = busy(found)
    assert (moment.amount("a", H100), moment.amount("b", H100)) == (4, 12)


def test_reclaim_names_the_borrowers() -> None:
    found = tree(stack(teams={"a": team(gpus=h100(8, 16)), "b": team(gpus=h100(8, 16))}))
    first = busy(found, first="a")
    assert (first.amount("a", H100), first.amount("b", H100)) == (8, 8)
    assert len(first.evicted) == 8
    assert {(each.team, each.flavor, each.gpus, each.by_team, each.reason) for each in first.evicted} == {
        ("a", "h100", 1, "b", "InCohortReclamation")
    }


def test_each_teams_usage_is_the_sum_of_its_jobs() -> None:
    found = tree(stack(teams={"a": team(gpus=h100(8, 16)), "b": team(gpus=h100(4, 16))}))
    a, b = holdings(found, busy(found, first="a"))
    assert (a.guaranteed, a.limit, a.runs, a.waits, a.own, a.borrowed, a.unused) == (8, 16, 12, 4, 8, 4, 0)
    assert (b.guaranteed, b.limit, b.runs, b.waits, b.own, b.borrowed, b.unused) == (4, 16, 4, 12, 4, 0, 0)
    a, b = holdings(found, alone(found, "a"))
    assert (a.runs, a.waits, b.runs, b.waits, b.unused) == (16, 0, 0, 0, 4)
