"""Amounts as they stand in live objects and in people's files, in the base units of `gpu_tenancy.model.quantity`."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil
from typing import Final

from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.offline.wire import Json
from gpu_tenancy.model.quantity import CPU, Amounts, format_amount, is_extended, parse_quantity

_GIB: Final = 2**30
_CPU: Final = 1000
_MEMORY: Final = ("memory", "storage", "ephemeral-storage", "hugepages-")
_FINE: Final[Mapping[str, Fraction]] = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6)}
"""Suffixes that an API server takes and `parse_quantity` does not."""


def amount(resource: str, written: Json) -> int:
    """A quantity in base units, rounded up as a scheduler does: cpu in thousandths, memory in bytes, else a count.

    Raises:
        ConsoleError: it is no quantity.
    """
    factor = 1000 if plain(resource) == CPU else 1
    return ceil(_exact(written) * factor)


def _exact(written: Json) -> Fraction:
    text = str(written).strip()
    suffix = next((each for each in _FINE if text.endswith(each)), "")
    try:
        if suffix:
            return Fraction(text.removesuffix(suffix)) * _FINE[suffix]
        # A Fraction reads `12e6`, which is a quantity too; `1E` is one exabyte.
        return Fraction(text) if "/" not in text and text[-1:].isdigit() else parse_quantity(text)
    except ValueError as error:
        raise ConsoleError(f"{text!r} is no quantity", "write it as Kubernetes does: 500m, 8, 32Gi") from error


def amounts(written: Json) -> dict[str, int]:
    """Every quantity of a list of resources; anything else counts as no resources."""
    return {name: amount(name, each) for name, each in written.items()} if isinstance(written, dict) else {}


def plain(resource: str) -> str:
    """A resource without the prefix that a namespace's quota gives it."""
    return resource.removeprefix("requests.").removeprefix("limits.")


def said(resource: str, value: int) -> str:
    """An amount for people: whole cpus as such, memory to a tenth of a Gi, counts without a suffix."""
    kind = plain(resource)
    if kind.startswith(_MEMORY) and value % _GIB and abs(value) >= _GIB:
        return f"{value / _GIB:.1f}Gi"
    if kind == CPU and abs(value) > _CPU:
        return f"{value / _CPU:.10g}"
    if kind == CPU or kind.startswith(_MEMORY):
        return format_amount("memory" if kind.startswith(_MEMORY) else kind, value) if value else "0"
    return str(value)


def listed(found: Amounts) -> str:
    """`8 nvidia.com/gpu, 8 cpu, 32Gi memory`: GPUs first; what is nothing is left out."""
    return ", ".join(f"{said(name, found[name])} {name}" for name in ordered(found) if found[name]) or "nothing"


def ordered(resources: Iterable[str]) -> list[str]:
    """Resources in the order in which people ask about them: GPUs, cpu, memory, the rest."""
    first = ("cpu", "memory")
    return sorted(
        resources,
        key=lambda each: (not is_extended(each), first.index(plain(each)) if plain(each) in first else 2, each),
    )


def gpus(found: Amounts) -> dict[str, int]:
    """Only what a device plugin offers."""
    return {name: found[name] for name in ordered(found) if is_extended(name) and found[name]}


def many(count: int, one: str, several: str = "") -> str:
    """`1 pod`, `3 pods`, `2 matches` by `several`."""
    return f"{count} {one if count == 1 else several or one + 's'}"
