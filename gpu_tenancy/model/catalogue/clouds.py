"""Node pool features and names of people in each cloud, from `clouds.yaml`."""

import datetime as dt
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from gpu_tenancy.model.catalogue.machines import CapacityType
from gpu_tenancy.model.catalogue.rows import Fact, Row, known_price, read_rows
from gpu_tenancy.model.fields import Bytes, Seconds


class Form(Row):
    """The form of a name in a cloud: a regular expression, and the same rule in words (`write`)."""

    pattern: str
    write: str

    def fits(self, text: str) -> bool:
        """Whether a name has this form."""
        return re.fullmatch(self.pattern, text) is not None


class ByQueue(Row):
    """Queued provisioning: nodes are created only for a ProvisioningRequest of Kueue."""

    provisioning_class: str  # `provisioningClassName` of the requests
    node_selector: Mapping[str, str] = {}  # node labels, by the detail of the request's status with their value
    lifetime: bool | None = None  # whether the nodes have a maximum lifetime; None if the autoscaler is unknown
    source: str
    date: dt.date | None = None


class Notice(Row):
    """Notice before a cloud reclaims a machine: all pods of teams end within `pods` seconds."""

    pods: int
    source: str
    date: dt.date


class CapacityRule(Row):
    """The requirements of one capacity type in one cloud."""

    refused: str | None = None  # why the cloud does not support it, with the alternative in `instead`; None if it does
    instead: str | None = None
    reservation: Form | None = None  # form of the reservation's name; None if no reservation is needed
    zones: int | None = None  # required number of zones; None for any number
    min: int | None = None  # required value of `nodes.min`; None for any value
    shortest: Seconds | None = None  # minimum of the maximum lifetime of a node in seconds
    longest: Seconds | None = None  # maximum lifetime of a node in seconds
    bought_as: CapacityType | None = None  # capacity type under which its machines are bought; None for itself
    taints: tuple[str, ...] = ()  # taints that the cloud itself adds to these nodes, as `key=value:effect`
    by_queue: ByQueue | None = None  # request by Kueue; None if the autoscaler creates the nodes for pods
    notice: Notice | None = None  # None if the cloud does not reclaim nodes, or if that is unknown


class SharingRule(Row):
    """GPU sharing in one driver mode, by MIG, time-slicing or MPS."""

    by: Literal["cloud", "operator"]  # the cloud, by an input of the pool, or the GPU Operator, by a node label
    whole: bool = False  # whether pods request a partition by the resource name of a whole GPU
    least_memory: bool = False  # whether, of profiles with as many slices, only the smallest in memory is supported
    grows: bool = True  # whether the autoscaler can add such nodes
    gpus: tuple[str, ...] = ()  # models that it is documented for; empty for all that can be shared
    labels: Mapping[str, str] = {}  # node labels; `{profile}` and `{turns}` are placeholders


class DriverMode(Row):
    """Installer of driver, container toolkit and device plugin: settings of the pool and matching Helm values."""

    means: str  # components and their installers, for messages
    operator: Mapping[str, Any]  # values of the GPU Operator's chart
    labels: Mapping[str, str] = {}  # labels of the pool's nodes
    mig: SharingRule | None = None  # None if it is not supported
    time_slicing: SharingRule | None = None  # likewise
    mps: SharingRule | None = None  # likewise
    without_mps: str = ""  # why MPS is not supported
    source: str

    @property
    def node_labels(self) -> Mapping[str, str]:
        """Labels of nodes of the mode, also of those whose GPUs are shared."""
        rules = (self.mig, self.time_slicing, self.mps)
        return {**self.labels, **{key: value for rule in rules if rule for key, value in rule.labels.items()}}

    def sharing(self, way: Literal["mig", "timeSlicing", "mps"]) -> SharingRule | None:
        """The rule for GPU sharing in this way; None if it is not supported."""
        return {"mig": self.mig, "timeSlicing": self.time_slicing, "mps": self.mps}[way]


class NodeEndpoint(Fact):
    """A link-local address of a node that pods call, which no pod or namespace selector of a NetworkPolicy matches."""

    of: str  # the listening program
    serves: Literal["dns", "identity"]  # `dns`: names; `identity`: credentials of the pod's own identity
    cidrs: tuple[str, ...]
    ports: tuple[int, ...]
    protocols: tuple[Literal["TCP", "UDP"], ...] = ("TCP",)
    of_nodes: bool = False  # whether nodes without workload identity serve their own credentials there


class TopologyRule(Fact):
    """Node labels with the place in a cloud's network, by prefixes of machine types."""

    machines: tuple[str, ...]
    labels: tuple[str, ...]  # of all levels above the node, the largest first
    block: str
    rack: str  # the smallest group above a host, such as an NVLink domain


