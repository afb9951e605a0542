"""A timeline for programs."""

from dataclasses import asdict
from typing import Any

from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.simulation.scenarios import Moment, PreemptedJob, Running, Waiting, holdings, meaning
from gpu_tenancy.whatif.timeline import PlayedStep, Timeline


def timeline_data(timeline: Timeline) -> dict[str, Any]:
    """Each step with its events, and the state that the simulation foresaw and that of a cluster; null for none."""
    return {
        "steps": [_step(timeline.tree, step) for step in timeline.steps],
        "notModelled": list(timeline.left_out),
    }


def _step(tree: Tree, step: PlayedStep) -> dict[str, Any]:
    result = step.result
    return {
        "label": step.label,
        "events": [{key: value for key, value in asdict(event).items() if value} for event in step.events],
        "foreseen": _moment(tree, result.foreseen),
        "live": _moment(tree, result.live) if result.live else None,
        "agrees": result.agrees,
    }


def _moment(tree: Tree, moment: Moment) -> dict[str, Any]:
    """A state with its jobs, and the usage of each team and flavor."""
    return asdict(moment) | {
        "running": [_job(job) for job in moment.running],
        "waiting": [_job(job) for job in moment.waiting],
        "evicted": [_job(job) | {"means": meaning(job.reason)} for job in moment.evicted],
        "teams": [asdict(held) for held in holdings(tree, moment)],
    }


def _job(job: Running | Waiting | PreemptedJob) -> dict[str, Any]:
    """A job; only one without GPUs has `amounts`, its CPU and memory in base units."""
    fields = asdict(job)
    return fields if job.amounts else {key: value for key, value in fields.items() if key != "amounts"}
