"""Kueue's reasons for a preemption, explained for the owner of the preempted job."""

from typing import Final

_MEANS: Final = {
    "InClusterQueue": "a job of the same queue has a higher priority or, if the queue allows it, is older",
    "InCohortReclamation": "its quota was borrowed, and the team or group to which it is guaranteed reclaimed it",
    "InCohortFairSharing": "its team used more than its fair share by weight, and the other team less",
    "InCohortReclaimWhileBorrowing": "its quota was borrowed, and a job of higher priority may preempt it to borrow",
}
"""By the reasons of the condition `Preempted` of Kueue 0.19 (apis/kueue/v1beta2/workload_types.go)."""


_WORDS: Final = {
    "InClusterQueue": "prioritization in the ClusterQueue",
    "InCohortReclamation": "reclamation within the cohort",
    "InCohortFairSharing": "Fair Sharing within the cohort",
    "InCohortReclaimWhileBorrowing": "reclamation within the cohort while borrowing",
}
"""Kueue's own words for them in events and conditions (`HumanReadablePreemptionReasons` in
pkg/scheduler/preemption/preemption.go of v0.19.2)."""


def words(reason: str) -> str:
    """Kueue's words for a reason; an unknown reason as it is."""
    return _WORDS.get(reason, reason)


def meaning(reason: str) -> str:
    """The meaning of a reason for the preempted workload; an unknown reason as it is."""
    return _MEANS.get(reason, reason)
