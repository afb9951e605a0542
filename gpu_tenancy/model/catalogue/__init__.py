"""Machine types, GPUs and prices, from the tables in this folder (malformed: `pydantic.ValidationError`)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from gpu_tenancy.model.catalogue.machines import Purchase, PurchaseRow, Reserved, purchase_of
from gpu_tenancy.model.catalogue.rows import HERE, Architecture, Fact, Row, known, known_price, read_rows
from gpu_tenancy.model.fields import Bytes, Count, Cpu, Positive
from gpu_tenancy.model.yaml import read_table

Checked: TypeAlias = Literal["read", "remembered"]
Fabric: TypeAlias = Literal["efa", "gpudirect-tcpx", "gpudirect-tcpxo", "gpudirect-rdma", "infiniband"]
Topology: TypeAlias = Annotated[str, Field(pattern=r"^[1-9]\d*x[1-9]\d*$")]
ZoneLetters: TypeAlias = Annotated[str, Field(pattern=r"^[a-z]( [a-z])*$")]

PRODUCT_LABELS: Final[Mapping[str, str]] = {
    "nvidia.com": "nvidia.com/gpu.product",
    "amd.com": "amd.com/gpu.product-name",
    "gpu.intel.com": "gpu.intel.com/product",
}
"""Node label with the GPU model, by the domain of the resource name. It is set by GPU feature discovery
(https://github.com/NVIDIA/k8s-device-plugin), AMD's node labeller (https://github.com/ROCm/k8s-device-plugin), and
Intel's NFD rules, only for Flex 140 and 170 and Max 1100 and 1550
(https://intel.github.io/intel-device-plugins-for-kubernetes/0.35/cmd/gpu_plugin/labels.html)."""


class NvlinkDomain(Fact):
    """Maximum number of GPUs of several machines that NVLink connects; None if it is unknown."""

    gpus: Annotated[Positive | None, BeforeValidator(known)]


class Gpu(Fact):
    """A GPU model."""

    product: str  # value of the node label that `PRODUCT_LABELS` names
    memory: Bytes
    resource: str = "nvidia.com/gpu"
    architecture: str  # GPU generation, such as `hopper`
    mig: dict[str, Positive] = Field(default_factory=dict)  # most partitions per GPU by MIG profile; empty without MIG
    nvlink: NvlinkDomain | None = None  # to GPUs of other machines; None if it connects only the GPUs of one machine
    checked: Checked  # whether the row was read at its source, or written from memory


class Network(Row):
    """Bandwidth of a machine type in Gbit/s, and the fabric between GPUs of different machines."""

    gbps: Annotated[float, Field(gt=0)]
    fabric: Fabric | None = None
    interfaces: Count = 0
    cards: tuple[Count, ...] = ()  # network cards with one interface of the fabric each (AWS); empty for the first

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.fabric is None) != (self.interfaces == 0):
            raise ValueError("set both fabric and interfaces, or neither")
        if len(self.cards) not in {0, self.interfaces}:
            raise ValueError("set one card for each interface, or none")
        return self

    @property
    def fabric_cards(self) -> tuple[int, ...]:
        """Network cards with an interface of the fabric."""
        return self.cards or tuple(range(self.interfaces))


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Price per hour in the currency of `price_table`; None if unknown. Default region: the table's."""

    on_demand: float | None = None
    spot: float | None = None
    region: str | None = None


class PriceTable(Fact):
    """Region, currency and source of a cloud's prices."""

    region: str
    currency: Literal["USD"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine type of a cloud, or of the stack's own `machines`."""

    name: str
    cloud: str  # empty for a machine type of the stack
    type: str = ""  # name of the machine type in the cloud; default: `name`
    cpu: int  # millicores
    memory: int  # nominal memory in bytes
    gpu: str | None = None  # key in the GPU table; None without GPUs
    gpus: int = 0
    architecture: Architecture = "amd64"
    accelerator: str | None = None  # accelerator type of its GPUs on GKE
    topology: str | None = None  # shape of the NVLink domain across machines, such as `1x72`; None without
    host_encryption: bool = True  # whether the machine's host can encrypt its disks and caches (Azure)
    zones: frozenset[str] | None = None  # None if unknown
    purchase: Purchase | None = None  # None if unknown
    network: Network | None = None  # None if unknown
    price: Price = Price()
    local_disk: int = 0  # capacity of its local NVMe disks in bytes

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", self.type or self.name)

    @property
    def domain(self) -> int | None:
        """Number of machines in one NVLink domain; None without `topology`."""
        if self.topology is None or not self.gpus:
            return None
        domains, accelerators = (int(side) for side in self.topology.split("x"))
        return domains * accelerators // self.gpus


class _PriceRow(Row):
    on_demand: Annotated[float | None, Field(gt=0), BeforeValidator(known_price)]
    spot: Annotated[float | None, Field(gt=0), BeforeValidator(known_price)]
    region: str | None = None


class _MachineRow(Row):
    cpu: Cpu
    memory: Bytes
    gpu: str | None = None
    gpus: Count = 0
    architecture: Architecture = "amd64"
    type: str = ""
    accelerator: str | None = None
    topology: Topology | None = None
    host_encryption: bool = True
    network: Network | None = None
    local_disk: Bytes = 0
    price: _PriceRow
    checked: Checked | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.gpu is None) != (self.gpus == 0):
            raise ValueError("set both gpu and gpus, or neither")
        return self

    def machine(self, cloud: str, name: str, table: "CloudTable") -> Machine:
        purchase = purchase_of(name, table.capacity)
        zones = frozenset(purchase.zones) if purchase and purchase.zones else None
        fields = {field: getattr(self, field) for field in type(self).model_fields if field not in {"price", "checked"}}
        fields |= {"price": Price(**self.price.model_dump()), "purchase": purchase}
        listed = table.zones.of(name) if table.zones else None
        return Machine(name=name, cloud=cloud, zones=zones or listed, **fields)


class Zones(Fact):
    """Last letters of zones, by machine family (start of a machine type name) and region; unlisted ones are unknown."""

    families: dict[str, dict[str, ZoneLetters]]

    def of(self, machine: str) -> frozenset[str] | None:
        """Zones that have a machine type; None if they are unknown."""
        family = next((family for family in self.families if machine.startswith(f"{family}-")), None)
        if family is None:
            return None
        regions = self.families[family].items()
        return frozenset(f"{region}-{letter}" for region, letters in regions for letter in letters.split())


class DiskPerformance(Fact):
    """Throughput (MiB/s) and IOPS that the price of a boot disk includes."""

    kind: str
    throughput: Positive
    iops: Positive
    gpu_throughput: Positive  # of GPU machines, whose images have tens of GiB
    per_iops: Annotated[float, Field(gt=0)]  # the largest throughput per IOPS

    def iops_for(self, throughput: int) -> int:
        """IOPS to provision for a throughput in MiB/s."""
        return max(self.iops, math.ceil(throughput / self.per_iops))


class OtherMachines(Row):
    """Machine types that stacks cannot name, for the policy packs, which evaluate any program."""

    gpus: dict[str, Positive] = Field(default_factory=dict)  # without types that have no whole GPUs
    prices: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)  # on demand per hour


