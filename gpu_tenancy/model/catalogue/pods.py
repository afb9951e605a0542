"""What pods have of engines of servers, and of the network between GPUs: the tables engines.yaml and fabrics.yaml."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Literal

from pydantic import Field

from gpu_tenancy.model.catalogue.rows import Fact, Row, read_rows
from gpu_tenancy.model.fields import Bytes, Count, Positive, ResourceName


class Argument(Row):
    """An argument that follows from the stack.

    Attributes:
        value: with placeholders; None for a switch.
        of: the pods that have it; `none` if it would contradict the stack.
        key: of the server, which sets it.
    """

    name: Annotated[str, Field(pattern=r"^--[a-z-]+$")]
    short: str = ""
    value: str | None = None
    of: Literal["all", "groups", "workers", "none"] = "all"
    key: str


class KeyCheck(Row):
    """How an engine asks requests for a key: the variable with the key, and prefixes of the paths for which it asks."""

    env: str
    paths: tuple[str, ...]


class Engine(Fact):
    """An engine.

    Attributes:
        version: of the package that its facts were read in.
        command: how it is started; the path of the model follows.
        user, group: of its image; not root.
        gpu_memory: percent of a GPU's memory that it fills.
        metrics: names of its metrics, by key of `metrics` of a server.
        buckets: bounds of its histograms in seconds, by the same keys.
    """

    title: str
    version: str
    command: tuple[str, ...]
    arguments: tuple[Argument, ...]
    port: Positive
    health: str
    user: Positive
    group: Count
    gpu_memory: Annotated[int, Field(ge=1, le=100)]
    api_key: KeyCheck
    env: Mapping[str, str]
    metrics: Mapping[str, str]
    buckets: Mapping[str, tuple[float, ...]]


@cache
def engines() -> Mapping[str, Engine]:
    """The engines by the value of `engine` of a server."""
    return read_rows("engines", dict[str, Engine])


class HostMount(Row):
    """A path of the node (`host`) that a container has at `path`."""

    name: str
    host: Annotated[str, Field(pattern=r"^/")]
    path: Annotated[str, Field(pattern=r"^/")]


class Hugepages(Row):
    """Huge pages of 2 MiB for the fabric, in bytes: of a whole machine, and at most for each CPU of the machine."""

    machine: Bytes
    per_cpu: Bytes


class Networks(Row):
    """How GKE attaches the additional networks of a node to a pod: by `deviceMode`, from an index of interfaces.

    Attributes:
        of_node: number of networks, the first of the machine's, that pods do not use.
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
        script: lines that run in the namespaces of the node first, in `node_image` with `nsenter`; default: its image.
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
        hugepages: huge pages that nodes reserve.
        whole: whether only pods with all GPUs of their machine can use it.
        dranet: whether GKE can create its networks, and pods claim the interfaces.
        networks: how GKE attaches networks to pods; None on other clouds.
        env, capabilities, mounts: of the workload's container: variables, capabilities and host paths.
        devices: device files that the daemon needs.
        daemon: sidecar of the pods.
        installer: libraries on the nodes.
        injector: image of the DaemonSet that adds device files to containers.
        driver, plugin: images of the network driver and of the device plugin, for the Network Operator.
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
