"""What each queue has with `fairness: even` when all request up to their limits.

The children of a Cohort keep their guarantees and fill up by weight until a limit or the quota ends; a Cohort among
them divides what it gets in the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from gpu_tenancy.model.plan.cohort_objects import cohort_weight, members, reach
from gpu_tenancy.model.plan.measures import Measure, supply_of
from gpu_tenancy.model.plan.shares import Tree


@dataclass(frozen=True, slots=True)
class _Child:
    """A Cohort or a queue below a Cohort."""

    name: str
    is_cohort: bool
    guaranteed: int
    limit: int
    weight: Fraction


def even_amounts(tree: Tree, measure: Measure) -> dict[str, int]:
    """The amount of each queue when all borrow by weight up to their limits; rounded down."""
    found: dict[str, Fraction] = {}
    _divide(tree, measure, tree.root, Fraction(supply_of(tree, measure)), found)
    return {queue: int(amount) for queue, amount in found.items()}


def _divide(tree: Tree, measure: Measure, cohort: str, amount: Fraction, found: dict[str, Fraction]) -> None:
    below = _children(tree, measure, cohort)
    for child, part in zip(below, _filled(below, amount), strict=True):
        if child.is_cohort:
            _divide(tree, measure, child.name, part, found)
        else:
            found[child.name] = part


def _children(tree: Tree, measure: Measure, cohort: str) -> list[_Child]:
    below = members(tree, cohort)
    return [
        *(_cohort(tree, measure, name) for name in below.cohorts),
        *(_queue(tree, measure, name) for name in below.teams),
    ]


def _cohort(tree: Tree, measure: Measure, name: str) -> _Child:
    flavor, resource = measure.flavor, measure.resource
    limit, most = tree.cohort_limit(name, flavor, resource), reach(tree, name, flavor, resource)
    most = most if limit is None else min(limit, most)
    guaranteed = min(tree.guaranteed(name, flavor, resource), most)
    return _Child(name, True, guaranteed, most, Fraction(str(cohort_weight(tree, name))))  # noqa: FBT003 - a field


def _queue(tree: Tree, measure: Measure, name: str) -> _Child:
    share = tree.share(name, measure.flavor, measure.resource)
    weight = Fraction(str(tree.stack.teams[name].weight))
    return _Child(name, False, share.guaranteed, share.effective_limit, weight)  # noqa: FBT003 - a field


def _filled(below: Sequence[_Child], amount: Fraction) -> list[Fraction]:
    """What each child has of an amount: its guarantee, and its part of the rest up to its limit."""
    have = [Fraction(child.guaranteed) for child in below]
    left: Fraction = amount - sum(have, Fraction())
    unfilled = {index for index, child in enumerate(below) if child.limit > child.guaranteed}
    while left > 0 and unfilled:
        weights = sum((below[index].weight for index in unfilled), Fraction())
        part: dict[int, Fraction] = {index: left * below[index].weight / weights for index in unfilled}
        full = {index for index in unfilled if have[index] + part[index] >= below[index].limit}
        for index in full or unfilled:
            have[index] += min(part[index], below[index].limit - have[index])
        left = amount - sum(have, Fraction())
        unfilled -= full
        if not full:
            break
    return have
