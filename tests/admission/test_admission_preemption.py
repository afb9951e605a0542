"""Preemption without fair sharing: within the queue, reclaim, and reclaim while borrowing."""

from admission_builders import GPU, after, arriving, evicted, group, queue, running, waiting, work

from gpu_tenancy.model.admission import (
    BorrowWithinCohort,
    Cohort,
    Policy,
    Preemption,
    Quota,
    Step,
    Tenancy,
    run,
    settle,
)

RECLAIMS = Preemption(reclaim=Policy.ANY)
WITHIN = Preemption(within=Policy.LOWER)


def test_a_higher_priority_preempts_a_lower_one_in_its_queue() -> None:
    found = arriving(
        Tenancy((queue("a", 4, preemption=WITHIN),)), [work("low", "a", 4)], [work("high", "a", 4, priority=10)]
    )
    assert running(found) == ["high"]
    assert evicted(found) == [("low", "high", "InClusterQueue")]
    assert waiting(found) == {
        "low": f"insufficient unused quota for {GPU} in flavor a100, 4 more needed; no workload may be preempted for it"
    }


def test_an_equal_priority_is_left_alone_unless_the_policy_takes_newer_ones() -> None:
    newer = Preemption(within=Policy.LOWER_OR_NEWER)
    for rules, expected in ((WITHIN, ["new"]), (newer, ["old"])):
        tenancy = Tenancy((queue("a", 4, preemption=rules),))
        # `old` asks for 4 while `first` holds 2; `new` then fits beside it, and is newer than `old`.
        found = after(
            tenancy, work("first", "a", 2, priority=5), work("old", "a", 4), work("new", "a", 2), finish=["first"]
        )
        assert running(found) == expected


def test_the_lowest_priority_goes_first_and_among_equals_the_newest() -> None:
    tenancy = Tenancy((queue("a", 6, preemption=WITHIN),))
    found = arriving(
        tenancy,
        [work("old", "a", 2, 1), work("low", "a", 2, 0), work("new", "a", 2, 1)],
        [work("high", "a", 4, priority=10)],
    )
    assert [name for name, *_ in evicted(found)] == ["low", "new"]


def test_a_victim_that_is_not_needed_in_the_end_is_left_alone() -> None:
    tenancy = Tenancy((queue("a", 6, preemption=WITHIN),))
    found = arriving(tenancy, [work("large", "a", 4, 1), work("small", "a", 2, 0)], [work("high", "a", 4, 10)])
    assert evicted(found) == [("large", "high", "InClusterQueue")]


def test_a_guarantee_is_got_back_from_whoever_borrowed_it() -> None:
    tenancy = Tenancy((queue("a", 4, preemption=RECLAIMS), queue("b", 4)))
    found = arriving(
        tenancy, [work("own", "b", 4, priority=100), work("lent", "b", 4, priority=100)], [work("mine", "a", 4)]
    )
    assert running(found) == ["own", "mine"]
    assert evicted(found) == [("lent", "mine", "InCohortReclamation")]


def test_nothing_is_taken_from_a_queue_within_its_own_quota() -> None:
    tenancy = Tenancy((queue("a", 4, preemption=RECLAIMS), queue("b", 4)))
    found = arriving(tenancy, [work("own", "b", 4)], [work("mine", "a", 4), work("more", "a", 1, priority=10)])
    assert running(found) == ["own", "mine"]


def test_reclaim_from_lower_priorities_leaves_equal_ones() -> None:
    tenancy = Tenancy((queue("a", 4, preemption=Preemption(reclaim=Policy.LOWER)), queue("b", 0)))
    found = arriving(tenancy, [work("lent", "b", 4)], [work("mine", "a", 4)])
    assert running(found) == ["lent"]
    found = arriving(tenancy, [work("lent", "b", 4)], [work("mine", "a", 4, priority=1)])
    assert running(found) == ["mine"]


def test_a_workload_that_would_borrow_preempts_nobody_elsewhere_by_default() -> None:
    tenancy = Tenancy((queue("a", 2, preemption=RECLAIMS), queue("b", 2), queue("c", 2)))
    found = arriving(tenancy, [work("lent", "b", 6)], [work("mine", "a", 3, priority=10)])
    assert running(found) == ["lent"]


def test_a_workload_may_borrow_and_preempt_lower_priorities_up_to_the_threshold() -> None:
    def tenancy(threshold: int | None) -> Tenancy:
        rules = Preemption(reclaim=Policy.ANY, borrow=BorrowWithinCohort(threshold))
        return Tenancy((queue("a", 2, preemption=rules), queue("b", 2), queue("c", 2)))

    for threshold, lent, expected in ((None, 5, ["mine"]), (5, 5, ["mine"]), (4, 5, ["lent"]), (None, 10, ["lent"])):
        found = arriving(tenancy(threshold), [work("lent", "b", 6, lent)], [work("mine", "a", 3, priority=10)])
        assert running(found) == expected
    found = arriving(tenancy(5), [work("lent", "b", 6, 5)], [work("mine", "a", 3, priority=10)])
    assert evicted(found) == [("lent", "mine", "InCohortReclaimWhileBorrowing")]


def test_a_queue_reclaims_beyond_its_own_quota_what_its_group_is_guaranteed() -> None:
    cohorts = (Cohort("left", "org", group(a100=Quota(4))), Cohort("right", "org"))
    queues = (queue("a", 0, cohort="left", preemption=RECLAIMS), queue("b", 0, cohort="right"))
    found = arriving(Tenancy(queues, cohorts), [work("lent", "b", 4, priority=100)], [work("mine", "a", 4)])
    assert running(found) == ["mine"]
    assert evicted(found) == [("lent", "mine", "InCohortReclamation")]


def test_an_evicted_workload_keeps_its_age_and_runs_again_before_younger_ones() -> None:
    tenancy = Tenancy((queue("a", 4, preemption=RECLAIMS), queue("b", 0)))
    found = after(tenancy, work("lent", "b", 4), work("mine", "a", 4), work("young", "b", 4), finish=["mine"])
    assert running(found) == ["lent"]


def test_what_waits_says_whom_it_waits_for() -> None:
    tenancy = Tenancy((queue("a", 4), queue("b", 0)))
    found = after(tenancy, work("lent", "b", 4), work("mine", "a", 4))
    assert waiting(found) == {
        "mine": f"insufficient unused quota for {GPU} in flavor a100, 4 more needed; no"
        " workload may be preempted for it"
    }


def test_the_newest_reservation_counts_not_the_newest_workload() -> None:
    tenancy = Tenancy((queue("a", 5, preemption=RECLAIMS), queue("b", 0), queue("c", 0)))
    steps = (
        Step((work("old", "b", 3), work("own", "a", 3), work("young", "c", 2))),
        # `old` comes back now, after `young` was admitted.
        Step(finish=("own",)),
        Step((work("again", "a", 2),)),
    )
    first, back, last = run(tenancy, steps)
    assert [running(each) for each in (first, back, last)] == [["own", "young"], ["old", "young"], ["young", "again"]]


def test_equals_of_a_workload_that_found_nothing_wait_for_the_same_reason() -> None:
    tenancy = Tenancy((queue("a", 2),))
    found = after(tenancy, work("now", "a", 2), work("one", "a", 1), work("two", "a", 1))
    assert waiting(found)["two"] == waiting(found)["one"]
    together = settle(tenancy, [work("huge", "a", 3), work("as huge", "a", 3)])
    assert waiting(together)["as huge"] == waiting(together)["huge"]
    assert (
        waiting(together)["huge"] == f"insufficient quota for {GPU} in flavor a100, request > maximum capacity (3 > 2)"
    )
