"""Helm values of Volcano and Kubeflow Trainer."""

from typing import Any, Final

import yaml

from gpu_tenancy.model.plan.gpu_operator import Values
from gpu_tenancy.model.plan.operators.needs import framework_used
from gpu_tenancy.model.spec import Stack

_SCHEDULER: Final[dict[str, Any]] = {
    "actions": "enqueue, allocate, backfill, reclaim",
    "tiers": [
        {
            "plugins": [
                {"name": "priority"},
                {"name": "gang", "enablePreemptable": False},
                {"name": "conformance"},
            ]
        },
        {
            "plugins": [
                {"name": "drf", "enablePreemptable": False},
                {"name": "predicates"},
                {"name": "capacity"},
                {"name": "nodeorder"},
                {"name": "binpack"},
            ]
        },
    ],
}
"""With the plugin `capacity` instead of the chart's `proportion`, which shares by weight and ignores guarantees (the
two are mutually exclusive), and with the action `reclaim`, which reclaims guaranteed quota:
https://github.com/volcano-sh/volcano/blob/v1.15.1/docs/user-guide/how_to_use_capacity_plugin.md"""


def volcano_values(stack: Stack) -> Values:
    """Values of Volcano: the chart's scheduler configuration, or `_SCHEDULER` if gangs have a guarantee."""
    guaranteed = any(gang.guaranteed for team in stack.teams.values() for gang in team.gangs.values())
    if not guaranteed:
        return {}
    return {"custom": {"scheduler_config_override": yaml.safe_dump(_SCHEDULER, sort_keys=False)}}


def trainer_values(stack: Stack) -> Values:
    """Values of Kubeflow Trainer: JobSet, and its runtimes for users' TrainJobs, which are off by default.

    The TrainJobs of a stack have runtimes of their own. Its runtime of DeepSpeed is off, because its pods request
    no resources and its launcher uses GPUs.
    """
    jax = {"jaxDistributed": {"enabled": True}} if framework_used(stack, "jax") else {}
    return {"jobset": {"install": True}, "runtimes": {"torchDistributed": {"enabled": True}, **jax}}
