"""What Pulumi's engine reports of one operation on a stack: changes, also by team, and errors."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from gpu_tenancy.deploy.states import TEAM
from gpu_tenancy.engine.recording import STACK_TYPE

Event: TypeAlias = Mapping[str, Any]
"""A line of `pulumi up --json`: https://pkg.go.dev/github.com/pulumi/pulumi/sdk/v3/go/common/apitype#EngineEvent."""

_POOLS: Final = frozenset(
    {"aws:eks/nodeGroup:NodeGroup", "gcp:container/nodePool:NodePool", "azure-native:containerservice:AgentPool"}
)
"""Types of node pools, on which nothing of other teams depends: `Cluster.system` in components/clouds."""
SAME: Final = "same"
"""The operation of the engine on a resource that does not change."""
_DESTROYS: Final = frozenset({"delete", "replace"})


class Seen:
    """Takes the events of one operation.

    Args:
        finished: called with the name of each team of which nothing is under way any more; maybe more than once.

    Attributes:
        changes: number of resources by operation of the engine, such as `create` and `same`.
        teams: the same of the resources of each team that change.
        destroyed: names of what is deleted or replaced.
    """

    def __init__(self, finished: Callable[[str], None]) -> None:
        self.changes: Mapping[str, int] = {}
        self.teams: dict[str, Counter[str]] = {}
        self.destroyed: list[str] = []
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
            self._begin(begun["metadata"])
        elif ended := event.get("resOutputsEvent") or event.get("resOpFailedEvent"):
            self._end(ended["metadata"], failed="resOpFailedEvent" in event)
        elif found := event.get("diagnosticEvent"):
            self._diagnose(found)
        elif summary := event.get("summaryEvent"):
            self.changes = summary["resourceChanges"]

    def _begin(self, step: Event) -> None:
        urn = str(step["urn"])
        self._parents[urn] = _resource(step).get("parent", "")
        if _is_custom(step):
            self._begun[self._team(urn)] += 1

    def _end(self, step: Event, *, failed: bool) -> None:
        urn, team = str(step["urn"]), self._team(str(step["urn"]))
        if step["type"] == TEAM:
            self._registered.add(team)
        if _is_custom(step):
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
        """The team of a resource; empty for what all teams share."""
        while urn and f"{TEAM}::" not in urn:
            urn = self._parents.get(urn, "")
        return urn.rpartition("::")[2]

    def _diagnose(self, found: Event) -> None:
        message, urn = str(found["message"]).strip(), str(found.get("urn") or "")
        _, _, name = urn.rpartition("::")
        if message:
            text = f"{name}: {message}" if name and STACK_TYPE not in urn else message
            self._diagnostics.setdefault(found["severity"], []).append(text)

    @property
    def only_pools(self) -> bool:
        """Whether node pools failed and nothing else."""
        return bool(self._failed) and self._failed <= _POOLS

    @property
    def errors(self) -> str:
        """The engine's errors; if there are none, what the program wrote to standard error."""
        return "\n".join(dict.fromkeys(self._diagnostics.get("error") or self._diagnostics.get("info#err") or ()))


def _resource(step: Event) -> Event:
    """A resource as it will be; if it is deleted, as it was."""
    resource: Event | None = step.get("new") or step.get("old")
    return resource or {}


def _is_custom(step: Event) -> bool:
    return bool(_resource(step).get("custom"))
