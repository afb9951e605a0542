"""Values that messages must not show: those that a program marked as secret, and pieces of them."""

import re
from typing import Final, cast

from rule_engine.quantities import format_float, format_number, quantity

_BOUNDS: Final = re.compile(r"[\s/:@=,;?&]+")
"""Where a rule can split a string: an image's registry and tag, a URL's host."""
_PIECE: Final = 4
"""Minimum characters for a piece of a secret to be hidden, and for a secret to be hidden within a word."""
_CUT: Final = 1000
"""Maximum characters of a secret that is split: longer ones are documents, made of common words."""


class Secrets:
    """Secret values as strings.

    Numbers are stored as messages show them; quantities (`2Ti`) also as their number. Field names within a secret map
    are not hidden: otherwise messages could not name a place in a chart's values.
    """

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def keep(self, value: object, *, whole: bool = False) -> None:
        """Hides every string and number within a value.

        Args:
            value: plain values, lists and maps of them.
            whole: hide strings only as a whole, not their pieces.
        """
        self._pattern = None
        pending: list[object] = [value]
        while pending:
            inner = pending.pop()
            if isinstance(inner, str):
                self._keep(inner, whole=whole)
            elif isinstance(inner, list):
                pending += cast("list[object]", inner)
            elif isinstance(inner, dict):
                pending += cast("dict[str, object]", inner).values()
            elif isinstance(inner, (float, int)) and not isinstance(inner, bool):
                self._texts.add(format_float(inner))

    def _keep(self, text: str, *, whole: bool) -> None:
        self._texts.add(text)
        if whole or len(text) > _CUT:
            return
        self._texts.update(piece for piece in _BOUNDS.split(text) if len(piece) >= _PIECE)
        if number := quantity(text):
            self._texts.add(format_number(number))

    def hide(self, text: str) -> str:
        """The text with `[secret]` in place of each secret, longest first."""
        if not self._texts:
            return text
        if self._pattern is None:
            listed = sorted(
                (secret for secret in self._texts if secret.strip()), key=lambda secret: (-len(secret), secret)
            )
            self._pattern = re.compile("|".join(_expression(secret) for secret in listed) or r"(?!)")
        return self._pattern.sub("[secret]", text)


def _expression(text: str) -> str:
    """A short secret, such as `8`, is hidden only as a separate word; otherwise messages would be unreadable."""
    return re.escape(text) if len(text) >= _PIECE else rf"(?<!\w){re.escape(text)}(?!\w)"
