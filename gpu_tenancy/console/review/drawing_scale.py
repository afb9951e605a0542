"""How long a GPU is drawn."""

from collections.abc import Mapping
from typing import Final

from gpu_tenancy.model.outlook import StackOutlook

HUES: Final = 6
"""How many colours there are for flavors; the seventh is the first again, so each bar says its flavor in words too."""

SHORTEST: Final = 8
"""A flavor whose bar would be shorter than the longest by more than this is drawn at a scale of its own."""

CUT: Final = 4
"""A flavor that has more than so many times what any team may reach is not drawn to its end."""

TEXT_WIDTH: Final = 20
"""Characters of a bar of text."""


class Scale:
    """How long a GPU is drawn: in all flavors alike, unless a flavor would be too short to be read.

    Args:
        longest: the most GPUs that are drawn of each flavor.
    """

    def __init__(self, longest: Mapping[str, int]) -> None:
        self._longest = {name: most for name, most in longest.items() if most}
        shortest, most = min(self._longest.values(), default=1), max(self._longest.values(), default=1)
        self.common = shortest * SHORTEST >= most
        self._most = most

    def beyond(self, flavor: str, gpus: int) -> bool:
        """Whether that many GPUs reach out of the picture."""
        return gpus > (self._most if self.common else self._longest.get(flavor, 1))

    def percent(self, flavor: str, gpus: int) -> float:
        """How far to the right that many GPUs reach."""
        most = self._most if self.common else self._longest.get(flavor, 1)
        return round(min(100.0, 100 * gpus / most), 2)


def hues(outlook: StackOutlook) -> dict[str, int]:
    """The colour of each flavor, from 0."""
    return {each.flavor: index % HUES for index, each in enumerate(outlook.supply)}


def text_bar(guaranteed: int, limit: int, most: int, width: int = TEXT_WIDTH) -> str:
    """A bar of text: █ guaranteed, ▒ may be borrowed, · the rest of the flavor.

    What is not nothing is at least one character long.
    """
    whole = max(most, limit, 1)
    solid = _characters(guaranteed, whole, width)
    hatched = max(_characters(limit, whole, width) - solid, 1 if limit > guaranteed and solid < width else 0)
    return "█" * solid + "▒" * hatched + "·" * (width - solid - hatched)


def _characters(gpus: int, whole: int, width: int) -> int:
    return 0 if gpus == 0 else max(1, round(width * gpus / whole))