class LoadBalancers(Fact):
    """Annotations that make load balancers internal (of Services), or public (of Services, Ingresses and Gateways)."""

    internal: Mapping[str, str]
    public: Mapping[str, str] = {}


class Hidden(Fact):
    """Sections of kube-prometheus-stack whose components' metrics no pod can read: their alerts would always fire."""

    components: tuple[str, ...]


class Admission(Fact):
    """Admission plugins of a cloud's API servers that are not on in Kubernetes by default."""

    plugins: tuple[str, ...]
    limited_classes: tuple[str, ...] = ()  # priority classes that need a ResourceQuota for them in the namespace


class Directory(Fact):
    """Forms of groups and users that a cloud's clusters know; None if clusters know none."""

    group: Form | None = None
    user: Form | None = None
    principals: bool = False  # whether IAM roles and users of AWS can be people


class BootDisk(Row):
    """Boot disks of the nodes that this program creates."""

    kind: str  # a row of `storage.yaml`
    system: Bytes  # size of the disk of a system node
    others: Mapping[str, tuple[str, ...]] = {}  # other kinds, with the starts of the names of their machine types

    def kind_of(self, machine: str) -> str:
        """The kind of the boot disk of a machine type, by its name in the cloud."""
        return next((kind for kind, starts in self.others.items() if machine.startswith(starts)), self.kind)


class CloudRules(Row):
    """Features of node pools in one cloud; `load_balancers`, `admission` and `hidden`: None if unknown.

    `infers`: resources of an empty pool's nodes that its autoscaler infers, as whole devices; None if this program
    tells the autoscaler all of them, or if that is unknown.
    """

    title: str  # name of its Kubernetes service, for messages
    package: str | None = None  # the Pulumi provider; None if only the Kubernetes provider is needed
    pool_name: Form
    capacity: Mapping[str, CapacityRule]
    compact: tuple[str, ...]  # capacity types that support compact placement
    compact_zones: tuple[int, ...] = ()  # allowed numbers of zones of a compact pool; empty for any number
    placement_policy: Form | None = None  # form of an existing placement policy's name; None if pools cannot use one
    reserved_policy: bool = False  # whether a compact pool uses a reservation only with its placement policy
    gpu_zones: bool = False  # whether GPU pools must name zones if the cluster's are unknown
    local_disk: Bytes | None = None  # local disks' capacity is a multiple of it; None: not for ephemeral storage
    boot_disk: BootDisk | None = None  # None if nodes have none that is paid for
    disk_key: bool = True  # whether each pool can have its own key for disks
    own_labels: tuple[str, ...] = ()  # domains of labels and taints that only the cloud may set
    own_tags: tuple[str, ...] = ()  # beginnings of tags (labels of GCP's resources) that only the cloud may set
    empty_labels: bool = True  # whether a label can have an empty value
    names_gpus: bool = False  # whether a pool needs the cloud's own name of the GPU, in addition to the machine type
    fabrics: tuple[str, ...]
    fabric_zone: Fact | None = None  # why nodes of a fabric must be in one zone; None if they need not
    fabric_operator: bool = False  # whether NVIDIA's Network Operator advertises the fabric to pods, and not the cloud
    infers: tuple[str, ...] | None = None
    drivers: Mapping[str, DriverMode]  # driver modes by name, the default first
    alternatives: bool = False  # whether a spot pool can have several machine types
    node_endpoints: tuple[NodeEndpoint, ...] = ()  # link-local addresses of nodes that pods of teams may call
    topologies: tuple[TopologyRule, ...] = ()  # node labels with the place in the network; empty if unknown
    load_balancers: LoadBalancers | None = None
    admission: Admission | None = None
    hidden: Hidden | None = None
    people: Directory


def clouds() -> Mapping[str, CloudRules]:
    """The rules of each cloud, by the value of `cluster.cloud`."""
    return read_rows("clouds", dict[str, CloudRules])


def rules_of(service: str) -> CloudRules:
    """The rules of a Kubernetes service; if it is unknown, an existing cluster's rules (`model.checks.nodes` warns)."""
    return clouds().get(service) or clouds()["existing"]


def boot_disk(cloud: str) -> BootDisk:
    """The boot disks of a cloud's nodes. Raises ValueError for a cloud whose table has none."""
    found = rules_of(cloud).boot_disk
    if found is None:
        raise ValueError(f"gpu_tenancy/model/catalogue/clouds.yaml: {cloud} has no bootDisk; add it")
    return found


class FixedPrice(Fact):
    """Price of a permanent part of a cluster in US dollars per hour, without traffic; None if it is unknown."""

    title: str
    hour: Annotated[Annotated[float, Field(gt=0)] | None, BeforeValidator(known_price)]
    region: str


def fixed_prices() -> Mapping[str, Mapping[str, FixedPrice]]:
    """Prices by cloud and name."""
    return read_rows("fixed", dict[str, dict[str, FixedPrice]])
