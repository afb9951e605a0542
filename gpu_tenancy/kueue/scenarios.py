"""Scenarios as JSON, the format of the recordings of the real Kueue, and their simulation.

A scenario has `cohorts`, `clusterQueues`, `priorities` and `steps`; `fairSharing` turns fair sharing on, with Kueue's
default strategies. All resources of a ClusterQueue are in one resource group, its flavors in the order of the list.
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
from gpu_tenancy.kueue.simulation import Settled, run

Data: TypeAlias = Mapping[str, Any]


def observe(scenario: Data) -> dict[str, Any]:
    """Simulates a scenario.

    Returns:
        The admitted and the pending workloads after each step, in the order of submission.

    Raises:
        KeyError, TypeError, ValueError: the scenario does not have the format, or is invalid.
    """
    states = run(read_tenancy(scenario), read_steps(scenario))
    return {"id": scenario["id"], "observed": [_observed(state) for state in states]}


def _observed(settled: Settled) -> dict[str, list[str]]:
    return {
        "admitted": [workload.name for workload in settled.admitted],
        "pending": [workload.name for workload in settled.pending],
    }


def read_tenancy(scenario: Data) -> Tenancy:
    """Reads the ClusterQueues and cohorts of a scenario.

    Raises:
        KeyError, TypeError, ValueError: as for `observe`.
    """
    return Tenancy(
        tuple(_queue(queue) for queue in scenario["clusterQueues"]),
        tuple(
            Cohort(cohort["name"], cohort.get("parent"), _groups(cohort.get("quota") or ()), _weight(cohort))
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
        _weight(data),
    )


def _weight(data: Data) -> float:
    weight = data.get("weight")
    return 1.0 if weight is None else float(weight)


def _groups(entries: Sequence[Data]) -> tuple[ResourceGroup, ...]:
    flavors: dict[str, dict[str, Quota]] = {}
    for entry in entries:
        quota = Quota(entry["nominal"], entry.get("borrowingLimit"), entry.get("lendingLimit"))
        flavors.setdefault(entry["flavor"], {})[entry["resource"]] = quota
    return (ResourceGroup(tuple(FlavorQuotas(name, quotas) for name, quotas in flavors.items())),) if flavors else ()


def read_steps(scenario: Data) -> tuple[Step, ...]:
    """Reads the steps of a scenario, with their workloads.

    Raises:
        KeyError, TypeError, ValueError: as for `observe`.
    """
    priorities: Mapping[str, int] = scenario.get("priorities") or {}
    return tuple(
        Step(
            tuple(_workload(workload, priorities) for workload in step.get("submit") or ()),
            tuple(step.get("finish") or ()),
        )
        for step in scenario["steps"]
    )


def _workload(data: Data, priorities: Mapping[str, int]) -> Workload:
    pod_set = PodSet(data["requests"], data.get("pods", 1))
    priority = data.get("priority")
    return Workload(data["name"], data["queue"], (pod_set,), 0 if priority is None else priorities[priority])
