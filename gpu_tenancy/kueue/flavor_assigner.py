"""Flavors for every pod set of a workload: flavors that fit, or flavors that need preemption.

The flavors of a resource group are tried in order, for all its resources together; `flavorFungibility` decides whether
the search stops at a flavor that needs borrowing (by default it does) or preemption.
Rules: pkg/scheduler/flavorassigner of kubernetes-sigs/kueue at v0.19.2.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from gpu_tenancy.kueue.api import Fungibility, Fungible, Policy, Preference
from gpu_tenancy.kueue.resource_node import Amounts, lowest_subtree_that_fits
from gpu_tenancy.kueue.workload_info import FlavorReason, Group, LastAssignment, Queue, WorkloadInfo


class Mode(IntEnum):
    """How a workload could be admitted in a flavor, from worst to best; Kueue's `preemptionMode`."""

    NO_FIT = 0
    NO_PREEMPTION_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


class GranularMode(NamedTuple):
    """A mode with its borrowing level, the height of the lowest subtree that fits; Kueue's `granularMode`."""

    mode: Mode
    borrowing: int


class FlavorAssignment(NamedTuple):
    """The flavor of one resource of a pod set, with their key and the borrowing level."""

    flavor: str
    key: int
    mode: Mode
    borrowing: int


SimulatePreemption: TypeAlias = Callable[[frozenset[int], Amounts], tuple[Mode, int]]
"""Kueue's `PreemptionOracle`: mode and borrowing level after preemption, for a key and for the key with its amount."""


@dataclass(slots=True)
class Assignment:
    """The flavors of a workload, the usage by key, and the reasons why flavors did not fit."""

    # The flavor of each resource of each pod set; empty for a pod set that fits nowhere, the last one.
    pod_sets: list[dict[str, FlavorAssignment]] = field(default_factory=list[dict[str, FlavorAssignment]])
    usage: dict[int, int] = field(default_factory=dict[int, int])
    amounts: Amounts = ()  # the whole usage, without zeros
    borrowing: int = 0  # the highest level
    # FIT, PREEMPT or NO_FIT, the worst of all pod sets; it can be FIT although a resource needs preemption.
    mode: Mode = Mode.NO_FIT
    reasons: list[FlavorReason] = field(default_factory=list[FlavorReason])
    last_assignment: LastAssignment | None = None

    @property
    def needs_preemption(self) -> frozenset[int]:
        """Keys that need preemption; Kueue's `flavorResourcesNeedPreemption`."""
        return frozenset(
            assigned.key for pod_set in self.pod_sets for assigned in pod_set.values() if assigned.mode is not Mode.FIT
        )


def assign(workload: WorkloadInfo, simulate_preemption: SimulatePreemption, cycle: int, *, fair: bool) -> Assignment:
    """Finds flavors for all pod sets of a pending workload, from its `last_assignment` on; `fair` is fair sharing."""
    queue = workload.queue
    # Although it would borrow; Kueue's `canPreemptWhileBorrowing`.
    preemption = queue.spec.preemption
    can_preempt = preemption.borrow is not None or (fair and preemption.reclaim is not Policy.NEVER)
    assignment = Assignment()
    last_tried_flavor: list[dict[str, int]] = []
    worst = Mode.FIT
    for index, requests in enumerate(workload.requests):
        assigned: dict[str, FlavorAssignment] = {}
        last_tried: dict[str, int] = {}
        failed, fits = False, True
        for resource, amount in requests.items():
            group = queue.group_of.get(resource)
            if group is None:
                if amount == 0:
                    continue
                assignment.reasons.append(FlavorReason(resource, "", amount, amount, None))
                failed = True
                break
            if resource in assigned:
                continue
            search = _FlavorSearch(workload, index, group, simulate_preemption, assignment, can_preempt)
            best, best_mode, last_tried_index = search.run(resource)
            if not best:
                failed = True
                break
            fits = fits and best_mode is Mode.FIT
            assigned |= best
            last_tried |= dict.fromkeys(best, last_tried_index)
        if failed:
            assigned, last_tried = {}, {}
        assignment.pod_sets.append(assigned)
        last_tried_flavor.append(last_tried)
        for resource, flavor in assigned.items():
            assignment.borrowing = max(assignment.borrowing, flavor.borrowing)
            assignment.usage[flavor.key] = assignment.usage.get(flavor.key, 0) + requests[resource]
            # Kueue takes a pod set for one that fits if the representative mode of its flavors is so. By the preference
            # PreemptionOverBorrowing, that hides a resource which needs preemption behind one that fits by borrowing.
            worst = min(worst, Mode.FIT if fits or flavor.mode is Mode.FIT else Mode.PREEMPT)
        if failed:
            worst = Mode.NO_FIT
            break
    assignment.mode = worst if workload.requests else Mode.NO_FIT
    assignment.amounts = tuple((key, amount) for key, amount in assignment.usage.items() if amount)
    untried = any(index != -1 for indices in last_tried_flavor for index in indices.values())
    assignment.last_assignment = LastAssignment(tuple(last_tried_flavor), cycle, queue.generation, untried)
    return assignment


