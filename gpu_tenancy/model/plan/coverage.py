"""Guarantees and the workloads of a stack: what a guarantee lacks to cover them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gpu_tenancy.base.guarantee import Guarantee
from gpu_tenancy.base.problems import Path, dotted
from gpu_tenancy.base.quantity import CPU, Amounts, add, times
from gpu_tenancy.base.texts import counted
from gpu_tenancy.model.plan.notebooks import as_job
from gpu_tenancy.model.plan.pods import is_gang, parts, pod_size
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.resolve import ResolvedServer
from gpu_tenancy.model.spec.workloads import Training

WHY: Final = "Kueue reclaims only for a job that fits into the guarantee in every resource"


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A workload whose GPUs are guaranteed to its team, but not its CPU or memory."""

    path: Path
    gpus: Guarantee  # covers its GPUs
    lacking: Guarantee  # does not cover `amount` of `resource`, perhaps on another flavor
    resource: str
    amount: int
    of_cohort: bool  # whether a cohort has quota of its own for the rest, which its other teams may use first


@dataclass(frozen=True, slots=True)
class _Workload:
    """A workload with GPUs that its queue guarantees (`gpus`), and its requests by flavor.

    Requests are of the pods that are admitted together: a job with its least number of workers, or one of `count`
    replicas or groups, as many as the guaranteed GPUs are enough for.
    """

    path: Path
    gpus: Guarantee
    requests: dict[str, Amounts]
    count: int


def _guaranteed(tree: Tree, queue: str) -> Iterator[_Workload]:
    for team in tree.users[queue]:
        for path, workload in _workloads(tree, team):
            requests = _requests(tree, team, workload)
            most = workload.groups if isinstance(workload, Training) else workload.replicas.max
            counts = {
                name: tree.guarantee(queue, name).units // amount
                for name in requests
                if (amount := requests[name].get(tree.flavors[name].resource or "", 0))
            }
            if counts and (count := min(most, *counts.values())) and reclaims(tree, queue, next(iter(counts))):
                yield _Workload(path, tree.guarantee(queue, next(iter(counts))), requests, count)


def uncovered(tree: Tree, queue: str) -> Iterator[Uncovered]:
    """Workloads for which a queue reclaims no GPUs although it has enough; fair sharing may still preempt for them."""
    return filter(None, (_lacking(tree, queue, found) for found in _guaranteed(tree, queue)))


def _lacking(tree: Tree, queue: str, found: _Workload) -> Uncovered | None:
    """The first resource beyond the guarantee for which no cohort has quota; else the first beyond the guarantee."""
    lacks = [
        Uncovered(
            found.path,
            found.gpus,
            guarantee,
            resource,
            requests[resource],
            quota_of_cohorts(tree, queue, flavor, resource) >= amount,
        )
        for flavor, requests in found.requests.items()
        for guarantee in [tree.guarantee(queue, flavor)]
        for resource, amount in guarantee.missing(requests).items()
    ]
    return min(lacks, key=lambda lack: lack.of_cohort, default=None)


def quota_of_cohorts(tree: Tree, queue: str, flavor: str, resource: str) -> int:
    """Own quota of the cohorts above a queue, below the root: Kueue also reclaims for a job that fits into it.

    `QuantitiesFitInQuota` in
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/resource_node.go
    """
    groups = (group for group in tree.above(tree.cohort_of(queue)) if group != tree.root)
    return sum(max(0, tree.cohort_nominal(group, flavor, resource)) for group in groups)


@lru_cache(maxsize=4)
def _borrowers(tree: Tree) -> dict[str, list[str]]:
    """By flavor: queues that may borrow its GPUs, or its CPUs."""
    return {
        name: [
            queue
            for queue in tree.queue_owners
            if (share := tree.share(queue, name, flavor.resource or CPU)).effective_limit > share.guaranteed
        ]
        for name, flavor in tree.flavors.items()
    }


def reclaims(tree: Tree, queue: str, flavor: str) -> bool:
    """Whether others may borrow what a queue is guaranteed, or needs beside it, and it may reclaim."""
    policy = tree.stack.teams[queue].preemption.reclaim_within_cohort
    return policy != "Never" and any(other != queue for other in _borrowers(tree)[flavor])


