"""The picture of promises against supply."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_tenancy.console.review.drawing_scale import Scale, hues
from gpu_tenancy.console.review.figures import span
from gpu_tenancy.model.outlook import StackOutlook, Supply


@dataclass(frozen=True, slots=True)
class Tank:
    """A flavor's promises against its supply.

    Attributes:
        sure: where the GPUs of the nodes that are always there end.
        rail: where the most GPUs end.
        solid: where the guarantees end.
        tick: where the limits end.
        numbers: `16 of 16`.
        remark: what of it is not always there, or not at all.
        over: more is guaranteed than there can be.
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
    """One for each flavor, in percent of the picture's width."""
    scale = Scale({each.flavor: max(each.gpus.most, each.limits, each.guaranteed) for each in outlook.supply})
    colours = hues(outlook)
    for each in outlook.supply:
        remark = _remark(each)
        said = f"{each.flavor}: {each.guaranteed} guaranteed of {span(each.gpus)}, limits {each.limits}"
        yield Tank(
            flavor=each.flavor,
            hue=colours[each.flavor],
            sure=scale.percent(each.flavor, each.gpus.least),
            rail=scale.percent(each.flavor, each.gpus.most),
            solid=scale.percent(each.flavor, each.guaranteed),
            tick=scale.percent(each.flavor, each.limits),
            numbers=f"{each.guaranteed} of {span(each.gpus)} · limits {each.limits}",
            remark=remark,
            over=each.guaranteed > each.gpus.most,
            says=f"{said}; {remark}" if remark else said,
        )


def _remark(each: Supply) -> str:
    if each.guaranteed > each.gpus.most:
        return f"{each.guaranteed - each.gpus.most} guaranteed more than there are"
    if each.guaranteed > each.gpus.least:
        return f"{each.guaranteed - each.gpus.least} on nodes that come when asked for"
    return ""
