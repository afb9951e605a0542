"""What pods cannot have of a cloud's machines: rules of each cloud, beside its machines."""

import datetime as dt
from collections.abc import Sequence
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from gpu_tenancy.model.spec.base import Bytes, Count, Cpu, Positive

Url: TypeAlias = Annotated[str, Field(pattern=r"^https://[^\s]+$")]
Share: TypeAlias = Annotated[float, Field(gt=0, lt=1)]


class Row(BaseModel):
    """A part of a table. Closed (an unknown key is an error), frozen, keys in camelCase."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel)


class _Step(Row):
    up_to: int | None = None
    share: Share


class _CpuStep(_Step):
    up_to: Cpu | None = None


class _MemoryStep(_Step):
    up_to: Bytes | None = None


class _Pods(Row):
    most: Positive
    below: Cpu = 0
    few: Count = 0


class _KubeMemory(Row):
    steps: list[_MemoryStep] = []
    base: Bytes = 0
    per_pod: Bytes = 0
    pods: _Pods | None = None
    most: Share | None = None

    def kept(self, cpu: int, memory: int) -> float:
        pods = 0 if self.pods is None else self.pods.few if cpu < self.pods.below else self.pods.most
        by_pods = self.base + self.per_pod * pods
        return _stepped(memory, self.steps) + min(by_pods, memory * (self.most or 1))


class _Unseen(Row):
    share: Share
    source: Url
    date: dt.date


class Reserved(Row):
    """What pods cannot have of a cloud's machines.

    Attributes:
        cpu: shares that the kubelet keeps, each up to an amount of the machine's.
        memory: what it keeps: in such steps, or by the pods that a node may have (`few` on machines `below` so many
            cpus), `most` of the machine at the most.
        eviction: bytes below which it evicts.
        unseen: share of the memory sold that hypervisor, firmware and kernel take before the kubelet counts.
    """

    source: Url
    date: dt.date
    cpu: list[_CpuStep]
    memory: _KubeMemory
    eviction: Bytes
    unseen: _Unseen

    def left(self, cpu: int, memory: int) -> tuple[float, float]:
        """Millicores and bytes of a machine that pods can have."""
        seen = memory * (1 - self.unseen.share)
        return (
            cpu - _stepped(cpu, self.cpu),
            seen - self.memory.kept(cpu, memory) - self.eviction,
        )


def _stepped(amount: int, steps: Sequence[_Step]) -> float:
    total, start = 0.0, 0
    for step in steps:
        end = amount if step.up_to is None else min(amount, step.up_to)
        total += max(0, end - start) * step.share
        start = max(start, end)
    return total
