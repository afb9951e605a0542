"""ClusterQueues of a cluster: what each can use now and at most, who borrows, who lends, and how they are read."""

from typing import Any

import pytest
from live_builders import GPU, Data, cluster_queue, cohort

from gpu_tenancy.cluster.cluster_queues import quotas_of, read_cluster_queue, read_cohort
from gpu_tenancy.kueue import Policy, Quotas, Tenancy

LINE = ("a100", GPU)


def quotas(*manifests: Data, cohorts: tuple[Data, ...] = ()) -> Quotas:
    queues = [read_cluster_queue(manifest) for manifest in manifests]
    specs = tuple(queue.spec for queue in queues)
    return quotas_of(Tenancy(specs, tuple(read_cohort(cohort) for cohort in cohorts)), queues)


def test_a_queue_alone_has_its_own_and_no_more() -> None:
    found = quotas(cluster_queue("a", used=3))
    assert (found.available("a", LINE), found.potential_available("a", LINE), found.borrowed("a", LINE)) == (5, 8, 0)


def test_a_queue_borrows_up_to_its_borrowing_limit() -> None:
    queues = (
        cluster_queue("a", "org", used=24, borrowingLimit=24),
        cluster_queue("b", "org", used=8, nominalQuota=0, borrowingLimit=8),
    )
    found = quotas(*queues, cohorts=(cohort("org", nominal=24),))
    # As Kueue 0.19.2 said of these numbers: 8 more needed of 8, maximum capacity 32.
    assert (found.available("a", LINE), found.potential_available("a", LINE)) == (0, 32)
    assert (found.available("b", LINE), found.potential_available("b", LINE)) == (0, 8)
    assert found.borrowers("a", LINE) == {"b": 8}
    assert found.borrowers("b", LINE) == {"a": 16}


@pytest.mark.parametrize(("lending", "available", "limit"), [(None, 16, 16), (0, 8, 8), (3, 11, 11)])
def test_quota_beyond_the_lending_limit_is_not_lent(lending: int | None, available: int, limit: int) -> None:
    bound = {} if lending is None else {"lendingLimit": lending}
    found = quotas(cluster_queue("a", "org"), cluster_queue("b", "org", **bound))
    assert (found.available("a", LINE), found.potential_available("a", LINE)) == (available, limit)
    assert (found.available("b", LINE), found.potential_available("b", LINE)) == (16, 16)


def test_a_groups_borrowing_limit_bounds_its_queues_together() -> None:
    groups = (cohort("org", nominal=24), cohort("g", "org", nominal=0, borrowingLimit=4))
    found = quotas(cluster_queue("a", "g"), cluster_queue("b", "g", used=12), cohorts=groups)
    assert found.potential_available("a", LINE) == 20
    assert found.available("a", LINE) == 8


def test_an_implicit_cohort_has_no_quota_of_its_own() -> None:
    found = quotas(cluster_queue("a", "nowhere"), cluster_queue("b", "nowhere"))
    assert found.potential_available("a", LINE) == 16


def test_groups_in_a_ring_end_no_walk() -> None:
    ring = (cohort("x", "y"), cohort("y", "x"))
    found = quotas(cluster_queue("a", "x"), cohorts=ring)
    assert found.potential_available("a", LINE) == 8


def test_quota_below_usage_gives_negative_available_quota() -> None:
    assert quotas(cluster_queue("a", used=12)).available("a", LINE) == -4


# Lent.


def lent(*queues: Data, cohorts: tuple[Data, ...] = ()) -> dict[str, int]:
    found = quotas(*queues, cohorts=cohorts)
    names = [queue["metadata"]["name"] for queue in queues]
    return {name: found.lent(name, LINE) for name in names}


def test_an_idle_guarantee_is_lent_as_far_as_others_have_it() -> None:
    assert lent(cluster_queue("a", "org", used=2), cluster_queue("b", "org", used=12)) == {"a": 4, "b": 0}


def test_unguaranteed_quota_is_borrowed_first() -> None:
    queues = (cluster_queue("a", "org"), cluster_queue("b", "org", used=12))
    assert lent(*queues, cohorts=(cohort("org", nominal=4),)) == {"a": 0, "b": 0}
    assert lent(*queues, cohorts=(cohort("org", nominal=3),)) == {"a": 1, "b": 0}


def test_each_lender_lends_at_most_the_missing_amount() -> None:
    queues = (cluster_queue("a", "org"), cluster_queue("b", "org", used=5), cluster_queue("c", "org", used=12))
    assert lent(*queues) == {"a": 4, "b": 3, "c": 0}


def test_a_team_with_lending_limit_0_lends_nothing() -> None:
    assert lent(cluster_queue("a", "org", lendingLimit=0), cluster_queue("b", "org", used=8))["a"] == 0


def test_a_group_lends_to_another_what_its_queues_leave() -> None:
    groups = (cohort("g", "org"), cohort("h", "org"))
    queues = (cluster_queue("a", "g", used=1), cluster_queue("b", "h", used=11))
    assert lent(*queues, cohorts=groups) == {"a": 3, "b": 0}


# Reading.


def test_a_queue_is_read_with_its_policies_and_its_state() -> None:
    manifest: Any = cluster_queue("a", "org", used=None)
    queue = read_cluster_queue(manifest)
    assert (queue.counted, queue.inactive, queue.strict, queue.invalid) == (False, "", False, "")
    assert (queue.spec.preemption.reclaim, queue.spec.preemption.borrow) == (Policy.ANY, None)
    manifest["spec"]["preemption"] = {
        "reclaimWithinCohort": "LowerPriority",
        "borrowWithinCohort": {"policy": "LowerPriority"},
    }
    lower = read_cluster_queue(manifest).spec.preemption
    assert lower.reclaim is Policy.LOWER
    assert lower.borrow is not None
    manifest["spec"]["stopPolicy"] = "Hold"
    manifest["spec"]["queueingStrategy"] = "StrictFIFO"
    manifest["spec"]["preemption"]["reclaimWithinCohort"] = "Never"
    stopped = read_cluster_queue(manifest)
    assert (stopped.inactive, stopped.stop_policy, stopped.strict) == ("stopPolicy is Hold", "Hold", True)
    assert stopped.spec.preemption.reclaim is Policy.NEVER


def test_a_policy_that_kueue_does_not_know_counts_as_the_default() -> None:
    manifest: Any = cluster_queue("a", "org")
    manifest["spec"]["preemption"] = {"reclaimWithinCohort": "Sometimes"}
    queue = read_cluster_queue(manifest)
    assert queue.spec.preemption.reclaim is Policy.NEVER
    assert queue.invalid == "'Sometimes' is not a valid Policy"


def test_an_inactive_queue_shows_kueues_message() -> None:
    manifest = cluster_queue("a")
    words = "Can't admit new workloads: references missing ResourceFlavor(s): a100."
    manifest["status"]["conditions"] = [
        {"type": "Active", "status": "False", "reason": "FlavorNotFound", "message": words}
    ]
    assert read_cluster_queue(manifest).inactive == words