class CloudTable(Fact):
    """The file of one cloud in `machines/`."""

    checked: Checked  # default for machine types
    prices: PriceTable
    reserved: Reserved
    disk: DiskPerformance | None = None  # performance of boot disks; None if it is not chosen here
    zones: Zones | None = None  # None if the cloud's zones are not listed
    capacity: dict[str, PurchaseRow] = Field(default_factory=dict)  # purchase options, by the start of machine types
    machines: dict[str, _MachineRow]
    others: OtherMachines = OtherMachines()


@cache
def cloud_tables() -> Mapping[str, CloudTable]:
    """The file of each cloud, by the value of `cluster.cloud`."""
    return {path.stem: CloudTable.model_validate(read_table(path)) for path in sorted(HERE.glob("machines/*.yaml"))}


def gpus() -> Mapping[str, Gpu]:
    """GPU models by their name in stacks, such as `h100-80gb`."""
    return read_rows("gpus", dict[str, Gpu])


@cache
def machines() -> Mapping[tuple[str, str], Machine]:
    """Machine types by cloud and name, such as `("aws", "p5.48xlarge")`."""
    return {
        (cloud, name): row.machine(cloud, name, table)
        for cloud, table in cloud_tables().items()
        for name, row in table.machines.items()
    }


@cache
def _machines_by_name() -> Mapping[str, Machine]:
    return {name: machine for (_, name), machine in machines().items()}


def find_machine(name: str, cloud: str | None = None) -> Machine | None:
    """A machine type by name, which is unique among all clouds; None if it is unknown."""
    machine = _machines_by_name().get(name)
    return machine if machine and cloud in {None, machine.cloud} else None


def find_gpu(name: str) -> Gpu | None:
    """A GPU model by its name in stacks or by its product label; None if it is unknown."""
    by_name = gpus()
    return by_name.get(name) or next((gpu for gpu in by_name.values() if gpu.product == name), None)


def price_table(cloud: str) -> PriceTable:
    """Region, currency, source and date of a cloud's prices."""
    return cloud_tables()[cloud].prices


_WHOLE_CPU: Final = 1000
_GIB: Final = 2**30


def allocatable(machine: Machine) -> tuple[int, int]:
    """Allocatable millicores and bytes of a machine, rounded down to whole CPUs and GiB.

    Requests of system pods are not subtracted. A machine without a cloud gets the lowest value of all clouds.
    """
    tables = cloud_tables()
    rules = [tables[machine.cloud]] if machine.cloud in tables else tables.values()
    left = [table.reserved.left(machine.cpu, machine.memory) for table in rules]
    cpu, memory = min(cpu for cpu, _ in left), min(memory for _, memory in left)
    return int(cpu // _WHOLE_CPU) * _WHOLE_CPU, int(memory // _GIB) * _GIB
