"""Kubernetes quantities as exact integers in one base unit per resource.

Amounts of `cpu` are in millicores, amounts of `memory` and storage in bytes, all others are counts. The grammar is that
of the API: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final, TypeAlias

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json

Amounts: TypeAlias = Mapping[str, int]  # in the resource's base unit, by resource name

CPU: Final = "cpu"
MEMORY: Final = "memory"
# The resource as which Kueue counts channels: our own name, no node has it.
CHANNELS: Final = "compute-domain.nvidia.com/channel"
# The resource as which Kueue counts RDMA interfaces of GKE's DRANET: our own name.
INTERFACES: Final = "mrdma.google.com/interface"
CLAIMED: Final = (CHANNELS, INTERFACES)
"""Resources that Kueue counts by claims. Their quota never binds, so reports and the simulation leave them out."""

_BINARY: Final = {"Ei": 2**60, "Pi": 2**50, "Ti": 2**40, "Gi": 2**30, "Mi": 2**20, "Ki": 2**10}
_DECIMAL: Final = {"E": 10**18, "P": 10**15, "T": 10**12, "G": 10**9, "M": 10**6, "k": 10**3}
_SUFFIXES: Final[Mapping[str, Fraction]] = {
    **{suffix: Fraction(factor) for suffix, factor in (_BINARY | _DECIMAL).items()},
    "": Fraction(1),
    "m": Fraction(1, 10**3),
    "u": Fraction(1, 10**6),
    "n": Fraction(1, 10**9),
}
_NUMBER: Final = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_SUFFIX: Final = r"[KMGTPE]i|[numkMGTPE]"
_EXPONENT: Final = r"[eE][+-]?0*[0-9]{1,2}"
"""Two digits cover all amounts of the API (up to 2^63), and keep a typing error from becoming a number of gigabytes."""
_QUANTITY: Final = re.compile(rf"(?P<number>[+-]?{_NUMBER})(?:(?P<suffix>{_SUFFIX})|(?P<exponent>{_EXPONENT}))?")

_DURATION: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)(ms|s|m|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DURATION_PATTERN: Final = f"^{_DURATION.pattern}$"  # for the JSON schema

_RATE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)/s")
RATE_PATTERN: Final = f"^{_RATE.pattern}$"  # for the JSON schema

# Not negative; for the JSON schema.
CPU_PATTERN: Final = rf"^\+?{_NUMBER}({_SUFFIX}|{_EXPONENT})?$"
BYTES_PATTERN: Final = rf"^\+?{_NUMBER}({_SUFFIX.replace('num', '')}|{_EXPONENT})?$"


def parse_quantity(text: str | float) -> Fraction:
    """The exact value of a quantity such as `500m`, `256Gi` or `1e3`. Raises ValueError outside the API's grammar."""
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    return Fraction(match["number"] + (match["exponent"] or "")) * _SUFFIXES[match["suffix"] or ""]


def parse_cpu(text: str | float) -> int:
    """Millicores of a cpu quantity: `2` is 2000. Raises ValueError if it is negative, or not a whole number of them."""
    return _whole(parse_quantity(text) * 1000, text, "millicores")


def parse_bytes(text: str | float) -> int:
    """Bytes of a memory or storage quantity: `4Gi` is 4294967296. Raises ValueError as `parse_cpu` does."""
    return _whole(parse_quantity(text), text, "bytes")


def _whole(value: Fraction, text: str | float, unit: str) -> int:
    if value < 0:
        msg = f"{text!r} is negative"
        raise ValueError(msg)
    if value.denominator != 1:
        msg = f"{text!r} is not a whole number of {unit}"
        raise ValueError(msg)
    return value.numerator


