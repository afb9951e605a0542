"""Quota: nominal quota, borrowing, lending, and trees of cohorts."""

import pytest
from kueue_builders import GPU, admitted, after, after_steps, evicted, group, pending, queue, work

from gpu_tenancy.kueue import (
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    PodSet,
    Policy,
    Preemption,
    Quota,
    ResourceGroup,
    Settled,
    Strategy,
    Tenancy,
    Workload,
    run,
    settle,
)

RECLAIMS = Preemption(reclaim=Policy.ANY)


def test_an_empty_tenancy_is_settled() -> None:
    assert settle(Tenancy(), ()) == Settled()
    assert run(Tenancy(), ()) == ()


def test_a_queue_without_a_cohort_admits_up_to_its_nominal_quota() -> None:
    settled = after(
        Tenancy((queue("a", 8, cohort=None),)), work("one", "a", 5), work("two", "a", 4), work("three", "a", 3)
    )
    assert admitted(settled) == ["one", "three"]
    assert pending(settled) == {
        "two": f"insufficient unused quota for {GPU} in flavor a100, 4 more needed; no workload may be preempted for it"
    }


def test_a_queue_borrows_what_its_cohort_does_not_use() -> None:
    settled = after(Tenancy((queue("a", 2), queue("b", 6))), work("large", "a", 8))
    assert admitted(settled) == ["large"]


def test_a_queue_borrows_up_to_its_borrowing_limit() -> None:
    tenancy = Tenancy((queue("a", 2, limit=3), queue("b", 6)))
    settled = after(tenancy, work("five", "a", 5), work("one", "a", 1), work("six", "a", 6))
    assert admitted(settled) == ["five"]
    assert pending(settled) == {
        "one": f"insufficient unused quota for {GPU} in flavor a100, 1 more needed; "
        "no workload may be preempted for it",
        "six": f"insufficient quota for {GPU} in flavor a100, request > maximum capacity (6 > 5)",
    }


def test_quota_beyond_lending_limit_stays_with_its_queue() -> None:
    tenancy = Tenancy((queue("a", 2), queue("b", 6, lends=1)))
    settled = after(tenancy, work("three", "a", 3), work("extra", "a", 1), work("own", "b", 5))
    assert admitted(settled) == ["three", "own"]


def test_a_cohort_may_have_quota() -> None:
    tenancy = Tenancy((queue("a", 0), queue("b", 0)), (Cohort("org", groups=group(a100=Quota(4))),))
    settled = after(tenancy, work("one", "a", 3), work("two", "b", 1), work("three", "b", 1))
    assert admitted(settled) == ["one", "two"]


def test_cohort_borrows_up_to_its_borrowing_limit() -> None:
    tenancy = Tenancy(
        (queue("a", 2, cohort="left"), queue("b", 8, cohort="right")),
        (Cohort("left", "org", group(a100=Quota(0, borrowing_limit=3))), Cohort("right", "org")),
    )
    settled = after(tenancy, work("five", "a", 5), work("one", "a", 1))
    assert admitted(settled) == ["five"]


def test_quota_of_cohort_without_lending_stays_with_its_queues() -> None:
    tenancy = Tenancy(
        (queue("a", 2, cohort="left"), queue("b", 8, cohort="right"), queue("c", 0, cohort="right")),
        (Cohort("left", "org"), Cohort("right", "org", group(a100=Quota(0, lending_limit=0)))),
    )
    settled = after(tenancy, work("outside", "a", 3), work("inside", "c", 8))
    assert admitted(settled) == ["inside"]


def test_all_pods_of_all_pod_sets_are_admitted_or_none() -> None:
    gang = Workload("gang", "a", (PodSet({GPU: 1}, 2, name="leader"), PodSet({GPU: 2}, 3, name="workers")))
    assert admitted(after(Tenancy((queue("a", 8),)), gang)) == ["gang"]
    settled = after(Tenancy((queue("a", 7),)), gang)
    assert admitted(settled) == []
    assert pending(settled) == {
        "gang": f"insufficient quota for {GPU} in flavor a100, request > maximum capacity (8 > 7)"
    }


def test_pods_are_counted_if_a_queue_has_a_quota_for_pods() -> None:
    resources = ResourceGroup((FlavorQuotas("a100", {GPU: Quota(8), "pods": Quota(3)}),))
    tenancy = Tenancy((ClusterQueue("a", (resources,)),))
    settled = after(tenancy, work("four", "a", 1, pods=4), work("three", "a", 1, pods=3))
    assert admitted(settled) == ["three"]


