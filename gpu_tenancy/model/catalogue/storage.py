"""Storage services of each cloud (`storage.yaml`), drivers for buckets (`buckets.yaml`), and caches (`caches.yaml`)."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field

from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts
from gpu_tenancy.model.catalogue.rows import Architecture, Fact, Row, known_price, read_rows
from gpu_tenancy.model.fields import Bytes, Cpu
from gpu_tenancy.model.spec.clouds.base import KubernetesVersion
from gpu_tenancy.model.spec.data import Runtime, StorageMode


class Sizes(Row):
    """Sizes in bytes: `from`, and the next ones in steps up to `to`; None if the largest is unknown."""

    start: Annotated[Bytes, Field(alias="from")]
    to: Bytes | None = None
    step: Bytes

    def next(self, size: int) -> int | None:
        """The smallest allowed size that is not less than a size; None if that is too large."""
        found = self.start + max(0, -(-(size - self.start) // self.step)) * self.step
        return found if self.to is None or found <= self.to else None


class StoragePrice(Fact):
    """List price of a service in a region, in US dollars per GiB and month."""

    gib_month: Annotated[float, Field(gt=0)]
    region: str


class StorageService(Fact):
    """A storage service for volumes of a StorageClass."""

    title: str
    modes: tuple[StorageMode, ...]
    provisioner: str  # CSI driver of the StorageClass
    parameters: Mapping[str, str] = {}  # of a StorageClass that is made here; empty if it must exist
    needs: str = ""  # requirements of such a StorageClass; empty if it is made here
    requires: str = ""  # requirements of the network, which the stack does not create
    since: KubernetesVersion | None = None  # first minor version of Kubernetes; None for all
    immediate: bool = False  # whether volumes are created before a pod needs them
    min: Bytes | None = None  # smallest size in bytes; None if unknown
    sizes: tuple[Sizes, ...] = ()  # ranges of sizes; empty if every size is valid
    snapshots: bool  # whether its driver supports VolumeSnapshots
    snapshot_parameters: Mapping[str, str] = {}  # of a VolumeSnapshotClass that is made here
    price: Annotated[StoragePrice | None, BeforeValidator(known_price)]  # None if it is unknown

    def next_size(self, size: int) -> int | None:
        """The smallest valid size in bytes that is not less than a size; None if that is too large."""
        if not self.sizes:
            return max(size, self.min or 0)
        return next((found for found in (sizes.next(size) for sizes in self.sizes) if found is not None), None)


def storage_services() -> Mapping[str, Mapping[str, StorageService]]:
    """The services of each cloud by name, the default of each mode first."""
    return read_rows("storage", dict[str, dict[str, StorageService]])


class Container(Row):
    """A container of a pod: CPU in millicores, memory in bytes."""

    cpu: Cpu
    memory: Bytes

    @property
    def amounts(self) -> Amounts:
        """CPU in millicores and memory in bytes."""
        return {CPU: self.cpu, MEMORY: self.memory}


class Sidecar(Container):
    """A container that a driver's webhook adds to each pod with its volumes; its amounts without `limits`."""

    annotations: Mapping[str, str]  # which the webhook requires of the pod
    limits: Mapping[str, str]  # annotation of each resource, as limit and request


class BucketDriver(Row):
    """A CSI driver for object storage; without a sidecar, a daemon of the node reads the bucket."""

    name: str
    sidecar: Sidecar | None = None
    egress: tuple[str, ...] = ()  # CIDRs that NetworkPolicies of teams allow over HTTPS


def bucket_drivers() -> Mapping[str, BucketDriver]:
    """The drivers by scheme of the bucket's URL."""
    return read_rows("buckets", dict[str, BucketDriver])


class CacheContainer(Container):
    """A container of a cache, without the cache itself."""

    heap: Bytes = 0  # of Java, a part of the memory; 0 for other programs or no bound
    direct: Bytes = 0  # direct memory of Java, likewise


class CachePods(Row):
    """Containers of each pod of a cache, by the key of the runtime's spec."""

    master: Mapping[str, CacheContainer] = {}
    worker: Mapping[str, CacheContainer]
    fuse: Mapping[str, CacheContainer]


class CacheStore(Row):
    """Mount of a bucket of one kind by a runtime."""

    mount: str  # URL with `{bucket}`, `{prefix}` and `{account}`
    options: Mapping[str, str] = {}
    endpoint: Mapping[str, str] = {}  # further mount options of a bucket of another service
    keyed: Mapping[str, str] = {}  # further mount options if a Secret is used
    secret: Mapping[str, str]  # key of the Secret, by the option that is read from it
    identity: bool  # whether the pods can use the cloud identity of their ServiceAccount; if not, `why` has the reason
    why: str = ""


class CacheRow(Fact):
    """A runtime of Fluid, with its kind and API version."""

    kind: str
    api: str
    pods: CachePods
    load: CacheContainer  # the pod that reads the dataset into the cache
    architectures: tuple[Architecture, ...]  # CPU architectures of its images
    stores: Mapping[str, CacheStore]  # by scheme of the bucket's URL


def caches() -> Mapping[Runtime, CacheRow]:
    """The rows by runtime."""
    return read_rows("caches", dict[Runtime, CacheRow])
