"""Fair sharing: who gives way, weights, strategies, and the order of heads."""

from admission_builders import GPU, after, arriving, evicted, group, queue, running, work

from gpu_tenancy.model.admission import (
    FAIR,
    ClusterQueue,
    Cohort,
    FairStrategy,
    PodSet,
    Policy,
    Preemption,
    Quota,
    Tenancy,
    Workload,
)

RECLAIMS = Preemption(reclaim=Policy.ANY)


def three(**weights: float) -> Tenancy:
    """Queues a and b without quota of their own, and c that lends eight."""
    return Tenancy(
        (
            queue("a", 0, preemption=RECLAIMS, weight=weights.get("a", 1.0)),
            queue("b", 0, preemption=RECLAIMS, weight=weights.get("b", 1.0)),
            queue("c", 8),
        ),
        fair_sharing=FAIR,
    )


def of(name: str, count: int, gpus: int = 2) -> list[str]:
    """Names of workloads."""
    return [f"{name}{gpus}-{n}" for n in range(count)]


def share_of(tenancy: Tenancy) -> tuple[int, int]:
    """How many of four workloads each of a and b runs, when a came first and took all."""
    found = arriving(tenancy, [work(n, "a", 2) for n in of("a", 4)], [work(n, "b", 2) for n in of("b", 4)])
    names = running(found)
    return sum(name.startswith("a") for name in names), sum(name.startswith("b") for name in names)


def test_two_queues_end_with_even_shares_whoever_came_first() -> None:
    assert share_of(three()) == (2, 2)


def test_a_weight_of_three_has_three_times_as_much() -> None:
    assert share_of(three(b=3.0)) == (1, 3)


def test_a_weight_of_zero_gives_way_to_everybody_who_has_one() -> None:
    assert share_of(three(a=0.0)) == (0, 4)
    assert share_of(three(b=0.0)) == (4, 0)


def test_without_fair_sharing_the_first_one_keeps_it() -> None:
    tenancy = three()
    assert share_of(Tenancy(tenancy.queues)) == (4, 0)


def test_who_reclaims_its_own_quota_need_not_ask_for_shares() -> None:
    tenancy = Tenancy((queue("a", 4, preemption=RECLAIMS), queue("b", 0, weight=100.0)), fair_sharing=FAIR)
    found = arriving(tenancy, [work("lent", "b", 4)], [work("mine", "a", 4)])
    assert evicted(found) == [("lent", "mine", "InCohortReclamation")]


def test_a_large_workload_gives_way_only_by_the_second_strategy() -> None:
    def with_strategies(*strategies: FairStrategy) -> list[str]:
        tenancy = Tenancy(three().queues, fair_sharing=strategies)
        # Without `large`, a would have 0 and b 3 eighths; with it, a has 8: only its share before is larger.
        return running(arriving(tenancy, [work("large", "a", 8)], [work("small", "b", 3)]))

    assert with_strategies(FairStrategy.FINAL_SHARE) == ["large"]
    assert with_strategies(FairStrategy.INITIAL_SHARE) == ["small"]
    assert with_strategies(*FAIR) == ["small"]


def test_the_smallest_share_after_admission_goes_first() -> None:
    tenancy = Tenancy((queue("a", 0), queue("b", 0, weight=4.0), queue("c", 4)), fair_sharing=FAIR)
    found = after(tenancy, work("now", "c", 4), work("old", "a", 4), work("heavy", "b", 4), finish=["now"])
    assert running(found) == ["heavy"]


def test_who_does_not_borrow_goes_first_whatever_the_share() -> None:
    tenancy = Tenancy((queue("a", 0, weight=100.0), queue("c", 4)), fair_sharing=FAIR)
    found = after(tenancy, work("now", "c", 4), work("old", "a", 4), work("own", "c", 4), finish=["now"])
    assert running(found) == ["own"]


def test_borrowing_of_another_flavor_does_not_count_against_who_asks_for_its_own() -> None:
    def asks(name: str, at: str, flavor: str) -> Workload:
        return Workload(name, at, (PodSet({GPU: 4}, flavors=frozenset({flavor})),))

    tenancy = Tenancy(
        (
            ClusterQueue("a", group(f1=Quota(4), f2=Quota(0)), "org"),
            ClusterQueue("b", group(f1=Quota(0), f2=Quota(4)), "org", weight=100.0),
        ),
        fair_sharing=FAIR,
    )
    # a borrows f2, so that its share is by far the larger one.
    busy = [asks("lent", "a", "f2"), asks("now", "a", "f1")]
    found = after(tenancy, *busy, asks("borrows", "b", "f1"), asks("own", "a", "f1"), finish=["now"])
    assert running(found) == ["lent", "own"]


def test_groups_are_weighed_against_each_other_before_their_queues() -> None:
    cohorts = (Cohort("left", "org", weight=3.0), Cohort("right", "org"), Cohort("lender", "org"))
    tenancy = Tenancy(
        (
            queue("a", 0, cohort="left", preemption=RECLAIMS),
            queue("b", 0, cohort="right", preemption=RECLAIMS, weight=100.0),
            queue("c", 8, cohort="lender"),
        ),
        cohorts,
        FAIR,
    )
    assert share_of(tenancy) == (3, 1)


def test_workloads_that_evict_one_another_for_ever_are_called_so() -> None:
    rules = Preemption(Policy.LOWER, Policy.ANY)
    tenancy = Tenancy((queue("a", 4, preemption=rules), queue("b", 2, preemption=rules)), fair_sharing=FAIR)
    # `own` takes its quota back from `lent`, `high` preempts `own`, `lent` takes its share back from `high`.
    found = arriving(tenancy, [work("lent", "a", 5), work("high", "b", 6, priority=1), work("own", "b", 2)])
    assert found.livelock == (("a", "b"),)
    assert evicted(found)[:3] == [
        ("lent", "own", "InCohortReclamation"),
        ("own", "high", "InClusterQueue"),
        ("high", "lent", "InCohortFairSharing"),
    ]


def test_what_comes_to_rest_is_no_livelock() -> None:
    found = arriving(three(), [work(n, "a", 2) for n in of("a", 4)], [work(n, "b", 2) for n in of("b", 4)])
    assert found.livelock == ()
