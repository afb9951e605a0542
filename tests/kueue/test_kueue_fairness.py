"""Fair sharing: preemption by share, weights, strategies, and the order of entries."""

from kueue_builders import GPU, admitted, after, after_steps, evicted, group, queue, work

from gpu_tenancy.kueue import (
    FAIR,
    ClusterQueue,
    Cohort,
    FairStrategy,
    FlavorQuotas,
    PodSet,
    Policy,
    Preemption,
    Quota,
    ResourceGroup,
    Tenancy,
    Workload,
)

RECLAIMS = Preemption(reclaim=Policy.ANY)


def three(**weights: float) -> Tenancy:
    """Queues a and b without quota, and c that lends eight GPUs."""
    return Tenancy(
        (
            queue("a", 0, preemption=RECLAIMS, weight=weights.get("a", 1.0)),
            queue("b", 0, preemption=RECLAIMS, weight=weights.get("b", 1.0)),
            queue("c", 8),
        ),
        fair_sharing=FAIR,
    )


def workloads(queue_name: str, count: int) -> list[Workload]:
    """Workloads of two GPUs."""
    return [work(f"{queue_name}-{number}", queue_name, 2) for number in range(count)]


def share_of(tenancy: Tenancy) -> tuple[int, int]:
    """How many of four workloads each of a and b have admitted, after those of a were submitted first."""
    settled = after_steps(tenancy, workloads("a", 4), workloads("b", 4))
    names = admitted(settled)
    return sum(name.startswith("a") for name in names), sum(name.startswith("b") for name in names)


def test_two_queues_get_even_shares_in_any_submission_order() -> None:
    assert share_of(three()) == (2, 2)


def test_a_queue_with_weight_three_gets_three_times_as_much() -> None:
    assert share_of(three(b=3.0)) == (1, 3)


def test_weight_zero_is_preempted_by_any_other_weight() -> None:
    assert share_of(three(a=0.0)) == (0, 4)
    assert share_of(three(b=0.0)) == (4, 0)


def test_first_borrower_is_kept_without_fair_sharing() -> None:
    tenancy = three()
    assert share_of(Tenancy(tenancy.queues)) == (4, 0)


def test_a_queue_reclaims_its_nominal_quota_regardless_of_shares() -> None:
    tenancy = Tenancy((queue("a", 4, preemption=RECLAIMS), queue("b", 0, weight=100.0)), fair_sharing=FAIR)
    settled = after_steps(tenancy, [work("lent", "b", 4)], [work("preemptor", "a", 4)])
    assert evicted(settled) == [("lent", "preemptor", "InCohortReclamation")]


def test_second_strategy_preempts_a_large_workload() -> None:
    def with_strategies(*strategies: FairStrategy) -> list[str]:
        tenancy = Tenancy(three().queues, fair_sharing=strategies)
        # The share of b with `small` is 3/8. The share of a is 8/8 before `large` is removed, and 0 after that.
        return admitted(after_steps(tenancy, [work("large", "a", 8)], [work("small", "b", 3)]))

    assert with_strategies(FairStrategy.FINAL_SHARE) == ["large"]
    assert with_strategies(FairStrategy.INITIAL_SHARE) == ["small"]
    assert with_strategies(*FAIR) == ["small"]


def test_entry_with_smallest_resulting_share_is_first() -> None:
    tenancy = Tenancy((queue("a", 0), queue("b", 0, weight=4.0), queue("c", 4)), fair_sharing=FAIR)
    settled = after(tenancy, work("now", "c", 4), work("old", "a", 4), work("heavy", "b", 4), finish=["now"])
    assert admitted(settled) == ["heavy"]


def test_entry_within_quota_is_first_whatever_its_share() -> None:
    tenancy = Tenancy((queue("a", 0, weight=100.0), queue("c", 4)), fair_sharing=FAIR)
    settled = after(tenancy, work("now", "c", 4), work("old", "a", 4), work("own", "c", 4), finish=["now"])
    assert admitted(settled) == ["own"]


def test_borrowing_one_flavor_does_not_delay_another_flavor() -> None:
    def of_flavor(name: str, at: str, flavor: str) -> Workload:
        return Workload(name, at, (PodSet({GPU: 4}, flavors=frozenset({flavor})),))

    tenancy = Tenancy(
        (
            ClusterQueue("a", group(f1=Quota(4), f2=Quota(0)), "org"),
            ClusterQueue("b", group(f1=Quota(0), f2=Quota(4)), "org", weight=100.0),
        ),
        fair_sharing=FAIR,
    )
    # a borrows f2, so its share is larger than that of b.
    first = [of_flavor("lent", "a", "f2"), of_flavor("now", "a", "f1")]
    settled = after(tenancy, *first, of_flavor("borrows", "b", "f1"), of_flavor("own", "a", "f1"), finish=["now"])
    assert admitted(settled) == ["lent", "own"]


def test_cohorts_are_compared_by_share_before_their_queues() -> None:
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


def group_with_own_quota() -> Tenancy:
    """A cohort with 4 GPUs of its own, its queue a without any, and b beside it that lends nothing and borrows."""

    def both(gpus: Quota, disks: Quota) -> tuple[ResourceGroup, ...]:
        return (ResourceGroup((FlavorQuotas("a100", {GPU: gpus, "disk": disks}),)),)

    unlimited = Quota(0)
    return Tenancy(
        (
            ClusterQueue("a", both(unlimited, unlimited), "own", preemption=RECLAIMS),
            ClusterQueue("b", both(unlimited, unlimited), "org", preemption=RECLAIMS),
        ),
        (Cohort("org", None, both(Quota(0), Quota(10))), Cohort("own", "org", both(Quota(4, 0), Quota(0)))),
        FAIR,
    )


def test_cohort_reclaims_only_if_it_borrows_nothing_else() -> None:
    """Unlike a ClusterQueue: the shares of Cohorts count every resource, not only those that are short."""
    lent = [work(f"lent{number}", "b", 1) for number in range(4)]
    own = [work(f"own{number}", "a", 1) for number in range(4)]
    alone = after_steps(group_with_own_quota(), lent, own)
    assert admitted(alone) == ["own0", "own1", "own2", "own3"]
    disk = Workload("disk", "a", (PodSet({"disk": 5}),))
    borrowing = after_steps(group_with_own_quota(), lent, [disk, *own])
    assert [name for name in admitted(borrowing) if name.startswith("own")] == ["own0", "own1"]


def test_endless_mutual_preemption_is_a_livelock() -> None:
    rules = Preemption(Policy.LOWER, Policy.ANY)
    tenancy = Tenancy((queue("a", 4, preemption=rules), queue("b", 2, preemption=rules)), fair_sharing=FAIR)
    # `own` reclaims quota from `lent`, `high` preempts `own`, `lent` preempts `high` by fair sharing.
    settled = after_steps(tenancy, [work("lent", "a", 5), work("high", "b", 6, priority=1), work("own", "b", 2)])
    assert settled.livelock == (("a", "b"),)
    assert evicted(settled)[:3] == [
        ("lent", "own", "InCohortReclamation"),
        ("own", "high", "InClusterQueue"),
        ("high", "lent", "InCohortFairSharing"),
    ]


def test_a_tree_that_settles_is_not_a_livelock() -> None:
    settled = after_steps(three(), workloads("a", 4), workloads("b", 4))
    assert settled.livelock == ()
