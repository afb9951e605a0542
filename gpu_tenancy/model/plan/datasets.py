"""Datasets as PersistentVolumes on object storage, one for each team that mounts it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_tenancy.model.plan.identities import granted_here
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.sidecars import DRIVERS, Folder, folder, sidecars_of
from gpu_tenancy.model.spec.clouds.azure import CLIENT_ID_OF
from gpu_tenancy.model.spec.clouds.base import CloudCluster
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.data import Dataset, Scratch
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
    """A volume for each dataset that a team may mount; Fluid makes those of datasets with a cache."""
    return tuple(
        _volume(tree.stack.cluster, name, dataset, team)
        for name, dataset in tree.stack.datasets.items()
        if dataset.is_of(team) and dataset.accelerate is None
    )


def _volume(cluster: Cluster, name: str, dataset: Dataset, team: str) -> VolumePlan:
    place, writes = folder(dataset), dataset.writes(team)
    attributes = _attributes(place)
    if isinstance(cluster, CloudCluster) and granted_here(cluster, dataset):
        attributes |= _identity(cluster.team_identity_name(team), dataset, place)
    return VolumePlan(
        dataset=name,
        team=team,
        driver=DRIVERS[place.scheme].name,
        # Handles are unique in the cluster; on GKE, the handle is the bucket.
        handle=place.bucket if place.scheme == "gs" else f"{team}-{name}",
        attributes=dict(sorted(attributes.items())),
        mount_options=_options(place, writable=writes),
        writable=writes,
        size=dataset.size,
        bucket=dataset.bucket,
    )


def _attributes(place: Folder) -> dict[str, str]:
    match place.scheme:
        case "s3":
            return {"bucketName": place.bucket}
        case "gs":
            return {}
        case "az":
            return {"containerName": place.bucket, "protocol": "fuse2", "storageAccount": place.account}


def _identity(identity: str, dataset: Dataset, place: Folder) -> dict[str, str]:
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
            own = {"clientID": f"{CLIENT_ID_OF}{identity}", "mountWithWorkloadIdentityToken": "true"}
            return {**group, **own}


def _options(place: Folder, *, writable: bool) -> tuple[str, ...]:
    mode = {
        "s3": ("allow-delete", "allow-other") if writable else ("allow-other", "read-only"),
        "gs": ("implicit-dirs",) if writable else ("implicit-dirs", "ro"),
        "az": ("-o allow_other",) if writable else ("-o allow_other", "-o ro"),
    }[place.scheme]
    option = {
        "s3": f"prefix {place.prefix}/",
        "gs": f"only-dir={place.prefix}",
        "az": f"--subdirectory={place.prefix}",
    }[place.scheme]
    return (*mode, option) if place.prefix else mode


STORAGE_GROUP: Final = 1000
"""Group that the root of a team's storage is given to, so that users other than root can write. Its number has no
meaning: pods of the team have it besides the groups of their image."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A claim of the team in a container, at a path.

    Attributes:
        volume: its name in the pod: names of claims are too long for volumes, and could be those of others.
        cached: whether Fluid mounts it, which mounts it again in running pods after a failure.
    """

    volume: str
    claim: str
    path: str
    read_only: bool
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Mounts:
    """Volumes of a pod.

    Attributes:
        mounts: claims that the container mounts: first those of datasets, then those of the team's storage.
        scratch: temporary space on the node; None without.
        annotations: of the pod, for the sidecars of datasets.
        group: that can write the team's storage; None without storage.
        model: image with the model of a server, and its path; None without.
    """

    mounts: tuple[Mount, ...] = ()
    scratch: Scratch | None = None
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    group: int | None = None
    model: tuple[str, str] | None = None


NO_MOUNTS: Final = Mounts()


def is_model(workload: Workload, source: str) -> bool:
    """Whether a dataset or volume has the model of a server."""
    model = workload.model if isinstance(workload, Server) else None
    return model is not None and source in {model.dataset, model.volume}


def mounts_of(datasets: Mapping[str, Dataset], name: str, team: Team, workload: Workload) -> Mounts:
    """What a workload mounts; names that do not exist are reported by `model.checks`."""
    from_buckets = [
        Mount(
            f"dataset-{index}",
            key,
            path,
            is_model(workload, key) or not dataset.writes(name),
            cached=dataset.accelerate is not None,
        )
        for index, (key, path) in enumerate(workload.datasets.items())
        if (dataset := datasets.get(key))
    ]
    storage = [
        Mount(f"storage-{index}", key, path, read_only=is_model(workload, key))
        for index, (key, path) in enumerate(workload.volumes.items())
        if key in team.storage
    ]
    annotations = sidecars_of(datasets, team, workload).annotations
    image = workload.model.image if isinstance(workload, Server) and workload.model else None
    return Mounts(
        (*from_buckets, *storage),
        workload.scratch,
        annotations,
        STORAGE_GROUP if storage else None,
        (image, MODEL_PATH) if image else None,
    )
