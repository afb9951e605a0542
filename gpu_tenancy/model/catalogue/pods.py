"""Engines of servers (`engines.yaml`), and the network between GPUs (`fabrics.yaml`)."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from gpu_tenancy.model.catalogue.rows import Fact, Row, read_rows
from gpu_tenancy.model.fields import Bytes, Count, Positive, ResourceName


class Argument(Row):
    """A command-line argument that follows from the stack."""

    name: Annotated[str, Field(pattern=r"^--[a-z-]+$")]
    short: str = ""
    value: str | None = None  # with placeholders; None for a switch
    of: Literal["all", "groups", "workers", "none"] = "all"  # pods with it; `none` if it would contradict the stack
    key: str  # key of the server that sets it


class KeyCheck(Row):
    """An engine's check of API keys: the variable with the key, and prefixes of the checked paths."""

    env: str
    paths: tuple[str, ...]


class Engine(Fact):
    """An inference engine; `user` and `group` are of its image, not root."""

    title: str
    version: str  # of the package in which its facts were read
    command: tuple[str, ...]  # followed by the path of the model
    arguments: tuple[Argument, ...]
    port: Positive
    health: str
    user: Positive
    group: Count
    gpu_memory: Annotated[int, Field(ge=1, le=100)]  # percent of a GPU's memory that it fills
    api_key: KeyCheck
    env: Mapping[str, str]
    metrics: Mapping[str, str]  # names of its metrics, by key of `metrics` of a server
    buckets: Mapping[str, tuple[float, ...]]  # bounds of its histograms in seconds, by the same keys


def engines() -> Mapping[str, Engine]:
    """The engines by the value of `engine` of a server."""
    return read_rows("engines", dict[str, Engine])


class HostMount(Row):
    """A path of the node (`host`), mounted in a container at `path`."""

    name: str
    host: Annotated[str, Field(pattern=r"^/")]
    path: Annotated[str, Field(pattern=r"^/")]


class Hugepages(Row):
    """Huge pages of 2 MiB for the fabric, in bytes: of a whole machine, and at most for each CPU of the machine."""

    machine: Bytes
    per_cpu: Bytes


class Networks(Row):
    """Attachment of a node's additional networks to a pod on GKE: by `deviceMode`, from an index of interfaces."""

    mode: Literal["NetDevice", "RDMA"]
    of_node: Count = 0  # the number of networks, the first of the machine's, that pods do not use
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
    """A DaemonSet that copies libraries to the nodes."""

    name: str
    image: str
    script: tuple[str, ...] = ()  # lines that run first in the node's namespaces, with `nsenter`
    node_image: str | None = None  # image of `script`; default: `image`
    arm64: str | None = None  # image for nodes with Arm CPUs; None if the fabric has no such machines
    command: tuple[str, ...]
    mounts: tuple[HostMount, ...] = ()


class Image(Row):
    """A container image in an operator's custom resource."""

    repository: str
    image: str
    version: str


class FabricRow(Fact):
    """Requirements of one fabric for pods and nodes; `env`, `capabilities` and `mounts` of the workload's container."""

    resource: ResourceName | None = None  # extended resource of one interface; None if no device plugin advertises one
    hugepages: Hugepages | None = None  # huge pages that nodes reserve
    whole: bool = False  # whether only pods with all GPUs of their machine can use it
    dranet: bool = False  # whether GKE can create its networks, and pods claim the interfaces
    networks: Networks | None = None  # attachment of networks to pods on GKE; None on other clouds
    env: Mapping[str, str] = {}
    capabilities: tuple[str, ...] = ()
    mounts: tuple[HostMount, ...] = ()
    devices: tuple[str, ...] = ()  # device files that the daemon needs
    daemon: Daemon | None = None
    installer: Installer | None = None  # libraries on the nodes
    injector: str | None = None  # image of the DaemonSet that adds device files to containers
    driver: Image | None = None  # of the network driver, for the Network Operator
    plugin: Image | None = None  # of the device plugin, likewise
    pod_security: Literal["baseline", "privileged"] = "baseline"  # the strictest that accepts such pods


def fabrics() -> Mapping[str, FabricRow]:
    """The rows by fabric, such as `efa`."""
    return read_rows("fabrics", dict[str, FabricRow])
