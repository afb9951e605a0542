"""A guarantee as a vector: the largest job for which Kueue reclaims a queue's nominal quota.

Kueue reclaims only for a workload that fits into the nominal quota of its queue in every resource that it requests. One
that must borrow CPU or memory reclaims no GPU either (https://github.com/kubernetes-sigs/kueue/issues/4028 and 7393;
seen on 0.19.2).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts
from gpu_tenancy.base.texts import counted, unit

BESIDE: Final = (CPU, MEMORY)  # resources that decide whether guaranteed GPUs can be reclaimed


@dataclass(frozen=True, slots=True)
class Guarantee:
    """Nominal quota of a queue in one flavor, in base units."""

    flavor: str
    resource: str  # the counted resource: the flavor's GPUs, or CPU in a flavor without GPUs
    amounts: Amounts  # nominal quota by resource; one that the queue does not cover is missing, and bounds no job

    @property
    def units(self) -> int:
        """Guaranteed GPUs, or CPU in millicores."""
        return self.amounts.get(self.resource, 0)

    @property
    def beside(self) -> dict[str, int]:
        """Guaranteed amounts of CPU and memory beside the counted resource."""
        return {name: self.amounts[name] for name in BESIDE if name != self.resource and name in self.amounts}

    @property
    def bound(self) -> str:
        """The most that the largest job may request beside its GPUs: `10 CPUs and 40Gi`; empty without a guarantee."""
        return _listed(self.beside) if self.units else ""

    def __str__(self) -> str:
        """`8 a100 GPUs, up to 10 CPUs and 40Gi: 1.25 CPUs and 5Gi for each GPU`; empty without a guarantee."""
        if not self.units:
            return ""
        whole = counted(self.units, self.resource, "" if self.resource == CPU else self.flavor)
        if not self.beside:
            return whole
        one = 1000 if self.resource == CPU else 1
        text = f"{whole}, up to {self.bound}"
        if self.units <= one:
            return text
        each = {name: amount * one // self.units for name, amount in self.beside.items()}
        return f"{text}: {_listed(each)} for each {unit(self.resource).removesuffix('s')}"

    def key(self, queue: str, resource: str) -> str:
        """The key of a stack that sets the guarantee of CPU or memory of a queue."""
        return f"teams.{queue}.quota.{self.flavor}.{resource}.guaranteed"

    def missing(self, requests: Amounts, used: Amounts | None = None) -> dict[str, int]:
        """Amounts by which requests, beside what the queue uses, exceed the guarantee; empty if they are covered."""
        used = used or {}
        beyond = {
            name: amount + used.get(name, 0) - self.amounts[name]
            for name, amount in requests.items()
            if amount and name in self.amounts
        }
        return {name: amount for name, amount in beyond.items() if amount > 0}

    def below(self, share: Mapping[str, int]) -> dict[str, int]:
        """Guaranteed CPU and memory that are less than the GPUs' share of the machine, which is given for one GPU."""
        return {name: amount for name, amount in self.beside.items() if amount < share.get(name, 0) * self.units}


def _listed(amounts: Amounts) -> str:
    """`1.25 CPUs and 5Gi`, rounded down to hundredths of a CPU and tenths of a Gi, so that a job of it is covered."""
    texts: list[str] = []
    for name, amount in amounts.items():
        if name == CPU:
            number = f"{amount // 10 / 100:.10g}"
            texts.append(f"{number} {'CPU' if number == '1' else 'CPUs'}")
        else:
            size, suffix = (2**30, "Gi") if amount >= 2**30 else (2**20, "Mi")
            texts.append(f"{amount * 10 // size / 10:.10g}{suffix}")
    return " and ".join(texts)