@dataclass(slots=True)
class _FlavorSearch:
    """The search in one resource group for one pod set; Kueue's `findFlavorForPodSets`."""

    workload: WorkloadInfo
    index: int
    group: Group
    simulate_preemption: SimulatePreemption
    assignment: Assignment
    can_preempt_while_borrowing: bool

    def run(self, resource: str) -> tuple[dict[str, FlavorAssignment], Mode, int]:
        """The group's best flavor, empty if none fits; its representative mode; last tried index, -1 if all were."""
        fungibility = self.workload.queue.spec.fungibility
        suitable, requests = self.workload.spec.pod_sets[self.index].flavors, self.workload.requests[self.index]
        first, last = 0, self.workload.last_assignment
        if last is not None and self.index < len(last.last_tried_flavor):
            first = last.last_tried_flavor[self.index].get(resource, -1) + 1
        best: dict[str, FlavorAssignment] = {}
        best_mode: GranularMode | None = None
        last_tried = -1
        flavors = self.group.flavors
        for index in range(first, len(flavors)):
            last_tried = index
            name, keys = flavors[index]
            if suitable is not None and name not in suitable:
                self._add_reason(resource, name, requests[resource], None)
                continue
            assigned, representative_mode = self._try_flavor(name, keys, fungibility)
            if not _should_try_next_flavor(representative_mode, fungibility):
                best, best_mode = assigned, representative_mode
                break
            if is_preferred(representative_mode, best_mode, fungibility):
                best, best_mode = assigned, representative_mode
        mode = Mode.NO_FIT if best_mode is None else best_mode.mode
        return best, mode, -1 if last_tried == len(flavors) - 1 else last_tried

    def _try_flavor(
        self, name: str, keys: dict[str, int], fungibility: Fungibility
    ) -> tuple[dict[str, FlavorAssignment], GranularMode]:
        """The flavor for all resources of the group; its representative mode is the worst of the resources."""
        assigned: dict[str, FlavorAssignment] = {}
        worst = GranularMode(Mode.FIT, 0)
        for resource, amount in self.workload.requests[self.index].items():
            if resource not in self.group.covered:
                continue
            mode = self._fits_resource_quota(name, keys[resource], resource, amount)
            if is_preferred(worst, mode, fungibility):
                worst = mode
            if worst.mode is Mode.NO_FIT:
                return {}, worst
            assigned[resource] = FlavorAssignment(name, keys[resource], mode.mode, mode.borrowing)
        return assigned, worst

    def _fits_resource_quota(self, flavor: str, key: int, resource: str, amount: int) -> GranularMode:
        queue: Queue = self.workload.queue
        # Includes the previous pod sets.
        requested = self.assignment.usage.get(key, 0) + amount
        if requested > queue.potential_available[key]:
            self._add_reason(resource, flavor, requested, queue.potential_available[key])
            return GranularMode(Mode.NO_FIT, 0)
        borrowing, may_reclaim = lowest_subtree_that_fits(queue, key, requested)
        available = max(0, queue.available(key))
        if requested <= available:
            return GranularMode(Mode.FIT, borrowing)
        self._add_reason(resource, flavor, requested, queue.potential_available[key], requested - available)
        if queue.nominal[key] >= requested or may_reclaim or self.can_preempt_while_borrowing:
            return GranularMode(*self.simulate_preemption(frozenset((key,)), ((key, requested),)))
        return GranularMode(Mode.NO_FIT, borrowing)

    def _add_reason(self, resource: str, flavor: str, requested: int, maximum: int | None, missing: int = 0) -> None:
        self.assignment.reasons.append(FlavorReason(resource, flavor, requested, missing, maximum))


def is_preferred(mode: GranularMode, other: GranularMode | None, fungibility: Fungibility) -> bool:
    """Whether a mode is better than another, or than none; Kueue's `isPreferred`.

    A flavor without preemption candidates is worse than every flavor that may be admitted.
    """
    if mode.mode is Mode.NO_FIT:
        return False
    if other is None or other.mode is Mode.NO_FIT:
        return True
    if (mode.mode is Mode.NO_PREEMPTION_CANDIDATES) != (other.mode is Mode.NO_PREEMPTION_CANDIDATES):
        return other.mode is Mode.NO_PREEMPTION_CANDIDATES
    if fungibility.preference is Preference.PREEMPT:
        return (-mode.borrowing, mode.mode) > (-other.borrowing, other.mode)
    return (mode.mode, -mode.borrowing) > (other.mode, -other.borrowing)


def _should_try_next_flavor(mode: GranularMode, fungibility: Fungibility) -> bool:
    if mode.mode in (Mode.NO_FIT, Mode.NO_PREEMPTION_CANDIDATES):
        return True
    if mode.mode in (Mode.PREEMPT, Mode.RECLAIM) and fungibility.when_can_preempt is Fungible.NEXT:
        return True
    return mode.borrowing > 0 and fungibility.when_can_borrow is Fungible.NEXT
