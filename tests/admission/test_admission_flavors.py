"""Flavors: their order, and whether the search goes past one that needs borrowing or preemption."""

from typing import Any

from admission_builders import GPU, after, arriving, evicted, group, running, waiting, work

from gpu_tenancy.model.admission import (
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
    """The flavor of each workload's GPUs."""
    return {each.name: each.flavors[0][GPU] for each in settled.admitted}


def two(first: int, second: int, lent: int = 0, **rules: Any) -> Tenancy:
    """Queue a with two flavors, and queue b that has as much of the first to lend."""
    return Tenancy(
        (
            ClusterQueue("a", group(f1=Quota(first), f2=Quota(second)), "org", **rules),
            ClusterQueue("b", group(f1=Quota(lent)), "org"),
        )
    )


def test_the_first_flavor_that_has_room_is_taken() -> None:
    assert flavors(after(two(2, 2), work("one", "a", 2), work("two", "a", 2))) == {"one": "f1", "two": "f2"}


def test_a_flavor_that_would_have_to_borrow_is_taken_before_one_with_room_of_its_own() -> None:
    assert flavors(after(two(1, 2, lent=1), work("one", "a", 2))) == {"one": "f1"}


def test_the_search_goes_past_borrowing_where_the_queue_says_so() -> None:
    rules = Fungibility(when_can_borrow=Fungible.NEXT)
    assert flavors(after(two(1, 2, 1, fungibility=rules), work("one", "a", 2))) == {"one": "f2"}
    assert flavors(after(two(1, 1, 1, fungibility=rules), work("one", "a", 2))) == {"one": "f1"}


def test_the_search_goes_past_preemption_unless_the_queue_says_otherwise() -> None:
    stops = Fungibility(when_can_preempt=Fungible.STOP)
    within = Preemption(within=Policy.LOWER)
    for rules, expected in ((Fungibility(), {"low": "f1", "high": "f2"}), (stops, {"low": "f2", "high": "f1"})):
        found = arriving(
            two(2, 2, preemption=within, fungibility=rules), [work("low", "a", 2)], [work("high", "a", 2, 1)]
        )
        assert flavors(found) == expected


def test_of_two_flavors_the_queue_may_prefer_to_preempt_rather_than_to_borrow() -> None:
    both = Fungibility(Fungible.NEXT, Fungible.NEXT, Preference.PREEMPT)
    borrow = Fungibility(Fungible.NEXT, Fungible.NEXT)
    within = Preemption(within=Policy.LOWER)
    for rules, expected in ((borrow, []), (both, [("low", "high", "InClusterQueue")])):
        tenancy = Tenancy(
            (
                ClusterQueue("a", group(f1=Quota(2), f2=Quota(0)), "org", preemption=within, fungibility=rules),
                ClusterQueue("b", group(f2=Quota(2)), "org"),
            )
        )
        found = arriving(tenancy, [work("low", "a", 2)], [work("high", "a", 2, 1)])
        assert evicted(found) == expected


def test_all_resources_of_a_group_come_from_one_flavor() -> None:
    groups = ResourceGroup(
        (
            FlavorQuotas("f1", {GPU: Quota(8), "cpu": Quota(1)}),
            FlavorQuotas("f2", {GPU: Quota(2), "cpu": Quota(8)}),
        )
    )
    found = after(Tenancy((ClusterQueue("a", (groups,)),)), Workload("one", "a", (PodSet({GPU: 2, "cpu": 2}),)))
    assert found.admitted[0].flavors == ({GPU: "f2", "cpu": "f2"},)


def test_a_flavor_that_does_not_suit_the_pods_is_passed_over() -> None:
    picky = Workload("one", "a", (PodSet({GPU: 1}, flavors=frozenset({"f2"})),))
    assert flavors(after(two(2, 2), picky)) == {"one": "f2"}
    found = after(two(2, 0), picky)
    assert waiting(found) == {"one": f"insufficient quota for {GPU} in flavor f2, request > maximum capacity (1 > 0)"}


def test_pod_sets_may_have_flavors_of_their_own() -> None:
    gang = Workload("gang", "a", (PodSet({GPU: 2}, name="one"), PodSet({GPU: 2}, name="two")))
    found = after(two(2, 2), gang)
    assert running(found) == ["gang"]
    assert found.admitted[0].flavors == ({GPU: "f1"}, {GPU: "f2"})
