"""Node pools: machine types, number of nodes, how GPUs are shared, and where the nodes are in the network."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from gpu_tenancy.model import fields

Level: TypeAlias = Literal["block", "rack", "node"]
"""A part of the network, the largest first: a block has several racks, a rack several nodes."""

HOSTNAME: Final = "kubernetes.io/hostname"
"""Label of the lowest level, which every node has."""


class Topology(fields.Section):
    """Levels of the network, by node labels. Kueue then selects the node of each pod of the flavor."""

    source: Literal["cloud", "node"] | None = None
    """`cloud`: the labels that the cloud sets on nodes of this machine type. `node`: no level above the node."""
    block: fields.LabelKey | None = None
    """Node label whose value is the node's block, where you set the labels."""
    rack: fields.LabelKey | None = None
    """Node label whose value is the node's rack or NVLink domain, such as `nvidia.com/gpu.clique`."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if (self.source is None) == (self.block is None and self.rack is None):
            rule = "must set either source, or the node labels of block and rack"
            yield rule, "set topology: cloud, topology: node, or topology: {block: LABEL, rack: LABEL}"
        labels = [label for label in (self.block, self.rack, HOSTNAME) if label]
        if len(set(labels)) < len(labels):
            yield "has two levels with the same label", f"set different labels, none of them {HOSTNAME}"


TopologyEntry: TypeAlias = Annotated[Topology, fields.Shorthand(str, ("source",))]


class Together(fields.Section):
    """The part of the network in which all pods of a job run."""

    required: Literal["block", "rack", "node", "anywhere"] | None = None
    """All pods run in one `block`, one `rack` or on one `node`; until one has room, the job is pending. `anywhere`: no
    condition."""
    preferred: Level | None = None
    """As `required`, but if no such part has room, Kueue tries the next larger one, and finally several."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if (self.required is None) == (self.preferred is None):
            yield "must set exactly one of required and preferred", "set together: rack, or together: {preferred: rack}"

    @property
    def level(self) -> Level | None:
        """The level, required or preferred; None for anywhere."""
        return None if self.required == "anywhere" else self.required or self.preferred


TogetherEntry: TypeAlias = Annotated[Together, fields.Shorthand(str, ("required",))]


class Range(fields.Section):
    """A section with `min` and `max`."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        least, most = getattr(self, "min", 0), getattr(self, "max", 0)
        if most < least:
            yield f"max {most} is less than min {least}", f"raise max to {least} or lower min"


class Nodes(Range):
    """The number of nodes of a pool: `min` is always there; an autoscaler adds nodes up to `max`."""

    min: fields.Count
    """Minimum number of nodes; they are always there."""
    max: fields.Count
    """Maximum number of nodes with an autoscaler."""


class Taint(fields.Section):
    """A taint of the pool's nodes, in addition to the GPU taint."""

    key: fields.LabelKey
    """Taint key, such as `example.com/reserved`."""
    value: fields.LabelValue = ""
    """Taint value; default: empty."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    """Effect on pods that do not tolerate the taint."""


class Mig(fields.Section):
    """Each GPU divided into equal MIG partitions with separate memory and compute."""

    profile: str = Field(pattern=r"^[0-9]{1,2}g\.[0-9]{1,4}gb$")
    """MIG profile such as `1g.10gb`; pods request partitions as `nvidia.com/mig-1g.10gb`."""
    partitions: fields.Positive | None = None
    """Partitions per GPU; default: the catalogue's number for the GPU and profile."""


class TimeSlicing(fields.Section):
    """Time slicing: pods take turns on a GPU, without memory isolation."""

    turns: Annotated[int, Field(ge=2, le=48)]
    """Number of pods that share one GPU."""
    trusting: list[fields.Name] = []
    """Teams that trust each other with the GPU's memory; only they, or a single team, may use the flavor."""


class Mps(fields.Section):
    """NVIDIA's Multi-Process Service: pods use a GPU at the same time, each with an equal part of memory and compute.

    The parts are enforced, but a fatal fault of one pod ends all pods on the GPU. A container gets one part.
    """

    clients: Annotated[int, Field(ge=2, le=48)]
    """Number of pods that share one GPU."""
    trusting: list[fields.Name] = []
    """Teams that accept each other's faults; only they, or a single team, may use the flavor."""


