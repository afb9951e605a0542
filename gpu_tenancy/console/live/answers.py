"""An answer to one part of a question, and what several of them mean together."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

Verdict = Literal["now", "later", "never", "unknown"]
"""`later`: it passes when something ends or is given back. `unknown`: the user may not read what tells."""

_WEIGHT: Final[tuple[Verdict, ...]] = ("now", "unknown", "later", "never")


@dataclass(frozen=True, slots=True)
class Answer:
    """What one judge says, with its numbers.

    Attributes:
        about: whose word it is, such as `namespace quota`.
        verdict: whether it lets it pass.
        words: sentences; the first is the most telling.
    """

    about: str
    verdict: Verdict
    words: tuple[str, ...]


def worst(found: Iterable[Verdict]) -> Verdict:
    """The verdict of all together."""
    return _WEIGHT[max((_WEIGHT.index(each) for each in found), default=0)]
