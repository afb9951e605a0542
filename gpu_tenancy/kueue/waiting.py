"""How long a pending workload waits, if the workloads ahead of it run as long as expected."""

import heapq
from collections.abc import Callable
from typing import TypeAlias

from gpu_tenancy.kueue.simulation import Simulation

Lasts: TypeAlias = Callable[[str], float | None]
"""Seconds that a workload runs, by name; None: unknown."""


def waits(simulation: Simulation, name: str, left: Lasts, whole: Lasts, *, most: int) -> float | None:
    """Seconds until a workload is admitted, if nothing else is submitted.

    Args:
        simulation: at rest; it is changed.
        name: of the pending workload.
        left: how much longer those run that run now. One that is unknown does not end.
        whole: how long those run that start later; one that was preempted starts again.
        most: ends that are simulated.

    Returns:
        None if it is not admitted after these ends, or when none is left, or workloads preempt one another endlessly.
    """
    running = _admitted(simulation)
    if name in running:
        return 0.0
    ends = {other: seconds for other in running if (seconds := left(other)) is not None}
    due = [(end, other) for other, end in ends.items()]
    heapq.heapify(due)
    while due and most:
        now, ended = heapq.heappop(due)
        if ends.get(ended) != now:
            continue  # It was preempted before.
        most -= 1
        del ends[ended]
        simulation.finish(ended)
        if simulation.rest():
            return None
        after = _admitted(simulation)
        if name in after:
            return now
        for stopped in running - after:
            ends.pop(stopped, None)
        for started in after - running:
            if (seconds := whole(started)) is not None:
                ends[started] = now + seconds
                heapq.heappush(due, (now + seconds, started))
        running = after
    return None


def _admitted(simulation: Simulation) -> frozenset[str]:
    return frozenset(workload.name for workload in simulation.settled().admitted)
