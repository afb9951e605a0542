"""Which flavor a workload gets, and what that would take: nothing, borrowing, or preemption.

The flavors of a resource group are tried in their order, for all resources of the group at once. Whether the search
stops at one that needs borrowing or preemption is the queue's `flavorFungibility`; by default it stops at borrowing.
Rules: pkg/scheduler/flavorassigner of kubernetes-sigs/kueue at v0.19.2.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from gpu_tenancy.model.admission.quota import Asks, distance
from gpu_tenancy.model.admission.spec import Fungibility, Fungible, Policy, Preference
from gpu_tenancy.model.admission.verdicts import Lack
from gpu_tenancy.model.admission.workload_info import Group, Queue, Scan, WorkloadInfo


class Mode(IntEnum):
    """What one flavor would take, from worst to best."""

    NO_FIT = 0
    NO_VICTIMS = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


class Grade(NamedTuple):
    """A mode, and how far up the tree the quota is borrowed from: 0 is not at all."""

    mode: Mode
    level: int


class Choice(NamedTuple):
    """A flavor for one resource of a pod set."""

    flavor: str
    key: int
    mode: Mode
    level: int


Oracle: TypeAlias = Callable[[frozenset[int], Asks], tuple[Mode, int]]
"""What preemption would do for one flavor and resource: the mode, and the level of borrowing after it."""


@dataclass(slots=True)
class Assignment:
    """What a workload would be admitted with.

    Attributes:
        sets: the choice for each pod set and resource; empty for one that found none, which ends the search.
        usage: amounts by number of flavor and resource.
        level: the farthest that anything is borrowed from.
    """

    sets: list[dict[str, Choice]] = field(default_factory=list[dict[str, Choice]])
    usage: dict[int, int] = field(default_factory=dict[int, int])
    level: int = 0
    mode: Mode = Mode.NO_FIT
    lacks: list[Lack] = field(default_factory=list[Lack])
    scan: Scan | None = None

    @property
    def asks(self) -> Asks:
        """The amounts, without what is nothing."""
        return tuple((key, amount) for key, amount in self.usage.items() if amount)

    @property
    def contested(self) -> frozenset[int]:
        """The flavors and resources that need preemption."""
        return frozenset(each.key for found in self.sets for each in found.values() if each.mode is not Mode.FIT)


def _while_borrowing(queue: Queue, *, fair: bool) -> bool:
    """Whether a workload of a queue may preempt although it would borrow."""
    preemption = queue.spec.preemption
    return preemption.borrow is not None or (fair and preemption.reclaim is not Policy.NEVER)


def assign(claim: WorkloadInfo, oracle: Oracle, cycle: int, *, fair: bool) -> Assignment:
    """Finds flavors for every pod set; the mode is FIT, PREEMPT or NO_FIT, whatever is worst among them."""
    queue = claim.queue
    found = Assignment()
    tried: list[dict[str, int]] = []
    worst = Mode.FIT
    for index, asks in enumerate(claim.asks):
        chosen: dict[str, Choice] = {}
        marks: dict[str, int] = {}
        failed = False
        for resource, amount in asks.items():
            group = queue.group_of.get(resource)
            if group is None:
                if amount == 0:
                    continue
                found.lacks.append(Lack(claim.workload.pod_sets[index].name, resource, "", amount, amount, None))
                failed = True
                break
            if resource in chosen:
                continue
            search = _Search(claim, index, group, oracle, found, fair=fair)
            picked, mark = search.run(resource)
            if not picked:
                failed = True
                break
            chosen |= picked
            marks |= dict.fromkeys(picked, mark)
        if failed:
            chosen, marks = {}, {}
        found.sets.append(chosen)
        tried.append(marks)
        for resource, choice in chosen.items():
            found.level = max(found.level, choice.level)
            found.usage[choice.key] = found.usage.get(choice.key, 0) + asks[resource]
            worst = min(worst, Mode.FIT if choice.mode is Mode.FIT else Mode.PREEMPT)
        if failed:
            worst = Mode.NO_FIT
            break
    found.mode = worst if claim.asks else Mode.NO_FIT
    found.scan = Scan(tuple(tried), cycle, queue.generation)
    return found


class _Search:
    """Through the flavors of one group, for one pod set."""

    def __init__(  # noqa: PLR0913 - what a search is about
        self, claim: WorkloadInfo, index: int, group: Group, oracle: Oracle, found: Assignment, *, fair: bool
    ) -> None:
        self._claim, self._group, self._oracle = claim, group, oracle
        self._found = found
        self._index = index
        self._pods = claim.workload.pod_sets[index]
        self._asks = {name: amount for name, amount in claim.asks[index].items() if name in group.covered}
        self._while_borrowing = _while_borrowing(claim.queue, fair=fair)

    def run(self, resource: str) -> tuple[dict[str, Choice], int]:
        """The best flavor's choices, and the index up to which flavors were looked at: -1 for all of them."""
        rules = self._claim.queue.spec.fungibility
        best: dict[str, Choice] = {}
        best_grade: Grade | None = None
        last = -1
        flavors = self._group.flavors
        for index in range(self._first(resource), len(flavors)):
            last = index
            name, keys = flavors[index]
            if self._pods.flavors is not None and name not in self._pods.flavors:
                self._lack(resource, name, self._asks[resource], None)
                continue
            choices, grade = self._try(name, keys, rules)
            if not _go_on(grade, rules):
                best = choices
                break
            if better(grade, best_grade, rules):
                best, best_grade = choices, grade
        return best, -1 if last == len(flavors) - 1 else last

    def _first(self, resource: str) -> int:
        scan = self._claim.scan
        if scan is None or self._index >= len(scan.tried):
            return 0
        return scan.tried[self._index].get(resource, -1) + 1

    def _try(self, name: str, keys: dict[str, int], rules: Fungibility) -> tuple[dict[str, Choice], Grade]:
        """One flavor for all resources of the group; its grade is the worst of theirs."""
        choices: dict[str, Choice] = {}
        worst = Grade(Mode.FIT, 0)
        for resource, amount in self._asks.items():
            grade = self._fits(name, keys[resource], resource, amount)
            if better(worst, grade, rules):
                worst = grade
            if worst.mode is Mode.NO_FIT:
                return {}, worst
            choices[resource] = Choice(name, keys[resource], grade.mode, grade.level)
        return choices, worst

    def _fits(self, flavor: str, key: int, resource: str, amount: int) -> Grade:
        queue: Queue = self._claim.queue
        wanted = self._found.usage.get(key, 0) + amount
        if wanted > queue.reach[key]:
            self._lack(resource, flavor, wanted, queue.reach[key])
            return Grade(Mode.NO_FIT, 0)
        level, above = distance(queue, key, wanted)
        free = max(0, queue.available(key))
        if wanted <= free:
            return Grade(Mode.FIT, level)
        self._lack(resource, flavor, wanted, queue.reach[key], wanted - free)
        if queue.nominal[key] >= wanted or above or self._while_borrowing:
            return Grade(*self._oracle(frozenset((key,)), ((key, wanted),)))
        return Grade(Mode.NO_FIT, level)

    def _lack(self, resource: str, flavor: str, asked: int, most: int | None, short: int = 0) -> None:
        self._found.lacks.append(Lack(self._pods.name, resource, flavor, asked, short, most))


def better(one: Grade, other: Grade | None, rules: Fungibility) -> bool:
    """Whether one grade is strictly better; a flavor that would find no victims is worse than any that would do."""
    if one.mode is Mode.NO_FIT:
        return False
    if other is None or other.mode is Mode.NO_FIT:
        return True
    if (one.mode is Mode.NO_VICTIMS) != (other.mode is Mode.NO_VICTIMS):
        return other.mode is Mode.NO_VICTIMS
    if rules.preference is Preference.PREEMPT:
        return (-one.level, one.mode) > (-other.level, other.mode)
    return (one.mode, -one.level) > (other.mode, -other.level)


def _go_on(grade: Grade, rules: Fungibility) -> bool:
    """Whether the next flavor is looked at."""
    if grade.mode in (Mode.NO_FIT, Mode.NO_VICTIMS):
        return True
    if grade.mode in (Mode.PREEMPT, Mode.RECLAIM) and rules.when_can_preempt is Fungible.NEXT:
        return True
    return grade.level > 0 and rules.when_can_borrow is Fungible.NEXT
