"""Scenarios as JSON, the format in which the real Kueue was recorded, and what the simulation says about them.

A scenario has `cohorts`, `clusterQueues`, `priorities` and `steps`; `fairSharing` is whether it is on, with Kueue's own
strategies. Every resource of a queue is in one resource group, its flavors in the order of the list.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from gpu_tenancy.model.admission.simulation import Settled, run
from gpu_tenancy.model.admission.spec import (
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

Data: TypeAlias = Mapping[str, Any]


def observe(scenario: Data) -> dict[str, Any]:
    """Who is admitted and who waits after each step of a scenario, in the order of submission.

    Raises:
        KeyError, TypeError, ValueError: the scenario is not of the format, or contradicts itself.
    """
    found = run(read_tenancy(scenario), read_steps(scenario))
    return {"id": scenario["id"], "observed": [_observed(each) for each in found]}


def _observed(settled: Settled) -> dict[str, list[str]]:
    return {
        "admitted": [each.name for each in settled.admitted],
        "pending": [each.name for each in settled.pending],
    }


def read_tenancy(scenario: Data) -> Tenancy:
    """The tenancy of a scenario.

    Raises:
        KeyError, TypeError, ValueError: as for `observe`.
    """
    return Tenancy(
        tuple(_queue(each) for each in scenario["clusterQueues"]),
        tuple(
            Cohort(each["name"], each.get("parent"), _groups(each.get("quota") or ()), _weight(each))
            for each in scenario.get("cohorts") or ()
        ),
        FAIR if scenario.get("fairSharing") else None,
    )


def _queue(data: Data) -> ClusterQueue:
    rules: Data = data.get("preemption") or {}
    borrow: Data = rules.get("borrowWithinCohort") or {}
    fungible: Data = data.get("flavorFungibility") or {}
    return ClusterQueue(
        data["name"],
        _groups(data["resources"]),
        data.get("cohort"),
        Strategy(data.get("strategy") or Strategy.BEST_EFFORT),
        Preemption(
            Policy(rules.get("withinClusterQueue") or Policy.NEVER),
            Policy(rules.get("reclaimWithinCohort") or Policy.NEVER),
            BorrowWithinCohort(borrow.get("maxPriorityThreshold"))
            if Policy(borrow.get("policy") or Policy.NEVER) is not Policy.NEVER
            else None,
        ),
        Fungibility(
            Fungible(fungible.get("whenCanBorrow") or Fungible.STOP),
            Fungible(fungible.get("whenCanPreempt") or Fungible.NEXT),
            Preference(fungible.get("preference") or Preference.BORROW),
        ),
        _weight(data),
    )


def _weight(data: Data) -> float:
    weight = data.get("weight")
    return 1.0 if weight is None else float(weight)


def _groups(entries: Sequence[Data]) -> tuple[ResourceGroup, ...]:
    flavors: dict[str, dict[str, Quota]] = {}
    for each in entries:
        quota = Quota(each["nominal"], each.get("borrowingLimit"), each.get("lendingLimit"))
        flavors.setdefault(each["flavor"], {})[each["resource"]] = quota
    return (ResourceGroup(tuple(FlavorQuotas(name, quotas) for name, quotas in flavors.items())),) if flavors else ()


def read_steps(scenario: Data) -> tuple[Step, ...]:
    """The steps of a scenario.

    Raises:
        KeyError, TypeError, ValueError: as for `observe`.
    """
    priorities: Mapping[str, int] = scenario.get("priorities") or {}
    return tuple(
        Step(
            tuple(_workload(each, priorities) for each in step.get("submit") or ()),
            tuple(step.get("finish") or ()),
        )
        for step in scenario["steps"]
    )


def _workload(data: Data, priorities: Mapping[str, int]) -> Workload:
    pods = PodSet(data["requests"], data.get("pods", 1))
    named = data.get("priority")
    return Workload(data["name"], data["queue"], (pods,), 0 if named is None else priorities[named])
