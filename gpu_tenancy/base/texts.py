"""Numbers and lists of names in texts for people."""

from collections.abc import Iterable, Sequence

from gpu_tenancy.base.amounts import amount_text
from gpu_tenancy.base.quantity import CPU, MEMORY


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
