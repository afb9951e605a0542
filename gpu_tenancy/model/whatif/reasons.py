"""Kueue's words for an eviction, said so that whoever lost its GPUs understands them."""

from typing import Final

_MEANS: Final = {
    "InClusterQueue": "a job of the same queue goes before it, by priority or, where the queue says so, by age",
    "InCohortReclamation": (
        "what it used was borrowed, and whoever it is guaranteed to, a team or its group, took it back"
    ),
    "InCohortFairSharing": "its team had more than its fair part by weight, and the other team less",
    "InCohortReclaimWhileBorrowing": (
        "what it used was borrowed, and a job of higher priority may take that even to borrow it itself"
    ),
}
"""By the reasons of the condition `Preempted` of Kueue 0.19 (apis/kueue/v1beta2/workload_types.go)."""


def meaning(reason: str) -> str:
    """What a reason means, as a part of a sentence about the workload that gave way; the reason where it is unknown."""
    return _MEANS.get(reason, reason)
