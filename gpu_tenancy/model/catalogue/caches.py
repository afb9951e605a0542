"""What Fluid's caches of datasets need and can, from `caches.yaml`."""

from collections.abc import Mapping
from functools import cache

from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts
from gpu_tenancy.model.catalogue.rows import Architecture, Fact, Row, read_rows
from gpu_tenancy.model.fields import Bytes, Cpu
from gpu_tenancy.model.spec.data import Medium, Runtime


class CacheContainer(Row):
    """A container of a cache, without the cache itself.

    Attributes:
        cpu: in millicores.
        memory: in bytes, with the heap and direct memory.
        heap: heap of Java in bytes; 0 for other programs.
        direct: direct memory of Java in bytes; 0 without a bound.
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
        options: of the mount.
        keyed: further options if a Secret is used.
        secret: key of the Secret, by the option that is read from it.
        identity: whether the pods can use the cloud identity of their ServiceAccount.
        why: why they cannot.
    """

    mount: str
    options: Mapping[str, str] = {}
    keyed: Mapping[str, str] = {}
    secret: Mapping[str, str]
    identity: bool
    why: str = ""


class CacheRow(Fact):
    """A runtime of Fluid.

    Attributes:
        kind: Fluid's kind.
        api: its API version.
        media: where it can keep the cache.
        pods: what it runs.
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
