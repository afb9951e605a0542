"""Numbers and lists of names in texts for people, texts in base64, and invisible characters in texts.

A terminal obeys control characters, such as those that clear the screen; bidirectional controls reorder a line, so that
it reads differently from what a program reads (https://www.unicode.org/reports/tr36/#Bidirectional_Text_Spoofing).
"""

import re
import unicodedata
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Final

from gpu_tenancy.base.quantity import CPU, MEMORY, amount_text

UNKNOWN: Final = "unknown"  # a missing price is never shown as 0
DASH: Final = "\N{EN DASH}"
MINUS: Final = "\N{MINUS SIGN}"
_TWO_DIGITS: Final = 10


def plural(count: int, noun: str, nouns: str = "") -> str:
    """`1 pod`, `3 pods`; `nouns` if the plural does not end in a plain s."""
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"


def first_names(names: Sequence[str], shown: int) -> str:
    """The first `shown` names, and the number of further ones."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def unit(resource: str) -> str:
    """The noun for an amount of a resource: `GPUs`, `CPUs` or `memory`."""
    return {CPU: "CPUs", MEMORY: "memory"}.get(resource, "GPUs")


def counted(amount: int, resource: str, flavor: str = "") -> str:
    """An amount in base units with its noun: `8 a100 GPUs`, `1 GPU`, `1 CPU`, `128Gi memory`."""
    if resource in {CPU, MEMORY}:
        text = amount_text(resource, amount)
        return f"{text} {flavor or ('CPU' if (resource, text) == (CPU, '1') else unit(resource))}"
    return plural(amount, f"{flavor} GPU" if flavor else "GPU")


def available(resources: Iterable[str]) -> str:
    """The nouns of several resources: `GPUs`, `CPUs and memory`, or all of them; `GPUs` for none."""
    *first, last = dict.fromkeys(unit(resource) for resource in resources) or ("GPUs",)
    return f"{', '.join(first)} and {last}" if first else last


def share(part: int, whole: int) -> str:
    """A part in percent; a text where the whole is 0."""
    if whole == 0:
        return DASH if part == 0 else "no capacity"
    return f"{round(100 * part / whole)}%"


def hourly(amount: float | None) -> str:
    """US dollars per hour, with cents."""
    return UNKNOWN if amount is None else f"${amount:,.2f}"


def hours_text(hours: float | None) -> str:
    """GPU-hours: `0`, `0.4`, `12`, `1,204`; `unknown` for None."""
    return UNKNOWN if hours is None else f"{hours:.1f}" if 0 < round(hours, 1) < _TWO_DIGITS else f"{hours:,.0f}"


def base64_of(text: str) -> str:
    """A text in base64, as fields of Kubernetes such as `data` and `caBundle` have it."""
    return b64encode(text.encode()).decode()


def code_parts(text: str) -> list[str]:
    """A text divided at pairs of backticks: text and code alternate, text first."""
    return re.split(r"`([^`\n]+)`", text)


_LINES: Final = "\n\t"
# Needed to write some languages and emoji: https://www.unicode.org/faq/unicode_display.html.
_JOINERS: Final = "\u200c\u200d"
# Controls, formatting (bidirectional, zero-width), surrogates, line separators.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_PLAIN: Final = re.compile(r"[\x20-\x7e]*")
_LONGEST: Final = 80  # characters of a value or a key that are shown


def hidden(text: str, allowed: str = _LINES + _JOINERS) -> str:
    """The first invisible character of a text; empty if there is none. By default, several lines are allowed."""
    if _PLAIN.fullmatch(text):
        return ""
    return next((sign for sign in text if sign not in allowed and unicodedata.category(sign) in _HIDDEN), "")


def visible(text: str, allowed: str = _JOINERS) -> str:
    r"""The text with each such character escaped, as `\x1b` or `\u202e`; by default, line breaks are escaped, too."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(
        sign
        if sign in allowed or unicodedata.category(sign) not in _HIDDEN
        else sign.encode("unicode_escape", "surrogatepass").decode("ascii")
        for sign in text
    )


def shortened(text: str, longest: int = _LONGEST) -> str:
    """The text in one line of at most `longest` characters, with invisible characters escaped."""
    # Escaping makes a text longer: it is cut before and after, so that a long text costs no time.
    shown = visible(text[: longest + 1], "")
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"
