"""Scale of the charts: chart width per GPU."""

from collections.abc import Mapping
from typing import Final

from gpu_tenancy.model.outlook import StackOutlook

HUES: Final = 6
"""Colours for flavors; they repeat after six, so each bar also names its flavor."""

SHORTEST: Final = 8
"""Flavors have separate scales if the longest chart exceeds the shortest by more than this factor."""

CUT: Final = 4
"""The chart of a flavor is cut off if its capacity exceeds the highest limit by more than this factor."""

TEXT_WIDTH: Final = 20
"""Characters of a text bar."""


class Scale:
    """Chart width per GPU: the same in all flavors, unless a flavor's bars would be too short to read.

    Args:
        longest: GPUs at the right end of each flavor's chart.
    """

    def __init__(self, longest: Mapping[str, int]) -> None:
        self._longest = {name: gpus for name, gpus in longest.items() if gpus}
        shortest, largest = min(self._longest.values(), default=1), max(self._longest.values(), default=1)
        self.common = shortest * SHORTEST >= largest
        self._largest = largest

    def beyond(self, flavor: str, gpus: int) -> bool:
        """Whether that many GPUs exceed the chart."""
        return gpus > (self._largest if self.common else self._longest.get(flavor, 1))

    def percent(self, flavor: str, gpus: int) -> float:
        """Horizontal position of that many GPUs, in percent."""
        largest = self._largest if self.common else self._longest.get(flavor, 1)
        return round(min(100.0, 100 * gpus / largest), 2)


def hues(outlook: StackOutlook) -> dict[str, int]:
    """Index of each flavor's colour, from 0."""
    return {supply.flavor: index % HUES for index, supply in enumerate(outlook.supply)}


def text_bar(guaranteed: int, limit: int, capacity: int, width: int = TEXT_WIDTH) -> str:
    """A text bar: █ guaranteed, ▒ may borrow, · other capacity of the flavor.

    Each part above 0 has at least one character.
    """
    whole = max(capacity, limit, 1)
    solid = _characters(guaranteed, whole, width)
    hatched = max(_characters(limit, whole, width) - solid, 1 if limit > guaranteed and solid < width else 0)
    return "█" * solid + "▒" * hatched + "·" * (width - solid - hatched)


def _characters(gpus: int, whole: int, width: int) -> int:
    return 0 if gpus == 0 else max(1, round(width * gpus / whole))
