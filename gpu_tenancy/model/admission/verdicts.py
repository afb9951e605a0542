"""What the scheduler says about a workload that it looked at."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple


class Outcome(Enum):
    """What became of a queue's head in a cycle."""

    ADMITTED = auto()
    PREEMPTING = auto()
    NO_FIT = auto()
    NO_VICTIMS = auto()
    OVERTAKEN = auto()
    CONTESTED_VICTIMS = auto()


class Lack(NamedTuple):
    """Why a flavor does not do.

    Attributes:
        flavor: empty where no resource group covers the resource.
        asked: by this pod set and those before it.
        short: what is missing now; 0 where it is no matter of what is free.
        most: all that the queue could ever have; None where the flavor's labels or taints rule it out.
    """

    pod_set: str
    resource: str
    flavor: str
    asked: int
    short: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome, with what was lacking and whose leaving it waits for."""

    outcome: Outcome
    lacks: tuple[Lack, ...] = ()
    victims: tuple[str, ...] = ()
