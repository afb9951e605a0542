"""Services of each cloud for storage of teams, and Fluid's caches: the tables `storage.yaml` and `caches.yaml`."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated

from pydantic import BeforeValidator, Field

from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts
from gpu_tenancy.model.catalogue.rows import Architecture, Fact, Row, known_price, read_rows
from gpu_tenancy.model.fields import Bytes, Cpu
from gpu_tenancy.model.spec.clouds.base import KubernetesVersion
from gpu_tenancy.model.spec.data import Medium, Runtime, StorageMode


class Sizes(Row):
    """Sizes in bytes: `from`, and the next ones in steps up to `to`; None if the largest is unknown."""

    start: Annotated[Bytes, Field(alias="from")]
    to: Bytes | None = None
    step: Bytes

    def next(self, size: int) -> int | None:
        """The smallest one that is not less than a size; None if that is too large."""
        found = self.start + max(0, -(-(size - self.start) // self.step)) * self.step
        return found if self.to is None or found <= self.to else None


class StoragePrice(Fact):
    """List price of a service in a region, in US dollars for a GiB in a month."""

    gib_month: Annotated[float, Field(gt=0)]
    region: str


class StorageService(Fact):
    """A service that volumes of a StorageClass are created in.

    Attributes:
        modes: what volumes it has.
        provisioner: CSI driver of the StorageClass.
        parameters: of a StorageClass that is made here; empty where it must exist.
        needs: what such a StorageClass requires; empty where it is made here.
        requires: what the network must have, which the stack does not create; empty for nothing.
        since: first minor version of Kubernetes; None for all.
        immediate: whether volumes are created before a pod needs them.
        min: smallest size in bytes; None if unknown.
        sizes: ranges of sizes that it takes; empty if it takes every size.
        snapshots: whether its driver takes VolumeSnapshots.
        snapshot_parameters: of a VolumeSnapshotClass that is made here.
        price: None if it is unknown.
    """

    title: str
    modes: tuple[StorageMode, ...]
    provisioner: str
    parameters: Mapping[str, str] = {}
    needs: str = ""
    requires: str = ""
    since: KubernetesVersion | None = None
    immediate: bool = False
    min: Bytes | None = None
    sizes: tuple[Sizes, ...] = ()
    snapshots: bool
    snapshot_parameters: Mapping[str, str] = {}
    price: Annotated[StoragePrice | None, BeforeValidator(known_price)]

    def next_size(self, size: int) -> int | None:
        """The smallest size in bytes that it takes and that is not less than one; None if that is too large for it."""
        if not self.sizes:
            return max(size, self.min or 0)
        fitting = (sizes.next(size) for sizes in self.sizes)
        return next((found for found in fitting if found is not None), None)


@cache
def storage_services() -> Mapping[str, Mapping[str, StorageService]]:
    """The services of each cloud by name, the default of each mode first."""
    return read_rows("storage", dict[str, dict[str, StorageService]])


class CacheContainer(Row):
    """A container of a cache, without the cache itself: CPU in millicores, memory in bytes.

    Attributes:
        heap: heap of Java in bytes, part of the memory; 0 for other programs.
        direct: direct memory of Java in bytes, part of the memory; 0 without a bound.
    """

    cpu: Cpu
    memory: Bytes
    heap: Bytes = 0
    direct: Bytes = 0

    @property
    def amounts(self) -> Amounts:
        """CPU and memory."""
        return {CPU: self.cpu, MEMORY: self.memory}


class CachePods(Row):
    """Containers of each pod of a cache, by the key of the runtime's spec."""

    master: Mapping[str, CacheContainer] = {}
    worker: Mapping[str, CacheContainer]
    fuse: Mapping[str, CacheContainer]


class CacheStore(Row):
    """How a runtime mounts buckets of one kind.

    Attributes:
        mount: URL of the mount, with `{bucket}`, `{prefix}` and `{account}`.
        keyed: further options of the mount if a Secret is used.
        secret: key of the Secret, by the option that is read from it.
        identity: whether the pods can use the cloud identity of their ServiceAccount; else `why` not.
    """

    mount: str
    options: Mapping[str, str] = {}
    keyed: Mapping[str, str] = {}
    secret: Mapping[str, str]
    identity: bool
    why: str = ""


class CacheRow(Fact):
    """A runtime of Fluid, with its kind and API version.

    Attributes:
        media: where it can keep the cache.
        load: the pod that reads the dataset into the cache.
        architectures: of CPUs on which the images of its pods run.
        stores: by scheme of the bucket's URL.
    """

    kind: str
    api: str
    media: tuple[Medium, ...]
    pods: CachePods
    load: CacheContainer
    architectures: tuple[Architecture, ...]
    stores: Mapping[str, CacheStore]


@cache
def caches() -> Mapping[Runtime, CacheRow]:
    """The rows by runtime."""
    return read_rows("caches", dict[Runtime, CacheRow])
