"""The simulation of Kueue's admission with 10 to 1,000 queues, ten workloads each: time and growth.

`python -m benchmarks.kueue` prints a line for each shape, mode and size. Shapes:

- departments: a tree for every ten queues; they reclaim from one another.
- one tree: all queues in one, which admits what fits; nobody preempts.
- one tree that reclaims: all queues in one, and everybody takes back.

Workloads come all at once, or one after another with everything at rest in between, as in a recorded scenario. In one
tree in which everybody takes back at once, most heads of a cycle want the same victims and only the first gets them, in
Kueue as here: this grows with the square, and is measured up to the sizes named in `SHAPES`.
"""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

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
    Settled,
    Simulation,
    Tenancy,
    Workload,
    settle,
)

SIZES: Final = (10, 100, 300, 1000)
EACH: Final = 10
"""Workloads for each queue."""
ROUNDS: Final = 3
SHORT: Final = 10.0
"""Seconds above which one round is enough."""
GPU: Final = "nvidia.com/gpu"
RECLAIM: Final = Preemption(Policy.LOWER, Policy.ANY)


def one_by_one(tenancy: Tenancy, workloads: Iterable[Workload]) -> Settled:
    """Each comes when the one before it has come to rest."""
    simulation = Simulation(tenancy)
    restless: tuple[tuple[str, ...], ...] = ()
    for workload in workloads:
        simulation.submit(workload)
        restless = simulation.rest()
    return simulation.settled(restless)


@dataclass(frozen=True, slots=True)
class Shape:
    """How the queues stand to one another, and up to how many of them are measured: without fair sharing and with."""

    name: str
    roots: bool
    preemption: Preemption
    play: Callable[[Tenancy, list[Workload]], Settled]
    maximum: tuple[int, int]


SHAPES: Final = (
    Shape("departments, all at once", roots=True, preemption=RECLAIM, play=settle, maximum=(1000, 1000)),
    Shape("departments, one by one", roots=True, preemption=RECLAIM, play=one_by_one, maximum=(1000, 1000)),
    Shape("one tree, all at once", roots=False, preemption=Preemption(), play=settle, maximum=(1000, 1000)),
    Shape("one tree, one by one", roots=False, preemption=Preemption(), play=one_by_one, maximum=(1000, 1000)),
    Shape("one tree that reclaims, one by one", roots=False, preemption=RECLAIM, play=one_by_one, maximum=(300, 10)),
    Shape("one tree that reclaims, all at once", roots=False, preemption=RECLAIM, play=settle, maximum=(300, 10)),
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
    """Seconds until all is at rest, the best of some rounds, and who runs then."""
    cluster, waiting = tenancy(queues, shape, fair), workloads(queues)
    rounds: list[float] = []
    while True:
        began = time.perf_counter()
        settled = shape.play(cluster, waiting)
        rounds.append(time.perf_counter() - began)
        if len(rounds) == ROUNDS or min(rounds) > SHORT:
            return min(rounds), settled


def main() -> None:
    """Measures every shape and size in both modes and prints a line for each."""
    for shape in SHAPES:
        for mode, fair in (("fair sharing off", None), ("fair sharing on", FAIR)):
            before = 0.0
            for queues in (size for size in SIZES if size <= shape.maximum[fair is not None]):
                best, settled = measure(queues, shape, fair)
                growth = f", {best / before:.1f} times as long" if before else ""
                print(
                    f"{shape.name}, {mode}, {queues} queues, {queues * EACH} workloads: {best:.2f} s{growth}; "
                    f"{len(settled.admitted)} run, {len(settled.evicted)} evictions, {len(settled.livelock)} livelocks",
                    flush=True,
                )
                before = best


if __name__ == "__main__":
    main()
