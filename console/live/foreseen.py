"""What would become of a workload that came now, by the simulation of Kueue on the cluster's own state."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from console.cluster.waiting import condition
from console.live.pods import Manifest, called
from console.live.queueing import unfit
from console.live.queues import Queues
from console.live.tree import Line, quotas
from console.live.workloads import PodSet, Workload, waiting
from console.offline.wire import at, text_at
from model import admission
from model.admission import FAIR, BorrowWithinCohort, FlavorQuotas, Policy, Preemption, ResourceGroup, Strategy

_NAME: Final = "this one"


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What the simulation says.

    Attributes:
        runs: whether it would be admitted.
        gone: workloads that would have to give way, as `namespace/name`.
        why: why it would wait; empty where it would not.
    """

    runs: bool
    gone: tuple[str, ...]
    why: str

    @property
    def words(self) -> str:
        """It in a sentence."""
        if not self.runs:
            return f"simulated, if it came now it would wait: {self.why}"
        if not self.gone:
            return "simulated, if it came now it would be admitted, and nobody would give way"
        shown = ", ".join(self.gone[:_SHOWN]) + (
            f" and {len(self.gone) - _SHOWN} more" if len(self.gone) > _SHOWN else ""
        )
        return f"simulated, if it came now it would be admitted, and {shown} would give way"


_SHOWN: Final = 5


def foresee(queues: Queues, target: str, sets: Sequence[PodSet], priority: int) -> Foreseen | None:
    """Puts a workload into a ClusterQueue of the cluster as it is now.

    What holds quota comes first, in the order in which it got it, then what waits, then this one. Fair sharing is taken
    for on where a queue says a weight, since Kueue's own configuration is not an object that tenants read.

    Returns:
        None where the cluster's state cannot be played: something that holds quota would not get it again, or some
        tree never comes to rest.
    """
    try:
        simulation = admission.Simulation(_tenancy(queues))
        for each in sorted(_holding(queues.workloads), key=_reserved):
            if each.held and (queue := queues.queue_of(each)):
                simulation.submit(_held(each, queue))
        if simulation.rest() or simulation.settled().pending:
            return None
        for each in waiting(queues.workloads):
            if queue := queues.queue_of(each):
                simulation.submit(_asked(queues, f"{each.namespace}/{each.name}", queue, each.sets, each.priority))
        simulation.rest()
        before = {each.name for each in simulation.settled().admitted}
        simulation.submit(_asked(queues, _NAME, target, sets, priority))
        restless = simulation.rest()
    except ValueError:  # Queues that contradict themselves, which Kueue's own conditions tell.
        return None
    if restless:
        return None
    after = simulation.settled()
    running = {each.name for each in after.admitted}
    why = next((each.why for each in after.pending if each.name == _NAME), "")
    return Foreseen(_NAME in running, tuple(sorted(before - running)), why)


def _tenancy(queues: Queues) -> admission.Tenancy:
    state = queues.state
    found = state.of("ClusterQueue")
    weights = any(at(each, "spec", "fairSharing", "weight") is not None for each in found)
    return admission.Tenancy(
        queues=tuple(_queue(each) for each in found),
        cohorts=tuple(
            admission.Cohort(called(each), text_at(each, "spec", "parentName") or None, _groups(each), _weight(each))
            for each in state.of("Cohort")
        ),
        fair_sharing=FAIR if weights else None,
    )


def _queue(manifest: Manifest) -> admission.ClusterQueue:
    said = {
        key: text_at(manifest, "spec", "preemption", key) or "Never"
        for key in ("withinClusterQueue", "reclaimWithinCohort")
    }
    borrows = text_at(manifest, "spec", "preemption", "borrowWithinCohort", "policy") == "LowerPriority"
    threshold = at(manifest, "spec", "preemption", "borrowWithinCohort", "maxPriorityThreshold")
    return admission.ClusterQueue(
        name=called(manifest),
        groups=_groups(manifest),
        cohort=text_at(manifest, "spec", "cohortName") or None,
        strategy=Strategy(text_at(manifest, "spec", "queueingStrategy") or "BestEffortFIFO"),
        preemption=Preemption(
            within=Policy(said["withinClusterQueue"]),
            reclaim=Policy(said["reclaimWithinCohort"]),
            borrow=BorrowWithinCohort(threshold if isinstance(threshold, int) else None) if borrows else None,
        ),
        weight=_weight(manifest),
    )


def _weight(manifest: Manifest) -> float:
    said = text_at(manifest, "spec", "fairSharing", "weight")
    return float(said) if said else 1.0


def _groups(manifest: Manifest) -> tuple[ResourceGroup, ...]:
    """One group with all of them: a flavor's resources are of one group, and flavors keep their order."""
    lines = quotas(manifest)
    flavors = [
        FlavorQuotas(flavor, {name: admission.Quota(q.nominal, q.borrowing, q.lending) for (_, name), q in each})
        for flavor, each in groupby(lines.items(), key=lambda line: line[0][0])
    ]
    by_cover: dict[frozenset[str], list[FlavorQuotas]] = {}
    for each in flavors:
        by_cover.setdefault(frozenset(each.resources), []).append(each)
    return tuple(ResourceGroup(tuple(each)) for each in by_cover.values())


def _holding(workloads: Iterable[Workload]) -> list[Workload]:
    return [each for each in workloads if each.stage in {"admitted", "checked"}]


def _reserved(workload: Workload) -> tuple[str, str, str]:
    since = text_at(condition(workload.manifest, "QuotaReserved"), "lastTransitionTime")
    return since, workload.namespace, workload.name


def _held(workload: Workload, queue: str) -> admission.Workload:
    """What it holds, each flavor's part as a pod set of its own that only this flavor suits."""
    parts: dict[str, dict[str, int]] = {}
    for (flavor, resource), amount in workload.held.items():
        parts.setdefault(flavor, {})[resource] = amount
    sets = tuple(
        admission.PodSet(asked, flavors=frozenset({flavor}), name=flavor) for flavor, asked in sorted(parts.items())
    )
    return admission.Workload(f"{workload.namespace}/{workload.name}", queue, sets, workload.priority)


def _asked(queues: Queues, name: str, target: str, sets: Sequence[PodSet], priority: int) -> admission.Workload:
    return admission.Workload(name, target, _pod_sets(queues, target, sets), priority)


def _pod_sets(queues: Queues, target: str, sets: Sequence[PodSet]) -> tuple[admission.PodSet, ...]:
    """Pods with what the queue covers of their requests, and the flavors whose labels and taints suit them."""
    flavors: Mapping[str, Manifest] = {called(each): each for each in queues.state.of("ResourceFlavor")}
    lines: Iterable[Line] = queues.tree.queues[target].quotas
    names = {flavor for flavor, _ in lines}
    counted = {"pods": 1} if any(resource == "pods" for _, resource in lines) else {}
    return tuple(
        admission.PodSet(
            {name: amount for name, amount in each.pod.items() if amount and name != "pods"} | counted,
            each.count,
            frozenset(name for name in names if not unfit(name, flavors.get(name), each.spec)),
            each.name,
        )
        for each in sets
    )
