"""Machine types and prices that override the catalogue."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gpu_tenancy.model.fields import MOST_PRICE, Bytes, Count, Cpu, Section, refuse


class PriceEntry(Section):
    """The price of a machine, of storage, or of the cluster itself, in the currency of the cloud's price table."""

    on_demand: Annotated[float, Field(gt=0, le=MOST_PRICE)] | None = None
    """Price per hour; default: unknown. Also used for reserved machines: set what you pay."""
    spot: Annotated[float, Field(gt=0, le=MOST_PRICE)] | None = None
    """Spot price per hour; default: the price on demand, the most that spot costs."""
    gib_month: Annotated[float, Field(gt=0, le=MOST_PRICE)] | None = None
    """Price of storage for a GiB in a month, by its class or StorageClass; machines have none."""


class NetworkEntry(Section):
    """The network of a machine."""

    gbps: Annotated[float, Field(gt=0, le=1_000_000)]
    """Bandwidth in gigabits per second."""
    fabric: Literal["efa", "gpudirect-tcpx", "gpudirect-tcpxo", "gpudirect-rdma", "infiniband"] | None = None
    """RDMA fabric between GPUs of different machines; default: none."""
    interfaces: Count = 0
    """Number of fabric interfaces of the machine."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.fabric is None) != (self.interfaces == 0):
            raise refuse("sets only one of fabric and interfaces", "set both or remove both")
        return self


class MachineEntry(Section):
    """A machine type that is not in the catalogue, or overrides its row."""

    cpu: Cpu
    """CPUs of the machine, before the kubelet's reservations."""
    memory: Bytes
    """Memory of the machine, before the kubelet's reservations."""
    gpu: str | None = None
    """Model of its GPUs: a name in the catalogue, such as `h100-80gb`."""
    gpus: Count = 0
    """Number of GPUs of the machine."""
    architecture: Literal["amd64", "arm64"] = "amd64"
    """CPU architecture."""
    accelerator: str | None = None
    """GKE's accelerator type of its GPUs, such as `nvidia-h100-80gb`."""
    topology: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,3}x[1-9][0-9]{0,3}$")] | None = None
    """Shape of the NVLink domain that its GPUs form with those of other machines, such as `1x72`; default: none."""
    host_encryption: bool = True
    """Whether the machine's host can encrypt its disks and caches; used on AKS."""
    zones: list[str] | None = None
    """Zones that have the machine type, to check the zones of pools; default: unknown, not checked."""
    capacity: list[Literal["on-demand", "spot", "reserved", "capacity-block", "flex-start"]] | None = None
    """Capacity types that the machine type can be bought with; default: unknown, not checked."""
    local_disk: Bytes | None = None
    """All local NVMe disks of the machine together, on which nodes of EKS and GKE have their ephemeral storage; on GKE
    a multiple of 375Gi. Default: as in the catalogue, else none."""
    network: NetworkEntry | None = None
    """Its network; needed if pools set `fabric`."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.gpu is None) != (self.gpus == 0):
            raise refuse("sets only one of gpu and gpus", "set both or remove both")
        return self
