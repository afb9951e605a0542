"""The key `fairness`: shares of groups, preemption by share, and usage over time."""

from typing import Any

import pytest
from builders import GPU, Data, cohort_of, h100, planned, pool, queue_of, stack, team, tree_of
from operators_builders import kueue, made_here

from gpu_tenancy.kueue import FairStrategy, PodSet, Step, Unmodelled, Workload
from gpu_tenancy.model.plan.queues import tenancy
from gpu_tenancy.model.plan.shares import Measure
from gpu_tenancy.simulation.scenes import unmodelled_of
from gpu_tenancy.simulation.stage import play

H100 = Measure("h100", GPU)


def grouped(share: Data | None = None, **group: Any) -> Data:
    """16 H100s, a group `g` of teams a and b (2 to 8 each), and team c (2 to 8) beside it."""
    cohorts = {"org": {}, "g": {"parent": "org", **group, **({"gpus": {"h100": share}} if share else {})}}
    teams = {name: team(cohort="g" if name < "c" else "org", gpus=h100(2, 8)) for name in "abc"}
    return stack(fairness="even", pools={"h100": pool()}, cohorts=cohorts, teams=teams)


def names(sections: Data) -> list[str]:
    return [cohort.name for cohort in planned(sections).queues.cohorts]


# Which groups are Cohorts.


@pytest.mark.parametrize(
    "share", [None, {"guaranteed": 4}, {"guaranteed": 4, "limit": 16}, {"guaranteed": 4, "limit": 99}]
)
def test_a_group_with_derived_bounds_has_no_cohort(share: Data | None) -> None:
    found = planned(grouped(share))
    assert [cohort.name for cohort in found.queues.cohorts] == ["org"]
    assert {queue.spec.cohort for queue in found.queues.cluster_queues} == {"org"}


def test_a_limit_of_all_gpus_of_the_pools_does_not_bind() -> None:
    sections = grouped({"guaranteed": 4, "limit": 16})
    sections["teams"]["d"] = team(cohort="g", gpus=h100(0, 8))
    assert names(sections) == ["org"]


def test_a_group_with_a_binding_limit_is_a_cohort() -> None:
    found = planned(grouped({"guaranteed": 4, "limit": 10}))
    group = cohort_of(found, "g")
    assert (group.parent, group.weight) == ("org", 2.0)
    assert group.quotas["h100", GPU].borrowing_limit == 6
    assert {queue.name: queue.spec.cohort for queue in found.queues.cluster_queues} == {"a": "g", "b": "g", "c": "org"}
    assert cohort_of(found, "org").quotas["h100", GPU].nominal == 16 - 6


def test_a_group_with_a_weight_is_a_cohort_with_this_weight() -> None:
    group = cohort_of(planned(grouped(weight=1)), "g")
    assert (group.parent, group.weight, group.groups) == ("org", 1.0, ())


def test_the_teams_of_a_group_inside_a_cohort_are_in_the_cohort() -> None:
    sections = grouped({"guaranteed": 4, "limit": 10})
    sections["cohorts"]["inner"] = {"parent": "g"}
    sections["teams"]["b"]["cohort"] = "inner"
    found = planned(sections)
    assert queue_of(found, "b").spec.cohort == "g"
    assert cohort_of(found, "g").weight == 2.0


def test_limit_does_not_bind_above_lower_ones() -> None:
    sections = grouped({"guaranteed": 4, "limit": 10})
    sections["cohorts"]["outer"] = {"parent": "org", "gpus": h100(4, 10)}
    sections["cohorts"]["g"]["parent"] = "outer"
    assert names(sections) == ["org", "g"]


def test_a_group_that_cannot_borrow_is_a_cohort() -> None:
    assert names(grouped({"guaranteed": 6, "limit": 6})) == ["org", "g"]


# How groups share.


def test_teams_of_a_weighted_group_use_its_idle_quota_first() -> None:
    """Without a weight, all teams do: `a` requests all, then `b` in the same group is idle and `c` requests all."""

    def used(**group: Any) -> dict[str, int]:
        sections = grouped(**group)
        sections["teams"] |= {name: team(cohort="g", gpus=h100(4, 12)) for name in "ab"}
        sections["teams"]["c"] = team(cohort="org", gpus=h100(4, 12))
        found = tree_of(sections)
        gpu = PodSet({GPU: 1}, flavors=frozenset({"h100"}))
        steps = [("", Step(tuple(Workload(f"{name}{index}", name, (gpu,)) for index in range(12)))) for name in "ac"]
        return {name: play(found, steps)[-1].amount(name, H100) for name in "ac"}

    assert used() == {"a": 8, "c": 8}
    assert used(weight=2) == {"a": 11, "c": 5}


