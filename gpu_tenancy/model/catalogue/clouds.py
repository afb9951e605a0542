"""What each cloud supports in a node pool, and how it names people, from `clouds.yaml`."""

import datetime as dt
import re
from collections.abc import Mapping
from functools import cache
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
    """Queued provisioning: nodes are created only for a ProvisioningRequest of Kueue.

    Attributes:
        provisioning_class: `provisioningClassName` of the requests.
        node_selector: labels of the created nodes, by the detail of the request's status that has their value.
        lifetime: whether the nodes have a maximum lifetime; None if the autoscaler is unknown.
    """

    provisioning_class: str
    node_selector: Mapping[str, str] = {}
    lifetime: bool | None = None
    source: str
    date: dt.date | None = None


class Notice(Row):
    """How a cloud takes a machine back: `pods` seconds after the notice, the pods of teams have ended."""

    pods: int
    source: str
    date: dt.date


class CapacityRule(Row):
    """The requirements of one capacity type in one cloud.

    Attributes:
        refused: why the cloud does not have it, with what to use `instead`; None if it does.
        reservation: form of the reservation's name; None if no reservation is needed.
        zones: required number of zones; None for any number.
        min: required value of `nodes.min`; None for any value.
        longest: maximum lifetime of a node in seconds; None without a maximum.
        bought_as: the capacity type by which its machines are bought; None for itself.
        taints: taints that the cloud itself adds to these nodes, as `key=value:effect`.
        by_queue: how Kueue requests these nodes; None if the autoscaler creates them for pods.
        notice: how the cloud takes a node back; None if it does not, or if that is unknown.
    """

    refused: str | None = None
    instead: str | None = None
    reservation: Form | None = None
    zones: int | None = None
    min: int | None = None
    longest: Seconds | None = None
    bought_as: CapacityType | None = None
    taints: tuple[str, ...] = ()
    by_queue: ByQueue | None = None
    notice: Notice | None = None


class SharingRule(Row):
    """How several pods share one GPU in one driver mode, by MIG, time-slicing or MPS.

    Attributes:
        by: who configures it: the cloud, by an input of the pool, or the GPU Operator, by a node label.
        whole: whether pods request a partition by the resource name of a whole GPU.
        least_memory: whether, of the profiles with the same number of slices, only the one with the least memory is
            supported.
        grows: whether the autoscaler can add such nodes.
        labels: labels of these nodes; `{profile}` and `{turns}` are placeholders.
    """

    by: Literal["cloud", "operator"]
    whole: bool = False
    least_memory: bool = False
    grows: bool = True
    labels: Mapping[str, str] = {}


class DriverMode(Row):
    """Who installs driver, container toolkit and device plugin: settings of the pool and matching Helm values.

    Attributes:
        means: who installs what, for messages.
        operator: values of the GPU Operator's chart.
        labels: labels of the pool's nodes.
        mig, time_slicing, mps: how a way of sharing GPUs is configured; None if it is not supported.
        without_mps: why MPS is not.
    """

    means: str
    operator: Mapping[str, Any]
    labels: Mapping[str, str] = {}
    mig: SharingRule | None = None
    time_slicing: SharingRule | None = None
    mps: SharingRule | None = None
    without_mps: str = ""
    source: str

    def sharing(self, way: Literal["mig", "timeSlicing", "mps"]) -> SharingRule | None:
        """How one way of sharing a GPU is configured; None if it is not supported."""
        return {"mig": self.mig, "timeSlicing": self.time_slicing, "mps": self.mps}[way]


class NodeEndpoint(Fact):
    """A link-local address of a node that pods call, which no pod or namespace selector of a NetworkPolicy matches.

    Attributes:
        of: what listens there.
        serves: `dns`: names; `identity`: credentials of the pod's own identity.
        cidrs: its addresses, such as `169.254.170.23/32`.
        of_nodes: whether nodes without workload identity serve their own credentials there.
    """

    of: str
    serves: Literal["dns", "identity"]
    cidrs: tuple[str, ...]
    ports: tuple[int, ...]
    protocols: tuple[Literal["TCP", "UDP"], ...] = ("TCP",)
    of_nodes: bool = False


class TopologyRule(Fact):
    """The node labels by which a cloud tells where machines are in the network, by prefixes of machine types.

    Attributes:
        labels: of all levels above the node, the largest first.
        block, rack: those that are a block, and the smallest group above a host, such as an NVLink domain.
    """

    machines: tuple[str, ...]
    labels: tuple[str, ...]
    block: str
    rack: str


