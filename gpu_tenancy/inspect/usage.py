"""Results of `tenancy usage`: guaranteed, limit, used, borrowed, lent and pending."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from gpu_tenancy.inspect.budgets import Budget
from gpu_tenancy.inspect.reading import Missing


@dataclass(frozen=True, slots=True)
class Row:
    """One resource of one flavor of one queue; amounts in base units, None where the user may not see them.

    Attributes:
        team: name of the queue, or of one of several namespaces that share it.
        scheduler: `Kueue`, or `Volcano` for gangs.
        borrowed: used beyond the guarantee.
        lent: upper bound of the idle guarantee that others use.
        waiting: requested by pending workloads, at the first flavor that they could get.
        workloads: how many workloads are pending.
        part_of: the queue, where the row is one of several namespaces that share it.
    """

    team: str
    flavor: str
    resource: str
    scheduler: Literal["Kueue", "Volcano"]
    guaranteed: int | None
    limit: int | None
    used: int
    borrowed: int | None
    lent: int | None
    waiting: int
    workloads: int
    part_of: str = ""


@dataclass(frozen=True, slots=True)
class TeamBudget:
    """One resource of a namespace's ResourceQuota."""

    team: str
    budget: Budget


@dataclass(frozen=True, slots=True)
class ResourceTotal:
    """The sum of one resource; None where a summand is unknown.

    Attributes:
        beside_gpus: whether it is CPU or memory of flavors without GPUs, in a cluster that also has GPUs.
    """

    resource: str
    guaranteed: int | None
    used: int | None
    borrowed: int | None
    waiting: int | None
    beside_gpus: bool = False


@dataclass(frozen=True, slots=True)
class Total:
    """Sums of all GPU resources, and of CPU and memory where flavors have no GPUs.

    Attributes:
        workloads: how many workloads are pending.
        requested: what those with GPUs request, then what those without request; empty if none is pending.
    """

    resources: tuple[ResourceTotal, ...]
    workloads: int
    requested: tuple[Mapping[str, int], ...]


class Note(Enum):
    """What a reader should know about the numbers."""

    LENT = auto()
    NO_FLAVOR = auto()
    KUEUE_NOT_RUNNING = auto()
    QUOTAS_ABRIDGED = auto()
    CPU_QUOTAS_ABRIDGED = auto()


@dataclass(frozen=True, slots=True)
class Usage:
    """The result of `tenancy usage`.

    Attributes:
        notes: what the reader should know about the numbers.
        unreadable: kinds without which numbers are unknown.
    """

    rows: tuple[Row, ...]
    budgets: tuple[TeamBudget, ...]
    total: Total
    notes: tuple[Note, ...]
    unreadable: tuple[Missing, ...] = ()
