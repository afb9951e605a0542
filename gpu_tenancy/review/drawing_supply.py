"""Chart of guarantees and limits against capacity."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.base.texts import unit
from gpu_tenancy.model.outlook import StackOutlook, Supply
from gpu_tenancy.review.drawing_scale import Scale, hues
from gpu_tenancy.review.figures import span


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
    colours = hues(outlook)
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
