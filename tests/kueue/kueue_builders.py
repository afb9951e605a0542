"""Builders of ClusterQueues and workloads, and short forms of their state."""

from collections.abc import Iterable, Sequence
from typing import Any

from gpu_tenancy import kueue

GPU = "nvidia.com/gpu"


def group(**flavors: kueue.Quota) -> tuple[kueue.ResourceGroup, ...]:
    return (kueue.ResourceGroup(tuple(kueue.FlavorQuotas(name, {GPU: quota}) for name, quota in flavors.items())),)


def queue(
    name: str, nominal: int, limit: int | None = None, lends: int | None = None, **rules: Any
) -> kueue.ClusterQueue:
    """A ClusterQueue with nominal quota, borrowing limit and lending limit of A100 GPUs, by default in cohort `org`."""
    return kueue.ClusterQueue(name, group(a100=kueue.Quota(nominal, limit, lends)), rules.pop("cohort", "org"), **rules)


def work(name: str, at: str, gpus: int, priority: int = 0, pods: int = 1) -> kueue.Workload:
    """A workload with one pod set; `at` is its queue, `gpus` the request of one pod."""
    return kueue.Workload(name, at, (kueue.PodSet({GPU: gpus}, pods),), priority)


def after(tenancy: kueue.Tenancy, *workloads: kueue.Workload, finish: Sequence[str] = ()) -> kueue.Settled:
    """The state after these workloads are submitted one after another, and then those in `finish` finish."""
    return kueue.run(tenancy, [kueue.Step(workloads), kueue.Step(finish=tuple(finish))])[-1]


def settle(tenancy: kueue.Tenancy, workloads: Iterable[kueue.Workload]) -> kueue.Settled:
    """The state after all workloads are submitted at once, the oldest first."""
    simulation = kueue.Simulation(tenancy)
    for workload in workloads:
        simulation.submit(workload)
    return simulation.settled(simulation.rest())


def admitted(settled: kueue.Settled) -> list[str]:
    return [workload.name for workload in settled.admitted]


def pending(settled: kueue.Settled) -> dict[str, str]:
    return {workload.name: workload.why for workload in settled.pending}


def evicted(settled: kueue.Settled) -> list[tuple[str, str, str]]:
    """The name, the preemptor and Kueue's reason of each preemption."""
    return [(eviction.name, eviction.by, eviction.reason) for eviction in settled.evicted]


def evictions(settled: kueue.Settled) -> list[str]:
    return [f"{name} by {preemptor}: {reason}" for name, preemptor, reason in evicted(settled)]
