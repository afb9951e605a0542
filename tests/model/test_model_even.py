"""Groups with `fairness: even`: which are Cohorts, and what is refused."""

from typing import Any

import pytest
from builders import GPU, Data, cohort_of, planned, pool, queue_of, stack, team

from gpu_tenancy.kueue import PodSet, Step, Workload
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.measures import Measure
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source
from gpu_tenancy.simulation.scenarios import play

H100 = Measure("h100", GPU)


def tree(sections: Data) -> Tree:
    return Tree(load(Source(sections)))


def h100(guaranteed: int, limit: int) -> Data:
    return {"h100": {"guaranteed": guaranteed, "limit": limit}}


def grouped(share: Data | None = None, **group: Any) -> Data:
    """16 H100s, a group `g` of teams a and b (2 to 8 each), and team c (2 to 8) beside it."""
    cohorts = {"org": {}, "g": {"parent": "org", **group, **({"gpus": {"h100": share}} if share else {})}}
    teams = {name: team(cohort="g" if name < "c" else "org", gpus=h100(2, 8)) for name in "abc"}
    return stack(fairness="even", pools={"h100": pool()}, cohorts=cohorts, teams=teams)


def names(sections: Data) -> list[str]:
    return [cohort.name for cohort in planned(sections).queues.cohorts]


# Which groups are Cohorts.


@pytest.mark.parametrize(
    "share",
    [
        None,
        {"guaranteed": 4},
        {"guaranteed": 4, "limit": 16},
        {"guaranteed": 4, "limit": 99},
    ],
)
def test_a_group_with_derived_bounds_has_no_cohort(share: Data | None) -> None:
    found = planned(grouped(share))
    assert [cohort.name for cohort in found.queues.cohorts] == ["org"]
    assert {queue.spec.cohort for queue in found.queues.cluster_queues} == {"org"}


def test_a_limit_of_all_gpus_of_the_pools_does_not_bind() -> None:
    sections = grouped({"guaranteed": 4, "limit": 16})
    sections["teams"]["d"] = team(cohort="g", gpus=h100(0, 8))
    assert names(sections) == ["org"]


def test_a_group_with_a_limit_below_its_teams_is_a_cohort_with_the_weight_of_its_teams() -> None:
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


def test_a_limit_does_not_bind_where_the_groups_inside_have_lower_ones() -> None:
    sections = grouped({"guaranteed": 4, "limit": 10})
    sections["cohorts"]["outer"] = {"parent": "org", "gpus": h100(4, 10)}
    sections["cohorts"]["g"]["parent"] = "outer"
    assert names(sections) == ["org", "g"]


def test_a_group_that_cannot_borrow_is_a_cohort() -> None:
    assert names(grouped({"guaranteed": 6, "limit": 6})) == ["org", "g"]


# What is refused.


# How groups share.


def test_with_a_weight_the_teams_of_a_group_use_what_it_leaves_idle_first() -> None:
    """Without, all teams do: `a` asks for all, then `b` in the same group is idle and `c` asks for all."""

    def used(**group: Any) -> dict[str, int]:
        sections = grouped(**group)
        sections["teams"] |= {name: team(cohort="g", gpus=h100(4, 12)) for name in "ab"}
        sections["teams"]["c"] = team(cohort="org", gpus=h100(4, 12))
        found = tree(sections)
        gpu = PodSet({GPU: 1}, flavors=frozenset({"h100"}))
        steps = [("", Step(tuple(Workload(f"{name}{index}", name, (gpu,)) for index in range(12)))) for name in "ac"]
        return {name: play(found, steps)[-1].amount(name, H100) for name in "ac"}

    assert used() == {"a": 8, "c": 8}
    assert used(weight=2) == {"a": 11, "c": 5}