class Sharing(fields.Section):
    """How several pods share one GPU; default: one pod per GPU."""

    mig: Mig | None = None
    """MIG partitions, with separate memory."""
    time_slicing: Annotated[TimeSlicing, fields.Shorthand(int, ("turns",))] | None = None
    """Time slicing: the number of pods per GPU, or `{turns, trusting}`."""
    mps: Annotated[Mps, fields.Shorthand(int, ("clients",))] | None = None
    """MPS: the number of pods per GPU, or `{clients, trusting}`."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if sum(way is not None for way in (self.mig, self.time_slicing, self.mps)) != 1:
            yield "must set exactly one of mig, timeSlicing and mps", "set one of them, and remove the others"

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


class OnDemand(fields.Section):
    """On-demand machines, billed by the hour, if the cloud has capacity."""

    kind: Literal["on-demand"]
    """`on-demand`."""


class Spot(fields.Section):
    """Spot machines, at a lower price, which the cloud can reclaim at any time."""

    kind: Literal["spot"]
    """`spot`."""


class Reserved(fields.Section):
    """Machines of a capacity reservation."""

    kind: Literal["reserved"]
    """`reserved`."""
    reservation: str
    """The reservation, in the cloud's format."""


class CapacityBlock(fields.Section):
    """GPUs that were purchased for a number of days in the future."""

    kind: Literal["capacity-block"]
    """`capacity-block`."""
    reservation: str
    """The reservation that the purchase created."""


class FlexStart(fields.Section):
    """Machines that are provisioned when the cloud has capacity, and removed after a time."""

    kind: Literal["flex-start"]
    """`flex-start`."""
    max_run: fields.Seconds
    """Maximum lifetime of a node, such as `7d`."""


class Queued(fields.Section):
    """Machines that the autoscaler provisions all at once for a workload, which is pending in its queue until then."""

    kind: Literal["queued"]
    """`queued`."""
    max_run: fields.Seconds | None = None
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


class Disk(fields.Section):
    """The boot disk of a node; always encrypted."""

    size: fields.Bytes = _DISK
    """Disk size; images of training frameworks need tens of GiB each."""
    key: str | None = None
    """Your own encryption key, in the cloud's format; default: the cloud's key."""


class Pool(fields.Section):
    """Nodes of one kind: a machine type of the catalogue, or CPU, memory and GPUs of a node.

    GPU pools have the taint `<GPU resource>=present:NoSchedule`, so that only pods that request GPUs run there.
    """

    machine: str | None = None
    """Machine type of the catalogue, such as `p5.48xlarge`; determines CPU, memory, GPUs and GPU model."""
    cpu: fields.Cpu | None = None
    """Allocatable CPU of a node, for a machine that is not in the catalogue."""
    memory: fields.Bytes | None = None
    """Allocatable memory of a node, for a machine that is not in the catalogue."""
    gpu: str | None = None
    """GPU model: a name of the catalogue, such as `h100-80gb`, or the node label `nvidia.com/gpu.product`."""
    gpus_per_node: fields.Positive | None = None
    """GPUs per node."""
    resource: fields.ResourceName | None = None
    """Extended resource of a GPU, such as `amd.com/gpu`; default: the catalogue's for the model, else
    `nvidia.com/gpu`."""
    alternatives: list[str] = []
    """Other machine types of spot nodes, for more capacity: with the same GPUs, and at least the CPU and memory of
    `machine`, which are counted."""
    nodes: Annotated[Nodes, fields.Shorthand(int, ("min", "max"))]
    """Number of nodes, or `{min, max}`."""
    flavor: fields.Name | None = None
    """Kueue ResourceFlavor of these nodes; default: the pool's name. Several pools can have the same flavor."""
    sharing: Sharing | None = None
    """MIG, time slicing or MPS, if several pods share one GPU."""
    labels: dict[fields.LabelKey, fields.LabelValue] = {}
    """Additional node labels; a flavor selects its nodes by the labels that all its pools have. Set one on CPU pools
    too: without it, CPU workloads that tolerate a GPU taint can run on GPU nodes."""
    taints: list[Taint] = []
    """Additional node taints, which jobs and servers of the stack and of `tenancy submit` tolerate, and on Kubernetes
    1.36 what members submit with kubectl; before, its pods with GPUs need a toleration."""
    capacity: Annotated[Capacity, fields.Shorthand(str, ("kind",))] = OnDemand(kind="on-demand")
    """Purchase option: `on-demand`, `spot`, or `{kind, …}` for options with parameters."""
    zones: list[str] = []
    """Zones of the nodes; default: all zones of the cluster."""
    compact: bool = False
    """Whether the cloud places the nodes close together (placement group), for low network latency."""
    placement_policy: str | None = None
    """Existing resource policy (GKE) for the placement of the nodes, in the cluster's region; with a reservation, the
    one that it was created with. Default: one is created for a compact pool."""
    topology: TopologyEntry | None = None
    """Levels of the network, by node labels: `cloud` for those of the cloud, `{block, rack}` for your own, `node` for
    none above the node. Kueue then selects the node of each pod, and jobs can set `together`. `nodes` must be one
    number, or `capacity` queued."""
    fabric: bool | Literal["dranet"] = False
    """Whether the machine's network between GPUs is configured: EFA, GPUDirect or InfiniBand. `dranet` (GKE, machine
    types with GPUDirect RDMA): GKE creates the networks, pods claim the interfaces, and `cluster.fabricNetworks` is not
    needed. A change replaces the pool."""
    numa: Numa | None = None
    """Whether kubelets take a container's GPUs and CPUs from one NUMA node; `restricted` and `single-numa-node` reject
    pods that cannot be aligned. Default: no alignment."""
    disk: Disk = Disk()
    """Boot disk of the nodes."""
    image_disk: str | None = None
    """Disk image (GKE) or EBS snapshot (EKS with driver `bottlerocket`) with container images that nodes have from the
    start; default: nodes pull all images."""
    driver: Driver | None = None
    """What installs the GPU driver, container toolkit and device plugin; default: the cloud's default mode."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if self.machine is None and (self.cpu is None or self.memory is None):
            yield "has no machine type", "set machine, or cpu and memory (with gpu and gpusPerNode for a GPU pool)"
        if self.machine is not None and (self.gpu is not None or self.gpus_per_node is not None):
            rule = "sets machine and also gpu or gpusPerNode"
            yield rule, "remove gpu and gpusPerNode: the machine type determines them"
        if self.machine is None and (self.gpu is None) != (self.gpus_per_node is None):
            yield "sets only one of gpu and gpusPerNode", "set both, or remove both for a CPU pool"


class PriceEntry(fields.Section):
    """The price of a machine, of storage, or of the cluster itself, in the currency of the cloud's price table."""

    on_demand: Annotated[float, Field(gt=0, le=fields.MOST_PRICE)] | None = None
    """Price per hour; default: unknown. Also used for reserved machines: set what you pay."""
    spot: Annotated[float, Field(gt=0, le=fields.MOST_PRICE)] | None = None
    """Spot price per hour; default: the price on demand, the most that spot costs."""
    gib_month: Annotated[float, Field(gt=0, le=fields.MOST_PRICE)] | None = None
    """Price of storage for a GiB in a month, by its class or StorageClass; machines have none."""


