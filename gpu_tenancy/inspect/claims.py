"""The claims that jobs of a team can mount: its datasets and its storage."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Group
from rich.text import Text

from gpu_tenancy.base.json import list_at, maps_at, text_at
from gpu_tenancy.base.terminal import table
from gpu_tenancy.inspect.pods import Manifest, ended, name_of
from gpu_tenancy.model.names import BUCKET

_ACCESS: Final = {
    "ReadOnlyMany": "read",
    "ReadWriteMany": "read and write",
    "ReadWriteOnce": "one node",
    "ReadWriteOncePod": "one pod",
}
"""https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes"""


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A PersistentVolumeClaim.

    Attributes:
        bucket: URL of the dataset's bucket; empty without one.
        access: what its pods can do, or how many can mount it: `read`, `read and write`, `one node`, `one pod`.
        size: what it has once it is bound, else what it requests, as Kubernetes writes it.
        state: such as `Bound` or `Pending`.
        pods: those that mount it and have not ended.
    """

    name: str
    bucket: str
    access: str
    size: str
    state: str
    pods: tuple[str, ...] = ()


def claims(found: Iterable[Manifest], pods: Iterable[Manifest]) -> tuple[ClaimRow, ...]:
    """The claims of a namespace, datasets first.

    Args:
        found: its PersistentVolumeClaims.
        pods: its pods.
    """
    users: dict[str, list[str]] = {}
    for pod in pods:
        for claim in _mounted(pod):
            users.setdefault(claim, []).append(name_of(pod))
    rows = (_row(claim, tuple(users.get(name_of(claim), ()))) for claim in found)
    return tuple(sorted(rows, key=lambda row: (not row.bucket, row.name)))


def _mounted(pod: Manifest) -> Iterator[str]:
    volumes = () if ended(pod) else maps_at(pod, "spec", "volumes")
    yield from filter(None, (text_at(volume, "persistentVolumeClaim", "claimName") for volume in volumes))


def _row(claim: Manifest, pods: tuple[str, ...]) -> ClaimRow:
    modes = list_at(claim, "spec", "accessModes")
    has = text_at(claim, "status", "capacity", "storage")
    return ClaimRow(
        name_of(claim),
        text_at(claim, "metadata", "annotations", BUCKET),
        ", ".join(_ACCESS.get(mode, mode) for mode in modes),
        has or text_at(claim, "spec", "resources", "requests", "storage"),
        text_at(claim, "status", "phase"),
        pods,
    )


def shown(rows: tuple[ClaimRow, ...]) -> Group:
    """Output of `tenancy claims`."""
    listed = table("claim", "bucket", "access", "size#", "state", "pods#", drop=("state", "size"))
    for row in rows:
        # The size of a dataset's claim is a number for the quota only: a bucket has none.
        size = "" if row.bucket else row.size
        listed.add_row(row.name, row.bucket, row.access, size, row.state, str(len(row.pods) or ""))
    how = "mount one: `tenancy submit --mount CLAIM=PATH`, or `--mount` of `tenancy notebook start`"
    return Group(listed, Text(""), Text(how, style="dim")) if rows else Group(Text("no claims", style="bold"))


def data(rows: tuple[ClaimRow, ...]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [asdict(row) for row in rows]
