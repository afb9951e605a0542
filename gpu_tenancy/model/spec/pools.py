"""Node pools: machine type, number of nodes, and how GPUs are shared."""

from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from gpu_tenancy.model.fields import (
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
from gpu_tenancy.model.spec.topology import TopologyEntry


class Nodes(Section):
    """The number of nodes of a pool: `min` is always there; an autoscaler adds nodes up to `max`."""

    min: Count
    """Minimum number of nodes; they are always there."""
    max: Count
    """Maximum number of nodes with an autoscaler."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise refuse(f"max {self.max} is less than min {self.min}", f"raise max to {self.min} or lower min")
        return self


class Taint(Section):
    """A taint of the pool's nodes, in addition to the GPU taint."""

    key: LabelKey
    """Taint key, such as `example.com/reserved`."""
    value: LabelValue = ""
    """Taint value; default: empty."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    """Effect on pods that do not tolerate the taint."""


class Mig(Section):
    """Each GPU divided into equal MIG partitions with separate memory and compute."""

    profile: str = Field(pattern=r"^[0-9]{1,2}g\.[0-9]{1,4}gb$")
    """MIG profile such as `1g.10gb`; pods request partitions as `nvidia.com/mig-1g.10gb`."""
    partitions: Positive | None = None
    """Partitions per GPU; default: the catalogue's number for the GPU and profile."""


class TimeSlicing(Section):
    """Time slicing: pods take turns on a GPU, without memory isolation."""

    turns: Annotated[int, Field(ge=2, le=48)]
    """Number of pods that share one GPU."""
    trusting: list[Name] = []
    """Teams that trust each other with the GPU's memory; only they, or a single team, may use the flavor."""


class Mps(Section):
    """NVIDIA's Multi-Process Service: pods use a GPU at the same time, each with an equal part of memory and compute.

    The parts are enforced, but faults are not isolated: a fatal fault of one pod ends all pods on the GPU. A container
    gets one part of a GPU and no more.
    """

    clients: Annotated[int, Field(ge=2, le=48)]
    """Number of pods that share one GPU."""
    trusting: list[Name] = []
    """Teams that accept each other's faults; only they, or a single team, may use the flavor."""


class Sharing(Section):
    """How several pods share one GPU; default: one pod per GPU."""

    mig: Mig | None = None
    """MIG partitions, with separate memory."""
    time_slicing: Annotated[TimeSlicing, Shorthand(int, ("turns",))] | None = None
    """Time slicing: the number of pods per GPU, or `{turns, trusting}`."""
    mps: Annotated[Mps, Shorthand(int, ("clients",))] | None = None
    """MPS: the number of pods per GPU, or `{clients, trusting}`."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(way is not None for way in (self.mig, self.time_slicing, self.mps)) != 1:
            raise refuse("must set exactly one of mig, timeSlicing and mps", "set one of them, and remove the others")
        return self

    @property
    def way(self) -> Literal["mig", "timeSlicing", "mps"]:
        """The key that is set."""
        return "mig" if self.mig else "timeSlicing" if self.time_slicing else "mps"

    @property
    def pods(self) -> int | None:
        """Number of pods that share a GPU without full isolation; None for MIG."""
        return self.time_slicing.turns if self.time_slicing else self.mps.clients if self.mps else None

    @property
    def trusting(self) -> list[str]:
        """Teams that share GPUs without full isolation."""
        shared = self.time_slicing or self.mps
        return shared.trusting if shared else []


class OnDemand(Section):
    """On-demand machines, billed by the hour, if the cloud has capacity."""

    kind: Literal["on-demand"]
    """`on-demand`."""


class Spot(Section):
    """Spot machines, at a lower price, which the cloud can reclaim at any time."""

    kind: Literal["spot"]
    """`spot`."""


class Reserved(Section):
    """Machines of a capacity reservation."""

    kind: Literal["reserved"]
    """`reserved`."""
    reservation: str
    """The reservation, in the cloud's format."""


class CapacityBlock(Section):
    """GPUs that were purchased for a number of days in the future."""

    kind: Literal["capacity-block"]
    """`capacity-block`."""
    reservation: str
    """The reservation that the purchase created."""


class FlexStart(Section):
    """Machines that are provisioned when the cloud has capacity, and removed after a time."""

    kind: Literal["flex-start"]
    """`flex-start`."""
    max_run: Seconds
    """Maximum lifetime of a node, such as `7d`."""


class Queued(Section):
    """Machines that the autoscaler provisions all at once for a workload, which is pending in its queue until then."""

    kind: Literal["queued"]
    """`queued`."""
    max_run: Seconds | None = None
    """Maximum lifetime of a node, such as `7d`: required on GKE, and not supported on EKS and AKS."""


Capacity: TypeAlias = Annotated[
    OnDemand | Spot | Reserved | CapacityBlock | FlexStart | Queued, Field(discriminator="kind")
]

Driver: TypeAlias = Literal["image", "bottlerocket", "managed", "operator"]
"""What installs the GPU driver, container toolkit and device plugin: `model/catalogue/clouds.yaml` describes each mode
for each cloud."""

Numa: TypeAlias = Literal["best-effort", "restricted", "single-numa-node"]
"""Policies of the kubelet's topology manager: https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/."""

_DISK: Final = 200 * 2**30


class Disk(Section):
    """The boot disk of a node; always encrypted."""

    size: Bytes = _DISK
    """Disk size; images of training frameworks need tens of GiB each."""
    key: str | None = None
    """Your own encryption key, in the cloud's format; default: the cloud's key."""


class Pool(Section):
    """Nodes of one kind: a machine type of the catalogue, or CPU, memory and GPUs of a node.

    GPU pools have the taint `<GPU resource>=present:NoSchedule`, so that only pods that request GPUs run there.
    """

    machine: str | None = None
    """Machine type of the catalogue, such as `p5.48xlarge`; determines CPU, memory, GPUs and GPU model."""
    cpu: Cpu | None = None
    """Allocatable CPU of a node, for a machine that is not in the catalogue."""
    memory: Bytes | None = None
    """Allocatable memory of a node, for a machine that is not in the catalogue."""
    gpu: str | None = None
    """GPU model: a name of the catalogue, such as `h100-80gb`, or the node label `nvidia.com/gpu.product`."""
    gpus_per_node: Positive | None = None
    """GPUs per node."""
    resource: ResourceName | None = None
    """Extended resource that the vendor's device plugin advertises for a GPU, such as `amd.com/gpu`; default: the
    catalogue's for the model, else `nvidia.com/gpu`."""
    alternatives: list[str] = []
    """Other machine types of spot nodes, for more capacity: with the same GPUs, and at least the CPU and memory of
    `machine`, which are what is counted."""
    nodes: Annotated[Nodes, Shorthand(int, ("min", "max"))]
    """Number of nodes, or `{min, max}`."""
    flavor: Name | None = None
    """Kueue ResourceFlavor of these nodes; default: the pool's name. Several pools can have the same flavor."""
    sharing: Sharing | None = None
    """MIG, time slicing or MPS, if several pods share one GPU."""
    labels: dict[LabelKey, LabelValue] = {}
    """Additional node labels; a flavor selects its nodes by the labels that all its pools have. Recommended for CPU
    pools too: without a label, CPU workloads that tolerate a GPU taint can be scheduled on GPU nodes."""
    taints: list[Taint] = []
    """Additional node taints; the flavor adds tolerations for them to its pods."""
    capacity: Annotated[Capacity, Shorthand(str, ("kind",))] = OnDemand(kind="on-demand")
    """Purchase option: `on-demand`, `spot`, or `{kind, …}` for options with parameters."""
    zones: list[str] = []
    """Zones of the nodes; default: all zones of the cluster."""
    compact: bool = False
    """Whether the cloud places the nodes close together (placement group), for low network latency."""
    placement_policy: str | None = None
    """Existing resource policy (GKE) for the placement of the nodes, in the cluster's region; default: one is created
    for a compact pool. With a reservation, the policy that the reservation was created with."""
    topology: TopologyEntry | None = None
    """Levels of the network, by node labels: `cloud` for those of the cloud, `{block, rack}` for your own, `node` for
    none above the node. Kueue then selects the node of each pod, and jobs can set `together`. The number of nodes must
    be fixed, or `capacity` queued."""
    fabric: bool | Literal["dranet"] = False
    """Whether the machine's network between GPUs is configured: EFA, GPUDirect or InfiniBand. `dranet` (GKE, machine
    types with GPUDirect RDMA): GKE creates the networks, and pods claim the interfaces, so that
    `cluster.fabricNetworks` is not needed. A change replaces the pool."""
    numa: Numa | None = None
    """Whether kubelets take a container's GPUs and CPUs from the same NUMA node of the machine: `best-effort`,
    `restricted` or `single-numa-node`, where the latter two reject pods that cannot be aligned. Default: no
    alignment."""
    disk: Disk = Disk()
    """Boot disk of the nodes."""
    image_disk: str | None = None
    """Disk image (GKE) or EBS snapshot (EKS with driver `bottlerocket`) with container images, which nodes then have
    from the start; default: nodes pull all images."""
    driver: Driver | None = None
    """What installs the GPU driver, container toolkit and device plugin; default: the cloud's default mode."""

    @model_validator(mode="after")
    def _one_description(self) -> Self:
        spelled = self.cpu is not None and self.memory is not None
        if self.machine is None and not spelled:
            raise refuse(
                "has no machine type", "set machine, or cpu and memory (with gpu and gpusPerNode for a GPU pool)"
            )
        if self.machine is not None and (self.gpu is not None or self.gpus_per_node is not None):
            raise refuse(
                "sets machine and also gpu or gpusPerNode",
                "remove gpu and gpusPerNode: the machine type determines them",
            )
        if self.machine is None and (self.gpu is None) != (self.gpus_per_node is None):
            raise refuse("sets only one of gpu and gpusPerNode", "set both, or remove both for a CPU pool")
        return self