class NetworkEntry(fields.Section):
    """The network of a machine."""

    gbps: Annotated[float, Field(gt=0, le=1_000_000)]
    """Bandwidth in gigabits per second."""
    fabric: Literal["efa", "gpudirect-tcpx", "gpudirect-tcpxo", "gpudirect-rdma", "infiniband"] | None = None
    """RDMA fabric between GPUs of different machines; default: none."""
    interfaces: fields.Count = 0
    """Number of fabric interfaces of the machine."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if (self.fabric is None) != (self.interfaces == 0):
            yield "sets only one of fabric and interfaces", "set both or remove both"


class MachineEntry(fields.Section):
    """A machine type that is not in the catalogue, or overrides its row: without `cpu`, only the keys that are set."""

    cpu: Annotated[fields.Cpu, Field(gt=0)] | None = None
    """CPUs of the machine, before the kubelet's reservations; default: the catalogue's, as of all keys not set here."""
    memory: Annotated[fields.Bytes, Field(gt=0)] | None = None
    """Memory of the machine, before the kubelet's reservations; set together with `cpu`."""
    gpu: str | None = None
    """Model of its GPUs: a name in the catalogue, such as `h100-80gb`."""
    gpus: fields.Count = 0
    """Number of GPUs of the machine."""
    architecture: Literal["amd64", "arm64"] = "amd64"
    """CPU architecture."""
    accelerator: str | None = None
    """GKE's accelerator type of its GPUs, such as `nvidia-h100-80gb`."""
    topology: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,3}x[1-9][0-9]{0,3}$")] | None = None
    """Shape of the NVLink domain of its GPUs with those of other machines, such as `1x72`; default: none."""
    host_encryption: bool = True
    """Whether the machine's host can encrypt its disks and caches; used on AKS."""
    zones: list[str] | None = None
    """Zones that have the machine type, to check the zones of pools; default: unknown, not checked."""
    capacity: list[Literal["on-demand", "spot", "reserved", "capacity-block", "flex-start"]] | None = None
    """Capacity types that the machine type can be bought with; default: unknown, not checked."""
    local_disk: fields.Bytes | None = None
    """Size of all local NVMe disks together, on which nodes of EKS and GKE have their ephemeral storage; on GKE a
    multiple of 375Gi. Default: the catalogue's, else none."""
    network: NetworkEntry | None = None
    """Its network; needed if pools set `fabric`."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        for one, other in (("gpu", "gpus"), ("cpu", "memory")):
            if bool(getattr(self, one)) != bool(getattr(self, other)):
                yield f"sets only one of {one} and {other}", "set both or remove both"
