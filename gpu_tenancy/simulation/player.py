"""Players of a scenario (the simulation, or a cluster with Kueue), and their results side by side."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from gpu_tenancy.base.quantity import format_amount
from gpu_tenancy.kueue import Settled, Simulation, Workload
from gpu_tenancy.model.plan.queues import tenancy
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.simulation.stage import JobStep, Moment, moment_of, words


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a job; `team` is its queue's team."""

    kind: Literal["admitted", "pending", "preempted", "evicted", "finished"]
    job: str
    team: str
    by: str = ""  # the preempting job, of `by_team`; empty for other events
    by_team: str = ""
    reason: str = ""  # of the condition in Kueue, such as `InCohortReclamation`; empty if it has none
    message: str = ""  # Kueue's text, such as why the job is pending; empty for none


# Team, flavor, GPUs, and other amounts of a running job.
_Kind: TypeAlias = tuple[str, str, int, tuple[tuple[str, int], ...]]
Tell: TypeAlias = Callable[[Event], None]  # takes each event as it happens


def unheard(_: Event) -> None:
    """Ignores an event."""


class Player(Protocol):
    """Plays the steps of a scenario one after another."""

    def play(self, step: JobStep, tell: Tell) -> Moment:
        """Ends and submits a step's jobs, waits until nothing changes, and returns the state with all preemptions."""
        ...


class SimulatedPlayer:
    """A player in the simulation of Kueue, without a cluster."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._simulation = Simulation(tenancy(tree), format_amount)
        self._known: dict[str, Workload] = {}
        self._admitted: set[str] = set()

    def play(self, step: JobStep, tell: Tell) -> Moment:
        """As `Player.play`; the simulation settles after each job that ends or is submitted."""
        states: list[Settled] = []
        for name in step.finish:
            self._simulation.finish(name)
            tell(Event("finished", name, self._known[name].queue))
            states.append(self._rest(tell))
        for job in step.submit:
            self._known[job.name] = job.workload
            self._simulation.submit(job.workload)
            states.append(self._rest(tell))
            for pending in states[-1].pending:
                if pending.name == job.name:
                    tell(Event("pending", job.name, job.queue, message=pending.why))
        last = states[-1] if states else self._rest(tell)
        # With the preemptions and livelocks of all states.
        evicted = tuple(eviction for state in states or [last] for eviction in state.evicted)
        livelock = tuple(dict.fromkeys(queues for state in states or [last] for queues in state.livelock))
        return moment_of(self._tree, step.label, Settled(last.admitted, last.pending, evicted, livelock), self._known)

    def _rest(self, tell: Tell) -> Settled:
        settled = self._simulation.settled(self._simulation.rest())
        for evicted in settled.evicted:
            queue, by_queue = (self._known[name].queue for name in (evicted.name, evicted.by))
            reason = str(evicted.reason)
            tell(Event("preempted", evicted.name, queue, evicted.by, by_queue, reason, words(reason)))
            self._admitted.discard(evicted.name)
        for admitted in settled.admitted:
            if admitted.name not in self._admitted:
                tell(Event("admitted", admitted.name, admitted.queue))
        self._admitted = {admitted.name for admitted in settled.admitted}
        return settled


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step with its events, its state in the simulation, and its state in a cluster if one played."""

    step: JobStep
    foreseen: Moment
    live: Moment | None = None
    events: tuple[Event, ...] = ()

    @property
    def label(self) -> str:
        """`2. submit big`."""
        return self.step.label

    @property
    def shown(self) -> Moment:
        """The state of the cluster, or of the simulation if it played alone."""
        return self.live or self.foreseen

    @property
    def differences(self) -> dict[str, int]:
        """Teams whose running jobs, by flavor and size, differ from the simulation's, with their foreseen number.

        Kueue chooses between equal jobs by their random UIDs, so the running and preempted jobs themselves may differ.
        """
        if self.live is None:
            return {}
        foreseen, live = _running(self.foreseen), _running(self.live)
        teams = dict.fromkeys(kind[0] for kind in (*foreseen, *live) if foreseen[kind] != live[kind])
        return {team: sum(count for kind, count in foreseen.items() if kind[0] == team) for team in teams}

    @property
    def agrees(self) -> bool | None:
        """Whether the cluster matches the simulation; None without a cluster."""
        return None if self.live is None else not self.differences


def _running(moment: Moment) -> Counter[_Kind]:
    return Counter((job.team, job.flavor, job.gpus, tuple(sorted(job.amounts.items()))) for job in moment.running)
