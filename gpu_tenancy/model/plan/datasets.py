"""Datasets: PersistentVolumes on object storage, one for each team that mounts it, and the caches of Fluid.

A cache is in a namespace of no team; the namespaces of teams have references to it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from gpu_tenancy.base.quantity import Amounts
from gpu_tenancy.model.catalogue.storage import CacheContainer, bucket_drivers, caches
from gpu_tenancy.model.plan import object_storage
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.identities import granted_here
from gpu_tenancy.model.plan.pools import NodeTaint
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec.clouds.azure import CLIENT_ID_OF
from gpu_tenancy.model.spec.clouds.base import CloudCluster
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.data import CACHES, Acceleration, Dataset, Scratch
from gpu_tenancy.model.spec.serving import MODEL_PATH
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.workloads import Server, Workload


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """A PersistentVolume on object storage, and the only claim that can bind it."""

    dataset: str
    team: str
    driver: str
    handle: str
    attributes: dict[str, str]
    mount_options: tuple[str, ...]
    writable: bool
    size: int
    bucket: str

    @property
    def name(self) -> str:
        """Name of the volume, with team and dataset because volumes are cluster-scoped."""
        return f"{self.team}-{self.dataset}"


def volumes(tree: Tree, team: str) -> tuple[VolumePlan, ...]:
    """A volume for each dataset that a team may mount; Fluid makes the volumes of datasets with a cache."""
    return tuple(
        _volume(tree.stack.cluster, name, dataset, team)
        for name, dataset in tree.stack.datasets.items()
        if dataset.is_of(team) and dataset.accelerate is None
    )


def _volume(cluster: Cluster, name: str, dataset: Dataset, team: str) -> VolumePlan:
    place, writes = object_storage.folder(dataset), dataset.writes(team)
    by_scheme: dict[str, dict[str, str]] = {
        "s3": {"bucketName": place.bucket},
        "gs": {},
        "az": {"containerName": place.bucket, "protocol": "fuse2", "storageAccount": place.account},
    }
    attributes = by_scheme[place.scheme]
    if isinstance(cluster, CloudCluster) and granted_here(cluster, dataset):
        attributes |= _identity(cluster.team_identity_name(team), dataset, place)
    return VolumePlan(
        dataset=name,
        team=team,
        driver=bucket_drivers()[place.scheme].name,
        # Handles are unique in the cluster; on GKE, the handle is the bucket.
        handle=place.bucket if place.scheme == "gs" else f"{team}-{name}",
        attributes=dict(sorted(attributes.items())),
        mount_options=_options(place, writable=writes),
        writable=writes,
        size=dataset.size,
        bucket=dataset.place if dataset.endpoint else dataset.bucket,
    )


def _identity(identity: str, dataset: Dataset, place: object_storage.Folder) -> dict[str, str]:
    """Attributes by which a driver reads with the identity of the pod, and not with one for the whole cluster.

    https://github.com/awslabs/mountpoint-s3-csi-driver/blob/main/docs/CONFIGURATION.md#pod-level-credentials,
    https://github.com/kubernetes-sigs/blob-csi-driver/blob/master/docs/workload-identity-static-pv-mount.md
    """
    match place.scheme:
        case "s3":
            return {"authenticationSource": "pod"}
        case "gs":
            # The driver's own check lists the whole bucket, which the identity may not; the mount checks its folder:
            # https://github.com/GoogleCloudPlatform/gcs-fuse-csi-driver/pull/268
            return {"skipCSIBucketAccessCheck": "true"} if place.prefix else {}
        case "az":
            account = (dataset.account or "").split("/")
            group = {"resourceGroup": account[4], "subscriptionID": account[2]} if dataset.account else {}
            return {**group, "clientID": f"{CLIENT_ID_OF}{identity}", "mountWithWorkloadIdentityToken": "true"}


def _options(place: object_storage.Folder, *, writable: bool) -> tuple[str, ...]:
    written, read, prefix = {
        "s3": (("allow-delete", "allow-other"), ("allow-other", "read-only"), f"prefix {place.prefix}/"),
        "gs": (("implicit-dirs",), ("implicit-dirs", "ro"), f"only-dir={place.prefix}"),
        "az": (("-o allow_other",), ("-o allow_other", "-o ro"), f"--subdirectory={place.prefix}"),
    }[place.scheme]
    # https://github.com/awslabs/mountpoint-s3/blob/main/doc/CONFIGURATION.md#endpoints-and-aws-privatelink
    style = ("force-path-style",) if object_storage.path_style(place.endpoint) else ()
    service = (f"endpoint-url {place.endpoint}", *style) if place.endpoint else ()
    return (*(written if writable else read), *((prefix,) if place.prefix else ()), *service)


STORAGE_GROUP: Final = 1000
"""Group of the root of a team's storage, so that users other than root can write. Its number has no meaning: pods of
the team have it besides the groups of their image."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A claim of the team in a container, at a path."""

    volume: str  # a short name, unique in the pod
    claim: str
    path: str
    read_only: bool
    cached: bool = False  # whether Fluid mounts it: running pods get a new mount after a failure


