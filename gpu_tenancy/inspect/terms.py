"""What a namespace asks of its pods and gives them, as far as a researcher may read it."""

from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.inspect.dry_run import created
from gpu_tenancy.inspect.pods import label, name_of
from gpu_tenancy.inspect.reading import State
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError
from gpu_tenancy.model.manifests.pods import rights
from gpu_tenancy.model.names import ACCOUNT
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
