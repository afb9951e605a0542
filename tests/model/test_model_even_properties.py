"""What holds for every tree of groups with `fairness: even`, in the simulation of Kueue."""

from itertools import product
from typing import TypeAlias

import pytest
from builders import GPU, Data, errors, planned, pool, stack, team
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpu_tenancy.base.quantity import CPU
from gpu_tenancy.kueue import PodSet, Step, Workload
from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook.shares import even_amounts
from gpu_tenancy.model.plan.cohort_objects import cohort_of_queue, cohort_parents, cohort_weight
from gpu_tenancy.model.plan.shares import Measure, Tree
from gpu_tenancy.model.source import Source
from gpu_tenancy.simulation.scenarios import Moment, busy, play

H100 = Measure("h100", GPU)
CPUS = Measure("cpu", CPU)
Scenario: TypeAlias = tuple[Tree, tuple[Moment, ...]]
SLOW = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def tree(sections: Data) -> Tree:
    return Tree(load(Source(sections)))


def h100(guaranteed: int, limit: int) -> Data:
    return {"h100": {"guaranteed": guaranteed, "limit": limit}}


@st.composite
def trees(draw: st.DrawFn, times: int = 1) -> Data:
    """Teams in two groups, one inside the other, in a third and beside them, on 16 H100s and 400 CPUs.

    Args:
        draw: of hypothesis.
        times: how many times as many GPUs there are, and each has.
    """
    inside = {"a": "left", "b": "left", "c": "inner", "d": "right", "e": "org"}
    teams: Data = {}
    for name, cohort in inside.items():
        sure = times * draw(st.integers(0, 3))
        weight = draw(st.sampled_from([1, 1, 2, 0.5]))
        teams[name] = team(cohort=cohort, gpus=h100(sure, sure + times * draw(st.integers(0, 8))), weight=weight)
    cohorts: Data = {"org": {}}
    sure = {name: teams[name]["gpus"]["h100"]["guaranteed"] for name in teams}
    needs = {"inner": sure["c"], "right": sure["d"], "left": sure["a"] + sure["b"]}
    for group, parent in (("inner", "left"), ("right", "org"), ("left", "org")):
        least = needs[group]
        cohorts[group] = {"parent": parent}
        kind = draw(st.sampled_from(["none", "limit", "weight", "own"]))
        if kind == "limit":
            cohorts[group]["gpus"] = h100(least, least + times * draw(st.integers(0, 6)))
        if kind == "weight":
            cohorts[group]["weight"] = draw(st.sampled_from([1, 3]))
        if kind == "own":
            least += times * draw(st.integers(0, 2))
            cohorts[group]["gpus"] = h100(least, least)
            none = {"guaranteed": 0, "limit": 0}
            if draw(st.integers(0, 3)):  # Else it can borrow CPUs, and is refused.
                cohorts[group]["quota"] = {"cpu": {"cpu": none, "memory": none}}
        if group == "inner":
            needs["left"] += least
    cpu = {"cpu": 400, "memory": "4000Gi", "nodes": times}
    sections = stack(fairness="even", pools={"h100": pool(nodes=2 * times), "cpu": cpu}, teams=teams)
    return {**sections, "cohorts": {name: cohorts[name] for name in ("org", "left", "inner", "right")}}


@pytest.mark.slow
@SLOW
@given(trees())
def test_quotas_add_up_to_the_supply(sections: Data) -> None:
    assume(errors(sections) == [])
    queues = planned(sections).queues
    for flavor, supply in tree(sections).flavors.items():
        for resource, amount in supply.capacity.items():
            owners = (*queues.cohorts, *(queue.spec for queue in queues.cluster_queues))
            nominal = [owner.quotas[flavor, resource].nominal for owner in owners if (flavor, resource) in owner.quotas]
            assert (min(nominal) >= 0, sum(nominal)) == (True, amount)


@st.composite
def scenarios(draw: st.DrawFn, *, cpus: bool = True) -> Scenario:
    """An accepted tree, and what becomes of jobs of one GPU or 100 CPUs that are submitted and end in any order."""
    sections = draw(trees())
    assume(errors(sections) == [])
    found = tree(sections)
    on_gpus = PodSet({GPU: 1}, flavors=frozenset({"h100"}))
    on_cpus = PodSet({CPU: 100_000}, flavors=frozenset({"cpu"}))
    kinds = [on_gpus, on_gpus, on_gpus, *([on_cpus] if cpus else [])]
    steps: list[tuple[str, Step]] = []
    there: list[str] = []
    for number in range(draw(st.integers(1, 14))):
        if there and draw(st.integers(0, 5)) == 0:
            steps.append(("", Step(finish=(there.pop(draw(st.integers(0, len(there) - 1))),))))
            continue
        name, kind = draw(st.sampled_from("abcde")), draw(st.sampled_from(kinds))
        came = [Workload(f"{number}-{index}", name, (kind,)) for index in range(draw(st.integers(1, 10)))]
        there += [job.name for job in came]
        steps.append(("", Step(tuple(came))))
    return found, play(found, steps)


def inside(found: Tree, group: str) -> list[str]:
    groups, teams = found.children(group)
    return [*teams, *(name for below in groups for name in inside(found, below))]


