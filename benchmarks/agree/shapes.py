"""The classes of scenarios: what each draws beside plain queues in one cohort."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Shape:
    """One class.

    Attributes:
        equal: all queues have the same quota.
        zero: part of the queues that have no nominal quota.
        weights: part of the queues and cohorts with a weight.
        lending: part of the quotas with a lending limit.
        levels: depth of the tree of cohorts; 1 is a flat one.
        flavors: numbers of flavors to choose from.
        second: part of the scenarios with CPUs beside GPUs.
        strict: part of the queues with `StrictFIFO`.
        priorities: part of the workloads with a priority class.
        gangs: part of the workloads with several pods.
        odd: part of the queues that lack a flavor; half as many have no cohort; and part of the scenarios whose root
            cohort is only named, by queues and other cohorts.
        borrowers: part of the queues with `borrowWithinCohort`, without fair sharing; Kueue has it only there.
        modes: fair sharing off, on.
    """

    name: str
    equal: bool = False
    zero: float = 0.0
    weights: float = 0.0
    lending: float = 0.0
    levels: int = 1
    flavors: tuple[int, ...] = (1,)
    second: float = 0.0
    strict: float = 0.0
    priorities: float = 0.0
    gangs: float = 0.0
    odd: float = 0.0
    borrowers: float = 0.0
    modes: tuple[bool, ...] = (False, True)


SHAPES: Final = (
    Shape("flat-equal", equal=True, second=0.25),
    Shape("flat-weights", weights=1.0, zero=0.1, second=0.25),
    Shape("tree", levels=3, weights=0.5, lending=0.2, zero=0.15),
    Shape("priorities", priorities=0.8, second=0.15),
    Shape("lending", lending=0.7, zero=0.1),
    Shape("fifo", strict=0.7, priorities=0.1),
    Shape("two-flavors", flavors=(2,), zero=0.3, lending=0.3, priorities=0.2),
    Shape("gang", gangs=0.7, strict=0.25, second=0.2),
    Shape("guarantee-zero", zero=0.5),
    Shape(
        "mixed",
        zero=0.2,
        weights=0.7,
        lending=0.3,
        levels=4,
        flavors=(1, 2, 2, 3),
        second=0.35,
        strict=0.25,
        priorities=0.7,
        gangs=0.3,
        odd=0.2,
        borrowers=0.25,
    ),
    Shape("borrow-within-cohort", priorities=0.9, borrowers=0.7, modes=(False,)),
)
