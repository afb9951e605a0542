"""Caches of datasets on the nodes of a flavor, made by Fluid."""

from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from gpu_tenancy.model.spec.base import Bytes, Name, Positive, Section, refuse

Runtime: TypeAlias = Literal["alluxio", "juicefs"]
Medium: TypeAlias = Literal["memory", "ssd"]

NAMESPACE: Final = "dataset-caches"
"""Namespace of all caches: of no team, because the pods that mount them are privileged."""


class Acceleration(Section):
    """A cache of a dataset, in front of its bucket."""

    runtime: Runtime = "alluxio"
    """`alluxio`: caches the objects of the bucket; pods on all nodes read from it. `juicefs`: an existing JuiceFS file
    system, whose data are in the bucket; each node that mounts it has a cache of its own."""
    cache: Annotated[Bytes, Field(gt=0)]
    """Size of the cache, such as 500Gi, divided evenly between its replicas. If the dataset is larger, what was read
    longest ago is removed."""
    flavor: Name
    """Flavor whose nodes have the cache. What it takes from them is subtracted from what teams share."""
    replicas: Positive | None = None
    """Number of nodes with a part of the cache; default: the nodes that the flavor's pools always have."""
    copies: Positive = 1
    """Number of nodes with a copy of the same file, such as all `replicas` for weights that each node reads locally.
    The cache must have room for all copies. JuiceFS has a copy on each node that reads a file."""
    medium: Medium = "memory"
    """`memory`: of the nodes. `ssd`: their ephemeral storage: local NVMe disks where the nodes use them, else the boot
    disk."""
    warm: bool = False
    """Whether the whole dataset is read into the cache once it is created."""
    secret: Name | None = None
    """Secret in the namespace `dataset-caches`, which you create, with the keys of the bucket, or with `metaurl`, the
    address of the metadata engine of JuiceFS. Default: the cloud identity of the namespace."""
    filesystem: Name | None = None
    """Name of the JuiceFS file system; default: the dataset's name."""

    @model_validator(mode="after")
    def _of_its_runtime(self) -> Self:
        if self.runtime == "juicefs":
            if self.secret is None:
                raise refuse(
                    "sets runtime: juicefs without secret, but JuiceFS needs the address of its metadata engine",
                    "create a Secret with key metaurl in namespace dataset-caches, and set secret to its name",
                )
            if self.medium == "memory":
                raise refuse(
                    "sets runtime: juicefs with medium: memory, but its workers and mounts share a cache on disk only",
                    "set medium: ssd",
                )
            if self.copies > 1:
                raise refuse(
                    "sets runtime: juicefs with copies, but each node that reads a file has a copy", "remove copies"
                )
        elif self.filesystem is not None:
            raise refuse("sets filesystem, which only runtime: juicefs has", "remove filesystem")
        return self
