"""Flavors: their order, and whether the search continues after one that needs borrowing or preemption."""

from typing import Any

from kueue_builders import GPU, admitted, after, after_steps, evicted, group, pending, work

from gpu_tenancy.kueue import (
    FAIR,
    ClusterQueue,
    FlavorQuotas,
    Fungibility,
    Fungible,
    PodSet,
    Policy,
    Preemption,
    Preference,
    Quota,
    ResourceGroup,
    Settled,
    Tenancy,
    Workload,
)


def flavors(settled: Settled) -> dict[str, str]:
    """The GPU flavor of each admitted workload."""
    return {workload.name: workload.flavors[0][GPU] for workload in settled.admitted}


def two(first: int, second: int, lent: int = 0, **rules: Any) -> Tenancy:
    """Queue a with two flavors, and queue b that lends the first; the numbers are nominal quotas."""
    return Tenancy(
        (
            ClusterQueue("a", group(f1=Quota(first), f2=Quota(second)), "org", **rules),
            ClusterQueue("b", group(f1=Quota(lent)), "org"),
        )
    )


def test_the_first_flavor_that_fits_is_assigned() -> None:
    assert flavors(after(two(2, 2), work("one", "a", 2), work("two", "a", 2))) == {"one": "f1", "two": "f2"}


def test_borrowing_flavor_is_assigned_before_later_free_flavor() -> None:
    assert flavors(after(two(1, 2, lent=1), work("one", "a", 2))) == {"one": "f1"}


def test_try_next_flavor_skips_a_borrowing_flavor() -> None:
    rules = Fungibility(when_can_borrow=Fungible.NEXT)
    assert flavors(after(two(1, 2, 1, fungibility=rules), work("one", "a", 2))) == {"one": "f2"}
    assert flavors(after(two(1, 1, 1, fungibility=rules), work("one", "a", 2))) == {"one": "f1"}


def test_flavor_search_continues_after_preemption_by_default() -> None:
    stops = Fungibility(when_can_preempt=Fungible.STOP)
    within = Preemption(within=Policy.LOWER)
    for fungibility, expected in ((Fungibility(), {"low": "f1", "high": "f2"}), (stops, {"low": "f2", "high": "f1"})):
        settled = after_steps(
            two(2, 2, preemption=within, fungibility=fungibility), [work("low", "a", 2)], [work("high", "a", 2, 1)]
        )
        assert flavors(settled) == expected


def test_queue_may_prefer_preemption_over_borrowing() -> None:
    preempt = Fungibility(Fungible.NEXT, Fungible.NEXT, Preference.PREEMPT)
    borrow = Fungibility(Fungible.NEXT, Fungible.NEXT)
    within = Preemption(within=Policy.LOWER)
    for rules, expected in ((borrow, []), (preempt, [("low", "high", "InClusterQueue")])):
        tenancy = Tenancy(
            (
                ClusterQueue("a", group(f1=Quota(2), f2=Quota(0)), "org", preemption=within, fungibility=rules),
                ClusterQueue("b", group(f2=Quota(2)), "org"),
            )
        )
        settled = after_steps(tenancy, [work("low", "a", 2)], [work("high", "a", 2, 1)])
        assert evicted(settled) == expected


def test_borrowing_one_resource_hides_preemption_of_another() -> None:
    """Kueue 0.19.2 with the preference for preemption: it preempts nobody, and the workload blocks its queue."""
    preempt = Fungibility(Fungible.NEXT, Fungible.NEXT, Preference.PREEMPT)
    borrow = Fungibility(Fungible.NEXT, Fungible.NEXT)

    def both(gpus: int, cpus: int) -> tuple[ResourceGroup, ...]:
        return (ResourceGroup((FlavorQuotas("f1", {GPU: Quota(gpus), "cpu": Quota(cpus)}),)),)

    def requesting(name: str, queue: str) -> Workload:
        return Workload(name, queue, (PodSet({GPU: 1, "cpu": 1}),))

    for rules, expected in ((borrow, ["one"]), (preempt, ["other"])):
        tenancy = Tenancy(
            (
                ClusterQueue("a", both(0, 1), "org", preemption=Preemption(reclaim=Policy.ANY), fungibility=rules),
                ClusterQueue("b", both(4, 0), "org"),
            ),
            fair_sharing=FAIR,
        )
        settled = after_steps(tenancy, [requesting("other", "b")], [requesting("one", "a")])
        assert admitted(settled) == expected
        assert not settled.livelock


def test_all_resources_of_a_group_come_from_one_flavor() -> None:
    groups = ResourceGroup(
        (
            FlavorQuotas("f1", {GPU: Quota(8), "cpu": Quota(1)}),
            FlavorQuotas("f2", {GPU: Quota(2), "cpu": Quota(8)}),
        )
    )
    settled = after(Tenancy((ClusterQueue("a", (groups,)),)), Workload("one", "a", (PodSet({GPU: 2, "cpu": 2}),)))
    assert settled.admitted[0].flavors == ({GPU: "f2", "cpu": "f2"},)


def test_a_flavor_that_does_not_match_the_pods_is_skipped() -> None:
    one = Workload("one", "a", (PodSet({GPU: 1}, flavors=frozenset({"f2"})),))
    assert flavors(after(two(2, 2), one)) == {"one": "f2"}
    settled = after(two(2, 0), one)
    assert pending(settled) == {"one": f"insufficient quota for {GPU} in flavor f2, request > maximum capacity (1 > 0)"}


def test_pod_sets_may_get_different_flavors() -> None:
    gang = Workload("gang", "a", (PodSet({GPU: 2}, name="one"), PodSet({GPU: 2}, name="two")))
    settled = after(two(2, 2), gang)
    assert admitted(settled) == ["gang"]
    assert settled.admitted[0].flavors == ({GPU: "f1"}, {GPU: "f2"})
