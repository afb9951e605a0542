"""What the last scheduling cycle decided on a workload, and why."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple


class Outcome(Enum):
    """What a scheduling cycle did with the head of a ClusterQueue."""

    ADMITTED = auto()
    PREEMPTING = auto()
    NO_FIT = auto()
    NO_CANDIDATES = auto()
    NO_LONGER_FITS = auto()
    OVERLAPPING_TARGETS = auto()


class FlavorReason(NamedTuple):
    """Why a pod set does not fit in a flavor.

    Attributes:
        flavor: empty if no resource group covers the resource.
        requested: by this pod set and those before it.
        missing: the unused quota that is missing; 0 if the flavor is ruled out regardless of usage.
        maximum: the maximum capacity of the ClusterQueue; None if the flavor does not match the pods.
    """

    resource: str
    flavor: str
    requested: int
    missing: int
    maximum: int | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a workload's last cycle.

    Attributes:
        reasons: why flavors did not fit.
        targets: names of the workloads to preempt.
    """

    outcome: Outcome
    reasons: tuple[FlavorReason, ...] = ()
    targets: tuple[str, ...] = ()
