"""Whether the guarantee of a ClusterQueue covers a workload; if not, Kueue reclaims nothing for it."""

from collections.abc import Mapping, Sequence

from gpu_tenancy.base.guarantee import BESIDE, Guarantee
from gpu_tenancy.base.quantity import CLAIMED, CPU, Amounts, amount_text, is_extended, leading_text
from gpu_tenancy.cluster.queueing import Offer, QuotaRequest, Source
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.workloads import Reason
from gpu_tenancy.kueue import ClusterQueue, FlavorResource, Policy, Quota


def guarantee_of(queue: ClusterQueue, flavor: str, resource: str = "") -> Guarantee:
    """Nominal quota of a flavor: of a resource, by default its GPUs if there are any, else its CPUs."""
    amounts = {name: quota.nominal for (of, name), quota in queue.quotas.items() if of == flavor}
    gpus = [name for name, amount in amounts.items() if amount and is_extended(name) and name not in CLAIMED]
    counted = resource or (gpus[0] if gpus else CPU)
    beside = {name: quota.nominal for name, quota in quotas_beside(queue, flavor).items()}
    return Guarantee(flavor, counted, {counted: amounts.get(counted, 0), **beside})


def quotas_beside(queue: ClusterQueue, flavor: str) -> dict[str, Quota]:
    """Quotas of CPU and memory of the pods of a flavor.

    A pod set has its CPU from the GPUs' flavor, or from one flavor of another resource group: the largest.
    """
    return {
        name: queue.quotas.get((flavor, name)) or max(group, key=lambda quota: quota.nominal)
        for name in BESIDE
        if (group := [quota for (_, other), quota in queue.quotas.items() if other == name])
    }


def uncovered(queues: Queues, queue: ClusterQueue, offers: Sequence[Offer]) -> Reason | None:
    """Why a queue cannot reclaim guaranteed GPUs for a workload, and the fix; of CPUs in flavors without GPUs.

    None if the GPUs need not be reclaimed, are not guaranteed, or nothing else that the workload requests exceeds the
    guarantee; also if a cohort above the queue, but below the root, has the quota to reclaim them.
    """
    requests = {(one.flavor, one.resource): one for offer in offers for one in offer.requests}
    reclaimable = next((one for one in requests.values() if one.missing and not one.borrows), None)
    hardest = max((offer.source for offer in offers), default=Source.NEVER)
    if reclaimable is None or hardest not in {Source.RECLAIMED, Source.OTHERS}:
        return None
    if queue.preemption.reclaim is Policy.NEVER or _cohort_covers(queues, queue.name, requests):
        return None
    for flavor in dict.fromkeys(name for name, _ in requests):
        guarantee = guarantee_of(queue, flavor)
        asked = {one.resource: one.requested for one in requests.values() if one.flavor == flavor}
        used = {name: requests[flavor, name].used for name in asked}
        if lacking := guarantee.missing(asked, used):
            if flavor == reclaimable.flavor and guarantee.resource in lacking:
                return None
            of_flavor = "" if flavor == reclaimable.flavor else f" of flavor {flavor}"
            needs, fix = _needs(queue.name, guarantee, asked, used, of_flavor)
            keys = " and ".join(guarantee.key(queue.name, name) for name in lacking)
            if queue.name not in queues.users(queue.name):  # not of a stack, whose queues are named after namespaces
                keys = f"nominalQuota of {' and '.join(lacking)} in ClusterQueue {queue.name}"
            return f"{needs}, {_consequence(queues, queue, reclaimable)}", f"{fix}raise {keys}"
    return None


def _cohort_covers(queues: Queues, name: str, requests: Mapping[FlavorResource, QuotaRequest]) -> bool:
    """Whether requests fit into the quota of a cohort below the root: Kueue then reclaims from outside of the cohort.

    `QuantitiesFitInQuota` in
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/resource_node.go
    """
    places = {line: queues.quotas.place(name, line) for line in requests}
    amounts = {key: requests[line].requested for line, (_, key) in places.items() if key is not None}
    node, _ = next(iter(places.values()))
    for below, cohort in zip((node, *node.path), node.path[:-1], strict=False):
        amounts = {key: max(0, amount - below.local_available(key)) for key, amount in amounts.items()}
        if all(cohort.usage[key] + amount <= cohort.subtree_quota[key] for key, amount in amounts.items()):
            return True
    return False


def _needs(queue: str, guarantee: Guarantee, asked: Amounts, used: Amounts, of_flavor: str) -> tuple[str, str]:
    """Amounts beyond the guarantee, alone or beside running jobs, and the start of the fix."""
    bounds = {name: guarantee.amounts[name] for name in guarantee.missing(asked, used)}
    left = {name: bound - used[name] for name, bound in bounds.items()}
    fix = f"request up to {leading_text(left)}{of_flavor}, or " if min(left.values()) > 0 else ""
    if beyond := guarantee.missing(asked):
        listed = [
            f"{amount_text(name, bounds[name])}{f', {amount_text(name, used[name])} in use' if used[name] else ''}"
            for name in beyond
        ]
        more = f"needs {leading_text(beyond)}{of_flavor} more than {queue} is guaranteed ({'; '.join(listed)})"
        if not fix and min(bounds.values()) > 0:
            fix = f"request up to {leading_text(bounds)}{of_flavor} once its running jobs have ended, or "
        return more, fix
    busy = " and ".join(
        f"{amount_text(name, min(bound, used[name]))} of its guaranteed {leading_text({name: bound})}"
        for name, bound in bounds.items()
    )
    needs = f"needs {leading_text({name: asked[name] for name in bounds})}{of_flavor}"
    released = {name: asked[name] - amount for name, amount in left.items()}
    wait = f"wait until running jobs release {leading_text(released)}{of_flavor}, "
    return f"{needs}, and running jobs of {queue} use {busy}", f"{wait}{fix or 'or '}"


def _consequence(queues: Queues, queue: ClusterQueue, reclaimable: QuotaRequest) -> str:
    if queues.quotas.fair(queue.name):
        return f"so shares decide whether it reclaims {reclaimable.noun} from borrowers"
    if queue.preemption.borrow is not None:
        return f"so it reclaims {reclaimable.noun} only from borrowers that borrowWithinCohort allows"
    return f"so it cannot reclaim {reclaimable.noun} from borrowers"
