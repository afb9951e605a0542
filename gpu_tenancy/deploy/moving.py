"""Moves of resources between the states of an environment's Pulumi stacks: nothing is created or deleted.

Pulumi's own `pulumi state move` gives a resource whose parent stays another URN, so that the next deployment would
replace it: https://www.pulumi.com/docs/iac/cli/commands/pulumi_state_move/. Here each stack has the components that its
resources need, and the URNs differ only in the name of the stack.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from gpu_tenancy.engine.wire import SIGNATURE
from gpu_tenancy.model.plan.parts import CLUSTER, OPERATORS, TENANCY, Part

Entry: TypeAlias = Mapping[str, Any]
"""A resource in the state of a Pulumi stack."""
StackOf: TypeAlias = Callable[[list[Entry]], str | None]
"""The name of the stack that has a resource, given it and the resources around it, the nearest first; None if the
stacks have no place for it, such as for a team that is removed."""

ROOT: Final = "pulumi:pulumi:Stack"
"""Type of the resource that represents a stack: its state begins with it."""
TEAM: Final = "gpu-tenancy:tenancy:Team"
"""Type of the component with what is a team's own."""
_PROVIDER: Final = "pulumi:providers:"
_TENANCY: Final = "gpu-tenancy:tenancy:Tenancy"
_QUEUES: Final = "gpu-tenancy:tenancy:Queues"
_OPERATORS: Final = ("gpu-tenancy:operators:", "gpu-tenancy:tenancy:Observability")
_CLUSTER_QUEUE: Final = "kubernetes:kueue.x-k8s.io/"
_GANG_QUEUE: Final = "kubernetes:scheduling.volcano.sh/"


def name_of(entry: Entry) -> str:
    """The name that the program gave a resource."""
    return str(entry["urn"]).rpartition("::")[2]


def plain(value: Any, *, hidden: bool = False) -> Any:
    """A value of a state without what is null, with secrets in clear text or hidden."""
    if isinstance(value, Mapping):
        known = cast("Mapping[str, Any]", value)
        if SIGNATURE in known:
            return "[secret]" if hidden else plain(json.loads(known["plaintext"]))
        return {key: plain(each, hidden=hidden) for key, each in known.items() if each is not None}
    if isinstance(value, list):
        return [plain(each, hidden=hidden) for each in cast("list[Any]", value)]
    return value


def is_scaffold(entry: Entry) -> bool:
    """Whether each stack has such a resource of its own, as far as it needs it: nothing of a cluster or cloud."""
    at_top = f"::{ROOT}::" in str(entry.get("parent", ""))
    provided = at_top and (entry["type"].startswith(_PROVIDER) or bool(entry.get("external")))
    return provided or entry["type"] in {ROOT, _TENANCY, _QUEUES}


def placement(environment: str, parts: tuple[Part, ...]) -> StackOf:
    """Where the resources of an environment belong.

    Args:
        environment: name of the environment, which is also that of its only stack if it is not divided.
        parts: of the environment; empty for one stack.
    """
    if not parts:
        return lambda _: environment
    known = {part.name for part in parts}
    of_team = {team: part.name for part in parts for team in part.teams}
    of_queue = {f"queues-{queue}": part.name for part in parts for queue in part.cluster_queues}
    of_gangs = {f"queues-gangs-{queue}": part.name for part in parts for queue in part.gang_queues}

    def part_of(chain: list[Entry]) -> str | None:
        entry, top = chain[0], chain[-1]
        if team := next((above for above in chain if above["type"] == TEAM), None):
            return of_team.get(name_of(team))
        if entry["type"].startswith(_CLUSTER_QUEUE) and entry["type"].endswith(":ClusterQueue"):
            return of_queue.get(name_of(entry))
        if entry["type"].startswith(_GANG_QUEUE):
            return of_gangs.get(name_of(entry))
        if top["type"] == _TENANCY:
            return TENANCY
        return OPERATORS if top["type"].startswith(_OPERATORS) else CLUSTER

    def stack_of(chain: list[Entry]) -> str | None:
        part = part_of(chain)
        return f"{environment}.{part}" if part in known else None

    return stack_of


State: TypeAlias = Mapping[str, Any]
"""A deployment as `pulumi stack export` writes it, without the version around it."""

Mutable: TypeAlias = dict[str, Any]
"""A resource in a new state."""

_NEEDED: Final = ("dependencies", "replaceWith")
_LISTS: Final = (*_NEEDED, "aliases")
_BY_PROPERTY: Final = "propertyDependencies"
_WITH: Final = "deletedWith"
"""Fields with URNs: https://pkg.go.dev/github.com/pulumi/pulumi/sdk/v3/go/common/apitype#ResourceV3."""


@dataclass(frozen=True, slots=True)
class Move:
    """Resources that another stack has from now on."""

    source: str
    target: str
    resources: int


