"""Facts about machines and GPUs, from the tables beside this module.

Raises `pydantic.ValidationError` at the first look where a table is malformed; a test reads them whole.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from gpu_tenancy.model.catalogue.reserved import Reserved, Row, Url
from gpu_tenancy.model.spec.base import Bytes, Count, Cpu, Positive
from gpu_tenancy.model.tables import read_table

Checked: TypeAlias = Literal["read", "remembered"]
Architecture: TypeAlias = Literal["amd64", "arm64"]
Fabric: TypeAlias = Literal["efa", "gpudirect-tcpx", "gpudirect-tcpxo", "gpudirect-rdma", "infiniband"]

PRODUCT_LABELS: Final[Mapping[str, str]] = {
    "nvidia.com": "nvidia.com/gpu.product",
    "amd.com": "amd.com/gpu.product-name",
    "gpu.intel.com": "gpu.intel.com/product",
}
"""Node label with a GPU's model, by the domain of the resource name, and who writes it: GPU feature discovery
(https://github.com/NVIDIA/k8s-device-plugin), AMD's node labeller (https://github.com/ROCm/k8s-device-plugin), Intel's
NFD rules, for Flex 140 and 170 and Max 1100 and 1550 alone
(https://intel.github.io/intel-device-plugins-for-kubernetes/0.35/cmd/gpu_plugin/labels.html)."""


class Gpu(Row):
    """One model of GPU.

    Attributes:
        product: value of the node label that `PRODUCT_LABELS` names.
        memory: bytes.
        resource: the extended resource that its device plugin offers.
        architecture: its generation, such as `hopper`.
        mig: partitions that one GPU holds, by MIG profile; empty where it cannot be cut.
        source: where it was read.
        date: of the source, or when it was read where the source has none.
        checked: how sure the row is.
    """

    product: str
    memory: Bytes
    resource: str = "nvidia.com/gpu"
    architecture: str
    mig: dict[str, Positive] = Field(default_factory=dict)
    source: Url
    date: dt.date
    checked: Checked


class Network(Row):
    """A machine's network.

    Attributes:
        gbps: gigabits per second of the machine.
        fabric: by which GPUs of different machines reach each other past the CPUs; None where there is none.
        interfaces: how many of that fabric the machine has.
    """

    gbps: Annotated[float, Field(gt=0)]
    fabric: Fabric | None = None
    interfaces: Count = 0

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.fabric is None) != (self.interfaces == 0):
            msg = "set both fabric and interfaces, or neither"
            raise ValueError(msg)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a machine costs in an hour, in the currency of its cloud's `price_table`; None where it is not known.

    Attributes:
        region: where, if not in the region of the table.
    """

    on_demand: float | None = None
    spot: float | None = None
    region: str | None = None


class PriceTable(Row):
    """What all prices of a cloud's table have in common.

    Attributes:
        date: of the source.
    """

    region: str
    currency: Literal["USD"]
    source: Url
    date: dt.date


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine type.

    Attributes:
        name: as a stack writes it.
        cloud: whose it is; empty for a row of a stack's own.
        type: the cloud's name for it; left out, the name.
        cpu: millicores of the machine, as Kubernetes counts them.
        memory: bytes of the machine, as the cloud sells them.
        gpu: key of the GPU table; None for a machine without.
        gpus: GPUs of the machine.
        architecture: of its CPU.
        accelerator: GKE's name for its GPUs.
        network: None where it is not known.
    """

    name: str
    cloud: str
    type: str = ""
    cpu: int
    memory: int
    gpu: str | None = None
    gpus: int = 0
    architecture: Architecture = "amd64"
    accelerator: str | None = None
    network: Network | None = None
    price: Price = Price()

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", self.type or self.name)


def _known(value: Any) -> Any:
    if value is None:
        msg = "no price; set a price or 'unknown'"
        raise ValueError(msg)
    return None if value == "unknown" else value


class _PriceRow(Row):
    on_demand: Annotated[float | None, Field(gt=0), BeforeValidator(_known)]
    spot: Annotated[float | None, Field(gt=0), BeforeValidator(_known)]
    region: str | None = None


class _MachineRow(Row):
    cpu: Cpu
    memory: Bytes
    gpu: str | None = None
    gpus: Count = 0
    architecture: Architecture = "amd64"
    type: str = ""
    accelerator: str | None = None
    network: Network | None = None
    price: _PriceRow
    checked: Checked | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.gpu is None) != (self.gpus == 0):
            msg = "set both gpu and gpus, or neither"
            raise ValueError(msg)
        return self

    def machine(self, cloud: str, name: str) -> Machine:
        price = Price(on_demand=self.price.on_demand, spot=self.price.spot, region=self.price.region)
        fields = {field: getattr(self, field) for field in type(self).model_fields if field not in {"price", "checked"}}
        return Machine(name=name, cloud=cloud, price=price, **fields)


class CloudTable(Row):
    """One cloud's file.

    Attributes:
        checked: how sure its machines are, but for those that say it themselves.
    """

    source: Url
    date: dt.date
    checked: Checked
    prices: PriceTable
    reserved: Reserved
    machines: dict[str, _MachineRow]


_HERE: Final = Path(__file__).parent


@cache
def cloud_tables() -> Mapping[str, CloudTable]:
    """Each cloud's file, by the cloud's name under `cluster.cloud`."""
    return {path.stem: CloudTable.model_validate(read_table(path)) for path in sorted(_HERE.glob("machines/*.yaml"))}


@cache
def gpus() -> Mapping[str, Gpu]:
    """GPUs by their name in stacks, such as `h100-80gb`."""
    return {name: Gpu.model_validate(row) for name, row in read_table(_HERE / "gpus.yaml").items()}


@cache
def machines() -> Mapping[tuple[str, str], Machine]:
    """Machine types by cloud and name, such as `("aws", "p5.48xlarge")`."""
    rows = [(cloud, name, row) for cloud, table in cloud_tables().items() for name, row in table.machines.items()]
    return {(cloud, name): row.machine(cloud, name) for cloud, name, row in rows}


def find_machine(name: str, cloud: str | None = None) -> Machine | None:
    """The machine type of that name in a cloud, or in any: names do not repeat between them."""
    return next((row for (of, known), row in machines().items() if known == name and cloud in {None, of}), None)


def find_gpu(name: str) -> Gpu | None:
    """The GPU by its name in stacks or by its product label."""
    return gpus().get(name) or next((gpu for gpu in gpus().values() if gpu.product == name), None)


def price_table(cloud: str) -> PriceTable:
    """Region, currency, source and date of a cloud's prices."""
    return cloud_tables()[cloud].prices


_WHOLE_CPU: Final = 1000
_GIB: Final = 2**30


def allocatable(machine: Machine) -> tuple[int, int]:
    """Millicores and bytes of a machine that pods can have, rounded down to whole cpus and GiB.

    By its cloud's rules, `reserved` in its file; a machine of no cloud by the most cautious of all. What system pods
    ask for is not taken off.
    """
    tables = cloud_tables()
    rules = [tables[machine.cloud]] if machine.cloud in tables else tables.values()
    left = [table.reserved.left(machine.cpu, machine.memory) for table in rules]
    cpu, memory = min(cpu for cpu, _ in left), min(memory for _, memory in left)
    return int(cpu // _WHOLE_CPU) * _WHOLE_CPU, int(memory // _GIB) * _GIB
