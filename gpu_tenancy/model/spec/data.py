"""Data of teams: datasets on object storage, storage of their own, and scratch space of pods."""

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, StringConstraints

from gpu_tenancy.model.fields import PORT, Bytes, Name, Positive, Section, Shorthand, refuse
from gpu_tenancy.model.spec.clouds.aws import KeyArn

MountPath: TypeAlias = Annotated[str, Field(pattern=r"^(/[\w.-]+)+$")]
"""An absolute path in a container."""

Scheme: TypeAlias = Literal["s3", "gs", "az"]
CLOUD_OF: Final[dict[Scheme, str]] = {"s3": "aws", "gs": "gcp", "az": "azure"}
"""The cloud of a bucket by the scheme of its URL."""

AccountId: TypeAlias = Annotated[
    str,
    StringConstraints(
        pattern=r"^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Storage/storageAccounts/[a-z0-9]{3,24}$"
    ),
]

Runtime: TypeAlias = Literal["alluxio", "juicefs"]
Medium: TypeAlias = Literal["memory", "ssd"]

CACHES: Final = "dataset-caches"
"""Namespace of all caches: of no team, because the pods that mount them are privileged."""


class Acceleration(Section):
    """A cache of a dataset, in front of its bucket."""

    runtime: Runtime = "alluxio"
    """`alluxio`: caches the objects of the bucket; pods on all nodes read from it. `juicefs`: an existing JuiceFS file
    system with its data in the bucket; each node that mounts it has a cache of its own."""
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

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if self.runtime != "juicefs":
            if self.filesystem is not None:
                yield "sets filesystem, which only runtime: juicefs has", "remove filesystem"
            return
        if self.secret is None:
            rule = "sets runtime: juicefs without secret, but JuiceFS needs the address of its metadata engine"
            yield rule, "create a Secret with key metaurl in namespace dataset-caches, and set secret to its name"
        if self.medium == "memory":
            rule = "sets runtime: juicefs with medium: memory, but its workers and mounts share a cache on disk only"
            yield rule, "set medium: ssd"
        if self.copies > 1:
            yield "sets runtime: juicefs with copies, but each node that reads a file has a copy", "remove copies"


class Dataset(Section):
    """Files in object storage, mounted with the cloud's CSI driver.

    In a created cluster, each team's pods get a cloud identity with rights on the team's datasets alone. In other
    clusters, the report lists the rights that somebody must grant.
    """

    bucket: str = Field(pattern=r"^((s3|gs)://[a-z0-9][-a-z0-9._]*|az://[a-z0-9]+/[a-z0-9][-a-z0-9]*)(/[-\w.=+/]*)?$")
    """URL of the bucket: `s3://bucket[/prefix]`, `gs://bucket[/prefix]` or `az://account/container[/prefix]`."""
    teams: list[Name] = []
    """Teams that get a PersistentVolumeClaim with the dataset's name; default: all."""
    writable: bool = False
    """Whether all of its teams can write; default: read-only."""
    writers: list[Name] = []
    """Teams that can write, in place of `writable`; the others read."""
    size: Annotated[Bytes, Field(gt=0)] = 2**30
    """Size of the claim, counted in the team's storage budget; object storage itself has no size."""
    create: bool = False
    """Whether the bucket, on Azure also the storage account, is created: private, encrypted and versioned, and kept
    when the stack is destroyed."""
    account: AccountId | None = None
    """Resource ID of the storage account of an `az://` bucket; default: in the cluster's resource group."""
    endpoint: Annotated[str, Field(pattern=r"^https?://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]+)?$"), PORT] | None = None
    """URL of another service with the API of S3 that has the `s3://` bucket, such as `https://minio.example.com:9000`;
    default: Amazon S3. Nodes read it: with the keys that the CSI driver has, or `accelerate.secret` of a cache."""
    key: KeyArn | None = None
    """ARN of the KMS key that encrypts an `s3://` bucket, which its teams then may use; default: S3's own key."""

    accelerate: Acceleration | None = None
    """Cache of the dataset on nodes of the cluster, made by Fluid, which teams then mount in place of the bucket."""

    @property
    def scheme(self) -> Scheme:
        """Scheme of the bucket's URL."""
        scheme = self.bucket.partition("://")[0]
        return "s3" if scheme == "s3" else "gs" if scheme == "gs" else "az"

    def is_of(self, team: str) -> bool:
        """Whether a team has a claim of it."""
        return not self.teams or team in self.teams

    @property
    def written(self) -> bool:
        """Whether any team can write."""
        return self.writable or bool(self.writers)

    def writes(self, team: str) -> bool:
        """Whether a team can write."""
        return self.is_of(team) and (self.writable or team in self.writers)

    @property
    def place(self) -> str:
        """The bucket's URL, with the service that has it if that is not the scheme's cloud."""
        return self.bucket.rstrip("/") + (f" at {self.endpoint}" if self.endpoint else "")

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if self.endpoint:
            juicefs = self.accelerate and self.accelerate.runtime == "juicefs"
            reasons = {
                f"for a bucket on {self.scheme}://": self.scheme != "s3",
                "and create, which makes a bucket on Amazon S3": self.create,
                "and key, which is of Amazon's KMS": self.key,
                "for a cache of JuiceFS, whose metadata engine has its bucket": juicefs,
            }
            if reason := next((reason for reason, applies in reasons.items() if applies), None):
                yield f"sets endpoint {reason}", "remove endpoint"
        if self.writable and self.writers:
            yield "sets writable and writers", "remove writable if only some teams write, or remove writers"
        for team in self.writers:
            if not self.is_of(team):
                yield f"lists {team} under writers, but not under teams", f"add {team} under teams"
        account = self.account.rpartition("/")[2] if self.account else None
        if account and self.scheme != "az":
            yield f"sets account for a bucket on {self.scheme}://", "remove account"
        elif account and account != self.bucket.split("/")[2]:
            yield f"has account {account}, which is not that of bucket", "change it"
        if self.key is not None and self.scheme != "s3":
            rule = f"sets key for a bucket on {self.scheme}://, which decrypts without a right of the reader"
            yield rule, "remove key"


