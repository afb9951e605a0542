"""Machine types with their GPUs and prices, and node pools in terms that are common to all clouds.

A module per cloud (`aws`, `karpenter`, `gcp`, `azure`) maps its resources to these terms. Each value is read on demand,
so that a value that is unknown in a preview affects only the rules that need it.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from pydantic import Field

from cloud_rules.tags import ignores
from rule_engine import Part, Settings, Stack, UnknownValueError, View, read_table

T = TypeVar("T")
HOURS: Final = 730  # hours per month, as on the clouds' price pages
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
    return gpus, {
        name.lower(): Decimal(str(price)) for cloud in clouds for name, price in cloud["prices"]["machines"].items()
    }


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


# Node pools.

REPELLING_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
"""Effects of a taint that keep pods off; `PreferNoSchedule` does not."""
_EFFECTS: Final = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint, with its effect as in Kubernetes (`NoSchedule`)."""

    key: str
    effect: str


def cloud_taints(views: Sequence[View]) -> list[Taint]:
    """Taints as the APIs of EKS and GKE have them, with effects such as `NO_SCHEDULE`."""
    taints = [view.string_map() for view in views]
    return [Taint(taint.get("key", ""), _EFFECTS.get(taint.get("effect", ""), "")) for taint in taints]


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine type that a pool can have, or a family as a pattern (`p5.*`), and its property path."""

    name: str
    path: tuple[str, ...]

    def gpus(self, known: Machines) -> int | None:
        """GPUs of one machine; 0 without GPUs, None if it has an unknown number."""
        return known.gpus_of(self.name)


class MachineSource(Part, ABC):
    """A node pool or a launch template: it sets machine types and their purchase option."""

    writes: ClassVar[Mapping[str, str]] = {}
    """The properties to set for each fix, in the terms of its API."""

    @abstractmethod
    def machines(self) -> Sequence[Machine]:
        """Machine types that it names; empty without."""

    @property
    @abstractmethod
    def spot(self) -> bool:
        """Whether it can use spot or preemptible machines."""


class NodePool(MachineSource):
    """A group of nodes of a cluster."""

    counted: ClassVar[str] = "node count"
    """What its minimum counts."""

    @property
    def minimum(self) -> Decimal:
        """Minimum number of nodes, or of what it counts instead."""
        return self.view.number(*self.writes["minimum"].split(".")) or Decimal(0)

    @property
    def maximum(self) -> Decimal | None:
        """Maximum number of nodes; None if it is unlimited."""
        return self.view.number(*self.writes["maximum"].split("."))

    @property
    @abstractmethod
    def taints(self) -> Sequence[Taint]:
        """Taints of its nodes from their creation on."""

    def all_taints(self, stack: Stack) -> Sequence[Taint]:  # noqa: ARG002 - others look there
        """Taints, including taints set by another resource of the stack."""
        return self.taints

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels that its nodes get from it; empty if another resource sets them."""
        return self.view.string_map(*path.split(".")) if (path := self.writes.get("labels")) else {}

    @property
    def bounded(self) -> bool:
        """Whether its number of nodes or resources has a limit."""
        return self.maximum is not None

    @property
    def for_system(self) -> bool:
        """Whether it runs the cluster's system pods."""
        return False

    @property
    def autoscaled(self) -> bool:
        """Whether an autoscaler changes its number of nodes."""
        return self.minimum != self.maximum

    @property
    def fixed_size(self) -> str:
        """The property with a number of nodes that overrides the autoscaler; empty without."""
        path = self.writes.get("size", "")
        if not path or not self.autoscaled or not self.view.has(*path.split(".")):
            return ""
        full_path = re.sub(r"\.(\d+)", r"[\1]", ".".join((*self.view.path, path)))
        return "" if ignores(self.resource, full_path) else path

    def fabric(self, stack: Stack) -> str:  # noqa: ARG002 - others look there
        """The network between GPUs of its machines, such as `EFA`; empty without."""
        return ""

    def zones(self, stack: Stack) -> int:  # noqa: ARG002 - others look there
        """Number of zones of its nodes, or of subnets if their zones are unknown; 0 if the cloud selects zones."""
        return 0

    def reserved(self, stack: Stack) -> bool:  # noqa: ARG002 - others look there
        """Whether its machines are of a reservation."""
        return False

    @property
    def surges(self) -> bool:
        """Whether an update adds nodes before it removes any."""
        return False

    def all_machines(self, stack: Stack) -> Sequence[Machine]:  # noqa: ARG002 - others look there
        """Machine types, including types set by another resource of the stack."""
        return self.machines()

    def gpus(self, known: Machines, stack: Stack) -> int | None:
        """GPUs of a node (the maximum over its machine types); 0 without GPUs, None if unknown."""
        return highest(machine.gpus(known) for machine in self.all_machines(stack))

    def taint_fix(self, known: Machines, stack: Stack) -> str:  # noqa: ARG002 - others compare machines
        """What to set so that pods without GPUs stay off its GPU nodes."""
        return self.writes["taint"]

    def maximum_gpus(self, known: Machines, stack: Stack) -> Decimal | None:
        """Maximum number of GPUs; None if it is unlimited. A number of GPUs in no table is an unknown value."""
        gpus_per_node, nodes = self.gpus(known, stack), self.maximum
        if gpus_per_node == 0:
            return Decimal(0)
        if gpus_per_node is None:
            raise _unknown_fact(self.all_machines(stack), "number of GPUs", "machines")
        return None if nodes is None else nodes * gpus_per_node

    def monthly(self, prices: Prices, stack: Stack) -> Decimal:
        """USD per month at its maximum number of nodes, with its most expensive machine type."""
        return self.at_most(highest_price(self.all_machines(stack), prices))

    def at_most(self, hourly: Decimal) -> Decimal:
        """USD per month at its maximum number of nodes, at a price per node and hour; unknown without a maximum."""
        nodes = self.maximum
        if nodes is None:
            raise UnknownValueError((*self.view.path, *self.writes["maximum"].split(".")), "is not set")
        return nodes * hourly * HOURS


class Nodes(Part, ABC):
    """The node configuration: a launch template, or the pool itself if the cloud has it there."""

    @abstractmethod
    def metadata(self, hops: int) -> Iterator[str]:
        """Messages about access of pods to credentials in the cloud's metadata service; `hops` is the maximum."""


def highest(counts: Iterator[int | None]) -> int | None:
    """The maximum of some numbers of GPUs; None if one of them is unknown."""
    known_counts = list(counts)
    return None if None in known_counts else max((count for count in known_counts if count is not None), default=0)


def highest_price(machines: Sequence[Machine], prices: Prices) -> Decimal:
    """USD per hour of the most expensive machine; unknown without machines, or if a price is in no table."""
    unpriced = [machine for machine in machines if prices.price_of(machine.name) is None]
    if unpriced or not machines:
        raise _unknown_fact(unpriced, "price", "prices")
    return max(prices.price_of(machine.name) or Decimal(0) for machine in machines)


def _unknown_fact(machines: Sequence[Machine], fact: str, setting: str) -> UnknownValueError:
    """The error for a fact about a machine that is in no table."""
    if not machines:
        return UnknownValueError(("the machine type",), "is not set")
    name = machines[0].name
    return UnknownValueError(
        machines[0].path, f"is {name}, whose {fact} is unknown (add it to the setting `{setting}`)"
    )
