"""Checks of a stack's guarantees on a live cluster: sample pods and jobs for its own admission and scheduling.

They leave no objects: samples are dry runs, or run on temporary nodes, in temporary namespaces and temporary queues.
"""

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from gpu_tenancy.base.progress import Report
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.local.checks.access import check_access
from gpu_tenancy.local.checks.check import Check
from gpu_tenancy.local.checks.gangs import check_gangs
from gpu_tenancy.local.checks.placement import check_placement
from gpu_tenancy.local.checks.queueing import check_queueing, manifest_of_anyone
from gpu_tenancy.local.checks.scaling import check_scaling
from gpu_tenancy.local.checks.workloads import check_topology, check_workloads
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.simulation.live.copies import copied

__all__ = ["Check", "check_all"]

KUEUE: Final = "kueue"
METRICS: Final = "metrics-server"
VOLCANO: Final = "volcano"
_WITHOUT_FLUID: Final = "not checked: Fluid's controllers, its CSI driver and its mounts do not run here"
_WITHOUT_VOLCANO: Final = "not checked: Volcano does not run"


def check_all(
    cluster: Cluster, plan: Plan, tree: Tree, running: Collection[str], report: Report = lambda _: None
) -> tuple[Check, ...]:
    """Runs all checks, on a cluster whose nodes are simulated by kwok.

    Args:
        cluster: of the embedded platform, with the stack.
        plan: of the stack.
        tree: of the stack.
        running: charts whose controllers run, such as `kueue`.
        report: receives a line for a check that takes long.
    """
    return tuple(_all(cluster, plan, tree, running, report))


def _all(cluster: Cluster, plan: Plan, tree: Tree, running: Collection[str], report: Report) -> Iterator[Check]:
    yield from check_placement(cluster, plan, tree)
    yield from check_access(cluster, tree)
    if plan.caches:
        names = ", ".join(cache.dataset for cache in plan.caches.caches)
        yield Check(f"pods read the caches of datasets ({names})", _WITHOUT_FLUID, holds=None)
    if not running:
        return
    with ThreadPoolExecutor(1) as pool:
        # It waits for the autoscaler most of the time, and touches neither queues nor temporary nodes.
        scaled = pool.submit(lambda: tuple(check_scaling(cluster, plan, report, metered=METRICS in running)))
        if KUEUE in running:
            yield from _queued(cluster, plan, tree, running)
        yield from scaled.result()
    if KUEUE in running:
        yield from check_workloads(cluster, plan, gangs=VOLCANO in running)
        yield from check_topology(cluster, plan)


def _queued(cluster: Cluster, plan: Plan, tree: Tree, running: Collection[str]) -> Iterator[Check]:
    with copied(cluster, tree, more=(manifest_of_anyone(tree),)) as places:
        yield from check_queueing(cluster, tree, places)
        if VOLCANO in running:
            yield from check_gangs(cluster, plan, tree, places)
    if VOLCANO not in running and plan.queues.gang_queues:
        yield Check("a gang starts whole or not at all", _WITHOUT_VOLCANO, holds=None)
        yield Check("no GPU is promised by both schedulers", _WITHOUT_VOLCANO, holds=None)
