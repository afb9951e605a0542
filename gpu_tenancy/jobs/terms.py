"""What a namespace asks of its pods and gives them, and the claims that they can mount."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Group
from rich.text import Text

from gpu_tenancy.base.json import Json, list_at, maps_at, text_at
from gpu_tenancy.base.terminal import table
from gpu_tenancy.cluster.dry_run import created
from gpu_tenancy.cluster.pods import Manifest, ended, label, name_of
from gpu_tenancy.cluster.reading import State
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError
from gpu_tenancy.model.manifests.pods import rights
from gpu_tenancy.model.names import ACCOUNT, BUCKET
from gpu_tenancy.model.plan.guards import FACTS

_ENFORCED: Final = "pod-security.kubernetes.io/enforce"
_RESTRICTED: Final = "restricted"


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a namespace.

    Attributes:
        restricted: whether it rejects pods that may run as root.
        account: ServiceAccount of the team's workloads; None for the default of the namespace.
        priority: class of workloads that name none; empty where the guards of the cluster set it, if any.
        deadline: maximum run time in seconds of jobs that set none; None likewise.
    """

    restricted: bool = False
    account: str | None = None
    priority: str = ""
    deadline: int | None = None


def read_terms(cluster: Cluster, team: str, state: State, image: str) -> Terms:
    """The terms of a team's namespace.

    Whoever may not read the Namespace asks the API server with a dry run of a pod; guards set priority and deadline.

    Args:
        cluster: which.
        team: the namespace.
        state: with the kinds of `fit`.
        image: of the pod.

    Raises:
        UnreachableError: the cluster does not answer.
    """
    account = ACCOUNT if _has_account(cluster, team) else None
    found = next((space for space in state.of("Namespace") if name_of(space) == team), None)
    if found is None:
        return Terms(_refuses_root(cluster, team, image), account)
    deadline = text_at(found, "metadata", "annotations", f"{FACTS}default-deadline")
    return Terms(
        label(found, _ENFORCED) == _RESTRICTED,
        account,
        text_at(found, "metadata", "annotations", f"{FACTS}default-priority"),
        int(deadline) if deadline else None,
    )


def _has_account(cluster: Cluster, team: str) -> bool:
    try:
        return cluster.exists("v1", "ServiceAccount", ACCOUNT, team)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return False


def _refuses_root(cluster: Cluster, team: str, image: str) -> bool:
    """Whether Pod Security refuses a pod that has all that `restricted` wants, but may run as root."""
    container: Json = {"name": "train", "image": image, "securityContext": rights()}
    security: Json = {"seccompProfile": {"type": "RuntimeDefault"}}
    spec: Json = {"securityContext": security, "containers": [container]}
    metadata: Json = {"generateName": "train-", "namespace": team}
    try:
        created(cluster, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    except ApiError as error:
        return f'violates PodSecurity "{_RESTRICTED}' in error.message
    return False


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
