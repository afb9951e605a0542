"""A simulated scenario as JSON for programs."""

import json
from dataclasses import asdict
from typing import Any

from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.simulation.scenarios import GaveWay, Moment, Running, Waiting, holdings, meaning
from gpu_tenancy.whatif.narrative import Played


def as_json(played: Played) -> str:
    """Each moment with its jobs, its evictions and their reasons, and the usage of each team and flavor."""
    plain = {
        "moments": [moment_data(played.tree, each) for each in played.moments],
        "notModelled": list(played.left_out),
    }
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


def moment_data(tree: Tree, moment: Moment) -> dict[str, Any]:
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
