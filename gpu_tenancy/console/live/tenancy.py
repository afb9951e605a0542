"""A cluster's queues and cohorts as input of the simulation of Kueue: one cohort tree."""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final, TypeVar

from gpu_tenancy.console.live.pods import Manifest, called
from gpu_tenancy.console.live.queues import Queues
from gpu_tenancy.console.live.tree import Line, Quota, quotas
from gpu_tenancy.console.live.workloads import Workload
from gpu_tenancy.console.offline.wire import Json, at, maps_at, text_at
from gpu_tenancy.model import admission
from gpu_tenancy.model.admission import (
    FAIR,
    BorrowWithinCohort,
    FlavorQuotas,
    Fungibility,
    Policy,
    Preemption,
    ResourceGroup,
    Strategy,
    Unmodelled,
)
from gpu_tenancy.model.quantity import parse_quantity

MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
"""The controller of the admission checks that send a workload to another cluster."""
_COVERED: Final = frozenset((Unmodelled.STOPPED_QUEUES, Unmodelled.NAMESPACES))
"""Not in the simulation, but the snapshot leaves out such workloads."""

_Choice = TypeVar("_Choice", bound=StrEnum)


def tenancy(queues: Queues, target: str) -> admission.Tenancy:
    """The cohort tree of a ClusterQueue, without the cluster's other trees."""
    state = queues.state
    names, cohorts = queues.tree.related(target)
    return admission.Tenancy(
        queues=tuple(_queue(each) for each in state.of("ClusterQueue") if called(each) in names),
        cohorts=tuple(
            admission.Cohort(called(each), text_at(each, "spec", "parentName") or None, _groups(each), _weight(each))
            for each in state.of("Cohort")
            if called(each) in cohorts
        ),
        fair_sharing=FAIR if _fair(state.of("ClusterQueue")) else None,
    )


def _fair(manifests: Collection[Manifest]) -> bool:
    """Whether fair sharing is on. Only Kueue's configuration says so, which tenants may not read.

    If it is on, Kueue writes each queue's share into its status; where there is no status, a weight indicates it.
    """
    counted = [each for each in manifests if maps_at(each, "status", "conditions")]
    if counted:
        return any(isinstance(at(each, "status", "fairSharing"), dict) for each in counted)
    return any(at(each, "spec", "fairSharing", "weight") is not None for each in manifests)


def _queue(manifest: Manifest) -> admission.ClusterQueue:
    borrows = text_at(manifest, "spec", "preemption", "borrowWithinCohort", "policy") == "LowerPriority"
    threshold = at(manifest, "spec", "preemption", "borrowWithinCohort", "maxPriorityThreshold")
    usual = Fungibility()
    return admission.ClusterQueue(
        name=called(manifest),
        groups=_groups(manifest),
        cohort=text_at(manifest, "spec", "cohortName") or None,
        strategy=_chosen(Strategy.BEST_EFFORT, manifest, "queueingStrategy"),
        preemption=Preemption(
            within=_chosen(Policy.NEVER, manifest, "preemption", "withinClusterQueue"),
            reclaim=_chosen(Policy.NEVER, manifest, "preemption", "reclaimWithinCohort"),
            borrow=BorrowWithinCohort(threshold if isinstance(threshold, int) else None) if borrows else None,
        ),
        fungibility=Fungibility(
            _chosen(usual.when_can_borrow, manifest, "flavorFungibility", "whenCanBorrow"),
            _chosen(usual.when_can_preempt, manifest, "flavorFungibility", "whenCanPreempt"),
            _chosen(usual.preference, manifest, "flavorFungibility", "preference"),
        ),
        weight=_weight(manifest),
    )


def _chosen(usual: _Choice, manifest: Manifest, *keys: str) -> _Choice:
    """The value of a field, or its default.

    Raises:
        ValueError: Kueue 0.19 does not know the value.
    """
    value = text_at(manifest, "spec", *keys)
    return type(usual)(value) if value else usual


def _weight(manifest: Manifest) -> float:
    weight = at(manifest, "spec", "fairSharing", "weight")
    return 1.0 if weight is None else float(parse_quantity(str(weight)))


def _groups(manifest: Manifest) -> tuple[ResourceGroup, ...]:
    """Resource groups, with flavors in the order in which Kueue tries them."""
    lines = quotas(manifest)
    return tuple(
        ResourceGroup(tuple(_flavor(text_at(flavor, "name"), flavor, lines) for flavor in maps_at(group, "flavors")))
        for group in maps_at(manifest, "spec", "resourceGroups")
    )


def _flavor(name: str, flavor: Manifest, lines: Mapping[Line, Quota]) -> FlavorQuotas:
    named = [text_at(each, "name") for each in maps_at(flavor, "resources")]
    own = {each: lines[name, each] for each in named}
    return FlavorQuotas(name, {key: admission.Quota(q.nominal, q.borrowing, q.lending) for key, q in own.items()})


def left_out(queues: Queues, target: str, workloads: Iterable[Workload]) -> tuple[Unmodelled, ...]:
    """What a queue or the workloads of its tree use and the simulation does not cover."""
    state = queues.state
    queue = next(each for each in state.of("ClusterQueue") if called(each) == target)
    flavors = {flavor for flavor, _ in queues.tree.queues[target].quotas}
    used: list[Mapping[str, Json]] = [{**queue, "kind": "ClusterQueue"}]
    used += [{**each, "kind": "ResourceFlavor"} for each in state.of("ResourceFlavor") if called(each) in flavors]
    # Kueue writes a topology request into every workload; it has an effect only where a flavor has a topology.
    asked = set(admission.unmodelled({**each.manifest, "kind": "Workload"} for each in workloads)) - {
        Unmodelled.TOPOLOGY
    }
    found = (set(admission.unmodelled(used)) | asked) - _COVERED
    checks = {*_names(at(queue, "spec", "admissionChecks"))} | {
        text_at(each, "name") for each in maps_at(queue, "spec", "admissionChecksStrategy", "admissionChecks")
    }
    if any(
        called(each) in checks and text_at(each, "spec", "controllerName") == MULTIKUEUE
        for each in state.of("AdmissionCheck")
    ):
        found.add(Unmodelled.MULTIKUEUE)
    return tuple(part for part in Unmodelled if part in found)


def _names(value: Json) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []
