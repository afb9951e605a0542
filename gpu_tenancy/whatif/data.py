"""Simulated and played scenarios for programs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.simulation.scenarios import (
    Event,
    GaveWay,
    JobStep,
    Moment,
    Running,
    StepResult,
    Waiting,
    holdings,
    meaning,
)
from gpu_tenancy.whatif.narrative import Played


def played_data(played: Played) -> dict[str, Any]:
    """Each moment with its jobs, its evictions and their reasons, and the usage of each team and flavor."""
    return {
        "moments": [_moment(played.tree, moment) for moment in played.moments],
        "notModelled": list(played.left_out),
    }


def _moment(tree: Tree, moment: Moment) -> dict[str, Any]:
    """A state with its jobs, and the usage of each team and flavor."""
    evicted = [_job(job) | {"means": meaning(job.reason)} for job in moment.evicted]
    return asdict(moment) | {
        "running": [_job(job) for job in moment.running],
        "waiting": [_job(job) for job in moment.waiting],
        "evicted": evicted,
        "teams": [asdict(held) for held in holdings(tree, moment)],
    }


def _job(job: Running | Waiting | GaveWay) -> dict[str, Any]:
    """A job; only one without GPUs has `amounts`, its CPU and memory in base units."""
    fields = asdict(job)
    return fields if job.amounts else {key: value for key, value in fields.items() if key != "amounts"}


class Recorder:
    """Keeps the events of each step."""

    def __init__(self) -> None:
        self.events: list[list[Event]] = []

    def begin(self, step: JobStep) -> None:  # noqa: ARG002 - of the protocol
        """A step begins."""
        self.events.append([])

    def event(self, event: Event) -> None:
        """Keeps an event."""
        self.events[-1].append(event)

    def end(self, result: StepResult) -> None:
        """A step has ended."""


def demo_data(
    tree: Tree, results: Sequence[StepResult], events: Sequence[Sequence[Event]], left_out: Sequence[str]
) -> dict[str, Any]:
    """Each step with its events, and the state that the simulation foresaw and that of a cluster; null for none."""
    steps = [_step(tree, result, told) for result, told in zip(results, events, strict=True)]
    return {"steps": steps, "notModelled": list(left_out)}


def _step(tree: Tree, result: StepResult, events: Sequence[Event]) -> dict[str, Any]:
    return {
        "label": result.step.label,
        "events": [{key: value for key, value in asdict(event).items() if value} for event in events],
        "foreseen": _moment(tree, result.foreseen),
        "live": _moment(tree, result.live) if result.live else None,
        "agrees": result.agrees,
    }
