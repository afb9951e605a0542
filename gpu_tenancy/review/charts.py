"""Scale of the charts, text bars, and the chart of guarantees and limits against capacity."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.base.texts import unit
from gpu_tenancy.model.outlook import StackOutlook, Supply
from gpu_tenancy.model.plan.measures import flavor_of
from gpu_tenancy.pages.bars import Scale, hues
from gpu_tenancy.review.figures import span

TEXT_WIDTH: Final = 20
"""Characters of a text bar."""


def flavor_hues(outlook: StackOutlook) -> dict[str, int]:
    """The colour of what is counted, by its label: CPUs and memory of a flavor have the same."""
    return hues({label: flavor_of(label, resource) for label, resource in outlook.resources.items()})


def text_bar(guaranteed: int, limit: int, capacity: int) -> str:
    """A text bar: █ guaranteed, ▒ may borrow, · other capacity of the flavor.

    Each part above 0 has at least one character.
    """
    whole = max(capacity, limit, 1)
    solid = _characters(guaranteed, whole)
    hatched = max(_characters(limit, whole) - solid, 1 if limit > guaranteed and solid < TEXT_WIDTH else 0)
    return "█" * solid + "▒" * hatched + "·" * (TEXT_WIDTH - solid - hatched)


def _characters(gpus: int, whole: int) -> int:
    return 0 if gpus == 0 else max(1, round(TEXT_WIDTH * gpus / whole))


@dataclass(frozen=True, slots=True)
class Tank:
    """Guarantees and limits of a flavor against its capacity.

    Attributes:
        sure: end of the GPUs that are always available.
        rail: end of the maximum capacity.
        solid: end of the guarantees.
        tick: position of the sum of limits.
        numbers: `16 of 16`.
        remark: guaranteed GPUs that depend on autoscaling or exceed the capacity.
        over: whether the guarantees exceed the capacity.
        says: text alternative of the chart.
    """

    flavor: str
    hue: int
    sure: float
    rail: float
    solid: float
    tick: float
    numbers: str
    remark: str
    over: bool
    says: str


def tanks(outlook: StackOutlook) -> Iterator[Tank]:
    """One chart for each flavor, in percent of its width."""
    scale = Scale(
        {supply.flavor: max(supply.capacity.maximum, supply.limits, supply.guaranteed) for supply in outlook.supply}
    )
    colours = flavor_hues(outlook)
    for supply in outlook.supply:
        remark = _remark(supply)
        guaranteed, limits = (amount_text(supply.resource, amount) for amount in (supply.guaranteed, supply.limits))
        capacity = span(supply.capacity, supply.resource)
        numbers = f"{guaranteed} guaranteed of {capacity}, sum of limits {limits}"
        yield Tank(
            flavor=supply.flavor,
            hue=colours[supply.flavor],
            sure=scale.percent(supply.flavor, supply.capacity.minimum),
            rail=scale.percent(supply.flavor, supply.capacity.maximum),
            solid=scale.percent(supply.flavor, supply.guaranteed),
            tick=scale.percent(supply.flavor, supply.limits),
            numbers=f"{guaranteed} of {capacity} · sum of limits {limits}",
            remark=remark,
            over=supply.guaranteed > supply.capacity.maximum,
            says=f"{supply.flavor}: {numbers}; {remark}" if remark else f"{supply.flavor}: {numbers}",
        )


def _remark(supply: Supply) -> str:
    if supply.guaranteed > supply.capacity.maximum:
        return (
            f"guarantees exceed capacity by {amount_text(supply.resource, supply.guaranteed - supply.capacity.maximum)}"
        )
    if supply.guaranteed > supply.capacity.minimum:
        autoscaled = amount_text(supply.resource, supply.guaranteed - supply.capacity.minimum)
        return f"{autoscaled} guaranteed {unit(supply.resource)} depend on autoscaling"
    return ""
