"""How long pending workloads wait, if the workloads ahead of them run as long as expected."""

import heapq
from collections.abc import Callable
from typing import TypeAlias

from gpu_tenancy.kueue.simulation import Simulation

Lasts: TypeAlias = Callable[[str], float | None]
"""Seconds that a workload runs, by name; None: unknown."""


def waits(
    simulation: Simulation, left: Lasts, whole: Lasts, *, most: int, until: str | None = None
) -> tuple[dict[str, float], bool]:
    """Seconds until pending workloads are admitted, if nothing else is submitted.

    Args:
        simulation: at rest; it is changed.
        left: how much longer those run that run now. One that is unknown does not end.
        whole: how long those run that start later; one that was preempted starts again.
        most: ends that are simulated.
        until: a workload with whose admission it is done; default: as many as possible.

    Returns:
        By name, without those that are not admitted after these ends, or when none is left; 0 for those that run. And
        whether more ends would come.
    """
    running = simulation.running
    found = dict.fromkeys(running, 0.0)
    ends = {other: seconds for other in running if (seconds := left(other)) is not None}
    due = [(end, other) for other, end in ends.items()]
    heapq.heapify(due)
    while due and most and until not in found:
        now, ended = heapq.heappop(due)
        if ends.get(ended) != now:
            continue  # It was preempted before.
        most -= 1
        del ends[ended]
        simulation.finish(ended)
        if simulation.rest():
            break  # Workloads preempt one another endlessly: nobody knows what runs.
        after = simulation.running
        for stopped in running - after:
            ends.pop(stopped, None)
        for started in after - running:
            found.setdefault(started, now)
            if (seconds := whole(started)) is not None:
                ends[started] = now + seconds
                heapq.heappush(due, (now + seconds, started))
        running = after
    return found, bool(due and not most)
