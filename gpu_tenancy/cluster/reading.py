"""Lists objects of a running cluster, with the rights of the user; results of checks of a workload against them."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, map_at, maps_at, text_at
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.cluster.estimate import History
from gpu_tenancy.cluster.pods import label, name_of, namespace_of
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError, UnknownKindError, UnreachableError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import CONNECTIONS
from gpu_tenancy.model.yaml import read_table

if TYPE_CHECKING:
    from gpu_tenancy.cluster.bound import Breach

Kind = Literal[
    "AdmissionCheck", "ClusterQueue", "Cohort", "ConfigMap", "Dataset", "Event", "LimitRange", "LocalQueue",
    "Job", "Namespace", "Node", "Pod", "PersistentVolumeClaim", "PodGroup", "PriorityClass", "Queue", "ResourceFlavor",
    "ResourceQuota", "Secret", "StorageClass", "Workload", "ComputeDomain", "ResourceClaimTemplate",
    "WorkloadPriorityClass", "TrainingRuntime", "ClusterTrainingRuntime", "DeviceClass", "ResourceSlice", "Deployment",
    "NetworkPolicy", "RoleBinding", "Topology", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
]  # fmt: skip

NO_ROLE: Final = "check the name of the namespace, or ask the platform team for a role in it"
_FORBIDDEN_LIST: Final = re.compile(
    r'cannot list resource "([^"]+)" in API group "([^"]*)" (at the cluster scope|in the namespace "[^"]+")'
)


@dataclass(frozen=True, slots=True)
class _Source:
    api_version: str
    tells: str
    who: str  # key of `_WHO`
    namespaced: bool = False
    without_values: bool = False


_TABLE: Final[Any] = read_table(Path(__file__).with_name("reading.yaml"))
_WHO: Final[Mapping[str, str]] = _TABLE["who"]
_SOURCES: Final[Mapping[Kind, _Source]] = {
    kind: _Source(version, **row) for version, kinds in _TABLE["kinds"].items() for kind, row in kinds.items()
}


@dataclass(frozen=True, slots=True)
class Missing:
    """Objects of a kind that could not be read."""

    kind: Kind
    tells: str  # use of the kind
    why: str  # message of the API server
    who: str  # role that may read it; empty if the kind is not served
    partly: bool = False  # the team's namespace was read

    @property
    def kinds(self) -> str:
        """Plural of the kind."""
        return f"{self.kind}{'es' if self.kind.endswith('s') else 's'}"

    @property
    def text(self) -> str:
        """Message about an unreadable kind, with its use, and roles that may read it."""
        ask = f"; ask {self.who}" if self.who else ""
        return f"{self.kinds} not readable ({self.tells}): {self.why}{ask}"


Verdict = Literal["now", "later", "never", "unknown"]
"""`later`: something has to end or be released first. `unknown`: an object for the check is not readable."""

_SEVERITY: Final[tuple[Verdict, ...]] = ("now", "unknown", "later", "never")


class Check(Enum):
    """The checks of a workload; each value is a title."""

    CONTAINER_DEFAULTS = "container defaults"
    NAMESPACE_QUOTA = "namespace quota"
    QUEUE = "queue"
    VOLCANO_QUEUE = "Volcano queue"
    VOLUMES = "volumes"
    REFERENCES = "Secrets and ConfigMaps"
    CLAIMS = "claims of devices"
    NODES = "nodes"
    PRIORITY = "priority"
    API_SERVER = "API server"


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of one check."""

    check: Check
    verdict: Verdict
    lines: tuple[str, ...]  # the most important first
    name: str = ""  # queue or pod set; empty if there is only one

    @classmethod
    def of(cls, check: Check, results: Iterable[tuple[Verdict, str]]) -> Self:
        """Combines several results: the most severe verdict, and all texts, the texts of that verdict first."""
        found = tuple(results)
        verdict = worst(result for result, _ in found)
        return cls(check, verdict, tuple(text for _, text in sorted(found, key=lambda result: result[0] != verdict)))

    @property
    def about(self) -> str:
        """Title, such as `queue ml-research` or `nodes of worker`."""
        if not self.name:
            return self.check.value
        of = "" if self.check in {Check.QUEUE, Check.VOLCANO_QUEUE} else "of "
        return f"{self.check.value} {of}{self.name}"


