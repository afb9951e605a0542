"""Queues, workloads and what became of them, in as few words as a test needs."""

from collections.abc import Sequence
from typing import Any

from gpu_tenancy.model.admission import (
    ClusterQueue,
    FlavorQuotas,
    PodSet,
    Quota,
    ResourceGroup,
    Settled,
    Step,
    Tenancy,
    Workload,
    run,
)

GPU = "nvidia.com/gpu"


def group(**flavors: Quota) -> tuple[ResourceGroup, ...]:
    """One resource group of GPUs, the flavors in order."""
    return (ResourceGroup(tuple(FlavorQuotas(name, {GPU: quota}) for name, quota in flavors.items())),)


def queue(name: str, nominal: int, limit: int | None = None, lends: int | None = None, **rules: Any) -> ClusterQueue:
    """A queue of GPUs of one flavor in the cohort `org`; `limit` is what it may borrow."""
    return ClusterQueue(name, group(a100=Quota(nominal, limit, lends)), rules.pop("cohort", "org"), **rules)


def work(name: str, at: str, gpus: int, priority: int = 0, pods: int = 1) -> Workload:
    """A workload of one pod set."""
    return Workload(name, at, (PodSet({GPU: gpus}, pods),), priority)


def after(tenancy: Tenancy, *workloads: Workload, finish: Sequence[str] = ()) -> Settled:
    """The state when all of these have come one after another, and then some have ended."""
    return run(tenancy, [Step(workloads), Step(finish=tuple(finish))])[-1]


def arriving(tenancy: Tenancy, *steps: Sequence[Workload]) -> Settled:
    """The state after the last of these steps, with what it evicted."""
    return run(tenancy, [Step(tuple(each)) for each in steps])[-1]


def running(settled: Settled) -> list[str]:
    """Names of those that run."""
    return [each.name for each in settled.admitted]


def waiting(settled: Settled) -> dict[str, str]:
    """Why the others wait."""
    return {each.name: each.why for each in settled.pending}


def evicted(settled: Settled) -> list[tuple[str, str, str]]:
    """Who gave way, to whom, and Kueue's reason."""
    return [(each.name, each.by, each.reason) for each in settled.evicted]
