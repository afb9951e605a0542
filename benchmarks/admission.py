"""The simulation of Kueue's admission with 10, 100 and 1,000 queues, ten waiting workloads each: time and growth.

`python -m benchmarks.admission` prints a line for each shape, mode and size:

- departments: a tree for every ten queues; they reclaim from one another.
- one tree: all queues in one, which admits what fits; nobody preempts.
- one tree that reclaims: all queues in one, and everybody takes back at once. Each cycle most heads want the same
  victims and only the first gets them, in Kueue as here, so this grows with the square; up to 100 queues, and
  with fair sharing, where workloads evict one another many times, up to 10.
"""

import random
import time
from dataclasses import dataclass
from typing import Final

from model.admission import (
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
    Settled,
    Tenancy,
    Workload,
    settle,
)

SIZES: Final = (10, 100, 1000)
EACH: Final = 10
"""Workloads for each queue."""
ROUNDS: Final = 3
GPU: Final = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Shape:
    """How the queues stand to one another, and up to how many of them are measured: without fair sharing and with."""

    name: str
    roots: bool
    preemption: Preemption
    most: tuple[int, int]


SHAPES: Final = (
    Shape("departments", roots=True, preemption=Preemption(Policy.LOWER, Policy.ANY), most=(1000, 1000)),
    Shape("one tree", roots=False, preemption=Preemption(), most=(1000, 1000)),
    Shape("one tree that reclaims", roots=False, preemption=Preemption(Policy.LOWER, Policy.ANY), most=(100, 10)),
)


def tenancy(queues: int, shape: Shape, fair: tuple[FairStrategy, ...] | None) -> Tenancy:
    """Cohorts of ten queues; each queue guarantees 8 GPUs of each of two flavors and may borrow 24."""
    quotas = tuple(FlavorQuotas(flavor, {GPU: Quota(8, 24)}) for flavor in ("a100", "h100"))
    above = None if shape.roots else "org"
    return Tenancy(
        tuple(
            ClusterQueue(
                f"queue-{n}",
                (ResourceGroup(quotas),),
                f"group-{n // 10}",
                preemption=shape.preemption,
                weight=n % 2 + 1,
            )
            for n in range(queues)
        ),
        tuple(Cohort(f"group-{n}", above) for n in range((queues + 9) // 10)),
        fair,
    )


def workloads(queues: int) -> list[Workload]:
    """More than all quota holds, of several sizes, for queues by chance."""
    chance = random.Random(queues)  # noqa: S311 - the same workloads every time, no secret
    return [
        Workload(f"workload-{n}", f"queue-{chance.randrange(queues)}", (PodSet({GPU: chance.choice((1, 2, 4, 8))}),))
        for n in range(queues * EACH)
    ]


def measure(queues: int, shape: Shape, fair: tuple[FairStrategy, ...] | None) -> tuple[float, Settled]:
    """Seconds until all is at rest, and who runs then."""
    cluster, waiting = tenancy(queues, shape, fair), workloads(queues)
    began = time.perf_counter()
    settled = settle(cluster, waiting)
    return time.perf_counter() - began, settled


def main() -> None:
    """Measures every shape and size in both modes and prints a line for each."""
    for shape in SHAPES:
        for mode, fair in (("fair sharing off", None), ("fair sharing on", FAIR)):
            before = 0.0
            for queues in (size for size in SIZES if size <= shape.most[fair is not None]):
                rounds = [measure(queues, shape, fair) for _ in range(ROUNDS)]
                best, settled = min(rounds, key=lambda each: each[0])
                growth = f", {best / before:.1f} times as long" if before else ""
                print(
                    f"{shape.name}, {mode}, {queues} queues, {queues * EACH} workloads: {best:.2f} s{growth}; "
                    f"{len(settled.admitted)} run, {len(settled.evicted)} evictions, {len(settled.livelock)} livelocks"
                )
                before = best


if __name__ == "__main__":
    main()