def test_workload_with_uncovered_resource_is_not_admitted() -> None:
    tenancy = Tenancy((queue("a", 8),))
    settled = after(tenancy, Workload("one", "a", (PodSet({GPU: 1, "rdma/ib": 1}),)))
    assert pending(settled) == {"one": "resource rdma/ib unavailable in ClusterQueue"}


def test_strict_fifo_is_blocked_by_head_that_never_fits() -> None:
    tenancy = Tenancy((queue("a", 8, strategy=Strategy.STRICT),))
    settled = after(tenancy, work("huge", "a", 9), work("small", "a", 1))
    assert admitted(settled) == []
    assert pending(settled)["small"] == (
        f"behind huge, the head of a StrictFIFO queue: insufficient quota for {GPU} in flavor a100, "
        "request > maximum capacity (9 > 8)"
    )


def test_best_effort_fifo_continues_after_head_that_does_not_fit() -> None:
    settled = after(Tenancy((queue("a", 8),)), work("huge", "a", 9), work("small", "a", 1))
    assert admitted(settled) == ["small"]


def test_blocked_head_reserves_its_nominal_quota() -> None:
    tenancy = Tenancy((queue("a", 4, strategy=Strategy.STRICT), queue("b", 4)))
    settled = after_steps(tenancy, [work("lent", "b", 6)], [work("own", "a", 4)], [work("small", "b", 1)])
    assert admitted(settled) == ["lent"]
    settled = after_steps(
        Tenancy((queue("a", 4, strategy=Strategy.STRICT, preemption=RECLAIMS), queue("b", 4))),
        [work("lent", "b", 6)],
        [work("own", "a", 4)],
    )
    assert admitted(settled) == ["own"]
    assert evicted(settled) == [("lent", "own", "InCohortReclamation")]


def test_admits_highest_priority_then_oldest() -> None:
    tenancy = Tenancy((queue("a", 4),))
    settled = after(tenancy, work("now", "a", 4), work("old", "a", 4), work("high", "a", 4, 10), finish=["now"])
    assert admitted(settled) == ["high"]
    settled = after(tenancy, work("now", "a", 4), work("old", "a", 4), work("new", "a", 4), finish=["now"])
    assert admitted(settled) == ["old"]


def test_entry_within_quota_precedes_borrowing_entry() -> None:
    tenancy = Tenancy((queue("a", 0), queue("b", 4)))
    settled = after(
        tenancy, work("now", "b", 4), work("borrows", "a", 4, priority=10), work("own", "b", 4), finish=["now"]
    )
    assert admitted(settled) == ["own"]


def test_a_pending_workload_can_finish() -> None:
    settled = after(Tenancy((queue("a", 4),)), work("one", "a", 4), work("two", "a", 4), finish=["two"])
    assert (admitted(settled), pending(settled)) == (["one"], {})


@pytest.mark.parametrize(
    ("tenancy", "message"),
    [
        (Tenancy((queue("a", 1), queue("a", 2))), "duplicate ClusterQueue 'a'"),
        (Tenancy((), (Cohort("c"), Cohort("c"))), "duplicate Cohort 'c'"),
        (
            Tenancy((queue("a", 1, cohort="c"),), (Cohort("c", "d"), Cohort("d", "c"))),
            "Cohort c: its parents form a cycle at c; Kueue admits nothing in such a tree",
        ),
        (
            Tenancy((ClusterQueue("a", group(x=Quota(1)) + group(y=Quota(1))),)),
            f"ClusterQueue a: {GPU} is covered by two resource groups",
        ),
        (
            Tenancy(
                (
                    ClusterQueue(
                        "a",
                        (
                            ResourceGroup(
                                (FlavorQuotas("x", {GPU: Quota(), "cpu": Quota()}), FlavorQuotas("y", {GPU: Quota()}))
                            ),
                        ),
                    ),
                )
            ),
            "ClusterQueue a: flavor y has no quota for cpu",
        ),
    ],
)
def test_an_invalid_tenancy_is_rejected(tenancy: Tenancy, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message.replace(".", r"\.") + "$"):
        settle(tenancy, ())


def test_an_unknown_queue_and_a_duplicate_workload_are_rejected() -> None:
    tenancy = Tenancy((queue("a", 1),))
    with pytest.raises(ValueError, match=r"^workload 'w': ClusterQueue 'b' does not exist$"):
        settle(tenancy, [work("w", "b", 1)])
    with pytest.raises(ValueError, match=r"^duplicate workload 'w'$"):
        settle(tenancy, [work("w", "a", 1), work("w", "a", 1)])
    with pytest.raises(ValueError, match=r"^workload 'w' does not exist and cannot finish$"):
        after(tenancy, finish=["w"])
