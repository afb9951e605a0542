"""Node pools: machines, how many there may be, and how their GPUs are shared."""

from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from gpu_tenancy.model.spec.base import (
    Bytes,
    Count,
    Cpu,
    LabelKey,
    LabelValue,
    Name,
    Positive,
    ResourceName,
    Seconds,
    Section,
    Shorthand,
    refuse,
)


class Nodes(Section):
    """How many nodes a pool has: from `min`, always there, to `max`, with an autoscaler."""

    min: Count
    """Nodes that are always there."""
    max: Count
    """Nodes that an autoscaler may grow to."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise refuse(f"max {self.max} is below min {self.min}", f"raise max to {self.min} or lower min")
        return self


class Taint(Section):
    """A taint of the pool's nodes beside the GPU's own."""

    key: LabelKey
    """Key, such as `example.com/reserved`."""
    value: LabelValue = ""
    """Value; left out, none."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    """What happens to pods that do not tolerate it."""


class Mig(Section):
    """Each GPU cut into equal partitions with memory and compute of their own."""

    profile: str = Field(pattern=r"^\d+g\.\d+gb$")
    """Profile such as `1g.10gb`; partitions are asked for as `nvidia.com/mig-1g.10gb`."""
    partitions: Positive | None = None
    """Partitions of each GPU; left out, as many as the catalogue says the GPU holds."""


class TimeSlicing(Section):
    """Pods that take turns on a GPU, without any isolation of memory."""

    turns: Annotated[int, Field(ge=2, le=48)]
    """Pods that share one GPU."""
    trusting: list[Name] = []
    """Teams that trust each other with the GPU's memory; a flavor that takes turns is theirs alone, or one team's."""


class Sharing(Section):
    """How one GPU serves several pods. Left out, a GPU belongs to one pod."""

    mig: Mig | None = None
    """Partitions with memory of their own."""
    time_slicing: Annotated[TimeSlicing, Shorthand(int, ("turns",))] | None = None
    """Pods that take turns on one GPU: a number of them, or `{turns, trusting}`."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.mig is None) == (self.time_slicing is None):
            raise refuse("names not exactly one way to share", "write either mig or timeSlicing")
        return self


class OnDemand(Section):
    """Machines by the hour, for as long as there are any."""

    kind: Literal["on-demand"]
    """`on-demand`."""


class Spot(Section):
    """Machines that the cloud may take back at any moment, for a part of the price."""

    kind: Literal["spot"]
    """`spot`."""


class Reserved(Section):
    """Machines that a reservation holds."""

    kind: Literal["reserved"]
    """`reserved`."""
    reservation: str
    """The reservation, in the cloud's own form."""


class CapacityBlock(Section):
    """GPUs that were bought for a span of days in the future."""

    kind: Literal["capacity-block"]
    """`capacity-block`."""
    reservation: str
    """The reservation that the purchase made."""


class FlexStart(Section):
    """Machines that come when there are enough of them, and go after a time."""

    kind: Literal["flex-start"]
    """`flex-start`."""
    max_run: Seconds
    """How long a node may live, such as `7d`."""


class Queued(Section):
    """Machines that the cloud brings all at once for a whole workload, which waits in its queue until then."""

    kind: Literal["queued"]
    """`queued`."""
    max_run: Seconds
    """How long a node may live, such as `7d`."""


Capacity: TypeAlias = Annotated[
    OnDemand | Spot | Reserved | CapacityBlock | FlexStart | Queued, Field(discriminator="kind")
]

Driver: TypeAlias = Literal["image", "bottlerocket", "managed", "operator"]
"""Who brings the GPU's driver, container toolkit and device plugin: `model/catalogue/clouds.yaml` says what each means
in each cloud."""

_DISK: Final = 200 * 2**30


class Disk(Section):
    """The boot disk of a node, always encrypted."""

    size: Bytes = _DISK
    """Size; images of training frameworks take tens of GiB each."""
    key: str | None = None
    """A key of your own that encrypts it, in the cloud's own form; left out, the cloud's."""


class Pool(Section):
    """Nodes of one kind. Says a machine of the catalogue, or spells one out by cpu, memory and GPUs.

    A GPU pool carries the taint `<GPU resource>=present:NoSchedule`, so that only pods that ask for a GPU land there.
    """

    machine: str | None = None
    """A machine type of the catalogue, such as `p5.48xlarge`; gives cpu, memory, GPUs and their model."""
    cpu: Cpu | None = None
    """What pods can have of a node's cpu (its Allocatable), for a machine that is not in the catalogue."""
    memory: Bytes | None = None
    """What pods can have of a node's memory (its Allocatable)."""
    gpu: str | None = None
    """Model: a name of the catalogue such as `h100-80gb`, or the value of the node label `nvidia.com/gpu.product`."""
    gpus_per_node: Positive | None = None
    """GPUs of one node."""
    resource: ResourceName | None = None
    """The extended resource under which the vendor's device plugin offers a GPU, such as `amd.com/gpu`; left out, what
    the catalogue says of its model, else `nvidia.com/gpu`."""
    nodes: Annotated[Nodes, Shorthand(int, ("min", "max"))]
    """A number of nodes, or `{min, max}`."""
    flavor: Name | None = None
    """Flavor under which teams ask for these nodes; left out, the pool's own name. Pools may share one."""
    sharing: Sharing | None = None
    """Partitions or turns, where one GPU serves several pods."""
    labels: dict[LabelKey, LabelValue] = {}
    """Further labels of the nodes; a flavor selects its nodes by those that all its pools have. Worth having on a CPU
    pool too: without one, work without GPUs that tolerates a GPU's taint may land on GPU nodes."""
    taints: list[Taint] = []
    """Further taints of the nodes; the flavor tolerates them for its pods."""
    capacity: Annotated[Capacity, Shorthand(str, ("kind",))] = OnDemand(kind="on-demand")
    """How the machines are bought: `on-demand`, `spot`, or `{kind, …}` for what needs more words."""
    zones: list[str] = []
    """Zones of the nodes; left out, all of the cluster's."""
    compact: bool = False
    """Whether the nodes stand close to each other, for the sake of their network."""
    fabric: bool = False
    """Whether the machine's network between GPUs is set up: EFA, GPUDirect or InfiniBand, whichever it has."""
    disk: Disk = Disk()
    """Boot disk."""
    driver: Driver | None = None
    """Who brings the GPU's driver, toolkit and device plugin; left out, the cloud's usual way."""

    @model_validator(mode="after")
    def _one_description(self) -> Self:
        spelled = self.cpu is not None and self.memory is not None
        if self.machine is None and not spelled:
            raise refuse("does not say its machine", "write machine, or cpu and memory (and gpu with gpusPerNode)")
        if self.machine is not None and (self.gpu is not None or self.gpus_per_node is not None):
            raise refuse("says its GPUs twice", "leave gpu and gpusPerNode out: the machine has them")
        if self.machine is None and (self.gpu is None) != (self.gpus_per_node is None):
            raise refuse("says half of its GPUs", "write both gpu and gpusPerNode, or neither for a pool of CPUs")
        return self
