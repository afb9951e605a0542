"""Datasets as PersistentVolumes on object storage, one for each team that mounts it."""

from dataclasses import dataclass

from gpu_tenancy.model.plan.buckets import Folder, folder
from gpu_tenancy.model.plan.identities import granted_here
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.sidecars import DRIVERS
from gpu_tenancy.model.spec.clouds.azure import CLIENT_ID_OF
from gpu_tenancy.model.spec.clouds.base import CloudCluster
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.data import Dataset


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