@dataclass(frozen=True, slots=True)
class Mounts:
    """Volumes of a pod, with scratch space on the node."""

    mounts: tuple[Mount, ...] = ()  # claims of datasets, then of the team's storage
    scratch: Scratch | None = None
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])  # of the pod, for the sidecars of datasets
    group: int | None = None  # group that can write the team's storage; None without storage
    model: tuple[str, str] | None = None  # image with the model of a server, and its path; None without


NO_MOUNTS: Final = Mounts()


def mounts_of(datasets: Mapping[str, Dataset], name: str, team: Team, workload: Workload) -> Mounts:
    """The mounts of a workload; names that do not exist are reported by `model.checks`."""
    model = workload.model if isinstance(workload, Server) else None
    of_model = {model.dataset, model.volume} if model else set[str | None]()
    from_buckets = [
        Mount(
            f"dataset-{index}",
            key,
            path,
            key in of_model or not dataset.writes(name),
            cached=dataset.accelerate is not None,
        )
        for index, (key, path) in enumerate(workload.datasets.items())
        if (dataset := datasets.get(key))
    ]
    storage = [
        Mount(f"storage-{index}", key, path, read_only=key in of_model)
        for index, (key, path) in enumerate(workload.volumes.items())
        if key in team.storage
    ]
    return Mounts(
        (*from_buckets, *storage),
        workload.scratch,
        object_storage.sidecars_of(datasets, team, workload).annotations,
        STORAGE_GROUP if storage else None,
        (model.image, MODEL_PATH) if model and model.image else None,
    )


ROOT: Final = "data"
"""Folder of an Alluxio cache with the dataset. Fluid writes the options of a mount at the root into a ConfigMap, with
paths in place of the values of Secrets, and copies it to the namespaces of teams:
https://github.com/fluid-cloudnative/fluid/blob/v1.0.8/pkg/ddc/alluxio/transform.go."""
CLAIM_SIZE: Final = "pvc.fluid.io/resources.requests.storage"
"""Annotation of a Dataset with the size of its claims. Without it, they request 100Pi:
https://github.com/fluid-cloudnative/fluid/blob/v1.0.8/pkg/utils/dataset.go."""


@dataclass(frozen=True, slots=True)
class CachePod:
    """A container of a cache's pods."""

    key: str  # of the runtime's spec, such as `jobWorker`
    amounts: Amounts  # requests and limits
    container: CacheContainer  # with heap and direct memory of Java


@dataclass(frozen=True, slots=True)
class CachePlan:
    """The cache of a dataset."""

    dataset: str  # name of all of Fluid's objects for it
    spec: Acceleration
    kind: str  # Fluid's kind of the runtime
    api: str
    mount: str  # URL of the cached data
    path: str  # path of the data in the cache
    mount_name: str  # of a JuiceFS cache, the file system
    options: Mapping[str, str]
    secret: Mapping[str, tuple[str, str]]  # name and key of the Secret by option of the mount
    node_labels: Mapping[str, str]  # labels of the nodes with the cache
    tolerated: tuple[NodeTaint, ...]
    replicas: int  # number of nodes with a part of the cache
    size: int  # bytes of the part of each node
    claim: int  # bytes of the claims
    writable: bool  # whether a team writes
    pods: tuple[CachePod, ...]
    load: tuple[str, Amounts] | None  # name and amounts of the pod that reads the dataset in advance; None without


@dataclass(frozen=True, slots=True)
class CachedDataset:
    """A team's reference to a cache, by URL: Fluid makes a volume and a claim of the same name, of a size in bytes."""

    dataset: str
    team: str
    api: str
    mount: str
    writable: bool
    size: int

    @property
    def access_mode(self) -> str:
        """Access mode of the claim."""
        return object_storage.access_mode(writable=self.writable)