# Usage over time and strategies.

WEEK: Data = {"usage": {"halfLife": "7d"}}


def shared(fairness: Any = WEEK, **second: Any) -> Data:
    """Teams a and b share a queue, c has its own."""
    teams = {"a": team(gpus={"h100": {"guaranteed": 8}}), "b": team(queue="a", **second), "c": team()}
    return made_here(teams=teams, fairness=fairness)


def test_kueue_measures_usage_in_gpus_by_default() -> None:
    assert kueue(shared())["admissionFairSharing"] == {
        "usageHalfLifeTime": "604800s",
        "usageSamplingInterval": "300s",
        "resourceWeights": {"cpu": 0.0, "memory": 0.0, "nvidia.com/gpu": 1.0},
    }
    usage = {"halfLife": "12h", "sampling": "1m", "weights": {"cpu": 0.1}}
    assert kueue(shared({"usage": usage}))["admissionFairSharing"] == {
        "usageHalfLifeTime": "43200s",
        "usageSamplingInterval": "60s",
        "resourceWeights": {"cpu": 0.1, "memory": 0.0, "nvidia.com/gpu": 1.0},
    }
    assert "admissionFairSharing" not in kueue(shared("even"))


def test_a_partition_counts_as_its_part_of_a_gpu() -> None:
    sections = shared()
    sections["pools"]["h100"] |= {"labels": {"gpu": "whole"}}
    sections["pools"]["parts"] = pool(sharing={"mig": {"profile": "1g.10gb"}}, labels={"gpu": "parts"})
    weights = kueue(sections)["admissionFairSharing"]["resourceWeights"]
    assert weights["nvidia.com/mig-1g.10gb"] == pytest.approx(1 / 7, abs=1e-6)
    assert weights["nvidia.com/gpu"] == 1.0


def test_without_gpus_usage_is_counted_in_cpus() -> None:
    sections = shared()
    sections["pools"] = {"cpu": pool("m7i.8xlarge", 3)}
    sections["teams"]["a"] = team(quota={"cpu": {"cpu": {"guaranteed": 8}}})
    assert kueue(sections)["admissionFairSharing"]["resourceWeights"] == {"cpu": 1.0, "memory": 0.0}


def test_long_durations_are_written_as_go_reads_them() -> None:
    fairness = {"usage": {"halfLife": "365d", "sampling": "500ms"}}
    written = kueue(shared(fairness))["admissionFairSharing"]
    assert (written["usageHalfLifeTime"], written["usageSamplingInterval"]) == ("31536000s", "0.5s")


def test_only_shared_queues_compare_usage() -> None:
    found = planned(shared(usageWeight=2.5))
    assert {queue.name: queue.by_usage for queue in found.queues.cluster_queues} == {"a": True, "c": False}
    weights = {team_plan.namespace.name: team_plan.namespace.usage_weight for team_plan in found.teams}
    assert weights == {"a": 1.0, "b": 2.5, "c": None}


def test_without_usage_no_queue_compares_it() -> None:
    found = planned(shared("even"))
    assert not any(queue.by_usage for queue in found.queues.cluster_queues)
    assert {team_plan.namespace.usage_weight for team_plan in found.teams} == {None}


def test_the_simulation_reports_that_past_usage_is_unmodelled() -> None:
    assert Unmodelled.ADMISSION_FAIR_SHARING in unmodelled_of(tree_of(shared()))
    assert Unmodelled.ADMISSION_FAIR_SHARING not in unmodelled_of(tree_of(shared("even")))


# Preemption by share.


@pytest.mark.parametrize("strategy", ["LessThanOrEqualToFinalShare", "LessThanInitialShare"])
def test_preemption_strategies_are_those_of_the_stack(strategy: str) -> None:
    sections = made_here(fairness={"kind": "even", "strategies": [strategy]})
    assert kueue(sections)["fairSharing"] == {"preemptionStrategies": [strategy]}
    assert tenancy(tree_of(sections)).fair_sharing == (FairStrategy(strategy),)


def test_the_long_form_of_a_kind_is_the_same_as_its_name() -> None:
    assert planned(made_here(fairness={"kind": "even"})) == planned(made_here(fairness="even"))
    assert queue_of(planned(made_here(fairness={"kind": "even"})), "a").spec.weight == 1.0
