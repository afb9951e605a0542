"""Resources in the states of Pulumi stacks, and the events of an operation: changes (also by team) and errors."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias, cast

from gpu_tenancy.base.json import Json, maps_at
from gpu_tenancy.engine.recording import SIGNATURE, STACK_TYPE
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.live import ApplyError, Failure, Live, foreign, survey
from gpu_tenancy.kube.references import Key, Reference
from gpu_tenancy.kube.request import CONNECTIONS

Entry: TypeAlias = Mapping[str, Any]  # a resource in the state of a Pulumi stack
State: TypeAlias = Mapping[str, Any]  # a deployment as `pulumi stack export` writes it, without the version around it
Mutable: TypeAlias = dict[str, Any]  # a resource in a new state
Event: TypeAlias = Mapping[str, Any]
"""A line of `pulumi up --json`: https://pkg.go.dev/github.com/pulumi/pulumi/sdk/v3/go/common/apitype#EngineEvent."""

ROOT: Final = STACK_TYPE  # type of the resource that represents a stack: its state begins with it
TEAM: Final = "gpu-tenancy:tenancy:Team"  # type of a team's component
_PROVIDER: Final = "pulumi:providers:"


def name_of(entry: Entry) -> str:
    """The name that the program gave a resource."""
    return str(entry["urn"]).rpartition("::")[2]


def plain(value: Any, *, hidden: bool = False) -> Any:
    """A value of a state without null fields, with secrets in clear text or hidden."""
    if isinstance(value, Mapping):
        known = cast("Mapping[str, Any]", value)
        if SIGNATURE in known:
            return "[secret]" if hidden else plain(json.loads(known["plaintext"]))
        return {key: plain(each, hidden=hidden) for key, each in known.items() if each is not None}
    if isinstance(value, list):
        return [plain(each, hidden=hidden) for each in cast("list[Any]", value)]
    return value


def is_scaffold(entry: Entry) -> bool:
    """Whether each stack has its own such resource: the stack, or a provider or read resource at its top."""
    at_top = f"::{ROOT}::" in str(entry.get("parent", ""))
    provided = at_top and (entry["type"].startswith(_PROVIDER) or bool(entry.get("external")))
    return provided or entry["type"] == ROOT


def is_real(entry: Entry) -> bool:
    """Whether a resource is an object of a cluster, a release or a resource of a cloud."""
    return bool(entry.get("custom")) and not (entry.get("external") or entry["type"].startswith(_PROVIDER))


def without_missing(entry: Entry, there: set[str]) -> Mutable:
    """A resource without references to resources that its state lacks: Pulumi refuses a state with them."""
    # The next deployment records them again if they are in the same stack. Fields with URNs:
    # https://pkg.go.dev/github.com/pulumi/pulumi/sdk/v3/go/common/apitype#ResourceV3.
    left = dict(entry)
    for field in ("dependencies", "replaceWith"):
        if left.get(field):
            left[field] = [urn for urn in left[field] if urn in there]
    if needed := left.get("propertyDependencies"):
        left["propertyDependencies"] = {
            key: [urn for urn in urns or () if urn in there] for key, urns in needed.items()
        }
    if left.get("deletedWith") and left["deletedWith"] not in there:
        del left["deletedWith"]
    return left


def root_of(entries: Iterable[Entry]) -> Entry | None:
    """The resource that represents the stack."""
    return next((one for one in entries if one["type"] == ROOT), None)


def outputs_of(state: State) -> dict[str, Any]:
    """The outputs of a stack, with secrets in clear text; empty if it was never deployed."""
    root = root_of(state.get("resources") or ())
    return plain(root.get("outputs") or {}) if root else {}


def exported_keys(exported: str) -> frozenset[Key]:
    """The objects in the output of `pulumi stack export`."""
    return keys(maps_at(cast("Mapping[str, Json]", json.loads(exported)), "deployment", "resources"))


def keys(resources: Iterable[Mapping[str, Any]]) -> frozenset[Key]:
    """The objects among the resources of a state."""
    return frozenset(Reference.of(one["inputs"]).key for one in resources if is_object(one))


def is_object(resource: Mapping[str, Any]) -> bool:
    """Whether a resource of a state is one object of Kubernetes, and not a provider, a release or a component."""
    return str(resource["type"]).startswith("kubernetes:") and "kind" in (resource.get("inputs") or {})


