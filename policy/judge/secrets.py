"""What no message may show: the values that a program marked as secret, and the pieces of them."""

import re
from typing import Final

from judge.quantities import quantity, shown, written

_BOUNDS: Final = re.compile(r"[\s/:@=,;?&]+")
"""Where a rule may cut a text: an image's registry and tag, a URL's host."""
_PIECE: Final = 4
"""Letters from which on a piece of a secret is kept back, and a whole secret wherever it is within a word."""
_CUT: Final = 1000
"""Letters up to which a secret is cut: what is longer is a document, whose words are everybody's."""


class Secrets:
    """Values to keep back, as texts.

    Numbers are kept as messages would write them; quantities (`2Ti`) as the number that they are, too.
    The names of fields within a secret map are no values: without them no place in a chart's values could be named.
    """

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def keep(self, value: object, *, whole: bool = False) -> None:
        """Keeps back every text and number within a value.

        Args:
            value: plain values, lists and maps of them.
            whole: keep back texts as a whole alone, not their pieces.
        """
        self._pattern = None
        match value:
            case str():
                self._keep(value, whole=whole)
            case bool():
                return
            case float() | int():
                self._texts.add(written(value))
            case list():
                for item in value:  # pyright: ignore[reportUnknownVariableType] - whatever is in it is looked at
                    self.keep(item, whole=whole)  # pyright: ignore[reportUnknownArgumentType] - as above
            case dict():
                for item in value.values():  # pyright: ignore[reportUnknownVariableType] - as above
                    self.keep(item, whole=whole)  # pyright: ignore[reportUnknownArgumentType] - as above
            case _:
                return

    def _keep(self, text: str, *, whole: bool) -> None:
        self._texts.add(text)
        if whole or len(text) > _CUT:
            return
        self._texts.update(piece for piece in _BOUNDS.split(text) if len(piece) >= _PIECE)
        if number := quantity(text):
            self._texts.add(shown(number))

    def hide(self, text: str) -> str:
        """The text with `[secret]` in place of each of them, the longest first."""
        if not self._texts:
            return text
        if self._pattern is None:
            listed = sorted((each for each in self._texts if each.strip()), key=lambda each: (-len(each), each))
            self._pattern = re.compile("|".join(_expression(each) for each in listed) or r"(?!)")
        return self._pattern.sub("[secret]", text)


def _expression(text: str) -> str:
    """A short secret, such as `8`, is hidden where it stands alone, or no message could be read any more."""
    return re.escape(text) if len(text) >= _PIECE else rf"(?<!\w){re.escape(text)}(?!\w)"
