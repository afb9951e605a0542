"""Kubernetes quantities, read exactly: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/."""

import re
from decimal import Context, Decimal
from typing import Final

_FORM: Final = re.compile(
    r"([+-]?)(\d*)(?:\.(\d*))?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|n|u|[eE][+-]?0*\d{1,2})?", re.ASCII
)
_LONGEST: Final = 64
"""Maximum number of digits between zeros at both ends: real quantities have fewer, and arithmetic with more is slow."""
_EXACT: Final = Context(prec=2 * _LONGEST)
"""Decimal's default precision of 28 digits would round."""
_UNITS: Final = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


def quantity(text: str) -> Decimal | None:
    """The number in its base unit (cores, bytes, pieces); None if the text is not a quantity.

    Zeros at both ends do not count as length: the API server reads `0008.000` as 8, however many they are.
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


def format_float(number: float) -> str:
    """A number from a program for messages: whole numbers, which arrive as floats, without a decimal point."""
    return str(int(number)) if float(number).is_integer() else repr(number)
