"""Plays a scenario: in the simulation, and on a cluster beside it where there is one."""

from collections.abc import Iterable
from typing import Protocol

from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.simulation.scenarios import Event, JobStep, Player, SimulatedPlayer, StepResult


class Shown(Protocol):
    """Shows a scenario while it is played."""

    def begin(self, step: JobStep) -> None:
        """A step begins."""
        ...

    def event(self, event: Event) -> None:
        """Something happened to a job."""
        ...

    def end(self, result: StepResult) -> None:
        """A step has ended: nothing changes any more."""
        ...


def play_demo(tree: Tree, scenario: Iterable[JobStep], shown: Shown, live: Player | None = None) -> list[StepResult]:
    """Plays the steps one after another.

    Args:
        tree: of the stack.
        scenario: the steps.
        shown: gets the events of the cluster if there is one, else those of the simulation.
        live: plays the steps on a cluster; None for the simulation alone.

    Returns:
        The result of each step.
    """
    simulated = SimulatedPlayer(tree)
    results: list[StepResult] = []
    for step in scenario:
        shown.begin(step)
        foreseen = simulated.play(step, shown.event if live is None else _unheard)
        results.append(StepResult(step, foreseen, None if live is None else live.play(step, shown.event)))
        shown.end(results[-1])
    return results


def _unheard(_: Event) -> None:
    """Events of the simulation are not shown beside those of a cluster."""
