"""Who shares the GPUs: priorities, the tree of cohorts, and what a node of that tree may use."""

from typing import Annotated, Self, TypeAlias

from pydantic import Field, model_validator

from gpu_tenancy.model.spec.base import Bytes, Count, Cpu, Name, Section, Shorthand, Weight, refuse


class Priority(Section):
    """A priority class, for pods and for workloads in the queues. Written as a number, or spelled out."""

    value: Annotated[int, Field(ge=-2147483648, le=1000000000)]
    """Higher goes first; above 1000000000 is the system's."""
    preempts: bool = True
    """Whether its pods push lower ones off a full node (`PreemptLowerPriority`) or wait (`Never`)."""
    default: bool = False
    """Whether pods that name no class get this one; at most one may."""
    description: str = ""
    """Who it is for, shown by kubectl."""


PriorityEntry: TypeAlias = Annotated[Priority, Shorthand(int, ("value",))]


class _Ordered(Section):
    @model_validator(mode="after")
    def _ordered(self) -> Self:
        guaranteed, limit = getattr(self, "guaranteed", None) or 0, getattr(self, "limit", None)
        if limit is not None and limit < guaranteed:
            raise refuse("has a limit below its guarantee", "raise limit or lower guaranteed")
        return self


class Gpus(_Ordered):
    """A share of a flavor's GPUs (its partitions or turns, where they are shared)."""

    guaranteed: Count = 0
    """Always there, taken back from borrowers at once."""
    limit: Count | None = None
    """At most, the rest borrowed from what others leave. A team's is its guarantee where left out; a group's is
    without bound."""


class CpuShare(_Ordered):
    """A share of a flavor's cpu."""

    guaranteed: Cpu = 0
    """Always there."""
    limit: Cpu | None = None
    """At most."""


class MemoryShare(_Ordered):
    """A share of a flavor's memory."""

    guaranteed: Bytes = 0
    """Always there."""
    limit: Bytes | None = None
    """At most."""


class FlavorQuota(Gpus):
    """A share of any resource of a flavor: its GPUs, and the cpu and memory beside them.

    Cpu and memory of a GPU flavor left out follow the machine: each GPU brings its part of the node. Those of a CPU
    pool left out are guaranteed to nobody, and each team may borrow what its budget allows.
    """

    cpu: CpuShare | None = None
    """The flavor's cpu."""
    memory: MemoryShare | None = None
    """The flavor's memory."""


class Shares(Section):
    """What a node of the tree, group or team, has of the flavors."""

    gpus: dict[Name, Gpus] = {}
    """GPUs by flavor."""
    quota: dict[Name, FlavorQuota] = {}
    """Any resource by flavor: for cpu and memory that differ from the machine's share, and for CPU pools."""

    @model_validator(mode="after")
    def _once(self) -> Self:
        for flavor in sorted(set(self.gpus) & set(self.quota)):
            if self.quota[flavor].model_fields_set & {"guaranteed", "limit"}:
                raise refuse(f"says its GPUs of {flavor} twice", f"leave them in gpus.{flavor} alone")
        return self


class Cohort(Shares):
    """A group of teams, or of groups. The one without a parent is the root and holds what nobody is guaranteed."""

    parent: Name | None = None
    """The group above; left out for the root alone."""
    weight: Weight = 1.0
    """Its part when groups compete under fair sharing."""