def decisive(results: Iterable[tuple[Verdict, str]]) -> tuple[Verdict, tuple[str, ...]]:
    """The most severe verdict, and its texts."""
    found = tuple(results)
    verdict = worst(result for result, _ in found)
    return verdict, tuple(text for result, text in found if result == verdict)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The most severe verdict; `now` without verdicts."""
    return _SEVERITY[max((_SEVERITY.index(verdict) for verdict in verdicts), default=0)]


@dataclass(frozen=True, slots=True)
class State:
    """Objects of a cluster by kind, and durations of recorded jobs."""

    objects: Mapping[Kind, tuple[Manifest, ...]] = field(default_factory=dict["Kind", tuple[Manifest, ...]])
    missing: Mapping[Kind, Missing] = field(default_factory=dict["Kind", Missing])  # or partly read
    history: History = field(default_factory=History)
    breaches: tuple["Breach", ...] = ()  # see `bound`
    kubernetes: str = ""  # version of the API server, such as `v1.36.3`; empty if it was not read

    def of(self, kind: Kind, namespace: str = "") -> tuple[Manifest, ...]:
        """Objects of a kind, optionally of one namespace."""
        objects = self.objects.get(kind, ())
        return tuple(manifest for manifest in objects if namespace_of(manifest) == namespace) if namespace else objects

    def knows(self, kind: Kind) -> bool:
        """Whether all objects of a kind were read."""
        return kind not in self.missing

    def sees(self, kind: Kind) -> bool:
        """Whether the objects of a kind were read, at least in the team's namespace."""
        missing = self.missing.get(kind)
        return missing is None or missing.partly

    @property
    def has_kueue(self) -> bool:
        """Whether the cluster has Kueue, readable or not."""
        missing = self.missing.get("LocalQueue")
        return missing is None or bool(missing.who)

    def unknown(self, check: Check, kind: Kind, name: str = "") -> Answer:
        """Result of a check of a kind that could not be read."""
        return Answer(check, "unknown", (self.missing[kind].text,), name)

    def joined(self, other: "State") -> "State":
        """Merges two reads; kinds of `other` win."""
        return replace(self, objects={**self.objects, **other.objects}, missing={**self.missing, **other.missing})

    def refused(self, *kinds: Kind) -> tuple[Missing, ...]:
        """Kinds that the user may not read; excludes kinds that are not served."""
        return tuple(each for kind, each in self.missing.items() if each.who and (not kinds or kind in kinds))

    def unread(self, team: str, *kinds: Kind) -> tuple[Missing, ...]:
        """The same without kinds that were read of the team, if the answer is about one."""
        return tuple(missing for missing in self.refused(*kinds) if not (team and missing.partly))


_Read: TypeAlias = tuple[tuple[Manifest, ...], Missing | None]


def read(cluster: Cluster, kinds: Collection[Kind], namespace: str = "", *, only: Collection[Kind] = ()) -> State:
    """Lists several kinds at once; nodes include devices of DRA drivers.

    `kinds` are listed in the whole cluster if the user may, else in `namespace`; `only` are listed in `namespace`.
    Raises UnreachableError if the cluster does not answer, ApiError for a rejection other than a missing right.
    """
    wanted: list[Kind] = list(dict.fromkeys((*kinds, *only)))
    silent: list[UnreachableError] = []

    def ask(kind: Kind) -> _Read:
        if silent:  # The first requests waited long enough.
            raise silent[0]
        try:
            return _read(cluster, kind, namespace, alone=kind in only)
        except UnreachableError as error:
            silent.append(error)
            raise

    cluster.resource("v1", "Namespace")  # A server that does not answer is asked once, not by each thread.
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        tasks: dict[Kind, Future[_Read]] = {kind: pool.submit(ask, kind) for kind in wanted}
    results: dict[Kind, _Read] = {kind: task.result() for kind, task in tasks.items()}
    objects: dict[Kind, tuple[Manifest, ...]] = {kind: found for kind, (found, _) in results.items()}
    if objects.get("Node"):
        classes, _ = _read(cluster, "DeviceClass", "", alone=False)
        if any(text_at(item, "spec", "extendedResourceName") for item in classes):
            slices, _ = _read(cluster, "ResourceSlice", "", alone=False)
            objects["Node"] = with_devices(objects["Node"], classes, slices)
    unread: dict[Kind, Missing] = {kind: missing for kind, (_, missing) in results.items() if missing}
    return State(objects, unread)


def _read(cluster: Cluster, kind: Kind, namespace: str, *, alone: bool) -> _Read:
    source = _SOURCES[kind]
    within = namespace if alone and source.namespaced else ""
    try:
        if source.without_values:
            return cluster.rows(source.api_version, kind, namespace=within), None
        served = cluster.served(Reference(source.api_version, kind, ""))
        version = served.api_version if served else source.api_version
        found = cluster.list(version, kind, namespace=within)
        return found if version == source.api_version else tuple(current(item, kind) for item in found), None
    except UnknownKindError as error:
        return (), Missing(kind, source.tells, error.message, "")
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        if not source.namespaced or within or not namespace:
            return (), Missing(kind, source.tells, _without_user(error.message), _WHO[source.who])
        objects, missing = _read(cluster, kind, namespace, alone=True)
        return objects, missing or Missing(
            kind, f"{source.tells}, outside {namespace}", _without_user(error.message), _WHO["whole"], partly=True
        )


