"""GPUs and prices of machine types."""

from collections.abc import Mapping
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import Field

from rule_engine import Settings, read_table

T = TypeVar("T")
HOURS: Final = 730
"""Hours per month, as on the clouds' price pages."""
_WITH_GPUS: Final = ("p[0-9]*.*", "g[0-9]*.*", "gr[0-9]*.*", "a[2-9]*-*gpu-*", "g[2-9]-*", "Standard_N[CDGV]*")
"""Machine types with GPUs, or with parts of one, whose number is unknown if they are not in the table."""


def table() -> dict[str, Any]:
    """GPUs and prices of machine types by cloud: blocks of facts, each with source and date."""
    return read_table(Path(__file__).with_name("machines.yaml"))


@cache
def _table() -> tuple[dict[str, int], dict[str, Decimal]]:
    """GPUs by machine, and USD an hour by machine; names in lower case."""
    clouds = table().values()
    gpus = {name.lower(): count for cloud in clouds for name, count in cloud["gpus"].items()}
    prices = {
        name.lower(): Decimal(str(price)) for cloud in clouds for name, price in cloud["prices"]["machines"].items()
    }
    return gpus, prices


def _configured(by_pattern: Mapping[str, T], name: str) -> T | None:
    return next((value for pattern, value in by_pattern.items() if matches(name, pattern)), None)


def matches(name: str, pattern: str) -> bool:
    """Whether a machine type matches a pattern (`Standard_N*`), in any case: Azure accepts `standard_nc6s_v3` too."""
    return fnmatchcase(name.lower(), pattern.lower())


class Machines(Settings):
    """GPUs of machine types that are not in the pack's table."""

    machines: dict[str, int] = Field(default={})
    """GPUs per machine, by name or pattern (`p7.*`); overrides the pack's table."""

    def gpus_of(self, name: str) -> int | None:
        """GPUs of one machine, or of a family as a pattern (`p5.*`); 0 without GPUs, None if the number is unknown."""
        configured = _configured(self.machines, name)
        if configured is not None:
            return configured
        gpus, _ = _table()
        if name.lower() in gpus:
            return gpus[name.lower()]
        return None if any(matches(name, pattern) for pattern in _WITH_GPUS) else 0

    def gpu_machines(self, cloud: str) -> list[str]:
        """Names of all machine types of a cloud (`aws`, `azure`, `gcp`) with a known number of GPUs, in lower case."""
        gpus, _ = _table()
        names = dict.fromkeys((*gpus, *(name.lower() for name in self.machines)))
        return [name for name in names if _cloud_of(name) == cloud and self.gpus_of(name)]

    def cpu_machines(self, cloud: str) -> list[str]:
        """Names of all machine types of a cloud without GPUs that have a price in the table, in lower case."""
        _, prices = _table()
        return [name for name in prices if _cloud_of(name) == cloud and self.gpus_of(name) == 0]

    def has_gpus(self, pattern: str) -> bool:
        """Whether a machine type with GPUs matches a pattern (`p5*`), or can: the number may be unknown."""
        gpus, _ = _table()
        return self.gpus_of(pattern) != 0 or any(self.gpus_of(name) != 0 for name in gpus if matches(name, pattern))


def _cloud_of(name: str) -> str:
    """The cloud that has machine types with names of this form: `p5.48xlarge`, `standard_nc6s_v3`, `a2-highgpu-1g`."""
    if name.startswith("standard_"):
        return "azure"
    return "aws" if "." in name else "gcp"


class Prices(Machines):
    """Prices of machine types for an organisation."""

    prices: dict[str, float] = Field(default={})
    """USD per hour of a machine, by name or pattern; overrides the pack's table, which has the on-demand prices of one
    region of each cloud."""

    def price_of(self, name: str) -> Decimal | None:
        """USD per hour of a machine; for a family, of its most expensive machine; None if unknown."""
        configured = _configured(self.prices, name)
        if configured is not None:
            return Decimal(str(configured))
        _, prices = _table()
        if "*" in name:
            return max((price for machine, price in prices.items() if matches(machine, name)), default=None)
        return prices.get(name.lower())
