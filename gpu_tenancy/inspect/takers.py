"""Who can preempt what a running workload has borrowed."""

from collections.abc import Iterator

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.base.quantity import is_extended
from gpu_tenancy.inspect.pods import named
from gpu_tenancy.inspect.queues import Queues
from gpu_tenancy.inspect.workloads import Workload
from gpu_tenancy.kueue import Policy
from gpu_tenancy.kueue.api import FlavorResource

_WHEN = {Policy.ANY: "at any time", Policy.LOWER: "for workloads of higher priority"}


def borrowed_lines(queues: Queues, workload: Workload) -> Iterator[str]:
    """What the queue of an admitted workload borrows of its GPUs, and which queues can preempt for it.

    Kueue preempts whole workloads of a queue that borrows, whichever of them uses the borrowed part, and knows no
    minimum runtime: https://github.com/kubernetes-sigs/kueue/pull/12791, open on 2026-11-24.
    """
    name = workload.holder
    if name not in queues.cluster_queues:
        return
    for line, amount in workload.held.items():
        flavor, resource = line
        if not (amount and is_extended(resource) and (borrowed := queues.quotas.borrowed(name, line))):
            continue
        used = amount_text(resource, queues.quotas.usage(name, line))
        what = f"queue {name} borrows {amount_text(resource, borrowed)} of its {used} {flavor} {resource}"
        takers = [
            f"{named(found)} {when}" for policy, when in _WHEN.items() if (found := _takers(queues, name, line, policy))
        ]
        yield f"{what}; can be preempted by queue {', '.join(takers)}" if takers else f"{what}; no queue reclaims it"


def _takers(queues: Queues, borrower: str, line: FlavorResource, policy: Policy) -> list[str]:
    """Queues of the tree that reclaim in this way, with quota of their own, of a cohort, or by fair sharing."""
    shared = bool(queues.tenancy.fair_sharing) or any(line in cohort.quotas for cohort in queues.tenancy.cohorts)
    related, _ = queues.quotas.related(borrower)
    return [
        name
        for name in sorted(related)
        if name != borrower
        and line in (spec := queues.cluster_queues[name].spec).quotas
        and spec.preemption.reclaim is policy
        and (shared or queues.quotas.nominal(name, line))
    ]