def _without_user(message: str) -> str:
    """Shortens the message for a missing right to list; other messages are unchanged."""
    match = _FORBIDDEN_LIST.search(message)
    if not match:
        return message
    resource, group, scope = match.groups()
    where = "in the whole cluster" if "cluster scope" in scope else scope.replace('"', "").replace("in the", "in")
    return f"you may not list {resource}{'.' if group else ''}{group} {where}"


def teams_of(state: State) -> list[str]:
    """Namespaces with a LocalQueue, or created by this program."""
    managed = "app.kubernetes.io/managed-by"
    made = [name_of(each) for each in state.of("Namespace") if label(each, managed) == "gpu-tenancy"]
    return sorted({*made, *(namespace_of(queue) for queue in state.of("LocalQueue"))})


def require_team(state: State, team: str, what: str, *kinds: Kind) -> None:
    """Raises ConsoleError if a namespace does not exist, or the user may not read any of `kinds` in it."""
    for missing in state.unread(team, *kinds) if team and kinds else ():
        raise ConsoleError(f"{what} of {team} are unknown: {missing.why}", NO_ROLE)
    known = teams_of(state)
    if team and state.knows("Namespace") and team not in {*known, *map(name_of, state.of("Namespace"))}:
        raise ConsoleError(f"namespace {team} not found", nearest(team, known) if known else "check its name")


_DRIVER: Final = re.compile(r"""device\.driver == ["']([^"']+)["']""")
_TYPE: Final = re.compile(r"""\.type == ["']([^"']+)["']""")


def with_devices(
    nodes: Sequence[Manifest], classes: Iterable[Manifest], slices: Iterable[Manifest]
) -> tuple[Manifest, ...]:
    """Adds devices that pods can request by name to allocatable resources of nodes, as a device plugin would.

    For a DeviceClass with `extendedResourceName`, the scheduler allocates devices to pods that request the resource;
    the kubelet does not report them, ResourceSlices do.
    https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#extended-resource
    Selectors must compare the driver and its attribute `type` with texts, as NVIDIA's do; other classes are ignored.
    """
    known: list[tuple[str, str, str]] = []
    for item in classes:
        resource = text_at(item, "spec", "extendedResourceName")
        text = " ".join(text_at(selector, "cel", "expression") for selector in maps_at(item, "spec", "selectors"))
        driver, kind = _DRIVER.search(text), _TYPE.search(text)
        if resource and driver:
            known.append((resource, driver[1], kind[1] if kind else ""))
    devices: dict[str, Counter[str]] = defaultdict(Counter)
    for item in slices:
        kinds = [text_at(device, "attributes", "type", "string") for device in maps_at(item, "spec", "devices")]
        for resource, driver, wanted in known:
            if text_at(item, "spec", "driver") == driver:
                count = sum(kind == wanted or not wanted for kind in kinds)
                devices[text_at(item, "spec", "nodeName")][resource] += count

    def offering(node: Manifest) -> Manifest:
        amounts = {name: str(count) for name, count in devices[name_of(node)].items()}
        allocatable: Json = {**map_at(node, "status", "allocatable"), **amounts}
        return {**node, "status": {**map_at(node, "status"), "allocatable": allocatable}} if amounts else node

    return tuple(map(offering, nodes))


_RENAMED: Final = {"ClusterQueue": ("cohort", "cohortName"), "Cohort": ("parent", "parentName")}  # v1beta2: new names
_MAY_STOP: Final = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}


def current(manifest: Manifest, kind: str) -> Manifest:
    """Converts an object of an earlier version of Kueue to v1beta2; other objects are unchanged.

    v1beta1: https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/apis/kueue/v1beta1 (`*_conversion.go`). Cohorts of
    v1alpha1 named their parent `parent`.
    """
    if kind not in _RENAMED:
        return manifest
    old, new = _RENAMED[kind]
    spec = map_at(manifest, "spec")
    if old in spec:
        spec.setdefault(new, spec.pop(old))
    if fungibility := map_at(spec, "flavorFungibility"):
        spec["flavorFungibility"] = {key: _MAY_STOP.get(str(value), value) for key, value in fungibility.items()}
    return {**manifest, "spec": spec}
