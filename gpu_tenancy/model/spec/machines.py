"""Machines and prices that a stack knows better than the catalogue."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gpu_tenancy.model.spec.base import Bytes, Count, Cpu, Section, refuse


class PriceEntry(Section):
    """What a machine costs, in the currency of the cloud's table."""

    on_demand: Annotated[float, Field(gt=0)] | None = None
    """Per hour; left out, unknown. Reserved machines count with it too: write what you pay."""
    spot: Annotated[float, Field(gt=0)] | None = None
    """Per hour as spot; left out, unknown."""


class NetworkEntry(Section):
    """The network of a machine."""

    gbps: Annotated[float, Field(gt=0)]
    """Gigabits per second."""
    fabric: Literal["efa", "gpudirect-tcpx", "gpudirect-tcpxo", "gpudirect-rdma", "infiniband"] | None = None
    """By which GPUs of different machines reach each other past the cpus; left out, none."""
    interfaces: Count = 0
    """How many of that fabric the machine has."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.fabric is None) != (self.interfaces == 0):
            raise refuse("says half of its fabric", "write both fabric and interfaces, or neither")
        return self


class MachineEntry(Section):
    """A machine type that the catalogue lacks, or has otherwise."""

    cpu: Cpu
    """Cpus of the machine, before the kubelet reserves its part."""
    memory: Bytes
    """Memory of the machine."""
    gpu: str | None = None
    """Model of its GPUs: a name of the catalogue such as `h100-80gb`."""
    gpus: Count = 0
    """GPUs of the machine."""
    architecture: Literal["amd64", "arm64"] = "amd64"
    """Of its cpu."""
    accelerator: str | None = None
    """GKE's name for its GPUs, such as `nvidia-h100-80gb`."""
    network: NetworkEntry | None = None
    """Its network, where pools use its fabric."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.gpu is None) != (self.gpus == 0):
            raise refuse("says half of its GPUs", "write both gpu and gpus, or neither")
        return self
