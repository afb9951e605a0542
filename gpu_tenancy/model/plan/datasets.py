"""Datasets as PersistentVolumes on object storage, one for each team that mounts it."""

from dataclasses import dataclass

from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.sidecars import DRIVERS
from gpu_tenancy.model.spec.workloads import Dataset


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

    @property
    def name(self) -> str:
        """Name of the volume, with team and dataset because volumes are cluster-scoped."""
        return f"{self.team}-{self.dataset}"


def volumes(tree: Tree, team: str) -> tuple[VolumePlan, ...]:
    """A volume for each dataset that a team may mount."""
    return tuple(
        _volume(name, dataset, team)
        for name, dataset in tree.stack.datasets.items()
        if not dataset.teams or team in dataset.teams
    )


def _volume(name: str, dataset: Dataset, team: str) -> VolumePlan:
    scheme, _, rest = dataset.bucket.partition("://")
    first, _, prefix = rest.partition("/")
    if scheme == "az":
        container, _, prefix = prefix.partition("/")
        attributes = {"containerName": container, "protocol": "fuse2", "storageAccount": first}
    else:
        attributes = {"bucketName": first} if scheme == "s3" else {}
    return VolumePlan(
        dataset=name,
        team=team,
        driver=DRIVERS[scheme].name,
        # Handles are unique in the cluster; on GKE, the handle is the bucket.
        handle=first if scheme == "gs" else f"{team}-{name}",
        attributes=attributes,
        mount_options=_options(scheme, prefix, writable=dataset.writable),
        writable=dataset.writable,
        size=dataset.size,
    )


def _options(scheme: str, prefix: str, *, writable: bool) -> tuple[str, ...]:
    mode = {
        "s3": ("allow-delete", "allow-other") if writable else ("allow-other", "read-only"),
        "gs": ("implicit-dirs",) if writable else ("implicit-dirs", "ro"),
        "az": ("-o allow_other",) if writable else ("-o allow_other", "-o ro"),
    }[scheme]
    folder = {
        "s3": f"prefix {prefix.rstrip('/')}/",
        "gs": f"only-dir={prefix}",
        "az": f"--subdirectory={prefix}",
    }[scheme]
    return (*mode, folder) if prefix else mode
