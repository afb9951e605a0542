"""Caches of datasets: Fluid's objects in a namespace of no team, and references to them in the namespaces of teams."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Literal

from gpu_tenancy.base.quantity import Amounts
from gpu_tenancy.model.catalogue.storage import CacheContainer, caches
from gpu_tenancy.model.plan.cache_pods import accelerated, containers, pod_amounts, replicas_of, share, store_of
from gpu_tenancy.model.plan.pools import NodeTaint
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.sidecars import access_mode, folder
from gpu_tenancy.model.plan.supply import Flavor
from gpu_tenancy.model.spec.data import CACHES, Acceleration, Dataset, Medium, Runtime
from gpu_tenancy.model.spec.workloads import Workload

ROOT: Final = "data"
"""Folder of an Alluxio cache that has the dataset. Fluid writes the options of a mount at the root into a ConfigMap,
with paths in place of the values of Secrets, and copies it to the namespaces of teams:
https://github.com/fluid-cloudnative/fluid/blob/v1.0.8/pkg/ddc/alluxio/transform.go."""
CLAIM_SIZE: Final = "pvc.fluid.io/resources.requests.storage"
"""Annotation of a Dataset with the size of its claims. Without it, they request 100Pi:
https://github.com/fluid-cloudnative/fluid/blob/v1.0.8/pkg/utils/dataset.go."""


@dataclass(frozen=True, slots=True)
class CachePod:
    """A container of a cache's pods.

    Attributes:
        key: of the runtime's spec, such as `jobWorker`.
        amounts: CPU and memory, as request and limit.
        container: heap and direct memory of Java.
    """

    key: str
    amounts: Amounts
    container: CacheContainer


@dataclass(frozen=True, slots=True)
class CachePlan:
    """The cache of a dataset.

    Attributes:
        dataset: name of the dataset, which all of Fluid's objects have.
        kind: Fluid's kind of the runtime.
        api: API version of Fluid's objects.
        mount: URL of what is cached.
        path: where the cache has it.
        mount_name: name of the mount; of a JuiceFS cache, the file system.
        options: of the mount.
        secret: name and key of the Secret by option of the mount.
        node_labels: labels of the nodes that have the cache.
        tolerated: taints of those nodes.
        replicas: number of nodes with a part of the cache.
        copies: number of nodes with a copy of the same file.
        size: size of the part of each node in bytes.
        claim: size of the claims in bytes.
        writable: whether a team writes.
        pods: containers of all pods.
        load: name and amounts of the pod that reads the whole dataset; None if it is not read in advance.
    """

    dataset: str
    runtime: Runtime
    kind: str
    api: str
    mount: str
    path: str
    mount_name: str
    options: Mapping[str, str]
    secret: Mapping[str, tuple[str, str]]
    node_labels: Mapping[str, str]
    tolerated: tuple[NodeTaint, ...]
    replicas: int
    copies: int
    medium: Medium
    size: int
    claim: int
    writable: bool
    pods: tuple[CachePod, ...]
    load: tuple[str, Amounts] | None


@dataclass(frozen=True, slots=True)
class CachesPlan:
    """All caches of a stack.

    Attributes:
        namespace: theirs, which belongs to no team.
        labels: of the namespace.
        caches: one for each dataset with `accelerate`.
    """

    namespace: str
    labels: Mapping[str, str]
    caches: tuple[CachePlan, ...]


@dataclass(frozen=True, slots=True)
class CachedDataset:
    """A team's reference to a cache: Fluid makes a volume and a claim of the same name from it.

    Attributes:
        team: its namespace.
        mount: URL of the cache.
        size: of the claim in bytes.
    """

    dataset: str
    team: str
    api: str
    mount: str
    writable: bool
    size: int

    @property
    def access_mode(self) -> str:
        """Access mode of the claim."""
        return access_mode(writable=self.writable)


def caches_plan(tree: Tree) -> CachesPlan | None:
    """The caches of a stack; None without any."""
    planned = tuple(_caches(tree))
    if not planned:
        return None
    labels = {
        "app.kubernetes.io/part-of": "gpu-tenancy",
        "environment": tree.stack.environment,
        # Fluid's mounts are privileged, and its workers have volumes of the host.
        "pod-security.kubernetes.io/enforce": "privileged",
    }
    return CachesPlan(CACHES, labels, planned)


