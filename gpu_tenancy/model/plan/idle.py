"""Idle GPUs of jobs: the CronJob that reads them from Prometheus, and tells or stops their jobs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.plan.people import Subject
from gpu_tenancy.model.plan.signals import prometheus_address
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.teams import Idle

IDLE_GPUS: Final = "idle-gpus"  # namespace of the CronJob, which belongs to no team
RECLAIMER: Final = Subject("ServiceAccount", "reclaim", IDLE_GPUS)


@dataclass(frozen=True, slots=True)
class IdlePlan:
    """The CronJob: the URL of its Prometheus, and the teams whose jobs it looks at."""

    address: str
    teams: Mapping[str, Idle]


def idle_gpus(stack: Stack) -> IdlePlan | None:
    """The CronJob of a stack; None if no team has `idle`."""
    teams = stack.idle_teams
    return IdlePlan(prometheus_address(stack.metrics.prometheus), teams) if teams else None
