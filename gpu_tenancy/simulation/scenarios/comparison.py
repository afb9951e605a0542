"""What a cluster did in a step of a scenario, beside what the simulation foresaw."""

from collections import Counter
from dataclasses import dataclass
from typing import TypeAlias

from gpu_tenancy.simulation.scenarios.jobs import JobStep
from gpu_tenancy.simulation.scenarios.stage import Moment

_Kind: TypeAlias = tuple[str, str, int, tuple[tuple[str, int], ...]]
"""Team, flavor, GPUs, and other amounts of a running job."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Numbers of running jobs of a team, where the simulation foresaw others."""

    team: str
    foreseen: int
    live: int


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one step.

    Attributes:
        step: what ended and what was submitted.
        foreseen: the state in the simulation.
        live: the state in a cluster; None where only the simulation played.
    """

    step: JobStep
    foreseen: Moment
    live: Moment | None = None

    @property
    def shown(self) -> Moment:
        """The state to show: that of the cluster, or of the simulation if it played alone."""
        return self.live or self.foreseen

    @property
    def differences(self) -> tuple[Difference, ...]:
        """Teams that run other jobs than foreseen; empty without a cluster.

        Compared are the numbers of running jobs by team, flavor and size. Kueue chooses between equal jobs by their
        random UIDs, so which of them run, and which were preempted on the way, may differ.
        """
        if self.live is None:
            return ()
        foreseen, live = _running(self.foreseen), _running(self.live)
        teams = dict.fromkeys(kind[0] for kind in (*foreseen, *live) if foreseen[kind] != live[kind])
        return tuple(Difference(team, _of_team(foreseen, team), _of_team(live, team)) for team in teams)

    @property
    def agrees(self) -> bool | None:
        """Whether the cluster did what the simulation foresaw; None without a cluster."""
        return None if self.live is None else not self.differences


def _running(moment: Moment) -> Counter[_Kind]:
    return Counter((job.team, job.flavor, job.gpus, tuple(sorted(job.amounts.items()))) for job in moment.running)


def _of_team(running: Counter[_Kind], team: str) -> int:
    return sum(count for kind, count in running.items() if kind[0] == team)