def cached_datasets(tree: Tree, team: str) -> tuple[CachedDataset, ...]:
    """A team's references to the caches of its datasets."""
    return tuple(
        CachedDataset(
            name,
            team,
            caches()[acceleration.runtime].api,
            _reference(name, acceleration),
            dataset.writes(team),
            dataset.size,
        )
        for name, dataset, acceleration in accelerated(tree.stack.datasets)
        if dataset.is_of(team)
    )


def node_label(dataset: str) -> str:
    """Label, with value `true`, of the nodes that have a part of a cache.

    Fluid sets it: https://github.com/fluid-cloudnative/fluid/blob/v1.0.8/pkg/utils/label.go. Names that are too long
    get an ID of the Dataset, which is not known here; `model.checks.data` refuses them.
    """
    return f"fluid.io/s-{CACHES}-{dataset}"


def caches_of(datasets: Mapping[str, Dataset], flavor: str, workload: Workload) -> tuple[str, ...]:
    """Labels of the nodes of a flavor that have caches of the datasets of a workload."""
    return tuple(
        node_label(name)
        for name, _, acceleration in accelerated(datasets)
        if name in workload.datasets and acceleration.flavor == flavor
    )


def _reference(name: str, acceleration: Acceleration) -> str:
    path = "" if _path(acceleration) == "/" else _path(acceleration)
    return f"dataset://{CACHES}/{name}{path}"


def _path(acceleration: Acceleration) -> str:
    return f"/{ROOT}" if acceleration.runtime == "alluxio" else "/"


def _caches(tree: Tree) -> Iterator[CachePlan]:
    for name, dataset, acceleration in accelerated(tree.stack.datasets):
        flavor = tree.flavors.get(acceleration.flavor)
        if flavor is not None:
            yield _cache(name, dataset, acceleration, flavor)


def _cache(name: str, dataset: Dataset, acceleration: Acceleration, flavor: Flavor) -> CachePlan:
    row, store, place = caches()[acceleration.runtime], store_of(dataset, acceleration), folder(dataset)
    replicas = replicas_of(acceleration, flavor.always)
    named = {"bucket": place.bucket, "prefix": place.prefix, "account": place.account}
    mount = store.mount.format(**named)
    secret = acceleration.secret
    planned: dict[str, Any] = {
        "runtime": acceleration.runtime,
        "mount": mount,
        "flavor": acceleration.flavor,
        "cache": acceleration.cache,
        "copies": acceleration.copies,
        "medium": acceleration.medium,
    }
    digest = sha256(repr(sorted(planned.items())).encode()).hexdigest()[:8]
    return CachePlan(
        dataset=name,
        runtime=acceleration.runtime,
        kind=row.kind,
        api=row.api,
        mount=mount,
        path=_path(acceleration),
        mount_name=acceleration.filesystem or name if acceleration.runtime == "juicefs" else ROOT,
        options={**store.options, **(store.keyed if secret else {})},
        secret={option.format(**named): (secret, key) for option, key in store.secret.items()} if secret else {},
        node_labels=flavor.node_labels,
        tolerated=flavor.taints,
        replicas=replicas,
        copies=acceleration.copies,
        medium=acceleration.medium,
        size=share(acceleration, replicas),
        claim=dataset.size,
        writable=dataset.written,
        pods=tuple(_pods(acceleration, replicas)),
        # A new cache is empty, and a load runs once, so what makes a new cache makes a new load.
        load=(f"{name}-{digest}", row.load.amounts) if acceleration.warm else None,
    )


def _pods(acceleration: Acceleration, replicas: int) -> Iterator[CachePod]:
    pods: tuple[Literal["master", "worker", "fuse"], ...] = ("master", "worker", "fuse")
    for pod in pods:
        of_cache = pod_amounts(acceleration, pod, replicas)
        others = containers(acceleration, pod)
        for key, container in others.items():
            amounts = dict(container.amounts)
            if key == "worker":  # The cache in memory is the first container's.
                rest = [other.amounts for name, other in others.items() if name != key]
                amounts = {resource: amount - sum(of[resource] for of in rest) for resource, amount in of_cache.items()}
            yield CachePod(key, amounts, container)
