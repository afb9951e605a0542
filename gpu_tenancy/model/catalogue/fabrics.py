"""What pods and nodes need to use the network between GPUs, from `fabrics.yaml`."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Literal

from pydantic import Field

from gpu_tenancy.model.catalogue.rows import Fact, Row, read_rows
from gpu_tenancy.model.fields import Bytes, Count, Positive, ResourceName


class HostMount(Row):
    """A path of the node (`host`) that a container has at `path`."""

    name: str
    host: Annotated[str, Field(pattern=r"^/")]
    path: Annotated[str, Field(pattern=r"^/")]


class Hugepages(Row):
    """Huge pages of 2 MiB for the fabric, in bytes.

    Attributes:
        machine: amount of a whole machine.
        per_cpu: maximum amount for each CPU of the machine.
    """

    machine: Bytes
    per_cpu: Bytes


class Networks(Row):
    """How GKE attaches the additional networks of a node to a pod.

    Attributes:
        mode: `deviceMode` of the networks.
        of_node: number of networks, the first of the machine's, that pods do not use.
        first: index of the pod's first interface.
    """

    mode: Literal["NetDevice", "RDMA"]
    of_node: Count = 0
    first: Positive


class Daemon(Row):
    """A sidecar that moves the data between GPUs and network."""

    name: str
    image: str
    command: tuple[str, ...]
    env: Mapping[str, str] = {}
    capabilities: tuple[str, ...] = ()
    mounts: tuple[HostMount, ...] = ()


class Installer(Row):
    """A DaemonSet that copies libraries to the nodes.

    Attributes:
        script: lines that run in the namespaces of the node first; empty for none.
        node_image: image with `nsenter`, for the script; default: the installer's.
        arm64: image for nodes with Arm CPUs; None if the fabric has no such machines.
        command: lines that run in its container.
    """

    name: str
    image: str
    script: tuple[str, ...] = ()
    node_image: str | None = None
    arm64: str | None = None
    command: tuple[str, ...]
    mounts: tuple[HostMount, ...] = ()


class Image(Row):
    """A container image of an operator's custom resource."""

    repository: str
    image: str
    version: str


class FabricRow(Fact):
    """What pods and nodes need for one fabric.

    Attributes:
        resource: extended resource of one interface; None if no device plugin offers one.
        hugepages: huge pages that nodes reserve; None without.
        whole: whether only pods with all GPUs of their machine can use it.
        dranet: whether GKE can create its networks, and pods claim the interfaces.
        networks: how GKE attaches networks to pods; None on other clouds.
        env: environment variables of the workload's container.
        capabilities: capabilities that the workload's container needs.
        mounts: host paths that the workload's container needs.
        devices: device files that the daemon needs.
        daemon: sidecar of the pods; None without.
        installer: libraries on the nodes; None without.
        injector: image of the DaemonSet that adds device files to containers; None without.
        driver, plugin: images of the network driver and of the device plugin, for the Network Operator; None without.
        pod_security: the strictest Pod Security Standard that accepts such pods.
    """

    resource: ResourceName | None = None
    hugepages: Hugepages | None = None
    whole: bool = False
    dranet: bool = False
    networks: Networks | None = None
    env: Mapping[str, str] = {}
    capabilities: tuple[str, ...] = ()
    mounts: tuple[HostMount, ...] = ()
    devices: tuple[str, ...] = ()
    daemon: Daemon | None = None
    installer: Installer | None = None
    injector: str | None = None
    driver: Image | None = None
    plugin: Image | None = None
    pod_security: Literal["baseline", "privileged"] = "baseline"


@cache
def fabrics() -> Mapping[str, FabricRow]:
    """The rows by fabric, such as `efa`."""
    return read_rows("fabrics", dict[str, FabricRow])
