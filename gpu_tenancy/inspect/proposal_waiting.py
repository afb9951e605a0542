"""How many running workloads end before pending ones are admitted; Kueue knows no durations, so no time is known."""

from collections import deque
from collections.abc import Iterable
from typing import Final

from gpu_tenancy import kueue

MOST: Final = 100
"""Workloads that end in one cohort tree, one after another, until the others are not followed further."""


def ends_needed(simulation: kueue.Simulation, first: Iterable[str]) -> dict[str, int]:
    """For each pending workload that gets in, how many running ones end before, the one that ran longest first.

    Args:
        simulation: of a cohort tree at rest, which is played on.
        first: names of the running workloads, those that ran longest first; those that get in later end after them.
    """
    settled = simulation.settled()
    running = {one.name for one in settled.admitted}
    order = deque([name for name in first if name in running])
    order.extend(running - set(order))
    waiting = {one.name for one in settled.pending}
    needed: dict[str, int] = {}
    for count in range(1, MOST + 1):
        while order and order[0] not in running:
            order.popleft()
        if not waiting or not order:
            break
        simulation.finish(order.popleft())
        if simulation.rest():
            break
        now = {one.name for one in simulation.settled().admitted}
        needed |= dict.fromkeys(sorted(waiting & now), count)
        order.extend(sorted(now - running))
        waiting, running = waiting - now, now
    return needed
