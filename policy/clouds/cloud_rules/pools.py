"""Node pools in terms that are common to all clouds.

A module per cloud (`aws`, `karpenter`, `gcp`, `azure`) maps its resources to these terms. Each value is read on demand,
so that a value that is unknown in a preview affects only the rules that need it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Final

from cloud_rules.machines import HOURS, Machines, Prices
from rule_engine import Part, Stack, UnknownValueError, View

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

    __slots__ = ()
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

    __slots__ = ()
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
        """Taints, including those set by another resource of the stack."""
        return self.taints

    @property
    def bounded(self) -> bool:
        """Whether its number of nodes or resources has a limit."""
        return self.maximum is not None

    @property
    def for_system(self) -> bool:
        """Whether it runs the cluster's system pods."""
        return False

    @property
    def fixed_size(self) -> str:
        """The property with a number of nodes that overrides the autoscaler; empty without."""
        return ""

    def all_machines(self, stack: Stack) -> Sequence[Machine]:  # noqa: ARG002 - others look there
        """Machine types, including those set by another resource of the stack."""
        return self.machines()

    def gpus(self, known: Machines, stack: Stack) -> int | None:
        """GPUs of a node (the maximum over its machine types); 0 without GPUs, None if unknown."""
        return highest(machine.gpus(known) for machine in self.all_machines(stack))

    def taint_fix(self, known: Machines, stack: Stack) -> str:  # noqa: ARG002 - others compare machines
        """What to set so that pods without GPUs stay off its GPU nodes."""
        return self.writes["taint"]

    def maximum_gpus(self, known: Machines, stack: Stack) -> Decimal | None:
        """Maximum number of GPUs; None if it is unlimited.

        Raises:
            UnknownValueError: the number of GPUs of its machines is unknown.
        """
        gpus_per_node, nodes = self.gpus(known, stack), self.maximum
        if gpus_per_node == 0:
            return Decimal(0)
        if gpus_per_node is None:
            raise _unknown_fact(self.all_machines(stack), "number of GPUs", "machines")
        return None if nodes is None else nodes * gpus_per_node

    def monthly(self, prices: Prices, stack: Stack) -> Decimal:
        """USD per month at its maximum number of nodes, with its most expensive machine type.

        Raises:
            UnknownValueError: a price or the maximum is unknown.
        """
        return self.at_most(highest_price(self.all_machines(stack), prices))

    def at_most(self, hourly: Decimal) -> Decimal:
        """USD per month at its maximum number of nodes, at a price per node and hour.

        Raises:
            UnknownValueError: it has no maximum.
        """
        nodes = self.maximum
        if nodes is None:
            raise UnknownValueError((*self.view.path, *self.writes["maximum"].split(".")), "is not set")
        return nodes * hourly * HOURS


class Nodes(Part, ABC):
    """The node configuration: a launch template, or the pool itself if the cloud has it there."""

    __slots__ = ()

    @abstractmethod
    def metadata(self, hops: int) -> Iterator[str]:
        """Messages about access of pods to the node's credentials in the cloud's metadata service.

        Args:
            hops: maximum hop limit.
        """


def highest(counts: Iterator[int | None]) -> int | None:
    """The maximum of some numbers of GPUs; None if one of them is unknown."""
    known_counts = list(counts)
    return None if None in known_counts else max((count for count in known_counts if count is not None), default=0)


def highest_price(machines: Sequence[Machine], prices: Prices) -> Decimal:
    """USD per hour of the most expensive machine.

    Raises:
        UnknownValueError: a price is unknown, or there is no machine.
    """
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
