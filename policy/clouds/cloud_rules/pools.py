"""Node pools and clusters as rules see them, whatever the cloud.

A reader of each cloud (`aws`, `karpenter`, `gcp`, `azure`) maps its resources to these terms. Each value is
read when a rule asks for it, so that one which a preview does not know keeps no other rule from judging.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Final, Literal

from cloud_rules.machines import HOURS, Machines, Prices
from judge import CannotTellError, Resource, Stack, View

Cloud = Literal["aws", "gcp", "azure"]
KEEPS_OFF: Final = frozenset({"NoSchedule", "NoExecute"})
"""Effects of a taint that keep pods off; `PreferNoSchedule` does not."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint, its effect in Kubernetes' terms (`NoSchedule`)."""

    key: str
    effect: str


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine type that a pool can have, and its property path.

    Attributes:
        name: the cloud's name, or a family as a pattern (`p5.*`).
    """

    name: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Something of a resource.

    Attributes:
        view: its properties, perhaps a part of the resource's.
        label: which part; empty where it is all of the resource.
    """

    resource: Resource
    view: View
    label: str = ""

    @property
    def place(self) -> str:
        """The resource, and which part of it."""
        return f"{self.resource.place}, {self.label}" if self.label else self.resource.place


class Bought(Part, ABC):
    """What names machines and how they are bought: a node pool or a launch template.

    Attributes:
        writes: the properties to set for each fix, in the terms of its API.
    """

    __slots__ = ()
    writes: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def machines(self) -> Sequence[Machine]:
        """Types of machine that it names; empty where it names none."""

    @property
    @abstractmethod
    def spot(self) -> bool:
        """Whether its machines may be taken away at any time, since they were cheaper."""


class NodePool(Bought):
    """A group of nodes of a cluster."""

    __slots__ = ()
    cloud: ClassVar[Cloud]

    @property
    @abstractmethod
    def minimum(self) -> Decimal:
        """Nodes that are always there."""

    @property
    @abstractmethod
    def maximum(self) -> Decimal | None:
        """Nodes that there are at most; None where nothing bounds them."""

    @property
    @abstractmethod
    def taints(self) -> Sequence[Taint]:
        """Taints that its nodes have from their first moment."""

    def all_taints(self, stack: Stack) -> Sequence[Taint]:  # noqa: ARG002 - others look there
        """Taints, including those set by another resource of the stack."""
        return self.taints

    @property
    def bounded(self) -> bool:
        """Whether anything bounds it."""
        return self.maximum is not None

    @property
    def for_system(self) -> bool:
        """Whether the cloud puts the cluster's own pods on it."""
        return False

    @property
    def fixed_size(self) -> str:
        """The property that sets a number of nodes against the autoscaler; empty where none does."""
        return ""

    def all_machines(self, stack: Stack) -> Sequence[Machine]:  # noqa: ARG002 - others look there
        """Machine types, including those set by another resource of the stack."""
        return self.machines()

    def gpus(self, known: Machines, stack: Stack) -> int | None:
        """GPUs of a node (the maximum over its machine types); 0 without GPUs, None if unknown."""
        return most(known.gpus_of(each.name) for each in self.all_machines(stack))

    def maximum_gpus(self, known: Machines, stack: Stack) -> Decimal | None:
        """GPUs that there are at most; None where nothing bounds them.

        Raises:
            CannotTellError: the number of GPUs of its machines is unknown.
        """
        each, nodes = self.gpus(known, stack), self.maximum
        if each == 0:
            return Decimal(0)
        if each is None:
            raise _unsaid(self.all_machines(stack), "number of GPUs", "machines")
        return None if nodes is None else nodes * each

    def monthly(self, prices: Prices, stack: Stack) -> Decimal:
        """USD of a month in which it always has its maximum of the dearest of its machines.

        Raises:
            CannotTellError: a price or the maximum is not known.
        """
        return self.at_most(dearest(self.all_machines(stack), prices))

    def at_most(self, hourly: Decimal) -> Decimal:
        """USD of a month with its maximum of nodes, each at so much an hour.

        Raises:
            CannotTellError: nothing bounds their number.
        """
        nodes = self.maximum
        if nodes is None:
            raise CannotTellError((*self.view.path, *self.writes["maximum"].split(".")), "is not set")
        return nodes * hourly * HOURS


class Nodes(Part, ABC):
    """The node configuration: a launch template, or the pool itself if the cloud has it there."""

    __slots__ = ()

    @abstractmethod
    def metadata(self, hops: int) -> Iterator[str]:
        """What lets pods ask the cloud's metadata service for the node's credentials.

        Args:
            hops: the most that an answer may travel.
        """

    @abstractmethod
    def disks(self, asked: "Disks") -> Iterator[str]:
        """What leaves disks unencrypted."""

    @abstractmethod
    def addresses(self) -> Iterator[str]:
        """What gives nodes public addresses."""

    @abstractmethod
    def integrity(self, *, boot: bool) -> Iterator[str]:
        """What lets a changed machine be a node.

        Args:
            boot: whether nodes must start by secure boot.
        """


@dataclass(frozen=True, slots=True)
class Disks:
    """What is asked of disks.

    Attributes:
        own: whether they are encrypted by a key of the organisation's.
        by_default: whether all AWS accounts encrypt volumes by default.
        host: whether Azure's hosts encrypt too.
    """

    own: bool
    by_default: bool
    host: bool


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Who reaches a cluster's API server.

    Attributes:
        public: whether it has an address on the internet.
        networks: those let in; None where all are.
        write: what to write to close it.
    """

    public: bool
    networks: Sequence[View] | None
    write: str


class Cluster(Part, ABC):
    """A cluster's control plane."""

    __slots__ = ()
    cloud: ClassVar[Cloud]

    @property
    @abstractmethod
    def endpoint(self) -> Endpoint:
        """Who reaches it."""

    @property
    def own_nodes(self) -> bool:
        """Whether the cloud brings nodes without GPUs by itself, so that no pool is needed for them."""
        return False

    @abstractmethod
    def name(self) -> str:
        """Its name in the cloud."""

    @abstractmethod
    def identity(self) -> Iterator[str]:
        """What keeps pods from having identities of their own in the cloud."""

    @abstractmethod
    def credentials(self) -> Iterator[str]:
        """Shared credentials, which identify no user."""


def most(counts: Iterator[int | None]) -> int | None:
    """The most of some numbers of GPUs; None where one of them is not known."""
    found = list(counts)
    return None if None in found else max((each for each in found if each is not None), default=0)


def dearest(machines: Sequence[Machine], prices: Prices) -> Decimal:
    """USD for an hour of the dearest.

    Raises:
        CannotTellError: the price of one is not known, or there is none.
    """
    found = [prices.price_of(each.name) for each in machines]
    if None in found or not found:
        raise _unsaid([each for each, price in zip(machines, found, strict=True) if price is None], "price", "prices")
    return max(price for price in found if price is not None)


def _unsaid(machines: Sequence[Machine], what: str, setting: str) -> CannotTellError:
    """A fact about a machine that is in no table."""
    if not machines:
        return CannotTellError(("the machine type",), "is not set")
    name = machines[0].name
    return CannotTellError(machines[0].path, f"is {name}, whose {what} is unknown (add it to the setting `{setting}`)")