def _workloads(tree: Tree, team: str) -> Iterator[tuple[Path, ResolvedServer | Training]]:
    spec, place = tree.stack.teams[team], ("teams", team)
    yield from (((*place, "training", name), job) for name, job in spec.training.items() if not is_gang(job))
    yield from ((server.written_at(), server) for server in spec.serving.values())
    if notebooks := spec.notebooks:
        for name, size in notebooks.sizes.items():
            yield (*place, "notebooks", "sizes", name), as_job(notebooks, size)


def _requests(tree: Tree, team: str, workload: ResolvedServer | Training) -> dict[str, Amounts]:
    """Requests by flavor of the pods that are admitted together; empty if a flavor is ambiguous."""
    found: dict[str, Amounts] = {}
    for role, part in parts(tree, team, workload).items():
        size = pod_size(tree, team, part)
        if size is None:
            return {}
        pods = workload.pods_by_role[role]
        if isinstance(workload, Training) and workload.elastic:
            pods = workload.workers.min
        found[size.flavor.name] = add(found.get(size.flavor.name, {}), times(size.amounts, pods))
    return found


def guarantee_warnings(tree: Tree) -> Iterator[str]:
    """Guarantees of GPUs that CPU or memory bound, each with its place and the fix.

    Either there is less of it than the GPUs' share of the machine, or one workload uses the share of further GPUs.
    """
    for queue in tree.queue_owners:
        for flavor in tree.flavors.values():
            guarantee, borrows = tree.guarantee(queue, flavor.name), _borrows(tree, queue, flavor.name)
            low = {name: amount for name, amount in guarantee.below(flavor.per_gpu).items() if name in borrows}
            if low and reclaims(tree, queue, flavor.name):
                gpus = counted(guarantee.units, guarantee.resource)
                share = " and ".join(counted(flavor.per_gpu[name] * guarantee.units, name) for name in low)
                keys = " and ".join(guarantee.key(queue, name) for name in low)
                about, more = f"guaranteed are {guarantee}", "a job that requests more gets no GPUs back"
                if tree.stack.fairness.even:
                    more = "a job that requests more borrows, so shares decide whether it gets GPUs back"
                fix = f"the share of {gpus} in the machine is {share}: raise {keys}, or keep to it"
                yield f"{dotted(('teams', queue))}: {about}; {more}; {fix}"
        workloads = list(_guaranteed(tree, queue))
        for found in workloads:
            yield from _greedy(queue, found)
        for lacks in filter(None, (_lacking(tree, queue, found) for found in workloads)):
            if lacks.of_cohort or tree.stack.fairness.even:
                needs = f"needs {counted(lacks.amount, lacks.resource)} of flavor {lacks.lacking.flavor}"
                bound = counted(lacks.lacking.amounts[lacks.resource], lacks.resource)
                so = "shares decide whether it gets its GPUs back"
                if not tree.stack.fairness.even:
                    so = "it gets its GPUs back only while no other team uses the quota of its cohort"
                fix = f"raise {lacks.lacking.key(queue, lacks.resource)}"
                yield f"{dotted(lacks.path)}: {needs}, and {queue} is guaranteed {bound}, so {so}; {fix}"


def _borrows(tree: Tree, queue: str, flavor: str) -> set[str]:
    """Resources that the queue may borrow, or lends: of all others, its guarantee is always there and is its limit."""
    shares = tree.team_shares[queue].get(flavor, {})
    return {name for name, share in shares.items() if tree.lends(queue) or share.effective_limit > share.guaranteed}


def _greedy(queue: str, found: _Workload) -> Iterator[str]:
    requests, guarantee = found.requests[found.gpus.flavor], found.gpus
    left = guarantee.units - requests[guarantee.resource] * found.count
    for name, guaranteed in guarantee.beside.items():
        each = requests[name]
        enough = (guaranteed - each * found.count) * guarantee.units // guaranteed if guaranteed else 0
        if 0 < guaranteed // each < found.count:
            says = f"while it runs, {guaranteed // each} of {found.count} replicas are covered"
        elif 0 <= enough < left:
            says = f"while it runs, {enough} of the {left} other GPUs are covered"
        else:
            continue
        uses = f"uses {counted(each * found.count, name)} of the {counted(guaranteed, name)}"
        gpus = counted(guarantee.units, guarantee.resource, guarantee.flavor)
        fix = f"lower its {name}, or raise {guarantee.key(queue, name)}"
        yield f"{dotted(found.path)}: {uses} that {queue} is guaranteed with {gpus}: {says}; {fix}"
