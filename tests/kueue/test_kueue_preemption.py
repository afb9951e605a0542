"""Preemption without fair sharing: within the queue, reclaim, and reclaim while borrowing."""

from kueue_builders import GPU, admitted, after, after_steps, evicted, group, pending, queue, work

from gpu_tenancy.kueue import (
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
    settled = after_steps(
        Tenancy((queue("a", 4, preemption=WITHIN),)), [work("low", "a", 4)], [work("high", "a", 4, priority=10)]
    )
    assert admitted(settled) == ["high"]
    assert evicted(settled) == [("low", "high", "InClusterQueue")]
    assert pending(settled) == {
        "low": f"insufficient unused quota for {GPU} in flavor a100, 4 more needed; no workload may be preempted for it"
    }


def test_equal_priority_is_preempted_only_if_newer_is_allowed() -> None:
    newer = Preemption(within=Policy.LOWER_OR_NEWER)
    for rules, expected in ((WITHIN, ["new"]), (newer, ["old"])):
        tenancy = Tenancy((queue("a", 4, preemption=rules),))
        # `old` requests 4 GPUs while `first` uses 2; so `new` is admitted, which is newer than `old`.
        settled = after(
            tenancy, work("first", "a", 2, priority=5), work("old", "a", 4), work("new", "a", 2), finish=["first"]
        )
        assert admitted(settled) == expected


def test_preempts_lowest_priority_then_newest() -> None:
    tenancy = Tenancy((queue("a", 6, preemption=WITHIN),))
    settled = after_steps(
        tenancy,
        [work("old", "a", 2, 1), work("low", "a", 2, 0), work("new", "a", 2, 1)],
        [work("high", "a", 4, priority=10)],
    )
    assert [name for name, *_ in evicted(settled)] == ["low", "new"]


def test_a_target_that_turns_out_not_to_be_needed_is_filled_back() -> None:
    tenancy = Tenancy((queue("a", 6, preemption=WITHIN),))
    settled = after_steps(tenancy, [work("large", "a", 4, 1), work("small", "a", 2, 0)], [work("high", "a", 4, 10)])
    assert evicted(settled) == [("large", "high", "InClusterQueue")]


def test_nominal_quota_is_reclaimed_from_a_borrower() -> None:
    tenancy = Tenancy((queue("a", 4, preemption=RECLAIMS), queue("b", 4)))
    settled = after_steps(
        tenancy, [work("own", "b", 4, priority=100), work("lent", "b", 4, priority=100)], [work("preemptor", "a", 4)]
    )
    assert admitted(settled) == ["own", "preemptor"]
    assert evicted(settled) == [("lent", "preemptor", "InCohortReclamation")]


def test_queue_within_nominal_quota_is_not_reclaimed_from() -> None:
    tenancy = Tenancy((queue("a", 4, preemption=RECLAIMS), queue("b", 4)))
    settled = after_steps(
        tenancy, [work("own", "b", 4)], [work("preemptor", "a", 4), work("extra", "a", 1, priority=10)]
    )
    assert admitted(settled) == ["own", "preemptor"]


def test_reclaiming_lower_priorities_keeps_equal_ones() -> None:
    tenancy = Tenancy((queue("a", 4, preemption=Preemption(reclaim=Policy.LOWER)), queue("b", 0)))
    settled = after_steps(tenancy, [work("lent", "b", 4)], [work("preemptor", "a", 4)])
    assert admitted(settled) == ["lent"]
    settled = after_steps(tenancy, [work("lent", "b", 4)], [work("preemptor", "a", 4, priority=1)])
    assert admitted(settled) == ["preemptor"]


def test_borrowing_workload_preempts_no_other_queue_by_default() -> None:
    tenancy = Tenancy((queue("a", 2, preemption=RECLAIMS), queue("b", 2), queue("c", 2)))
    settled = after_steps(tenancy, [work("lent", "b", 6)], [work("preemptor", "a", 3, priority=10)])
    assert admitted(settled) == ["lent"]


def test_borrowing_workload_preempts_up_to_the_threshold() -> None:
    def tenancy(threshold: int | None) -> Tenancy:
        rules = Preemption(reclaim=Policy.ANY, borrow=BorrowWithinCohort(threshold))
        return Tenancy((queue("a", 2, preemption=rules), queue("b", 2), queue("c", 2)))

    preemptor = work("preemptor", "a", 3, priority=10)
    for threshold, priority, expected in (
        (None, 5, ["preemptor"]),
        (5, 5, ["preemptor"]),
        (4, 5, ["lent"]),
        (None, 10, ["lent"]),
    ):
        settled = after_steps(tenancy(threshold), [work("lent", "b", 6, priority)], [preemptor])
        assert admitted(settled) == expected
    settled = after_steps(tenancy(5), [work("lent", "b", 6, 5)], [preemptor])
    assert evicted(settled) == [("lent", "preemptor", "InCohortReclaimWhileBorrowing")]


def test_a_queue_reclaims_the_nominal_quota_of_its_cohort() -> None:
    cohorts = (Cohort("left", "org", group(a100=Quota(4))), Cohort("right", "org"))
    queues = (queue("a", 0, cohort="left", preemption=RECLAIMS), queue("b", 0, cohort="right"))
    settled = after_steps(Tenancy(queues, cohorts), [work("lent", "b", 4, priority=100)], [work("preemptor", "a", 4)])
    assert admitted(settled) == ["preemptor"]
    assert evicted(settled) == [("lent", "preemptor", "InCohortReclamation")]


def test_evicted_workload_precedes_newer_workloads() -> None:
    tenancy = Tenancy((queue("a", 4, preemption=RECLAIMS), queue("b", 0)))
    settled = after(
        tenancy, work("lent", "b", 4), work("preemptor", "a", 4), work("young", "b", 4), finish=["preemptor"]
    )
    assert admitted(settled) == ["lent"]


def test_pending_without_preemption_candidates_has_a_reason() -> None:
    tenancy = Tenancy((queue("a", 4), queue("b", 0)))
    settled = after(tenancy, work("lent", "b", 4), work("preemptor", "a", 4))
    assert pending(settled) == {
        "preemptor": f"insufficient unused quota for {GPU} in flavor a100, 4 more needed; no"
        " workload may be preempted for it"
    }


def test_newest_reservation_is_preempted_first() -> None:
    tenancy = Tenancy((queue("a", 5, preemption=RECLAIMS), queue("b", 0), queue("c", 0)))
    steps = (
        Step((work("old", "b", 3), work("own", "a", 3), work("young", "c", 2))),
        # `old` is admitted again now, after `young`.
        Step(finish=("own",)),
        Step((work("last", "a", 2),)),
    )
    states = run(tenancy, steps)
    assert [admitted(settled) for settled in states] == [["own", "young"], ["old", "young"], ["young", "last"]]


def test_same_scheduling_hash_has_the_same_pending_reason() -> None:
    tenancy = Tenancy((queue("a", 2),))
    settled = after(tenancy, work("now", "a", 2), work("one", "a", 1), work("two", "a", 1))
    assert pending(settled)["two"] == pending(settled)["one"]
    together = settle(tenancy, [work("huge", "a", 3), work("as huge", "a", 3)])
    assert pending(together)["as huge"] == pending(together)["huge"]
    assert (
        pending(together)["huge"] == f"insufficient quota for {GPU} in flavor a100, request > maximum capacity (3 > 2)"
    )
