"""The timeline of a simulation: steps with events and states; a load on all queues has one step."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpu_tenancy.model.plan.shares import Measure, Tree, supply_of
from gpu_tenancy.simulation import stage
from gpu_tenancy.simulation.player import Event, Player, SimulatedPlayer, StepResult, unheard

if TYPE_CHECKING:
    from gpu_tenancy.whatif.show import Display


@dataclass(frozen=True)
class Timeline:
    """The steps of a simulation."""

    stack: str
    title: str  # `everyone busy`, or the file of the jobs
    tree: Tree
    steps: tuple[StepResult, ...]
    scenario: bool  # it has single jobs over time
    left_out: tuple[str, ...] = ()  # features of the stack that the simulation does not cover
    notes: tuple[str, ...] = ()  # requests of the jobs of a load

    @property
    def moments(self) -> tuple[stage.Moment, ...]:
        """The state after each step."""
        return tuple(step.shown for step in self.steps)

    @property
    def last(self) -> stage.Moment:
        """The state at the end."""
        return self.moments[-1] if self.steps else stage.Moment("no steps", (), (), (), ())

    @cached_property
    def held(self) -> tuple[stage.Held, ...]:
        """Usage of each team at the end."""
        return tuple(stage.holdings(self.tree, self.last))

    @cached_property
    def counted(self) -> tuple[Measure, ...]:
        """GPUs of flavors, or CPU and memory, that a job used or requested; if none, all that a team may use."""
        jobs = [job for moment in self.moments for job in (*moment.running, *moment.waiting)]
        may = {held.flavor for held in self.held}
        known = [measure for measure in stage.every_measure(self.tree) if measure.label in may]
        touched = [measure for measure in known if any(stage.amount_of(job, measure) for job in jobs)]
        return tuple(touched or known)

    @cached_property
    def held_of_counted(self) -> tuple[stage.Held, ...]:
        """Usage of each team at the end, of the counted resources."""
        labels = {measure.label for measure in self.counted}
        return tuple(held for held in self.held if held.flavor in labels)

    @cached_property
    def jobs(self) -> dict[str, stage.Running]:
        """Every job as in its first step, in the order of submission."""
        jobs: dict[str, stage.Running] = {}
        for moment in self.moments:
            for job in (*moment.running, *moment.waiting):
                jobs.setdefault(job.workload, job)
        return jobs

    @property
    def restless(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Steps that end in a livelock, with their queues."""
        return tuple((moment.label, moment.restless) for moment in self.moments if moment.restless)

    @property
    def agrees(self) -> bool:
        """Whether a cluster matched the simulation in every step; True without a cluster."""
        return all(step.agrees is not False for step in self.steps)

    def preempted(self) -> Iterator[tuple[StepResult, stage.PreemptedJob]]:
        """Preempted jobs, with the step."""
        return ((step, job) for step in self.steps for job in step.shown.evicted)

    def used(self, measure: Measure) -> int:
        """Usage of all teams at the end."""
        return sum(held.runs for held in self.held if held.flavor == measure.label)

    def supply(self, measure: Measure) -> int:
        """Amount that the queues share."""
        return supply_of(self.tree, measure)


def state(moment: stage.Moment, job: str) -> str:
    """`running`, `pending`, or empty if the job does not exist."""
    if any(running.workload == job for running in moment.running):
        return "running"
    return "pending" if any(waiting.workload == job for waiting in moment.waiting) else ""


def play(
    tree: Tree, scenario: Iterable[stage.JobStep], display: "Display | None" = None, live: Player | None = None
) -> tuple[StepResult, ...]:
    """Plays the steps of a scenario, on a cluster if `live` is given; the display gets that player's events."""
    simulated = SimulatedPlayer(tree)
    steps: list[StepResult] = []
    for step in scenario:
        events: list[Event] = []

        def tell(event: Event, events: list[Event] = events) -> None:
            events.append(event)
            if display:
                display.event(event)

        if display:
            display.begin(step)
        foreseen = simulated.play(step, tell if live is None else unheard)
        steps.append(StepResult(step, foreseen, None if live is None else live.play(step, tell), tuple(events)))
        if display:
            display.end(steps[-1])
    return tuple(steps)


def timeline_data(timeline: Timeline) -> dict[str, Any]:
    """Each step with its events, its simulated state, and its state in a cluster; null for none."""
    steps = [
        {
            "label": step.label,
            "events": [{key: value for key, value in asdict(event).items() if value} for event in step.events],
            "foreseen": _moment(timeline.tree, step.foreseen),
            "live": _moment(timeline.tree, step.live) if step.live else None,
            "agrees": step.agrees,
        }
        for step in timeline.steps
    ]
    return {"steps": steps, "notModelled": list(timeline.left_out)}


def _moment(tree: Tree, moment: stage.Moment) -> dict[str, Any]:
    return asdict(moment) | {
        "running": [_job(job) for job in moment.running],
        "waiting": [_job(job) for job in moment.waiting],
        "evicted": [_job(job) | {"means": stage.meaning(job.reason)} for job in moment.evicted],
        "teams": [asdict(held) for held in stage.holdings(tree, moment)],
    }


def _job(job: stage.Running) -> dict[str, Any]:
    """A job; only a job without GPUs has `amounts`, in base units."""
    fields = asdict(job)
    return fields if job.amounts else {key: value for key, value in fields.items() if key != "amounts"}
