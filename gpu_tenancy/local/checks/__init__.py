"""Checks of a stack's guarantees on a live cluster: sample pods and jobs for its own admission and scheduling.

They leave no objects: samples are dry runs, or run on temporary nodes, in temporary namespaces and temporary queues.
"""

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from gpu_tenancy.base.progress import Report
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.local.checks.access import prove_access
from gpu_tenancy.local.checks.gangs import prove_gangs
from gpu_tenancy.local.checks.placement import prove_placement
from gpu_tenancy.local.checks.proof import Proof
from gpu_tenancy.local.checks.queueing import manifest_of_anyone, prove_queueing
from gpu_tenancy.local.checks.scaling import prove_scaling
from gpu_tenancy.local.checks.topology import prove_topology
from gpu_tenancy.local.checks.workloads import prove_workloads
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.simulation.live.copies import copied

__all__ = ["Proof", "prove"]

KUEUE: Final = "kueue"
METRICS: Final = "metrics-server"
VOLCANO: Final = "volcano"
_WITHOUT_FLUID: Final = "not checked: Fluid's controllers, its CSI driver and its mounts do not run here"
_WITHOUT_VOLCANO: Final = "not checked: Volcano does not run"


def prove(
    cluster: Cluster, plan: Plan, tree: Tree, running: Collection[str], report: Report = lambda _: None
) -> tuple[Proof, ...]:
    """Runs all checks, on a cluster whose nodes are simulated by kwok.

    Args:
        cluster: of the embedded platform, with the stack.
        plan: of the stack.
        tree: of the stack.
        running: charts whose controllers run, such as `kueue`.
        report: receives a line for a check that takes long.
    """
    return tuple(_all(cluster, plan, tree, running, report))


def _all(cluster: Cluster, plan: Plan, tree: Tree, running: Collection[str], report: Report) -> Iterator[Proof]:
    yield from prove_placement(cluster, plan, tree)
    yield from prove_access(cluster, tree)
    if plan.caches:
        names = ", ".join(cache.dataset for cache in plan.caches.caches)
        yield Proof(f"pods read the caches of datasets ({names})", _WITHOUT_FLUID, holds=None)
    if not running:
        return
    with ThreadPoolExecutor(1) as pool:
        # It waits for the autoscaler most of the time, and touches neither queues nor temporary nodes.
        scaled = pool.submit(lambda: tuple(prove_scaling(cluster, plan, report, metered=METRICS in running)))
        if KUEUE in running:
            yield from _queued(cluster, plan, tree, running)
        yield from scaled.result()
    if KUEUE in running:
        yield from prove_workloads(cluster, plan, gangs=VOLCANO in running)
        yield from prove_topology(cluster, plan)


def _queued(cluster: Cluster, plan: Plan, tree: Tree, running: Collection[str]) -> Iterator[Proof]:
    with copied(cluster, tree, more=(manifest_of_anyone(tree),)) as places:
        yield from prove_queueing(cluster, tree, places)
        if VOLCANO in running:
            yield from prove_gangs(cluster, plan, tree, places)
    if VOLCANO not in running and plan.queues.gang_queues:
        yield Proof("a gang starts whole or not at all", _WITHOUT_VOLCANO, holds=None)
        yield Proof("no GPU is promised by both schedulers", _WITHOUT_VOLCANO, holds=None)
