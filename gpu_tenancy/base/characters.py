"""Characters that change what a reader sees: which texts of a stack may have them, and how they are shown.

A terminal obeys control characters, such as those that clear the screen; bidirectional controls reorder a line, so that
it reads differently from what a program reads (https://www.unicode.org/reports/tr36/#Bidirectional_Text_Spoofing).
"""

import re
import unicodedata
from typing import Final

_LINES: Final = "\n\t"
_JOINERS: Final = "\u200c\u200d"
"""Needed to write some languages and emoji: https://www.unicode.org/faq/unicode_display.html."""
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: controls, formatting (bidirectional, zero-width), halves of characters, line separators."""
_PLAIN: Final = re.compile(r"[\x20-\x7e]*")
_LONGEST: Final = 80
"""Characters of a value or a key that are shown."""


def hidden(text: str, allowed: str = _LINES + _JOINERS) -> str:
    """The first character of a text that is not visible as itself; empty if there is none.

    Args:
        text: any text.
        allowed: characters that are accepted all the same; by default those of texts with several lines.
    """
    if _PLAIN.fullmatch(text):
        return ""
    return next((sign for sign in text if sign not in allowed and unicodedata.category(sign) in _HIDDEN), "")


def visible(text: str, allowed: str = _JOINERS) -> str:
    r"""The text with each such character escaped, as `\x1b` or `\u202e`.

    Args:
        text: any text.
        allowed: characters that are left as they are; none of them ends a line by default.
    """
    if _PLAIN.fullmatch(text):
        return text
    return "".join(
        sign if sign in allowed or unicodedata.category(sign) not in _HIDDEN else _escaped(sign) for sign in text
    )


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape", "surrogatepass").decode("ascii")


def shortened(text: str, longest: int = _LONGEST) -> str:
    """The text in one line of at most so many characters, with all characters escaped that are not visible."""
    # Escaping makes a text longer: it is cut before and after, so that a long text costs no time.
    shown = visible(text[: longest + 1], "")
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"
