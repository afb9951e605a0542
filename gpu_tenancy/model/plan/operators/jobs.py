"""Values of the charts that run jobs beside Kueue: Volcano's and Kubeflow Trainer's."""

from typing import Any, Final

import yaml

from gpu_tenancy.model.plan.gpu_operator import Values
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
"""`capacity` in place of the chart's `proportion`, which shares by weight and heeds no guarantee (the two exclude each
other), and `reclaim`, which takes a guarantee back:
https://github.com/volcano-sh/volcano/blob/v1.15.1/docs/user-guide/how_to_use_capacity_plugin.md"""


def volcano_values(stack: Stack) -> Values:
    """Volcano's: the chart's own scheduler configuration, unless a team's gangs are guaranteed something."""
    guaranteed = any(gang.guaranteed for team in stack.teams.values() for gang in team.gangs.values())
    if not guaranteed:
        return {}
    return {"custom": {"scheduler_config_override": yaml.safe_dump(_SCHEDULER, sort_keys=False)}}


def trainer_values(stack: Stack) -> Values:
    """Kubeflow Trainer's: with JobSet, and the runtime that the TrainJobs made here name, which is off by default."""
    del stack
    return {"jobset": {"install": True}, "runtimes": {"torchDistributed": {"enabled": True}}}
