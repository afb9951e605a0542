"""The objects of a running cluster that the questions are about, read with whatever rights the user has."""

import re
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Literal

from gpu_tenancy.console.cluster.client import Cluster, Manifest
from gpu_tenancy.console.cluster.errors import ApiError, UnknownKindError
from gpu_tenancy.console.cluster.request import CONNECTIONS
from gpu_tenancy.console.live.pods import called, home, label
from gpu_tenancy.console.summary import KUEUE

Kind = Literal[
    "AdmissionCheck", "ClusterQueue", "Cohort", "Event", "LimitRange", "LocalQueue", "Namespace", "Node", "Pod",
    "PersistentVolumeClaim", "PodGroup", "PriorityClass", "Queue", "ResourceFlavor", "ResourceQuota", "Workload",
    "WorkloadPriorityClass",
]  # fmt: skip

VOLCANO: Final = "scheduling.volcano.sh/v1beta1"

_ADMIN: Final = "whoever has Kueue's kueue-batch-admin-role"
_TENANT: Final = "whoever has Kueue's kueue-batch-user-role"
_VIEW: Final = "whoever has the role view in the namespace"
_WHOLE: Final = "whoever may read it in the whole cluster"
_FORBIDDEN: Final = 403
_RIGHTS: Final = re.compile(
    r'cannot list resource "([^"]+)" in API group "([^"]*)" (at the cluster scope|in the namespace "[^"]+")'
)
"""How an API server says that a user lacks a right."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where objects of a kind are, which numbers come from them, and who may usually read them.

    Of Kueue's roles: https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/config/components/rbac
    """

    api_version: str
    tells: str
    who: str
    namespaced: bool = False


_SOURCES: Final[Mapping[Kind, _Source]] = {
    "AdmissionCheck": _Source(KUEUE, "what else holds what has quota", _ADMIN),
    "ClusterQueue": _Source(KUEUE, "guaranteed, limit, and what other teams borrow", _ADMIN),
    "Cohort": _Source(KUEUE, "what groups have beyond their teams", _ADMIN),
    "ResourceFlavor": _Source(KUEUE, "which nodes a flavor means", _ADMIN),
    "WorkloadPriorityClass": _Source(KUEUE, "priorities in the queue", _ADMIN),
    "LocalQueue": _Source(KUEUE, "which queue a team has, and what it uses of it", _TENANT, namespaced=True),
    "Workload": _Source(KUEUE, "what waits in the queues", _TENANT, namespaced=True),
    "Queue": _Source(VOLCANO, "guaranteed and limit of gangs", _WHOLE),
    "PodGroup": _Source(VOLCANO, "which gangs wait", _VIEW, namespaced=True),
    "Namespace": _Source("v1", "which namespaces are teams", _WHOLE),
    "Node": _Source("v1", "which nodes have room", _WHOLE),
    "PriorityClass": _Source("scheduling.k8s.io/v1", "priorities of pods", _WHOLE),
    "Pod": _Source("v1", "what runs, and on which nodes", _VIEW, namespaced=True),
    "ResourceQuota": _Source("v1", "the namespace's quota", _VIEW, namespaced=True),
    "LimitRange": _Source("v1", "container bounds", _VIEW, namespaced=True),
    "PersistentVolumeClaim": _Source("v1", "whether volumes are there", _VIEW, namespaced=True),
    "Event": _Source("v1", "what controllers said", _VIEW, namespaced=True),
}


@dataclass(frozen=True, slots=True)
class Missing:
    """Numbers that cannot be told, why, and who could tell them.

    Attributes:
        kind: of the objects that were not read, or not all of them.
        tells: which numbers come from them.
        why: the API server's words, or that it serves no such kind.
        who: who may usually read them; empty where nobody could.
        partly: whether those of the team's own namespace were read.
    """

    kind: Kind
    tells: str
    why: str
    who: str
    partly: bool = False

    def __str__(self) -> str:
        mend = f"; {self.who} sees it" if self.who else ""
        return f"{self.kind}{'es' if self.kind.endswith('s') else 's'}: {self.tells}: {self.why}{mend}"


