"""Plain values: Kubernetes quantities, numbers as messages show them, and secrets that messages must not show."""

import re
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Final, cast

_FORM: Final = re.compile(
    r"([+-]?)(\d*)(?:\.(\d*))?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|n|u|[eE][+-]?0*\d{1,2})?", re.ASCII
)
_LONGEST: Final = 64  # maximum digits between zeros at both ends: quantities have fewer, arithmetic with more is slow
_EXACT: Final = Context(prec=2 * _LONGEST)  # Decimal's default precision of 28 digits would round
_UNITS: Final = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
_BOUNDS: Final = re.compile(r"[\s/:@=,;?&]+")
"""Where a rule can split a string: an image's registry and tag, a URL's host."""
_PIECE: Final = 4  # minimum characters of a hidden piece, and of a secret hidden within a word
_CUT: Final = 1000  # maximum characters of a secret that is split: longer ones are documents


def quantity(text: str) -> Decimal | None:
    """The number in its base unit (cores, bytes, pieces), exactly; None if the text is not a quantity.

    Zeros at both ends do not count as length: the API server reads `0008.000` as 8, however many they are.
    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
    """
    match = _FORM.fullmatch(text.strip())
    if match is None or not (match[2] or match[3]):
        return None
    whole, fraction, unit = match[2].lstrip("0"), (match[3] or "").rstrip("0"), match[4] or ""
    if len(whole) + len(fraction) > _LONGEST:
        return None
    number = f"{match[1]}{whole or 0}{'.' if fraction else ''}{fraction}"
    if unit not in _UNITS:  # an exponent
        return Decimal(f"{number}e{int(unit[1:])}")
    return _EXACT.multiply(Decimal(number), _UNITS[unit])


def format_number(number: Decimal) -> str:
    """A number for messages: `8`, `0.5`, not `8.0`."""
    return str(int(number)) if number == number.to_integral_value() else str(number.normalize())


def format_duration(seconds: Decimal) -> str:
    """Seconds for messages, in the largest unit that has a whole number of them: `14d`, `90m`, `45s`."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and not seconds % length:
            return f"{format_number(seconds / length)}{unit}"
    return f"{format_number(seconds)}s"


def format_float(number: float) -> str:
    """A number from a program for messages: whole numbers, which arrive as floats, without a decimal point."""
    return str(int(number)) if float(number).is_integer() else repr(number)


def _pieces(secret: str) -> Iterator[str]:
    if len(secret) <= _CUT:
        yield from (piece for piece in _BOUNDS.split(secret) if len(piece) >= _PIECE)
        if number := quantity(secret):
            yield format_number(number)


class Secrets:
    """Secret values as strings and pieces of them; quantities (`2Ti`) also as their number.

    Field names within a secret map are not hidden: otherwise messages could not name a place in a chart's values.
    """

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def keep(self, value: object, *, whole: bool = False) -> None:
        """Hides every string and number within a value; with `whole`, strings only as a whole, not their pieces."""
        self._pattern = None
        pending: list[object] = [value]
        while pending:
            inner = pending.pop()
            if isinstance(inner, str):
                self._texts.update({inner} if whole else {inner, *_pieces(inner)})
            elif isinstance(inner, list):
                pending += cast("list[object]", inner)
            elif isinstance(inner, dict):
                pending += cast("dict[str, object]", inner).values()
            elif isinstance(inner, (float, int)) and not isinstance(inner, bool):
                self._texts.add(format_float(inner))

    def hide(self, text: str) -> str:
        """The text with `[secret]` in place of each secret, longest first; short ones only as separate words."""
        if not self._texts:
            return text
        if self._pattern is None:
            shown = sorted(filter(str.strip, self._texts), key=lambda secret: (-len(secret), secret))
            escaped = ((secret, re.escape(secret)) for secret in shown)
            expressions = [
                expression if len(secret) >= _PIECE else rf"(?<!\w){expression}(?!\w)" for secret, expression in escaped
            ]
            self._pattern = re.compile("|".join(expressions) or r"(?!)")
        return self._pattern.sub("[secret]", text)
