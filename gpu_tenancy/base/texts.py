"""Numbers and lists of names in texts for people."""

from collections.abc import Iterable, Sequence
from typing import Final

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.base.quantity import CPU, MEMORY

UNKNOWN: Final = "unknown"
"""Text for a missing price, which is never shown as 0."""
DASH: Final = "\N{EN DASH}"
MINUS: Final = "\N{MINUS SIGN}"
_TWO_DIGITS: Final = 10


def plural(count: int, noun: str, nouns: str = "") -> str:
    """`1 pod`, `3 pods`; `nouns` where the plural has no plain s."""
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"


def first_names(names: Sequence[str], shown: int) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def unit(resource: str) -> str:
    """What an amount of a resource counts: `GPUs`, `CPUs` or `memory`."""
    return {CPU: "CPUs", MEMORY: "memory"}.get(resource, "GPUs")


def counted(amount: int, resource: str, flavor: str = "") -> str:
    """An amount in base units with its noun: `8 a100 GPUs`, `1 GPU`, `1 CPU`, `128Gi memory`."""
    if resource in {CPU, MEMORY}:
        text = amount_text(resource, amount)
        return f"{text} {flavor or ('CPU' if (resource, text) == (CPU, '1') else unit(resource))}"
    return plural(amount, f"{flavor} GPU" if flavor else "GPU")


def available(resources: Iterable[str]) -> str:
    """What several resources count: `GPUs`, `CPUs and memory`, or all of them; `GPUs` for none."""
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


def monthly(amount: float | None) -> str:
    """US dollars per month, in whole dollars."""
    return UNKNOWN if amount is None else f"${round(amount):,}"


def hours_text(hours: float | None) -> str:
    """GPU-hours: `0`, `0.4`, `12`, `1,204`; `unknown` for None."""
    return UNKNOWN if hours is None else f"{hours:.1f}" if 0 < round(hours, 1) < _TWO_DIGITS else f"{hours:,.0f}"
