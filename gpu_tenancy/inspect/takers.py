"""Who can preempt what a running workload has borrowed."""

from collections.abc import Iterator

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.base.json import int_at
from gpu_tenancy.base.quantity import is_extended
from gpu_tenancy.inspect.pods import named
from gpu_tenancy.inspect.queues import Queues
from gpu_tenancy.inspect.workloads import Workload
from gpu_tenancy.kueue import by_time, preemptors
from gpu_tenancy.model.spec.guards import DEFAULT_GRACE


def borrowed_lines(queues: Queues, workload: Workload) -> Iterator[str]:
    """What the queue of an admitted workload borrows of its GPUs, and which queues can preempt it for that.

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
        takers = [f"{named(found)} {when}" for when, found in by_time(preemptors(queues.quotas, name, line)).items()]
        if not takers:
            yield f"{what}; no queue reclaims it"
            continue
        yield f"{what}; can be preempted by queue {', '.join(takers)}; its pods then have {_grace(workload)} to stop"


def _grace(workload: Workload) -> str:
    seconds = (int_at(pods.spec, "terminationGracePeriodSeconds", otherwise=DEFAULT_GRACE) for pods in workload.sets)
    return f"{max(seconds, default=DEFAULT_GRACE)} s"