def format_cpu(millicores: int) -> str:
    """`2000` as `2`, `1500` as `1500m`: the canonical form of the API server."""
    return f"{millicores}m" if millicores % 1000 else format_count(millicores // 1000)


def format_count(amount: int) -> str:
    """`50` as `50`, `2000` as `2k`: with the largest suffix that is exact, as the API server writes it."""
    return _with_suffix(amount, _DECIMAL) or str(amount)


def format_bytes(amount: int) -> str:
    """With the largest suffix that is exact, binary before decimal: `4Gi`, `1536Mi`, `500M`."""
    return _with_suffix(amount, _BINARY) or format_count(amount)


def _with_suffix(amount: int, suffixes: Mapping[str, int]) -> str | None:
    return next((f"{amount // factor}{s}" for s, factor in suffixes.items() if amount and amount % factor == 0), None)


def format_amount(resource: str, amount: int) -> str:
    """An amount of a resource as Kubernetes writes it; a ResourceQuota's prefix, as in `requests.cpu`, is ignored."""
    kind = plain(resource)
    if kind == CPU:
        return format_cpu(amount)
    of_bytes = kind in {MEMORY, "storage"} or kind.startswith("hugepages-")
    return format_bytes(amount) if of_bytes else format_count(amount)


def format_amounts(amounts: Amounts) -> dict[str, str]:
    """Each amount as Kubernetes writes it, in the same order."""
    return {resource: format_amount(resource, amount) for resource, amount in amounts.items()}


def is_extended(resource: str) -> bool:
    """Whether a resource such as `nvidia.com/gpu` has a domain; a ResourceQuota's `count/jobs.batch` is not one."""
    return "/" in resource and not resource.startswith("count/")


def add(*amounts: Amounts) -> dict[str, int]:
    """The sum by resource."""
    total: dict[str, int] = {}
    for addend in amounts:
        for resource, amount in addend.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def times(amounts: Amounts, factor: int) -> dict[str, int]:
    """Each amount multiplied by `factor`."""
    return {resource: amount * factor for resource, amount in amounts.items()}


def equal_parts(amount: int, count: int) -> list[int]:
    """An amount in so many parts that differ by at most 1."""
    return [amount * (number + 1) // count - amount * number // count for number in range(count)]


def parse_duration(text: str) -> float:
    """The seconds of a duration such as `100ms`, `30s`, `10m`, `1.5h` or `7d`. Raises ValueError for others."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration with a unit")
    return float(match[1]) * _SECONDS[match[2]]


def format_duration(seconds: float) -> str:
    """A duration in the largest unit that has a whole number of it: `100ms`, `90m`, `1h`, `7d`."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s"


def go_duration(seconds: float) -> str:
    """A duration as Go parses it, such as `604800s`, without an exponent: https://pkg.go.dev/time#ParseDuration."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"


def parse_rate(text: str) -> int:
    """Thousandths of a rate per second (`0.5/s`). Raises ValueError for another form or more than three decimals."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a rate per second")
    return int(Fraction(match[1]) * 1000)


def format_rate(thousandths: int) -> str:
    """A rate per second: `10,000/s`, `0.5/s`."""
    return f"{thousandths / 1000:,.3f}".rstrip("0").rstrip(".") + "/s"


_GIB: Final = 2**30
_CPU: Final = 1000
_MEMORY: Final = ("memory", "storage", "ephemeral-storage", "hugepages-")


def amount(resource: str, written: Json) -> int:
    """A quantity in base units: cpu in thousandths, memory in bytes, else a count. Raises ConsoleError if invalid."""
    factor = 1000 if plain(resource) == CPU else 1
    try:
        return _units(str(written), factor)
    except ValueError as error:
        what = f"{str(written).strip()!r} is not a valid quantity"
        raise ConsoleError(what, "set one such as 500m, 8 or 32Gi") from error


@lru_cache(maxsize=10_000)
def _units(written: str, factor: int) -> int:
    """Rounded up, as a scheduler does. Cached: thousands of pods of a cluster have the same few quantities."""
    return ceil(parse_quantity(written) * factor)


def seconds(option: str, written: str) -> float:
    """The seconds of a duration that is the value of an option. Raises ConsoleError if it is not a duration, or 0."""
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
        return f"{value / _GIB:.1f}".removesuffix(".0") + "Gi"
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
    order = {CPU: 0, MEMORY: 1}
    return sorted(resources, key=lambda name: (not is_extended(name), order.get(plain(name), 2), name))


def gpus(amounts: Amounts) -> dict[str, int]:
    """Only extended resources (device plugins), without those that Kueue counts by claims."""
    return {name: amounts[name] for name in _shown(amounts) if is_extended(name)}


def gpu_count(amounts: Amounts) -> int:
    """The number of all GPUs of an amount, whatever their resources."""
    return sum(gpus(amounts).values())


def _shown(amounts: Amounts) -> list[str]:
    return [name for name in ordered(amounts) if amounts[name] and name not in CLAIMED]
