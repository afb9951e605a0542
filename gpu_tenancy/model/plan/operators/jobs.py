"""Helm values of Volcano, and of the operators that run kinds of jobs."""

from typing import Any, Final

import yaml

from gpu_tenancy.model.catalogue.releases import charts
from gpu_tenancy.model.plan.gpu_operator import Values
from gpu_tenancy.model.plan.operators.needs import framework_used, there
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


def kuberay_values(stack: Stack) -> Values:
    """Values of KubeRay: its metrics, where Prometheus collects them."""
    return {"metrics": {"serviceMonitor": {"enabled": there(stack, "prometheus")}}}


def lws_values(stack: Stack) -> Values:
    """Values of LeaderWorkerSet: its metrics, and the image of its version, in place of the moving tag `main`."""
    version = stack.operators.lws.version or charts()["lws"].version
    tag = f"v{version.removeprefix('v')}"
    return {
        "enablePrometheus": there(stack, "prometheus"),
        "image": {"manager": {"tag": tag, "pullPolicy": "IfNotPresent"}},
    }
