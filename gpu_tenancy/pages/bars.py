"""Bars of quotas: their scale, and their tree of cohorts.

Horizontal positions are in percent of the chart's width, so that bars scale with the page and text does not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

HUES: Final = 6  # colours repeat after six, so each bar also names its flavor

SHORTEST: Final = 8  # flavors have separate scales if the longest chart exceeds the shortest by more than this factor

CUT: Final = 4  # a flavor's chart is cut off if its capacity exceeds the highest limit by more than this factor


def hues(flavors: Mapping[str, str]) -> dict[str, int]:
    """Index of the colour of each label, from 0, by the flavor of each label; a flavor has the same on all pages."""
    order = list(dict.fromkeys(flavors.values()))
    return {label: order.index(flavor) % HUES for label, flavor in flavors.items()}


class Scale:
    """Chart width per GPU: the same in all flavors, unless a flavor's bars would be too short to read.

    `longest` is the number of GPUs at the right end of each flavor's chart.
    """

    def __init__(self, longest: Mapping[str, int]) -> None:
        self._longest = {name: gpus for name, gpus in longest.items() if gpus}
        shortest, largest = min(self._longest.values(), default=1), max(self._longest.values(), default=1)
        self.common = shortest * SHORTEST >= largest
        self._largest = largest

    def beyond(self, flavor: str, gpus: int) -> bool:
        """Whether the number of GPUs exceeds the chart."""
        return gpus > (self._largest if self.common else self._longest.get(flavor, 1))

    def percent(self, flavor: str, gpus: int) -> float:
        """Horizontal position of a number of GPUs, in percent."""
        largest = self._largest if self.common else self._longest.get(flavor, 1)
        return round(min(100.0, 100 * gpus / largest), 2)


@dataclass(frozen=True, slots=True)
class Bar:
    """Guarantee and limit of a team or cohort for one flavor; `rail`, `solid` and `used` are ends of bars.

    A team that shares a queue has one without a flavor: only the remark is shown.
    """

    name: str
    flavor: str
    scheduler: str
    remark: str  # meaning of the bracket
    says: str  # text alternative
    hue: int = 0  # colour of the flavor, from 0
    rail: float = 0  # capacity of the flavor
    solid: float = 0  # guarantee
    hatch: tuple[float, float] = (0, 0)  # start and length of the quota that may be borrowed
    tick: float | None = None  # position of the limit; None without a limit
    used: float | None = None  # GPUs in use; None where unknown
    ring: bool = False  # nothing is guaranteed
    kept: bool | None = None  # bracket under the guarantee: True if never lent, False if lent, None for no bracket
    numbers: str = ""  # `8 → 32`
    was: str = ""  # numbers at the base, where they changed
    job: str = ""  # CPU and memory of the largest job that the guarantee covers; empty without one


@dataclass(frozen=True, slots=True)
class Branch:
    """A cohort of the tree with its children."""

    name: str
    depth: int
    nobody: str  # quota that is guaranteed to no team of it; at the root, all teams may borrow it
    guaranteed: str  # including its children
    bars: tuple[Bar, ...]
    groups: tuple["Branch", ...]
    teams: tuple[tuple[str, tuple[Bar, ...]], ...]  # names, each with its bars
    count: int  # teams in the cohort and below
