"""How machine types can be bought, from `capacity` in the files of `machines/`."""

from typing import Literal, Self, TypeAlias

from pydantic import model_validator

from gpu_tenancy.model.catalogue.rows import Fact, Row

CapacityType: TypeAlias = Literal["on-demand", "spot", "reserved", "capacity-block", "flex-start", "queued"]


class Purchase(Row):
    """How a machine type can be bought. A capacity type that is neither in `has` nor in `lacks` is unknown.

    Attributes:
        has: capacity types that it has.
        lacks: capacity types that it does not have.
        reservations: which reservations it has: created at any time at the price on demand, agreed for a date in the
            future, or booked for some days in a calendar.
        zones: the only zones that have it; empty if that is not known.
    """

    has: tuple[CapacityType, ...]
    lacks: tuple[CapacityType, ...] = ()
    reservations: tuple[Literal["on-demand", "future", "calendar"], ...] = ()
    zones: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if both := set(self.has) & set(self.lacks):
            msg = f"{', '.join(sorted(both))} is both in has and in lacks"
            raise ValueError(msg)
        return self


class PurchaseRow(Purchase, Fact):
    """How the machine types of a family can be bought."""


def purchase_of(machine: str, families: dict[str, PurchaseRow]) -> PurchaseRow | None:
    """The row of a machine type: of the family with the longest name that its name starts with; None if unknown."""
    fitting = [family for family in families if machine.startswith(family)]
    return families[max(fitting, key=len)] if fitting else None
