"""Purchase options of machine types, and their allocatable CPU and memory: the rules of each cloud."""

from collections.abc import Sequence
from typing import Annotated, Generic, Literal, Self, TypeAlias, TypeVar

from pydantic import Field, model_validator

from gpu_tenancy.model.catalogue.rows import Fact, Row
from gpu_tenancy.model.fields import Bytes, Count, Cpu, Positive

Share: TypeAlias = Annotated[float, Field(gt=0, lt=1)]

_Amount = TypeVar("_Amount")


class _Step(Row, Generic[_Amount]):
    up_to: _Amount | None = None
    share: Share


class _Pods(Row):
    most: Positive
    below: Cpu = 0
    few: Count = 0


class _KubeMemory(Row):
    steps: tuple[_Step[Bytes], ...] = ()
    base: Bytes = 0
    per_pod: Bytes = 0
    pods: _Pods | None = None
    most: Share | None = None

    def kept(self, cpu: int, memory: int) -> float:
        pods = 0 if self.pods is None else self.pods.few if cpu < self.pods.below else self.pods.most
        return _stepped(memory, self.steps) + min(self.base + self.per_pod * pods, memory * (self.most or 1))


class _Unseen(Fact):
    share: Share


class Reserved(Fact):
    """CPU and memory of a cloud's machines that are not allocatable.

    `memory`: memory that the kubelet reserves: by such steps, or by the maximum number of pods (`few` on machines
    with fewer than `below` CPUs), at most the share `most` of the machine.
    """

    cpu: list[_Step[Cpu]]  # shares of the CPU that the kubelet reserves, each up to an amount
    memory: _KubeMemory
    eviction: Bytes  # the kubelet's eviction threshold in bytes
    unseen: _Unseen  # share of the nominal memory that hypervisor, firmware and kernel use

    def left(self, cpu: int, memory: int) -> tuple[float, float]:
        """Allocatable millicores and bytes of a machine, not rounded."""
        seen = memory * (1 - self.unseen.share)
        return cpu - _stepped(cpu, self.cpu), seen - self.memory.kept(cpu, memory) - self.eviction


def _stepped(amount: int, steps: Sequence[_Step[int]]) -> float:
    total, start = 0.0, 0
    for step in steps:
        end = amount if step.up_to is None else min(amount, step.up_to)
        total += max(0, end - start) * step.share
        start = max(start, end)
    return total


CapacityType: TypeAlias = Literal["on-demand", "spot", "reserved", "capacity-block", "flex-start", "queued"]


class Purchase(Row):
    """Purchase options of a machine type. A capacity type that is neither in `has` nor in `lacks` is unknown.

    `reservations`: created at any time at the price on demand (`on-demand`), agreed for a date in the future
    (`future`), or booked for some days (`calendar`).
    """

    has: tuple[CapacityType, ...]
    lacks: tuple[CapacityType, ...] = ()
    reservations: tuple[Literal["on-demand", "future", "calendar"], ...] = ()
    zones: tuple[str, ...] = ()  # the only zones that have it; empty if that is unknown

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if both := set(self.has) & set(self.lacks):
            raise ValueError(f"{', '.join(sorted(both))} is both in has and in lacks")
        return self


class PurchaseRow(Purchase, Fact):
    """Purchase options of a family of machine types."""


def purchase_of(machine: str, families: dict[str, PurchaseRow]) -> PurchaseRow | None:
    """The row of the family with the longest matching name; None if the machine type is unknown."""
    fitting = [family for family in families if machine.startswith(family)]
    return families[max(fitting, key=len)] if fitting else None
