"""What would happen to a workload that is submitted now, by simulating Kueue on the cluster's current state."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.inspect.queues import Queues
from gpu_tenancy.inspect.snapshot import NotSimulated, SimulationGap, Suits, settled
from gpu_tenancy.inspect.workloads import PodSet
from gpu_tenancy.kueue import Unmodelled

_NAME: Final = "this workload"


@dataclass(frozen=True, slots=True)
class Forecast:
    """The simulated outcome.

    Attributes:
        admitted: whether the workload would be admitted.
        preempted: workloads that would be preempted, as `namespace/name`.
        why: why it would be pending; empty where it would not.
        left_out: what the cluster uses and the simulation does not cover.
    """

    admitted: bool
    preempted: tuple[str, ...]
    why: str
    left_out: tuple[Unmodelled, ...] = ()


def forecast(queues: Queues, target: str, sets: Sequence[PodSet], priority: int) -> Forecast | NotSimulated:
    """Submits a workload to a ClusterQueue of the current cluster, after all that is pending already."""
    begun = settled(queues, target)
    if isinstance(begun, NotSimulated):
        return begun
    snapshot, simulation = begun
    before = {workload.name for workload in simulation.settled().admitted}
    simulation.submit(Suits(queues).workload(_NAME, target, sets, priority))
    if simulation.rest():
        return NotSimulated(SimulationGap.LIVELOCK)
    after = simulation.settled()
    admitted = {workload.name for workload in after.admitted}
    why = next((workload.why for workload in after.pending if workload.name == _NAME), "")
    return Forecast(_NAME in admitted, tuple(sorted(before - admitted)), why, snapshot.left_out)