@dataclass(frozen=True, slots=True)
class State:
    """What was read of a cluster.

    Attributes:
        objects: by kind; a kind that could not be read has none.
        missing: what could not be read; a kind of which only one namespace was read is in both.
    """

    objects: Mapping[Kind, tuple[Manifest, ...]] = field(default_factory=dict["Kind", tuple[Manifest, ...]])
    missing: Mapping[Kind, Missing] = field(default_factory=dict["Kind", Missing])

    def of(self, kind: Kind, namespace: str = "") -> tuple[Manifest, ...]:
        """Objects of a kind, of one namespace or of all that were read."""
        found = self.objects.get(kind, ())
        return tuple(each for each in found if home(each) == namespace) if namespace else found

    def knows(self, kind: Kind) -> bool:
        """Whether the objects of a kind are all there."""
        return kind not in self.missing

    def refused(self, *kinds: Kind) -> tuple[Missing, ...]:
        """What the user may not read; an operator that is not installed is no refusal."""
        return tuple(each for kind, each in self.missing.items() if each.who and (not kinds or kind in kinds))


def read(cluster: Cluster, kinds: Collection[Kind], namespace: str = "", *, only: Collection[Kind] = ()) -> State:
    """Reads objects, several kinds at once.

    Args:
        cluster: which.
        kinds: what is wanted, in the whole cluster where the user may.
        namespace: the team's; where the whole cluster is refused, only this one is read.
        only: kinds that are wanted of that namespace alone.

    Raises:
        UnreachableError: the cluster does not answer.
        ApiError: it refuses for another reason than the user's rights.
    """
    wanted: list[Kind] = list(dict.fromkeys((*kinds, *only)))
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        tasks: dict[Kind, Future[tuple[tuple[Manifest, ...], Missing | None]]] = {
            kind: pool.submit(_read, cluster, kind, namespace, alone=kind in only) for kind in wanted
        }
    objects, missing = dict[Kind, tuple[Manifest, ...]](), dict[Kind, Missing]()
    for kind, task in tasks.items():
        objects[kind], lacking = task.result()
        if lacking:
            missing[kind] = lacking
    return State(objects, missing)


def _read(cluster: Cluster, kind: Kind, namespace: str, *, alone: bool) -> tuple[tuple[Manifest, ...], Missing | None]:
    source = _SOURCES[kind]
    within = namespace if alone and source.namespaced else ""
    try:
        return cluster.list(source.api_version, kind, namespace=within), None
    except UnknownKindError as error:
        return (), Missing(kind, source.tells, error.message, "")
    except ApiError as error:
        if error.status != _FORBIDDEN:
            raise
        if not source.namespaced or within or not namespace:
            return (), Missing(kind, source.tells, _short(error), source.who)
        objects, missing = _read(cluster, kind, namespace, alone=True)
        return objects, missing or Missing(
            kind, f"{source.tells} beyond {namespace}", _short(error), _WHOLE, partly=True
        )


def _short(error: ApiError) -> str:
    """The server's words with the user's own name left out; as they are where they are others."""
    found = _RIGHTS.search(error.message)
    if not found:
        return error.message
    resource, group, place = found.groups()
    where = "in the whole cluster" if "cluster scope" in place else place.replace('"', "").replace("in the", "in")
    return f"you may not list {resource}{'.' if group else ''}{group} {where}"


def teams_of(state: State) -> list[str]:
    """Namespaces that have a queue, or that this program made."""
    made = [
        called(each) for each in state.of("Namespace") if label(each, "app.kubernetes.io/managed-by") == "gpu-tenancy"
    ]
    return sorted({*made, *_homes(state.of("LocalQueue"))})


def _homes(objects: Iterable[Manifest]) -> set[str]:
    return {home(each) for each in objects}
