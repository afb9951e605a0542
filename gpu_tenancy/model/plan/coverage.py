"""Guarantees and the workloads of a stack: what a guarantee lacks to cover them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.guarantee import Guarantee
from gpu_tenancy.base.problems import Path, dotted
from gpu_tenancy.base.quantity import Amounts, add, times
from gpu_tenancy.base.texts import counted
from gpu_tenancy.model.plan.notebooks import as_job
from gpu_tenancy.model.plan.pods import is_gang, parts, pod_size
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.resolve import ResolvedServer
from gpu_tenancy.model.spec.workloads import Training

WHY: Final = "Kueue takes back guaranteed GPUs only for a job whose CPU and memory are guaranteed too"


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A workload whose GPUs are guaranteed to its team, but not its CPU or memory."""

    path: Path
    gpus: Guarantee  # covers its GPUs
    lacking: Guarantee  # does not cover `amount` of `resource`, perhaps on another flavor
    resource: str
    amount: int


@dataclass(frozen=True, slots=True)
class _Covered:
    """A workload with GPUs that its queue guarantees (`gpus`), and its requests by flavor."""

    path: Path
    gpus: Guarantee
    requests: dict[str, Amounts]


def _covered(tree: Tree, queue: str) -> Iterator[_Covered]:
    """Workloads of a queue's teams whose GPUs are guaranteed.

    A job counts with its least number of workers; servers and groups as often as the guaranteed GPUs are enough for.
    """
    for team in tree.users[queue]:
        for path, workload in _workloads(tree, team):
            needed = _needed(tree, team, queue, workload)
            for gpus in (tree.guarantee(queue, name) for name in needed if tree.flavors[name].resource):
                yield _Covered(path, gpus, needed)
                break


def uncovered(tree: Tree, queue: str) -> Iterator[Uncovered]:
    """Workloads for which a queue reclaims no GPUs although it has enough; fair sharing may still preempt for them."""
    for found in _covered(tree, queue):
        for flavor, requests in found.requests.items():
            lacking = tree.guarantee(queue, flavor)
            missing = (
                name
                for name in lacking.missing(requests)
                if not group_covers(tree, queue, flavor, name, requests[name])
            )
            if resource := next(missing, ""):
                yield Uncovered(found.path, found.gpus, lacking, resource, requests[resource])
                break


def _workloads(tree: Tree, team: str) -> Iterator[tuple[Path, ResolvedServer | Training]]:
    spec, place = tree.stack.teams[team], ("teams", team)
    for name, job in spec.training.items():
        if not is_gang(job):
            yield (*place, "training", name), job
    for server in spec.serving.values():
        yield server.written_at(), server
    if notebooks := spec.notebooks:
        for name, size in notebooks.sizes.items():
            yield (*place, "notebooks", "sizes", name), as_job(notebooks, size)


def _needed(tree: Tree, team: str, queue: str, workload: ResolvedServer | Training) -> dict[str, Amounts]:
    """Requests by flavor; empty without GPUs, if these exceed the guarantee, or if a flavor is ambiguous."""
    whole: dict[str, Amounts] = {}
    for role, part in parts(tree, team, workload).items():
        size = pod_size(tree, team, part)
        if size is None:
            return {}
        pods = workload.pods_by_role[role]
        if isinstance(workload, Training) and workload.elastic:
            pods = workload.workers.min
        whole[size.flavor.name] = add(whole.get(size.flavor.name, {}), times(size.amounts, pods))
    most = workload.groups if isinstance(workload, Training) else workload.replicas.max
    counts = [
        tree.guarantee(queue, name).units // requests[resource]
        for name, requests in whole.items()
        if (resource := tree.flavors[name].resource) and requests.get(resource)
    ]
    count = min(most, *counts) if counts else 0
    return {name: times(requests, count) for name, requests in whole.items()} if count else {}


def group_covers(tree: Tree, queue: str, flavor: str, resource: str, amount: int) -> bool:
    """Whether a cohort above a queue, below the root, has the quota: Kueue then reclaims from outside of the cohort.

    `QuantitiesFitInQuota` in
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/resource_node.go
    """
    groups = (group for group in tree.above(tree.cohort_of(queue)) if group != tree.root)
    return any(tree.guaranteed(group, flavor, resource) >= amount for group in groups)


def guarantee_warnings(tree: Tree) -> Iterator[str]:
    """Guarantees of GPUs that CPU or memory bound, each with its place and the fix.

    Either there is less of it than the GPUs' share of the machine, or one workload uses the share of further GPUs.
    """
    for queue in tree.queue_owners:
        for flavor in tree.flavors.values():
            guarantee, borrows = tree.guarantee(queue, flavor.name), _borrows(tree, queue, flavor.name)
            low = {name: amount for name, amount in guarantee.below(flavor.per_gpu).items() if name in borrows}
            if low:
                gpus = counted(guarantee.units, guarantee.resource)
                share = " and ".join(counted(flavor.per_gpu[name] * guarantee.units, name) for name in low)
                keys = " and ".join(guarantee.key(queue, name) for name in low)
                about, more = f"guaranteed are {guarantee}", "a job that requests more gets no GPUs back"
                if tree.stack.fairness.even:
                    more = "a job that requests more borrows, so shares decide whether it gets GPUs back"
                fix = f"the share of {gpus} in the machine is {share}: raise {keys}, or keep to it"
                yield f"{dotted(('teams', queue))}: {about}; {more}; {fix}"
        for found in _covered(tree, queue):
            yield from _greedy(queue, found)
        for found in uncovered(tree, queue) if tree.stack.fairness.even else ():
            needs = f"needs {counted(found.amount, found.resource)} of flavor {found.lacking.flavor}"
            bound = counted(found.lacking.amounts[found.resource], found.resource)
            shares = "shares decide whether it gets its GPUs back"
            fix = f"raise {found.lacking.key(queue, found.resource)}"
            yield f"{dotted(found.path)}: {needs}, and {queue} is guaranteed {bound}, so {shares}; {fix}"


def _borrows(tree: Tree, queue: str, flavor: str) -> set[str]:
    """Resources that the queue may borrow, or lends: of all others, its guarantee is always there and is its limit."""
    shares = tree.team_shares[queue].get(flavor, {})
    return {name for name, share in shares.items() if tree.lends(queue) or share.effective_limit > share.guaranteed}


def _greedy(queue: str, found: _Covered) -> Iterator[str]:
    requests, guarantee = found.requests[found.gpus.flavor], found.gpus
    left = guarantee.units - requests[guarantee.resource]
    for name, guaranteed in guarantee.beside.items():
        enough = (guaranteed - requests[name]) * guarantee.units // guaranteed if guaranteed else 0
        if 0 <= enough < left:
            uses = f"uses {counted(requests[name], name)} of the {counted(guaranteed, name)}"
            gpus = counted(guarantee.units, guarantee.resource, guarantee.flavor)
            while_it = f"while it runs, {enough} of the {left} other GPUs are covered"
            fix = f"lower its {name}, or raise {guarantee.key(queue, name)}"
            yield f"{dotted(found.path)}: {uses} that {queue} is guaranteed with {gpus}: {while_it}; {fix}"
