"""Sums of US dollars in which some prices are unknown."""

from dataclasses import dataclass
from typing import Final, Self

from gpu_tenancy.base.texts import UNKNOWN


@dataclass(frozen=True, slots=True)
class Usd:
    """US dollars; a lower bound if parts have no price (`unpriced`, by name)."""

    known: float = 0.0
    unpriced: tuple[str, ...] = ()

    @classmethod
    def of(cls, amount: float, price: float | None, name: str) -> Self:
        """An amount of something at its price; an amount of 0 costs nothing at any price."""
        if not amount:
            return cls()
        return cls(0.0, (name,)) if price is None else cls(amount * price)

    def __add__(self, other: "Usd") -> "Usd":
        return Usd(self.known + other.known, tuple(dict.fromkeys((*self.unpriced, *other.unpriced))))

    @property
    def bound(self) -> str:
        """`at least ` if parts have no price; else empty."""
        return "at least " if self.unpriced else ""

    def __str__(self) -> str:
        """`$1,234`, `at least $1,234`, or `unknown` if no part has a price."""
        if self.unpriced and not round(self.known):
            return UNKNOWN
        return f"{self.bound}${round(self.known):,}"


NONE: Final = Usd()
