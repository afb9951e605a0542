"""Priority classes, the cohort tree, and the quotas of its nodes."""

from typing import Annotated, Self, TypeAlias

from pydantic import Field, model_validator

from gpu_tenancy.model.spec.base import Bytes, Count, Cpu, Name, Section, Shorthand, Weight, refuse
from gpu_tenancy.model.spec.people import Members


class Priority(Section):
    """A PriorityClass and WorkloadPriorityClass: a number, or a mapping."""

    value: Annotated[int, Field(ge=-2147483648, le=1000000000)]
    """Priority; higher values are scheduled first. Values above 1000000000 are reserved for the system."""
    preempts: bool = True
    """Whether its pods preempt pods of lower priority on a full node (`PreemptLowerPriority`) or not (`Never`)."""
    default: bool = False
    """Whether pods without a class get this one; at most one class can be the default."""
    description: str = ""
    """Description of its use, shown by kubectl."""


PriorityEntry: TypeAlias = Annotated[Priority, Shorthand(int, ("value",))]


class _Ordered(Section):
    @model_validator(mode="after")
    def _ordered(self) -> Self:
        guaranteed, limit = getattr(self, "guaranteed", None) or 0, getattr(self, "limit", None)
        if limit is not None and limit < guaranteed:
            raise refuse("limit is less than guaranteed", "raise limit or lower guaranteed")
        return self


class Gpus(_Ordered):
    """A share of a flavor's GPUs (of its MIG partitions or time slices, if GPUs are shared)."""

    guaranteed: Count = 0
    """Number of guaranteed GPUs; lent while idle, and reclaimed from borrowers when needed."""
    limit: Count | None = None
    """Maximum number of GPUs, including borrowed ones. Default: the guarantee for a team, unlimited for a cohort."""


class CpuShare(_Ordered):
    """A share of a flavor's CPUs."""

    guaranteed: Cpu = 0
    """Guaranteed CPUs."""
    limit: Cpu | None = None
    """Maximum CPUs, including borrowed ones."""


class MemoryShare(_Ordered):
    """A share of a flavor's memory."""

    guaranteed: Bytes = 0
    """Guaranteed memory."""
    limit: Bytes | None = None
    """Maximum memory, including borrowed memory."""


class FlavorQuota(Gpus):
    """A share of a flavor's GPUs, CPUs and memory.

    Defaults for CPU and memory: in a GPU flavor, each GPU's share of the node; in a CPU flavor, no guarantee, and each
    team can borrow as much as its budget allows.
    """

    cpu: CpuShare | None = None
    """Share of the flavor's CPUs."""
    memory: MemoryShare | None = None
    """Share of the flavor's memory."""


class Shares(Section):
    """Quotas of a team or a cohort, by flavor."""

    gpus: dict[Name, Gpus] = {}
    """GPU quota by flavor."""
    quota: dict[Name, FlavorQuota] = {}
    """Quota of all resources by flavor: for CPU and memory that differ from the GPUs' share, and for CPU pools."""

    @model_validator(mode="after")
    def _once(self) -> Self:
        for flavor in sorted(set(self.gpus) & set(self.quota)):
            if self.quota[flavor].model_fields_set & {"guaranteed", "limit"}:
                raise refuse(f"sets GPUs of {flavor} under gpus and under quota", f"keep only gpus.{flavor}")
        return self


class Cohort(Shares):
    """A cohort of teams or cohorts. The one without a parent is the root; it has all unguaranteed quota."""

    parent: Name | None = None
    """Parent cohort; required except for the root."""
    weight: Weight | None = None
    """Weight of the cohort under fair sharing, which then shares as one. Default: its teams share by their weights."""
    members: Members = Members()
    """People who are members of all teams of the cohort and of the cohorts below it."""
