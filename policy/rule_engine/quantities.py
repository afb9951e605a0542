"""Kubernetes quantities, read exactly: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/."""

import re
from decimal import Decimal
from typing import Final

_FORM: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|n|u|[eE][+-]?\d{1,2})?")
_LONGEST: Final = 64
"""Maximum number of characters: real quantities are shorter, and arithmetic with longer ones is slow."""
_UNITS: Final = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


def quantity(text: str) -> Decimal | None:
    """The number in its base unit (cores, bytes, pieces); None if the text is not a quantity."""
    match = _FORM.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None:
        return None
    number, unit = match[1], match[2] or ""
    if unit[:1] in {"e", "E"} and unit not in _UNITS:
        return Decimal(number + unit)
    return Decimal(number) * _UNITS[unit]


def format_number(number: Decimal) -> str:
    """A number for messages: `8`, `0.5`, not `8.0`."""
    return str(int(number)) if number == number.to_integral_value() else str(number.normalize())


def format_float(number: float) -> str:
    """A number from a program for messages: whole numbers, which arrive as floats, without a decimal point."""
    return str(int(number)) if isinstance(number, int) or number.is_integer() else repr(number)
