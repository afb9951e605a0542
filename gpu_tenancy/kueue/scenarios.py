"""Scenarios as JSON, the format of the recordings of the real Kueue, and their simulation.

Keys are `cohorts`, `clusterQueues`, `priorities`, `steps` and `fairSharing` (with Kueue's default strategies). A
ClusterQueue has one resource group, with flavors in the order of the list.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from gpu_tenancy.kueue import api
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


def read_tenancy(scenario: Data) -> api.Tenancy:
    """The ClusterQueues and cohorts of a scenario; errors as for `observe`."""
    return api.Tenancy(
        tuple(_queue(queue) for queue in scenario["clusterQueues"]),
        tuple(
            api.Cohort(cohort["name"], cohort.get("parent"), _groups(cohort.get("quota") or ()), cohort.get("weight"))
            for cohort in scenario.get("cohorts") or ()
        ),
        api.FAIR if scenario.get("fairSharing") else None,
    )


def _queue(data: Data) -> api.ClusterQueue:
    preemption: Data = data.get("preemption") or {}
    borrow: Data = preemption.get("borrowWithinCohort") or {}
    fungibility: Data = data.get("flavorFungibility") or {}
    return api.ClusterQueue(
        data["name"],
        _groups(data["resources"]),
        data.get("cohort"),
        api.Strategy(data.get("strategy") or api.Strategy.BEST_EFFORT),
        api.Preemption(
            api.Policy(preemption.get("withinClusterQueue") or api.Policy.NEVER),
            api.Policy(preemption.get("reclaimWithinCohort") or api.Policy.NEVER),
            api.BorrowWithinCohort(borrow.get("maxPriorityThreshold"))
            if api.Policy(borrow.get("policy") or api.Policy.NEVER) is not api.Policy.NEVER
            else None,
        ),
        api.Fungibility(
            api.Fungible(fungibility.get("whenCanBorrow") or api.Fungible.STOP),
            api.Fungible(fungibility.get("whenCanPreempt") or api.Fungible.NEXT),
            api.Preference(fungibility.get("preference") or api.Preference.BORROW),
        ),
        data.get("weight"),
    )


def _groups(entries: Sequence[Data]) -> tuple[api.ResourceGroup, ...]:
    flavors: dict[str, dict[str, api.Quota]] = {}
    for entry in entries:
        quota = api.Quota(entry["nominal"], entry.get("borrowingLimit"), entry.get("lendingLimit"))
        flavors.setdefault(entry["flavor"], {})[entry["resource"]] = quota
    return (
        (api.ResourceGroup(tuple(api.FlavorQuotas(name, quotas) for name, quotas in flavors.items())),)
        if flavors
        else ()
    )


def read_steps(scenario: Data) -> tuple[api.Step, ...]:
    """The steps of a scenario with their workloads; errors as for `observe`."""
    priorities: Mapping[str | None, int] = {None: 0, **(scenario.get("priorities") or {})}

    def workload(data: Data) -> api.Workload:
        pod_set = api.PodSet(data["requests"], data.get("pods", 1))
        return api.Workload(data["name"], data["queue"], (pod_set,), priorities[data.get("priority")])

    return tuple(
        api.Step(tuple(map(workload, step.get("submit") or ())), tuple(step.get("finish") or ()))
        for step in scenario["steps"]
    )