def cache_plans(tree: Tree) -> tuple[CachePlan, ...]:
    """The caches of a stack, one for each dataset with `accelerate`."""
    return tuple(
        _cache(name, dataset, acceleration, flavor)
        for name, dataset, acceleration in object_storage.accelerated(tree.stack.datasets)
        if (flavor := tree.flavors.get(acceleration.flavor))
    )


def cached_datasets(tree: Tree, team: str) -> tuple[CachedDataset, ...]:
    """A team's references to the caches of its datasets."""
    return tuple(
        CachedDataset(
            name,
            team,
            caches()[acceleration.runtime].api,
            f"dataset://{CACHES}/{name}{_path(acceleration).removesuffix('/')}",
            dataset.writes(team),
            dataset.size,
        )
        for name, dataset, acceleration in object_storage.accelerated(tree.stack.datasets)
        if dataset.is_of(team)
    )


def node_label(dataset: str) -> str:
    """Label, with value `true`, of the nodes with a part of a cache.

    Fluid sets it: https://github.com/fluid-cloudnative/fluid/blob/v1.0.8/pkg/utils/label.go. A longer name gets an
    unknown ID of the Dataset; `model.checks.data` refuses it.
    """
    return f"fluid.io/s-{CACHES}-{dataset}"


def caches_of(datasets: Mapping[str, Dataset], flavor: str, workload: Workload) -> tuple[str, ...]:
    """Labels of the nodes of a flavor that have caches of the datasets of a workload."""
    return tuple(
        node_label(name)
        for name, _, acceleration in object_storage.accelerated(datasets)
        if name in workload.datasets and acceleration.flavor == flavor
    )


def _path(acceleration: Acceleration) -> str:
    return f"/{ROOT}" if acceleration.runtime == "alluxio" else "/"


def _cache(name: str, dataset: Dataset, acceleration: Acceleration, flavor: Flavor) -> CachePlan:
    row, store = caches()[acceleration.runtime], object_storage.store_of(dataset, acceleration)
    place, replicas = object_storage.folder(dataset), object_storage.replicas_of(acceleration, flavor.always)
    named = {"bucket": place.bucket, "prefix": place.prefix, "account": place.account}
    mount = store.mount.format(**named)
    secret = acceleration.secret
    keys = ("runtime", "flavor", "cache", "copies", "medium")
    style = str(object_storage.path_style(place.endpoint)).lower()
    service = {k: v.format(endpoint=place.endpoint, path_style=style) for k, v in store.endpoint.items()}
    service = service if place.endpoint else {}
    planned = {"mount": mount, **service, **{key: getattr(acceleration, key) for key in keys}}
    digest = sha256(repr(sorted(planned.items())).encode()).hexdigest()[:8]
    return CachePlan(
        dataset=name,
        spec=acceleration,
        kind=row.kind,
        api=row.api,
        mount=mount,
        path=_path(acceleration),
        mount_name=acceleration.filesystem or name if acceleration.runtime == "juicefs" else ROOT,
        options={**store.options, **service, **(store.keyed if secret else {})},
        secret={option.format(**named): (secret, key) for option, key in store.secret.items()} if secret else {},
        node_labels=flavor.node_labels,
        tolerated=flavor.taints,
        replicas=replicas,
        size=object_storage.share(acceleration, replicas),
        claim=dataset.size,
        writable=dataset.written,
        pods=tuple(_pods(acceleration, replicas)),
        # A new cache is empty, and a load runs once, so what makes a new cache makes a new load.
        load=(f"{name}-{digest}", row.load.amounts) if acceleration.warm else None,
    )


def _pods(acceleration: Acceleration, replicas: int) -> Iterator[CachePod]:
    for pod in ("master", "worker", "fuse"):
        of_cache = object_storage.pod_amounts(acceleration, pod, replicas)
        others = object_storage.containers(acceleration, pod)
        for key, container in others.items():
            amounts = dict(container.amounts)
            if key == "worker":  # The cache in memory is the first container's.
                rest = [other.amounts for name, other in others.items() if name != key]
                amounts = {resource: amount - sum(of[resource] for of in rest) for resource, amount in of_cache.items()}
            yield CachePod(key, amounts, container)