DatasetEntry: TypeAlias = Annotated[Dataset, Shorthand(str, ("bucket",))]

StorageMode: TypeAlias = Literal["one-node", "shared"]

_CRON_PART: Final = re.compile(r"(?:\*|(\d{1,2})(?:-(\d{1,2}))?)(?:/([1-9]\d?))?")
_CRON_FIELDS: Final = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 6))


def _cron(text: str) -> str:
    """The fields that the CronJob controller reads: https://pkg.go.dev/github.com/robfig/cron/v3."""
    fields = text.split()
    if len(fields) != len(_CRON_FIELDS):
        raise refuse("is not a schedule", "set minute, hour, day, month and weekday, such as '0 3 * * *'")
    for field, (name, first, last) in zip(fields, _CRON_FIELDS, strict=True):
        for part in field.split(","):
            match = _CRON_PART.fullmatch(part)
            numbers = [int(number) for number in match.groups()[:2] if number] if match else [-1]
            if not all(first <= number <= last for number in numbers) or numbers != sorted(numbers):
                fix = f"set *, or numbers, ranges and steps from {first} to {last}, such as */6"
                raise refuse(f"has {part} as {name}", fix)
    return text


Schedule: TypeAlias = Annotated[str, AfterValidator(_cron)]
"""A schedule of cron with five fields."""

SNAPSHOT_GROUP: Final = "snapshot.storage.k8s.io"
"""API group of VolumeSnapshots."""
SNAPSHOTS: Final = "volume-snapshots"
"""Namespace of the CronJobs that take snapshots, which belongs to no team."""


class Snapshots(Section):
    """VolumeSnapshots of a claim, which a CronJob in the namespace `volume-snapshots` takes."""

    schedule: Schedule
    """When, in UTC, as five fields of cron: `0 3 * * *` is every night at 3:00."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 7
    """How many complete snapshots stay. Older ones are deleted, with what the cloud stores of them."""
    kind: Name | None = Field(default=None, alias="class")
    """Existing VolumeSnapshotClass, for a StorageClass that is not made here; default: one is made for the driver."""


SnapshotsEntry: TypeAlias = Annotated[Snapshots, Shorthand(str, ("schedule",))]


class Storage(Section):
    """A PersistentVolumeClaim of a team, for checkpoints and results."""

    size: Annotated[Bytes, Field(gt=0)]
    """Size of the claim, counted in the team's storage budget."""
    mode: StorageMode = "one-node"
    """`one-node`: a disk, for one pod at a time (ReadWriteOnce). `shared`: a file system for pods on any number of
    nodes (ReadWriteMany)."""
    kind: str | None = Field(default=None, alias="class")
    """Service of the cloud, such as `gp3`, of a cluster that is created here; default: the first of its mode in the
    table of docs/data.md."""
    storage_class: Name | None = None
    """Existing StorageClass, in place of one that is made here; default in an existing cluster: its default class."""
    keep: bool = True
    """Whether the volume and its snapshots stay when the claim or the team is removed. For an existing StorageClass,
    its `reclaimPolicy` decides."""
    snapshots: SnapshotsEntry | None = None
    """Snapshots of the volume on a schedule; default: none."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if self.kind is not None and self.storage_class is not None:
            yield "sets class and storageClass", "remove one of them"
        if not self.keep and self.storage_class is not None:
            yield f"sets keep, which the reclaimPolicy of {self.storage_class} decides", "remove keep, or storageClass"


class Scratch(Section):
    """Temporary space of a pod on its node: on local NVMe disks where the node's pods have them, else the boot disk."""

    size: Annotated[Bytes, Field(gt=0)]
    """Size, such as 500Gi; the pod is evicted if it writes more."""
    path: MountPath = "/scratch"
    """Where the container has it."""


ScratchEntry: TypeAlias = Annotated[Scratch, Shorthand(str, ("size",))]
