"""Resource quantities of Kubernetes objects, in the base units of `gpu_tenancy.base.quantity`."""

from collections.abc import Iterable
from functools import lru_cache
from math import ceil
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json
from gpu_tenancy.base.quantity import CLAIMED, CPU, Amounts, format_amount, is_extended, parse_duration, parse_quantity

_GIB: Final = 2**30
_CPU: Final = 1000
_MEMORY: Final = ("memory", "storage", "ephemeral-storage", "hugepages-")


def amount(resource: str, written: Json) -> int:
    """A quantity in base units, rounded up as a scheduler does: cpu in thousandths, memory in bytes, else a count.

    Raises:
        ConsoleError: it is not a valid quantity.
    """
    factor = 1000 if plain(resource) == CPU else 1
    try:
        return _units(str(written), factor)
    except ValueError as error:
        raise ConsoleError(
            f"{str(written).strip()!r} is not a valid quantity", "set one such as 500m, 8 or 32Gi"
        ) from error


@lru_cache(maxsize=10_000)
def _units(written: str, factor: int) -> int:
    """Thousands of pods of a cluster have the same few quantities."""
    return ceil(parse_quantity(written) * factor)


def seconds(option: str, written: str) -> float:
    """The seconds of a duration that is the value of an option; more than 0.

    Raises:
        ConsoleError: it is not a duration, or 0.
    """
    try:
        found = parse_duration(written)
    except ValueError as error:
        raise ConsoleError(f"{option} {written}: is not a duration", "set one such as 30m or 2h") from error
    if not found:
        raise ConsoleError(f"{option}: must be more than 0", "set a duration such as 30m")
    return found


def amounts(written: Json) -> dict[str, int]:
    """All quantities of a resource list; empty for anything else."""
    return {name: amount(name, value) for name, value in written.items()} if isinstance(written, dict) else {}


def plain(resource: str) -> str:
    """A resource name without the prefix `requests.` or `limits.` of a ResourceQuota."""
    return resource.removeprefix("requests.").removeprefix("limits.")


def amount_text(resource: str, value: int) -> str:
    """An amount for people: CPUs as a number, memory to a tenth of a Gi, counts without a suffix."""
    kind = plain(resource)
    if kind.startswith(_MEMORY) and value % _GIB and abs(value) >= _GIB:
        return f"{value / _GIB:.1f}Gi"
    if kind == CPU and abs(value) > _CPU:
        return f"{value / _CPU:.10g}"
    if kind == CPU or kind.startswith(_MEMORY):
        return format_amount("memory" if kind.startswith(_MEMORY) else kind, value) if value else "0"
    return str(value)


def amounts_text(amounts: Amounts) -> str:
    """`8 nvidia.com/gpu, 8 cpu, 32Gi memory`: GPUs first, without zero amounts and channels, which are no limit."""
    shown = (f"{amount_text(name, amounts[name])} {name}" for name in _shown(amounts))
    return ", ".join(shown) or "no resources"


def leading_text(amounts: Amounts) -> str:
    """The GPUs of an amount: `8 nvidia.com/gpu`; without GPUs its CPUs and memory: `60 CPUs, 128Gi memory`."""
    if only_gpus := gpus(amounts):
        return amounts_text(only_gpus)
    nouns = {CPU: "CPU" if amounts.get(CPU) == _CPU else "CPUs"}
    shown = (f"{amount_text(name, amounts[name])} {nouns.get(name, name)}" for name in _shown(amounts))
    return ", ".join(shown) or "no resources"


def ordered(resources: Iterable[str]) -> list[str]:
    """Resources in the order of texts: GPUs, cpu, memory, the rest."""
    first = ("cpu", "memory")
    return sorted(
        resources,
        key=lambda name: (not is_extended(name), first.index(plain(name)) if plain(name) in first else 2, name),
    )


def gpus(amounts: Amounts) -> dict[str, int]:
    """Only extended resources, which device plugins offer; those that pods claim are none of these."""
    return {name: amounts[name] for name in _shown(amounts) if is_extended(name)}


def _shown(amounts: Amounts) -> list[str]:
    return [name for name in ordered(amounts) if amounts[name] and name not in CLAIMED]
