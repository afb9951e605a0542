"""Scenarios as JSON, the format of the recordings of the real Kueue, and their simulation.

Keys are `cohorts`, `clusterQueues`, `priorities`, `steps` and `fairSharing` (with Kueue's default strategies). A
ClusterQueue has one resource group, with flavors in the order of the list.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from gpu_tenancy.kueue.api import (
    FAIR,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    Fungibility,
    Fungible,
    PodSet,
    Policy,
    Preemption,
    Preference,
    Quota,
    ResourceGroup,
    Step,
    Strategy,
    Tenancy,
    Workload,
)
from gpu_tenancy.kueue.simulation import run

Data: TypeAlias = Mapping[str, Any]


def observe(scenario: Data) -> dict[str, Any]:
    """Admitted and pending workloads after each step of a scenario, in the order of submission.

    Raises KeyError, TypeError or ValueError: the scenario is invalid.
    """
    observed = [
        {
            "admitted": [workload.name for workload in settled.admitted],
            "pending": [workload.name for workload in settled.pending],
        }
        for settled in run(read_tenancy(scenario), read_steps(scenario))
    ]
    return {"id": scenario["id"], "observed": observed}


def read_tenancy(scenario: Data) -> Tenancy:
    """The ClusterQueues and cohorts of a scenario; errors as for `observe`."""
    return Tenancy(
        tuple(_queue(queue) for queue in scenario["clusterQueues"]),
        tuple(
            Cohort(cohort["name"], cohort.get("parent"), _groups(cohort.get("quota") or ()), cohort.get("weight"))
            for cohort in scenario.get("cohorts") or ()
        ),
        FAIR if scenario.get("fairSharing") else None,
    )


def _queue(data: Data) -> ClusterQueue:
    preemption: Data = data.get("preemption") or {}
    borrow: Data = preemption.get("borrowWithinCohort") or {}
    fungibility: Data = data.get("flavorFungibility") or {}
    return ClusterQueue(
        data["name"],
        _groups(data["resources"]),
        data.get("cohort"),
        Strategy(data.get("strategy") or Strategy.BEST_EFFORT),
        Preemption(
            Policy(preemption.get("withinClusterQueue") or Policy.NEVER),
            Policy(preemption.get("reclaimWithinCohort") or Policy.NEVER),
            BorrowWithinCohort(borrow.get("maxPriorityThreshold"))
            if Policy(borrow.get("policy") or Policy.NEVER) is not Policy.NEVER
            else None,
        ),
        Fungibility(
            Fungible(fungibility.get("whenCanBorrow") or Fungible.STOP),
            Fungible(fungibility.get("whenCanPreempt") or Fungible.NEXT),
            Preference(fungibility.get("preference") or Preference.BORROW),
        ),
        data.get("weight"),
    )


def _groups(entries: Sequence[Data]) -> tuple[ResourceGroup, ...]:
    flavors: dict[str, dict[str, Quota]] = {}
    for entry in entries:
        quota = Quota(entry["nominal"], entry.get("borrowingLimit"), entry.get("lendingLimit"))
        flavors.setdefault(entry["flavor"], {})[entry["resource"]] = quota
    return (ResourceGroup(tuple(FlavorQuotas(name, quotas) for name, quotas in flavors.items())),) if flavors else ()


def read_steps(scenario: Data) -> tuple[Step, ...]:
    """The steps of a scenario with their workloads; errors as for `observe`."""
    priorities: Mapping[str | None, int] = {None: 0, **(scenario.get("priorities") or {})}

    def workload(data: Data) -> Workload:
        pod_set = PodSet(data["requests"], data.get("pods", 1))
        return Workload(data["name"], data["queue"], (pod_set,), priorities[data.get("priority")])

    return tuple(
        Step(tuple(map(workload, step.get("submit") or ())), tuple(step.get("finish") or ()))
        for step in scenario["steps"]
    )
