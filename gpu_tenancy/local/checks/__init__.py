"""Checks of a stack's guarantees on a live cluster: sample pods and jobs for its own admission and scheduling.

They leave no objects: samples are dry runs, or run on temporary nodes, in temporary namespaces and temporary queues.
"""

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from gpu_tenancy.base.progress import Report
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.bound import KINDS, read_checked
from gpu_tenancy.cluster.supply import Facts
from gpu_tenancy.embedded.controllers.table import read_rows
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.local.checks.access import check_access
from gpu_tenancy.local.checks.check import Check
from gpu_tenancy.local.checks.gangs import check_gangs
from gpu_tenancy.local.checks.placement import check_placement
from gpu_tenancy.local.checks.queueing import check_queueing, manifest_of_anyone
from gpu_tenancy.local.checks.scaling import check_scaling
from gpu_tenancy.local.checks.workloads import check_topology, check_workloads
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.simulation.copies import copied

__all__ = ["Check", "Controllers", "check_all"]


@dataclass(frozen=True, slots=True)
class Controllers:
    """The charts whose controllers run, such as `kueue`, and for other charts why they were not started."""

    running: Collection[str]
    unavailable: Mapping[str, str]

    def why_not(self, name: str) -> str:
        """Why an operator, or a chart without one, does not run; empty if it does."""
        charts = [chart for chart, row in read_rows().items() if (row.operator or chart) == name]
        title = operators()[name].title if name in operators() else name
        if not charts:
            return f"{title} does not run on the embedded platform"
        missing = (chart for chart in charts if chart not in self.running)
        return next((self.unavailable.get(chart, f"{title} does not run") for chart in missing), "")


def check_all(
    cluster: Cluster, plan: Plan, tree: Tree, controllers: Controllers, report: Report = lambda _: None
) -> Iterator[Check]:
    """Runs all checks of a stack on its embedded platform; reports a check that takes long."""
    yield from check_placement(cluster, plan, tree)
    yield from check_access(cluster, tree)
    if plan.caches:
        names = ", ".join(cache.dataset for cache in plan.caches)
        yield Check(f"pods read the caches of datasets ({names})", controllers.why_not("fluid"), holds=None)
    with ThreadPoolExecutor(1) as pool:
        # It waits for the autoscaler most of the time, and touches neither queues nor temporary nodes.
        missing = {name: controllers.why_not(name) for name in ("metrics-server", "keda", "kueue", "volcano")}
        scaled = pool.submit(
            lambda: tuple(check_scaling(cluster, plan, report, missing["metrics-server"], missing["keda"]))
        )
        if missing["kueue"]:
            promise = "queues give each team its guarantee, and no more than its limit"
            yield from (Check(promise, missing["kueue"], holds=None) for _ in plan.queues.cluster_queues[:1])
        else:
            with copied(cluster, tree, more=(manifest_of_anyone(tree),)) as places:
                yield from check_queueing(cluster, tree, places)
                if not missing["volcano"]:
                    yield from check_gangs(cluster, plan, tree, places)
            if missing["volcano"] and plan.queues.gang_queues:
                yield Check("a gang starts whole or not at all", missing["volcano"], holds=None)
                yield Check("no GPU is promised by both schedulers", missing["volcano"], holds=None)
        yield from scaled.result()
    if not missing["kueue"]:
        yield from check_workloads(cluster, plan, controllers.why_not)
        yield from check_topology(cluster, plan)
        state = read_checked(cluster, KINDS)
        if totals := Facts(state).totals:  # It has GPUs.
            used = plural(sum(total.used for total in totals), "GPU")
            seen = "; ".join(breach.text for breach in state.breaches) or f"{used} of pods on nodes, all counted"
            yield Check("no queue has more GPUs on nodes than it counts", seen, holds=not state.breaches)