class LoadBalancers(Fact):
    """Annotations that make load balancers internal (of Services), or public (of Services, Ingresses and Gateways)."""

    internal: Mapping[str, str]
    public: Mapping[str, str] = {}


class Hidden(Fact):
    """Sections of kube-prometheus-stack whose components' metrics no pod can read: their alerts would always fire."""

    components: tuple[str, ...]


class Admission(Fact):
    """Admission plugins of a cloud's API servers that are not on in Kubernetes by default.

    Attributes:
        limited_classes: priority classes that pods can have only in a namespace with a ResourceQuota for them.
    """

    plugins: tuple[str, ...]
    limited_classes: tuple[str, ...] = ()


class Directory(Fact):
    """The people that a cloud's clusters know: forms of groups and users; None if clusters know none.

    Attributes:
        principals: whether IAM roles and users of AWS can be people.
    """

    group: Form | None = None
    user: Form | None = None
    principals: bool = False


class CloudRules(Row):
    """What one cloud supports in a node pool.

    Attributes:
        title: name of its Kubernetes service, for messages.
        package: the Pulumi provider; None if only the Kubernetes provider is needed.
        compact: capacity types that support compact placement.
        compact_zones: allowed numbers of zones of a compact pool; empty for any number.
        placement_policy: form of an existing placement policy's name; None if pools cannot use one.
        reserved_policy: whether a compact pool uses a reservation only with the reservation's placement policy.
        gpu_zones: whether GPU pools must name zones where the cluster's are unknown.
        local_disk: of how many bytes the capacity of local disks is a multiple; None if they hold no ephemeral storage.
        disk_key: whether each pool can have its own key for disks.
        own_labels: domains of labels and taints that only the cloud may set.
        empty_labels: whether a label can have an empty value.
        names_gpus: whether a pool needs the cloud's own name of the GPU, in addition to the machine type.
        fabric_operator: whether NVIDIA's Network Operator advertises them to pods, and not the cloud.
        infers: resources of an empty pool's nodes that its autoscaler knows by itself, as whole devices; None if this
            program tells all of them to it, or if that is unknown.
        drivers: driver modes by name, the default first.
        alternatives: whether a spot pool can have several machine types.
        node_endpoints: link-local addresses of nodes that pods of teams may call.
        topologies: node labels with the place in the network, by machine type; empty where none are known.
        load_balancers, admission, hidden: None if they are unknown.
    """

    title: str
    package: str | None = None
    pool_name: Form
    capacity: Mapping[str, CapacityRule]
    compact: tuple[str, ...]
    compact_zones: tuple[int, ...] = ()
    placement_policy: Form | None = None
    reserved_policy: bool = False
    gpu_zones: bool = False
    local_disk: Bytes | None = None
    disk_key: bool = True
    own_labels: tuple[str, ...] = ()
    empty_labels: bool = True
    names_gpus: bool = False
    fabrics: tuple[str, ...]
    fabric_operator: bool = False
    infers: tuple[str, ...] | None = None
    drivers: Mapping[str, DriverMode]
    alternatives: bool = False
    node_endpoints: tuple[NodeEndpoint, ...] = ()
    topologies: tuple[TopologyRule, ...] = ()
    load_balancers: LoadBalancers | None = None
    admission: Admission | None = None
    hidden: Hidden | None = None
    people: Directory


@cache
def clouds() -> Mapping[str, CloudRules]:
    """The rules of each cloud, by the value of `cluster.cloud`."""
    return read_rows("clouds", dict[str, CloudRules])


def rules_of(service: str) -> CloudRules:
    """The rules of a Kubernetes service; those of an existing cluster if it is unknown (`model.checks.nodes` warns)."""
    return clouds().get(service) or clouds()["existing"]


class FixedPrice(Fact):
    """The price of a part of a cluster that is always there, in a region.

    Attributes:
        title: what it is.
        hour: US dollars per hour, without traffic; None if it is unknown.
    """

    title: str
    hour: Annotated[Annotated[float, Field(gt=0)] | None, BeforeValidator(known_price)]
    region: str


@cache
def fixed_prices() -> Mapping[str, Mapping[str, FixedPrice]]:
    """Prices by cloud and name."""
    return read_rows("fixed", dict[str, dict[str, FixedPrice]])
