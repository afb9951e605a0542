"""The key `fairness`: preemption by share, and usage over time of teams that share a queue."""

from typing import Any

import pytest
from builders import Data, planned, pool, queue_of, team
from operators_builders import kueue, made_here

from gpu_tenancy.kueue import FairStrategy, Unmodelled
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.queues import tenancy
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source
from gpu_tenancy.simulation.scenarios import unmodelled_of

WEEK: Data = {"usage": {"halfLife": "7d"}}


def shared(fairness: Any = WEEK, **second: Any) -> Data:
    """Teams a and b share a queue, c has its own."""
    teams = {"a": team(gpus={"h100": {"guaranteed": 8}}), "b": team(queue="a", **second), "c": team()}
    return made_here(teams=teams, fairness=fairness)


def tree(sections: Data) -> Tree:
    return Tree(load(Source(sections)))


# Usage over time.


def test_kueue_measures_usage_in_gpus_unless_the_stack_says_otherwise() -> None:
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


def test_a_partition_counts_its_part_of_a_gpu_and_whole_gpus_of_another_pool_count_as_one() -> None:
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


def test_only_queues_of_several_teams_compare_usage_and_only_their_local_queues_have_a_weight() -> None:
    found = planned(shared(usageWeight=2.5))
    assert {queue.name: queue.by_usage for queue in found.queues.cluster_queues} == {"a": True, "c": False}
    weights = {team_plan.namespace.name: team_plan.namespace.usage_weight for team_plan in found.teams}
    assert weights == {"a": 1.0, "b": 2.5, "c": None}


def test_without_usage_no_queue_compares_it() -> None:
    found = planned(shared("even"))
    assert not any(queue.by_usage for queue in found.queues.cluster_queues)
    assert {team_plan.namespace.usage_weight for team_plan in found.teams} == {None}


def test_the_simulation_reports_that_past_usage_is_unmodelled() -> None:
    assert Unmodelled.ADMISSION_FAIR_SHARING in unmodelled_of(tree(shared()))
    assert Unmodelled.ADMISSION_FAIR_SHARING not in unmodelled_of(tree(shared("even")))


# Preemption by share.


@pytest.mark.parametrize("strategy", ["LessThanOrEqualToFinalShare", "LessThanInitialShare"])
def test_kueue_and_its_simulation_preempt_by_the_strategies_of_the_stack(strategy: str) -> None:
    sections = made_here(fairness={"kind": "even", "strategies": [strategy]})
    assert kueue(sections)["fairSharing"] == {"preemptionStrategies": [strategy]}
    assert tenancy(tree(sections)).fair_sharing == (FairStrategy(strategy),)


def test_the_long_form_of_a_kind_is_the_same_as_its_name() -> None:
    assert planned(made_here(fairness={"kind": "even"})) == planned(made_here(fairness="even"))
    assert queue_of(planned(made_here(fairness={"kind": "even"})), "a").spec.weight == 1.0