@pytest.mark.slow
@SLOW
@given(scenarios())
def test_a_group_never_exceeds_its_limit(scenario: Scenario) -> None:
    found, moments = scenario
    for moment in moments:
        for group in found.parents:
            for measure in (H100, CPUS):
                limit = found.cohort_limit(group, measure.flavor, measure.resource)
                used = sum(moment.amount(name, measure) for name in inside(found, group))
                assert limit is None or used <= limit


@pytest.mark.slow
@SLOW
@given(scenarios())
def test_a_team_that_requests_its_guarantee_gets_it(
    scenario: Scenario,
) -> None:
    found, moments = scenario
    for moment in moments:
        for job in moment.waiting:
            if job.flavor == "h100" and not moment.restless:
                assert moment.amount(job.team, H100) >= found.team_shares[job.team]["h100"][GPU].guaranteed


@pytest.mark.slow
@SLOW
@given(scenarios())
def test_a_group_whose_teams_ask_for_its_guarantee_has_it(
    scenario: Scenario,
) -> None:
    """Whichever of its teams ask, up to their limits and those of groups in it."""
    found, moments = scenario
    for group in found.parents:
        if group == found.root or found.cohort_nominal(group, "h100", GPU) <= 0:
            continue
        guaranteed = found.guaranteed(group, "h100", GPU)
        for moment in moments:
            used = sum(moment.amount(name, H100) for name in inside(found, group))
            for job in moment.waiting:
                if job.flavor == "h100" and job.team in inside(found, group) and not moment.restless:
                    assert used >= guaranteed or _bounded(found, moment, job.team, group)


def _bounded(found: Tree, moment: Moment, name: str, group: str) -> bool:
    """Whether a team is at its limit, or a group between it and `group` at its own."""
    if moment.amount(name, H100) >= found.team_shares[name]["h100"][GPU].effective_limit:
        return True
    above: str | None = found.cohort_of(name)
    while above is not None and above != group:
        limit = found.cohort_limit(above, "h100", GPU)
        if limit is not None and sum(moment.amount(each, H100) for each in inside(found, above)) >= limit:
            return True
        above = found.parents[above]
    return False


@pytest.mark.slow
@SLOW
@given(scenarios(cpus=False))
def test_no_job_waits_while_others_borrow_more_by_weight_than_its_team_would_with_it(scenario: Scenario) -> None:
    """Even sharing in whole GPUs: compared are a team and a team, or the Cohorts below the nearest common one.

    Without CPUs: Kueue does not try pending jobs again when others borrow more of something else.
    """
    found, moments = scenario
    for moment in moments:
        waiting = {job.team for job in moment.waiting if not moment.restless}
        borrowing = [name for name in found.queue_owners if _borrowed(found, moment, f"team {name}") > 0]
        for name, other in product(waiting, borrowing):
            mine, theirs = _sides(found, name, other)
            if name != other and not any(_full(found, moment, node) for node in mine):
                with_it = max(0, _borrowed(found, moment, mine[-1]) + 1) / _weight(found, mine[-1])
                assert with_it >= _borrowed(found, moment, theirs[-1]) / _weight(found, theirs[-1])


def _sides(found: Tree, one: str, other: str) -> tuple[list[str], list[str]]:
    """Each of two teams with the Cohorts above it, up to the nearest that both have."""
    above = {name: [f"team {name}", *_cohorts(found, cohort_of_queue(found, name))] for name in (one, other)}
    common = next(name for name in above[one] if name in above[other])
    return above[one][: above[one].index(common)], above[other][: above[other].index(common)]


def _cohorts(found: Tree, name: str | None) -> list[str]:
    return [] if name is None else [name, *_cohorts(found, cohort_parents(found)[name])]


def _borrowed(found: Tree, moment: Moment, node: str) -> int:
    kind, _, name = node.partition(" ")
    if kind == "team":
        return moment.amount(name, H100) - found.team_shares[name]["h100"][GPU].guaranteed
    return sum(moment.amount(each, H100) for each in inside(found, node)) - found.guaranteed(node, "h100", GPU)


def _full(found: Tree, moment: Moment, node: str) -> bool:
    kind, _, name = node.partition(" ")
    if kind == "team":
        share = found.team_shares[name]["h100"][GPU]
        return _borrowed(found, moment, node) >= share.effective_limit - share.guaranteed
    limit = found.cohort_limit(node, "h100", GPU)
    return limit is not None and _borrowed(found, moment, node) >= limit - found.guaranteed(node, "h100", GPU)


def _weight(found: Tree, node: str) -> float:
    kind, _, name = node.partition(" ")
    return found.stack.teams[name].weight if kind == "team" else cohort_weight(found, node) or 1


@pytest.mark.slow
@settings(SLOW, max_examples=40)
@given(trees(times=4), st.sampled_from([None, *"abcde"]), st.sampled_from([None, *"abcde"]))
def test_when_all_are_busy_each_team_has_its_even_part(sections: Data, first: str | None, last: str | None) -> None:
    """In whatever order they come; as far as whole GPUs go, of which a Cohort gets several for one of a team."""
    assume(errors(sections) == [] and (first is None or first != last))
    found = tree(sections)
    moment = busy(found, first=first, last=last)
    assume(not moment.restless)
    weights = [team.weight for team in found.stack.teams.values()]
    heaviest = max([*weights, *(cohort_weight(found, name) or 1 for name in cohort_parents(found))])
    for name, amount in even_amounts(found, H100).items():
        assert abs(moment.amount(name, H100) - amount) <= heaviest / min(weights) + 1, (name, amount)