class Moving:
    """The states of an environment's stacks after each resource is where it belongs.

    Args:
        project: name of the Pulumi project.
        states: of all stacks that exist, by name, in the order in which they are deployed.
        targets: names of the stacks that the environment has from now on.
        stack_of: where a resource belongs.

    Attributes:
        moves: what moves, if anything.
        first: states to write first, by stack: those of the targets, with all that they had before. So each resource is
            in a state at any time.
        then: states to write after them: those of the sources, without what left; without any resource if nothing of a
            cluster or cloud is left.
    """

    def __init__(self, project: str, states: Mapping[str, State], targets: tuple[str, ...], stack_of: StackOf) -> None:
        self._before = states
        self._kept: dict[str, list[Mutable]] = {name: [] for name in (*states, *targets)}
        self._leaving: dict[tuple[str, str], list[Entry]] = {}
        for name in states:
            self._sort(name, targets, stack_of)
        self.moves = tuple(Move(*way, len(entries)) for way, entries in self._leaving.items())
        sources = dict.fromkeys(move.source for move in self.moves)
        for name in sources:
            there = {str(entry["urn"]) for entry in self._kept[name]}
            self._kept[name] = [without_missing(entry, there) for entry in self._kept[name]]
        stayed = {name: len(entries) for name, entries in self._kept.items()}
        for (source, target), entries in self._leaving.items():
            _Transfer(project, source, target, self._entries(source), self._kept[target]).add(entries)
        self.first = {
            move.target: self._state(move.target, self._kept[move.target][stayed[move.target] :]) for move in self.moves
        }
        self.then = {name: self._state(name) for name in sources}

    def _entries(self, name: str) -> Mapping[str, Entry]:
        return {str(entry["urn"]): entry for entry in self._before[name].get("resources") or ()}

    def _sort(self, name: str, targets: tuple[str, ...], stack_of: StackOf) -> None:
        entries = self._entries(name)
        for entry in entries.values():
            target = name if is_scaffold(entry) else stack_of(list(_chain(entry, entries)))
            if target is None:  # such as a removed team: the stack that has it deletes it
                target = name if name in targets else targets[-1]
            if target == name:
                self._kept[name].append(dict(entry))
            else:
                self._leaving.setdefault((name, target), []).append(entry)

    def _state(self, name: str, arrived: list[Mutable] | None = None) -> State:
        around = self._before.get(name) or next(iter(self._before.values()))
        if arrived is not None:
            return {**around, "resources": [*(self._before.get(name, {}).get("resources") or ()), *arrived]}
        left = self._kept[name]
        return {**around, "resources": left if any(not is_scaffold(entry) for entry in left) else []}


class _Transfer:
    """Resources on their way from one state into another, each after what it needs there."""

    def __init__(
        self, project: str, source: str, target: str, entries: Mapping[str, Entry], own: list[Mutable]
    ) -> None:
        self._entries, self._own = entries, own
        self._from, self._to = f"urn:pulumi:{source}::{project}::", f"urn:pulumi:{target}::{project}::"
        self._root = {"urn": f"{self._to}{ROOT}::{project}-{target}", "custom": False, "type": ROOT}
        self._there = {str(entry["urn"]) for entry in own}
        self._providers: dict[str, str] = {}

    def add(self, entries: list[Entry]) -> None:
        """Adds resources; one that is there already was moved by an earlier run that was interrupted."""
        for entry in entries:
            if self._urn(str(entry["urn"])) not in self._there:
                self._append(self._moved(entry))

    def _append(self, entry: Mutable) -> None:
        if entry["urn"] not in self._there:
            self._there.add(str(entry["urn"]))
            self._own.append(entry)

    def _urn(self, before: str) -> str:
        return self._to + before.removeprefix(self._from)

    def _moved(self, entry: Entry) -> Mutable:
        new: Mutable = {**entry, "urn": self._urn(str(entry["urn"]))}
        if entry.get("parent"):
            new["parent"] = self._parent(str(entry["parent"]))
        if entry.get("provider"):
            new["provider"] = self._provider(str(entry["provider"]))
        for field in _LISTS:
            if entry.get(field):
                new[field] = [self._urn(urn) for urn in entry[field]]
        if by_property := entry.get(_BY_PROPERTY):
            new[_BY_PROPERTY] = {key: [self._urn(urn) for urn in urns or ()] for key, urns in by_property.items()}
        if entry.get(_WITH):
            new[_WITH] = self._urn(str(entry[_WITH]))
        return without_missing(new, self._there)

    def _parent(self, before: str) -> str:
        """The parent's URN in the target, which gets the parent first if it has none."""
        found = self._entries[before]
        if found["type"] == ROOT:
            self._append(self._root)
            return str(self._root["urn"])
        if self._urn(before) not in self._there:
            self._append(self._moved(found))
        return self._urn(before)

    def _provider(self, reference: str) -> str:
        """The reference to the target's provider of that name: the cluster's is in each stack, whatever its parent."""
        if reference not in self._providers:
            found = self._entries[reference.rpartition("::")[0]]
            same = (one for one in self._own if one["type"] == found["type"] and name_of(one) == name_of(found))
            own = next(same, None) or self._copied(found)
            self._providers[reference] = f"{own['urn']}::{own['id']}"
        return self._providers[reference]

    def _copied(self, provider: Entry) -> Mutable:
        """A copy of a provider, without the component around it if the target does not have that."""
        copy: Mutable = {**provider, "urn": f"{self._to}{provider['type']}::{name_of(provider)}"}
        above = self._urn(str(provider["parent"]))
        if above in self._there and above != self._root["urn"]:
            copy |= {"urn": self._urn(str(provider["urn"])), "parent": above}
        else:
            self._append(self._root)
            copy["parent"] = self._root["urn"]
        copy = without_missing(copy, self._there)
        self._append(copy)
        return copy


def _chain(entry: Entry, entries: Mapping[str, Entry]) -> Iterator[Entry]:
    above: Entry | None = entry
    while above is not None and above["type"] != ROOT:
        yield above
        above = entries.get(str(above.get("parent", "")))


def without_missing(entry: Entry, there: set[str]) -> Mutable:
    """A resource without references to what is not in its state: Pulumi refuses a state with them.

    The next deployment records them again, as far as they are in the same stack.
    """
    left = dict(entry)
    for field in _NEEDED:
        if left.get(field):
            left[field] = [urn for urn in left[field] if urn in there]
    if by_property := left.get(_BY_PROPERTY):
        left[_BY_PROPERTY] = {key: [urn for urn in urns or () if urn in there] for key, urns in by_property.items()}
    if left.get(_WITH) and left[_WITH] not in there:
        del left[_WITH]
    return left
