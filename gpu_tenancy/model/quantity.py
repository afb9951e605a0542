"""Kubernetes quantities as exact integers in one base unit a resource.

Amounts of `cpu` are millicores, amounts of `memory` and storage are bytes, everything else is a count. The
suffixes are those of the API: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, TypeAlias

Amounts: TypeAlias = Mapping[str, int]
"""Resource name to amount in the resource's base unit."""

CPU: Final = "cpu"
MEMORY: Final = "memory"

_BINARY: Final = {"Ei": 2**60, "Pi": 2**50, "Ti": 2**40, "Gi": 2**30, "Mi": 2**20, "Ki": 2**10}
_DECIMAL: Final = {"E": 10**18, "P": 10**15, "T": 10**12, "G": 10**9, "M": 10**6, "k": 10**3}
_SUFFIXES: Final[Mapping[str, Fraction]] = {
    **{suffix: Fraction(factor) for suffix, factor in (_BINARY | _DECIMAL).items()},
    "m": Fraction(1, 1000),
}


def parse_quantity(text: str | float) -> Fraction:
    """The exact value of a quantity such as `500m`, `1.5`, `256Gi` or `64`.

    Raises:
        ValueError: the text is no quantity, or below zero.
    """
    written = str(text).strip()
    suffix = next((s for s in _SUFFIXES if written.endswith(s)), "")
    number = written.removesuffix(suffix)
    if not number or not set(number) <= set("0123456789."):
        msg = f"{text!r} is no quantity"
        raise ValueError(msg)
    try:
        return Fraction(number) * _SUFFIXES.get(suffix, Fraction(1))
    except ValueError as error:
        msg = f"{text!r} is no quantity"
        raise ValueError(msg) from error


def parse_cpu(text: str | float) -> int:
    """Millicores of a cpu quantity: `2` is 2000, `500m` is 500.

    Raises:
        ValueError: no quantity, below zero, or finer than a millicore.
    """
    return _whole(parse_quantity(text) * 1000, f"{text!r} is finer than a thousandth of a cpu")


def parse_bytes(text: str | float) -> int:
    """Bytes of a memory or storage quantity: `4Gi` is 4294967296.

    Raises:
        ValueError: no quantity, below zero, or no whole number of bytes.
    """
    return _whole(parse_quantity(text), f"{text!r} is no whole number of bytes")


def _whole(value: Fraction, otherwise: str) -> int:
    if value.denominator != 1:
        raise ValueError(otherwise)
    return value.numerator


def format_cpu(millicores: int) -> str:
    """`2000` as `2`, `1500` as `1500m`: the API server's canonical form."""
    return f"{millicores}m" if millicores % 1000 else format_count(millicores // 1000)


def format_count(amount: int) -> str:
    """`50` as `50`, `2000` as `2k`: with the largest suffix that keeps it exact, as the API server writes it."""
    return _with_suffix(amount, _DECIMAL) or str(amount)


def format_bytes(amount: int) -> str:
    """With the largest suffix that keeps it exact, a binary one first: `4Gi`, `1536Mi`, `500M`."""
    return _with_suffix(amount, _BINARY) or format_count(amount)


def _with_suffix(amount: int, suffixes: Mapping[str, int]) -> str | None:
    return next((f"{amount // factor}{s}" for s, factor in suffixes.items() if amount and amount % factor == 0), None)


def format_amount(resource: str, amount: int) -> str:
    """An amount of a resource as Kubernetes writes it: cpu from millicores, memory from bytes, else a count.

    A quota's prefix does not matter: `requests.cpu` counts as `cpu`.
    """
    kind = resource.removeprefix("requests.").removeprefix("limits.")
    if kind == CPU:
        return format_cpu(amount)
    return format_bytes(amount) if kind in {MEMORY, "storage"} else format_count(amount)


def format_amounts(amounts: Amounts) -> dict[str, str]:
    """Each amount as Kubernetes writes it, in the order given."""
    return {resource: format_amount(resource, amount) for resource, amount in amounts.items()}


def is_extended(resource: str) -> bool:
    """Whether a resource is one that a device plugin offers, such as `nvidia.com/gpu`: it has a domain."""
    return "/" in resource


def add(*amounts: Amounts) -> dict[str, int]:
    """The sum, resource by resource."""
    total: dict[str, int] = {}
    for each in amounts:
        for resource, amount in each.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def times(amounts: Amounts, factor: int) -> dict[str, int]:
    """Each amount `factor` times."""
    return {resource: amount * factor for resource, amount in amounts.items()}
