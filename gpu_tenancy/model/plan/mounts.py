"""What the pods of a workload mount: datasets and storage of the team, and scratch space on the node."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_tenancy.model.plan.sidecars import sidecars_of
from gpu_tenancy.model.spec.data import Dataset, Scratch
from gpu_tenancy.model.spec.serving import MODEL_PATH
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.workloads import Server, Workload

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
