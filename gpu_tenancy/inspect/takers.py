"""Who can preempt what a running workload has borrowed."""

from collections.abc import Iterable, Iterator
from typing import Final

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.base.json import int_at
from gpu_tenancy.base.quantity import is_extended
from gpu_tenancy.inspect.pods import named
from gpu_tenancy.inspect.queues import Queues
from gpu_tenancy.inspect.workloads import Workload
from gpu_tenancy.kueue import FlavorResource, by_time, preemptors
from gpu_tenancy.model.names import DEFAULT_GRACE

_PREEMPTED: Final = "; can be preempted by queue"


def borrowed_lines(queues: Queues, workload: Workload) -> Iterator[str]:
    """What the queue of an admitted workload borrows of its GPUs, who can preempt it for that, and how fast."""
    for text in borrowings(queues, workload.holder, [line for line, amount in workload.held.items() if amount]):
        yield f"{text}; its pods then have {_grace(workload)} to stop" if _PREEMPTED in text else text


def borrowings(queues: Queues, name: str, lines: Iterable[FlavorResource]) -> Iterator[str]:
    """What a queue borrows of some GPUs, and which queues can preempt its workloads for that.

    Kueue preempts whole workloads of a queue that borrows, whichever of them uses the borrowed part, and knows no
    minimum runtime: https://github.com/kubernetes-sigs/kueue/pull/12791, open on 2026-11-24.
    """
    if name not in queues.cluster_queues:
        return
    for line in lines:
        flavor, resource = line
        if not (is_extended(resource) and (borrowed := queues.quotas.borrowed(name, line))):
            continue
        used = amount_text(resource, queues.quotas.usage(name, line))
        what = f"queue {name} borrows {amount_text(resource, borrowed)} of its {used} {flavor} {resource}"
        takers = [f"{named(found)} {when}" for when, found in by_time(preemptors(queues.quotas, name, line)).items()]
        yield f"{what}{_PREEMPTED} {', '.join(takers)}" if takers else f"{what}; no queue reclaims it"


def _grace(workload: Workload) -> str:
    seconds = (int_at(pods.spec, "terminationGracePeriodSeconds", otherwise=DEFAULT_GRACE) for pods in workload.sets)
    return f"{max(seconds, default=DEFAULT_GRACE)} s"