def leftovers(
    cluster: Cluster, objects: Sequence[Reference], known: frozenset[Key], adopt: Collection[str], mark: str
) -> dict[Reference, Live]:
    """Existing objects of earlier runs that the state lacks; raises ApplyError for foreign and unreadable objects.

    `adopt` names objects of others that the stack takes over; `mark` is its `gpu_tenancy.model.names.deployed_by`.
    """
    unknown = [reference for reference in objects if reference.key not in known]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        existing = survey(cluster, pool, unknown)
    created: dict[Reference, Live] = {}
    failures: list[Failure] = []
    for reference in unknown:
        live = existing[reference]
        if isinstance(live, Failure):
            failures.append(live)
        elif live and live.deployed_by == mark:
            created[reference] = live
        elif live and reference.adoptable not in adopt:
            failures.append(Failure(reference, foreign(reference, live)))
    if failures:
        raise ApplyError(failures, ())
    return created


_POOLS: Final = frozenset(
    {"aws:eks/nodeGroup:NodeGroup", "gcp:container/nodePool:NodePool", "azure-native:containerservice:AgentPool"}
)
"""Types of node pools, on which nothing of other teams depends: `Cluster.system` in components/clouds."""
SAME: Final = "same"  # the operation of the engine on a resource that does not change
_DESTROYS: Final = frozenset({"delete", "replace"})


class Seen:
    """Takes the events of one operation; calls `finished`, maybe again, with a team without operations under way."""

    def __init__(self, finished: Callable[[str], None]) -> None:
        self.changes: Mapping[str, int] = {}  # numbers of resources by the engine's operation (`create`, `same`)
        self.teams: dict[str, Counter[str]] = {}  # numbers of each team's changed resources
        self.destroyed: list[str] = []  # names of deleted and replaced resources
        self._finished = finished
        self._parents: dict[str, str] = {}
        self._begun: Counter[str] = Counter()
        self._registered: set[str] = set()
        self._failed: set[str] = set()
        self._diagnostics: dict[str, list[str]] = {}

    @property
    def changed(self) -> bool:
        """Whether the operation did anything; a stack that is new did."""
        return {*self.changes} != {SAME}

    def __call__(self, event: Event) -> None:
        """Takes one event."""
        if begun := event.get("resourcePreEvent"):
            step = begun["metadata"]
            urn = str(step["urn"])
            self._parents[urn] = _resource(step).get("parent", "")
            if _resource(step).get("custom"):
                self._begun[self._team(urn)] += 1
        elif ended := event.get("resOutputsEvent") or event.get("resOpFailedEvent"):
            self._end(ended["metadata"], failed="resOpFailedEvent" in event)
        elif found := event.get("diagnosticEvent"):
            message, urn = str(found["message"]).strip(), str(found.get("urn") or "")
            name = urn.rpartition("::")[2]
            if message:
                text = f"{name}: {message}" if name and STACK_TYPE not in urn else message
                self._diagnostics.setdefault(found["severity"], []).append(text)
        elif summary := event.get("summaryEvent"):
            self.changes = summary["resourceChanges"]

    def _end(self, step: Event, *, failed: bool) -> None:
        urn, team = str(step["urn"]), self._team(str(step["urn"]))
        if step["type"] == TEAM:
            self._registered.add(team)
        if _resource(step).get("custom"):
            self._begun[team] -= 1
            if failed:
                self._failed.add(step["type"])
            elif step["op"] != SAME:
                self.teams.setdefault(team, Counter())[step["op"]] += 1
            if step["op"] in _DESTROYS:
                self.destroyed.append(f"{step['type'].rpartition(':')[2]} {urn.rpartition('::')[2]}")
        if team in self._registered and not self._begun[team]:
            self._finished(team)

    def _team(self, urn: str) -> str:
        while urn and f"{TEAM}::" not in urn:
            urn = self._parents.get(urn, "")
        return urn.rpartition("::")[2]

    @property
    def only_pools(self) -> bool:
        """Whether node pools failed and nothing else."""
        return bool(self._failed) and self._failed <= _POOLS

    @property
    def errors(self) -> str:
        """The engine's errors; if there are none, the program's standard error."""
        return "\n".join(dict.fromkeys(self._diagnostics.get("error") or self._diagnostics.get("info#err") or ()))


def _resource(step: Event) -> Event:
    """A resource as it will be; if it is deleted, as it was."""
    resource: Event | None = step.get("new") or step.get("old")
    return resource or {}
