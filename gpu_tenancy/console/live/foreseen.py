"""What would become of a workload that came now, by the simulation of Kueue on the cluster's own state."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.console.live.queues import Queues
from gpu_tenancy.console.live.scene import Suits, scene
from gpu_tenancy.console.live.workloads import PodSet

_NAME: Final = "this one"
_SHOWN: Final = 5
LEFT_OUT: Final = "what the simulation does not know, and this queue uses"
ENDLESS: Final = "its tree never comes to rest: workloads there evict one another for ever, in Kueue too"


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What the simulation says.

    Attributes:
        runs: whether it would be admitted.
        gone: workloads that would have to give way, as `namespace/name`.
        why: why it would wait; empty where it would not.
        left_out: what the simulation does not know and the cluster uses; empty for nothing.
    """

    runs: bool
    gone: tuple[str, ...]
    why: str
    left_out: str = ""

    @property
    def words(self) -> str:
        """It in a sentence."""
        if not self.runs:
            return f"simulated, if it came now it would {waits(self.why)}"
        if not self.gone:
            return "simulated, if it came now it would be admitted, and nobody would give way"
        return f"simulated, if it came now it would be admitted, and {named(self.gone)} would give way"


def foresee(queues: Queues, target: str, sets: Sequence[PodSet], priority: int) -> Foreseen | str:
    """Puts a workload into a ClusterQueue of the cluster as it is now, after all that waits already.

    Returns:
        Why it cannot be played, where it cannot.
    """
    found = scene(queues, target)
    if isinstance(found, str):
        return found
    simulation = found.play()
    if simulation.rest():
        return ENDLESS
    before = {each.name for each in simulation.settled().admitted}
    simulation.submit(Suits(queues).workload(_NAME, target, sets, priority))
    if simulation.rest():
        return ENDLESS
    after = simulation.settled()
    running = {each.name for each in after.admitted}
    why = next((each.why for each in after.pending if each.name == _NAME), "")
    return Foreseen(_NAME in running, tuple(sorted(before - running)), why, found.left_out)


def named(names: Sequence[str]) -> str:
    """Workloads by their names, the first few of many."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def waits(why: str) -> str:
    """`wait`, and why, as what comes after a verb: some reasons begin with it."""
    return why.replace("waits ", "wait ", 1) if why.startswith("waits ") else f"wait: {why}"
