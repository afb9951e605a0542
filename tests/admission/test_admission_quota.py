"""Quota: a queue's own, what it borrows, what it lends, and trees of cohorts."""

import pytest
from admission_builders import GPU, after, arriving, evicted, group, queue, running, waiting, work

from gpu_tenancy.model.admission import (
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


def test_an_empty_tenancy_is_at_rest() -> None:
    assert settle(Tenancy(), ()) == Settled()
    assert run(Tenancy(), ()) == ()


def test_a_queue_without_a_cohort_admits_its_own_quota_and_no_more() -> None:
    found = after(
        Tenancy((queue("a", 8, cohort=None),)), work("one", "a", 5), work("two", "a", 4), work("three", "a", 3)
    )
    assert running(found) == ["one", "three"]
    assert waiting(found) == {
        "two": f"insufficient unused quota for {GPU} in flavor a100, 4 more needed; no workload may be preempted for it"
    }


def test_a_queue_borrows_what_its_cohort_does_not_use() -> None:
    found = after(Tenancy((queue("a", 2), queue("b", 6))), work("large", "a", 8))
    assert running(found) == ["large"]


def test_a_queue_borrows_up_to_its_limit() -> None:
    tenancy = Tenancy((queue("a", 2, limit=3), queue("b", 6)))
    found = after(tenancy, work("five", "a", 5), work("one", "a", 1), work("six", "a", 6))
    assert running(found) == ["five"]
    assert waiting(found) == {
        "one": f"insufficient unused quota for {GPU} in flavor a100, 1 more needed; "
        "no workload may be preempted for it",
        "six": f"insufficient quota for {GPU} in flavor a100, request > maximum capacity (6 > 5)",
    }


def test_what_a_queue_does_not_lend_stays_its_own() -> None:
    tenancy = Tenancy((queue("a", 2), queue("b", 6, lends=1)))
    found = after(tenancy, work("three", "a", 3), work("more", "a", 1), work("own", "b", 5))
    assert running(found) == ["three", "own"]


def test_a_cohort_has_quota_of_its_own() -> None:
    tenancy = Tenancy((queue("a", 0), queue("b", 0)), (Cohort("org", groups=group(a100=Quota(4))),))
    found = after(tenancy, work("one", "a", 3), work("two", "b", 1), work("three", "b", 1))
    assert running(found) == ["one", "two"]


def test_a_group_borrows_from_its_neighbours_up_to_its_limit() -> None:
    tenancy = Tenancy(
        (queue("a", 2, cohort="left"), queue("b", 8, cohort="right")),
        (Cohort("left", "org", group(a100=Quota(0, borrowing_limit=3))), Cohort("right", "org")),
    )
    found = after(tenancy, work("five", "a", 5), work("one", "a", 1))
    assert running(found) == ["five"]


def test_a_group_that_lends_nothing_keeps_its_quota_for_its_own_queues() -> None:
    tenancy = Tenancy(
        (queue("a", 2, cohort="left"), queue("b", 8, cohort="right"), queue("c", 0, cohort="right")),
        (Cohort("left", "org"), Cohort("right", "org", group(a100=Quota(0, lending_limit=0)))),
    )
    found = after(tenancy, work("outside", "a", 3), work("inside", "c", 8))
    assert running(found) == ["inside"]


def test_every_pod_of_every_pod_set_is_admitted_or_none() -> None:
    gang = Workload("gang", "a", (PodSet({GPU: 1}, 2, name="leader"), PodSet({GPU: 2}, 3, name="workers")))
    assert running(after(Tenancy((queue("a", 8),)), gang)) == ["gang"]
    found = after(Tenancy((queue("a", 7),)), gang)
    assert running(found) == []
    assert waiting(found) == {
        "gang": f"insufficient quota for {GPU} in flavor a100, request > maximum capacity (8 > 7)"
    }


def test_pods_count_where_a_queue_has_a_quota_of_pods() -> None:
    both = ResourceGroup((FlavorQuotas("a100", {GPU: Quota(8), "pods": Quota(3)}),))
    tenancy = Tenancy((ClusterQueue("a", (both,)),))
    found = after(tenancy, work("four", "a", 1, pods=4), work("three", "a", 1, pods=3))
    assert running(found) == ["three"]


def test_a_resource_that_no_group_covers_is_never_admitted() -> None:
    tenancy = Tenancy((queue("a", 8),))
    found = after(tenancy, Workload("one", "a", (PodSet({GPU: 1, "rdma/ib": 1}),)))
    assert waiting(found) == {"one": "resource rdma/ib unavailable in ClusterQueue"}


def test_a_strict_queue_waits_behind_a_head_that_can_never_fit() -> None:
    tenancy = Tenancy((queue("a", 8, strategy=Strategy.STRICT),))
    found = after(tenancy, work("huge", "a", 9), work("small", "a", 1))
    assert running(found) == []
    assert waiting(found)["small"] == (
        f"behind huge, the head of a StrictFIFO queue: insufficient quota for {GPU} in flavor a100, "
        "request > maximum capacity (9 > 8)"
    )


def test_a_best_effort_queue_goes_past_a_head_that_does_not_fit() -> None:
    found = after(Tenancy((queue("a", 8),)), work("huge", "a", 9), work("small", "a", 1))
    assert running(found) == ["small"]


def test_a_blocked_head_that_cannot_reclaim_keeps_its_nominal_quota_free() -> None:
    tenancy = Tenancy((queue("a", 4, strategy=Strategy.STRICT), queue("b", 4)))
    found = arriving(tenancy, [work("lent", "b", 6)], [work("own", "a", 4)], [work("small", "b", 1)])
    assert running(found) == ["lent"]
    found = arriving(
        Tenancy((queue("a", 4, strategy=Strategy.STRICT, preemption=RECLAIMS), queue("b", 4))),
        [work("lent", "b", 6)],
        [work("own", "a", 4)],
    )
    assert running(found) == ["own"]
    assert evicted(found) == [("lent", "own", "InCohortReclamation")]


def test_the_highest_priority_goes_first_in_a_queue_and_then_the_oldest() -> None:
    tenancy = Tenancy((queue("a", 4),))
    found = after(tenancy, work("now", "a", 4), work("old", "a", 4), work("high", "a", 4, 10), finish=["now"])
    assert running(found) == ["high"]
    found = after(tenancy, work("now", "a", 4), work("old", "a", 4), work("new", "a", 4), finish=["now"])
    assert running(found) == ["old"]


def test_who_would_not_borrow_goes_before_who_would() -> None:
    tenancy = Tenancy((queue("a", 0), queue("b", 4)))
    found = after(
        tenancy, work("now", "b", 4), work("borrows", "a", 4, priority=10), work("own", "b", 4), finish=["now"]
    )
    assert running(found) == ["own"]


def test_a_workload_that_waits_can_end() -> None:
    found = after(Tenancy((queue("a", 4),)), work("one", "a", 4), work("two", "a", 4), finish=["two"])
    assert (running(found), waiting(found)) == (["one"], {})


@pytest.mark.parametrize(
    ("tenancy", "words"),
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
def test_a_tenancy_that_contradicts_itself_is_refused(tenancy: Tenancy, words: str) -> None:
    with pytest.raises(ValueError, match="^" + words.replace(".", r"\.") + "$"):
        settle(tenancy, ())


def test_a_workload_of_no_queue_or_of_a_name_that_is_taken_is_refused() -> None:
    tenancy = Tenancy((queue("a", 1),))
    with pytest.raises(ValueError, match=r"^workload 'w': ClusterQueue 'b' does not exist$"):
        settle(tenancy, [work("w", "b", 1)])
    with pytest.raises(ValueError, match=r"^duplicate workload 'w'$"):
        settle(tenancy, [work("w", "a", 1), work("w", "a", 1)])
    with pytest.raises(ValueError, match=r"^workload 'w' does not exist and cannot finish$"):
        after(tenancy, finish=["w"])
