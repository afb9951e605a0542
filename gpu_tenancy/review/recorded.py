"""What a stack would change of cloud resources that it adopts, by what the cloud's commands describe."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from pydantic import TypeAdapter

from gpu_tenancy.base.json import Json
from gpu_tenancy.base.tables import read_table
from gpu_tenancy.engine.checks import importable
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.wire import UNKNOWN
from gpu_tenancy.inspect.adopt.recordings import ROLE, TEMPLATE, Recorded, Recording, value_of
from gpu_tenancy.model.catalogue.rows import Fact, Row
from gpu_tenancy.review.replacements import cloud_type

Effect: TypeAlias = Literal["updated", "nodes restart", "replaced"]
Steps: TypeAlias = tuple[str, ...]


class RecordedType(Row):
    """How to compare one type: the keys of `recorded.yaml`."""

    named: str
    renamed: Mapping[str, str] = {}
    unread: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    kept: bool = False
    restarts: tuple[str, ...] = ()

    def place(self, path: Steps) -> Steps:
        """Where the description has an input."""
        found: list[str] = []
        for end in range(1, len(path) + 1):
            name = self.renamed.get(".".join(path[:end]))
            found += name.split(".") if name else [path[end - 1]]
        return tuple(found)


class _Table(Row):
    sources: Mapping[str, Fact]
    types: Mapping[str, RecordedType]


@cache
def recorded_types() -> Mapping[str, RecordedType]:
    """Rows of `recorded.yaml` by type token."""
    return TypeAdapter(_Table).validate_python(read_table(Path(__file__).with_suffix(".yaml"))).types


_FREE: Final = frozenset({"labels", "nodeLabels", "resourceLabels", "tags"})
"""Maps whose keys are not of the API: the deployment removes those that the program does not set."""


@dataclass(frozen=True, slots=True)
class CloudDifference:
    """An input of a resource that the cloud has otherwise.

    Attributes:
        resource: type and name, such as `pool h100`.
        live: in the cloud, empty for nothing.
        planned: by the stack.
        effect: of the deployment: on the resource, or on the nodes of a pool.
        note: why the cloud keeps its value anyway; empty if it does not.
    """

    resource: str
    field: str
    live: str
    planned: str
    effect: Effect
    note: str = ""


@dataclass(frozen=True, slots=True)
class Match:
    """A resource of the program and what it becomes of the cloud."""

    registration: Registration
    recorded: Recorded

    @property
    def entry(self) -> str:
        """In `cluster.adopt` of a stack."""
        return f"{self.registration.name}={self.recorded.id}"

    @property
    def resource(self) -> str:
        """What it is, for messages."""
        return f"{cloud_type(self.recorded.type).what} {self.recorded.name}"


def matches(registrations: Iterable[Registration], recording: Recording) -> list[Match]:
    """The resources of a program that exist in the cloud: cluster and pools by name, and what these are bound to."""
    known = {one.urn: one for one in registrations if importable(one)}
    recorded = {(one.type, one.name): one for one in (recording.cluster, *recording.pools)}
    found: list[Match] = []
    for one in known.values():
        row = recorded_types().get(one.type)
        there = recorded.get((one.type, str(one.inputs.get(row.named)))) if row else None
        if there:
            found += [Match(one, there), *_bound(one, there, known, recording)]
    return list({match.registration.urn: match for match in found}.values())


def _bound(
    one: Registration, there: Recorded, known: Mapping[str, Registration], recording: Recording
) -> Iterator[Match]:
    """The launch template of a node group, and roles that the program creates: another one replaces the resource."""
    row = recorded_types()[one.type]
    for key, type_ in (("launchTemplate", TEMPLATE), ("nodeRoleArn", ROLE), ("roleArn", ROLE)):
        value = value_of(there.state, *row.place((key,)), *(["id"] if type_ == TEMPLATE else []))
        name = str(value or "").rpartition("/")[2]
        state = recording.templates.get(name) if type_ == TEMPLATE else Recorded(ROLE, name, name, {})
        for urn in one.property_dependencies.get(key, ()):
            if name and state and urn in known and known[urn].type == type_:
                yield Match(known[urn], state)


def compare(found: Sequence[Match]) -> Iterator[CloudDifference]:
    """The differences of all resources that exist, those that replace one first."""
    adopted = {match.registration.urn: match.recorded for match in found}
    every = [each for match in found for each in _differences(match, adopted)]
    order: Mapping[Effect, int] = {"replaced": 0, "nodes restart": 1, "updated": 2}
    return iter(sorted(every, key=lambda each: order[each.effect]))


def _differences(match: Match, adopted: Mapping[str, Recorded]) -> Iterator[CloudDifference]:
    one, there = match.registration, match.recorded
    row = recorded_types()[one.type]
    if row.kept:
        return
    for path, planned in _inputs(one, there, row).items():
        dotted = ".".join(path)
        if _covered(dotted, (*row.unread, *one.ignore_changes)):
            continue
        live = value_of(there.state, *row.place(path))
        wanted = _resolved(one, path, planned, adopted, there)
        if _same(wanted, live, path, row):
            continue
        note = cloud_type(one.type).fixed.get(dotted, "")
        yield CloudDifference(
            match.resource, dotted, _text(live), _planned(one, path, wanted), _effect(one, dotted, row), note
        )


def _inputs(one: Registration, there: Recorded, row: RecordedType) -> dict[Steps, Json]:
    """What the program sets, and as None what the description has besides: labels, and what `also` names."""
    found = dict(_leaves(one.inputs, (), row))
    more: list[Steps] = [tuple(path.split(".")) for path in row.also]
    for path in {path[:-1] for path in found if path[-2:-1] and path[-2] in _FREE}:
        live = value_of(there.state, *row.place(path))
        more += [(*path, key) for key in live] if isinstance(live, dict) else []
    return found | {path: None for path in more if path not in found}


def _covered(path: str, fields: Iterable[str]) -> bool:
    return any(path == field or path.startswith(f"{field}.") for field in fields)


def _effect(one: Registration, path: str, row: RecordedType) -> Effect:
    if cloud_type(one.type).forces([path]) or _covered(path, one.replace_on_changes):
        return "replaced"
    return "nodes restart" if _covered(path, row.restarts) else "updated"


def _leaves(value: "Json | Mapping[str, Json]", path: Steps, row: RecordedType) -> Iterator[tuple[Steps, Json]]:
    """Inputs by path: maps are entered, and so are lists that are one message in the API."""
    if isinstance(value, list) and len(value) == 1 and ".".join(path) in row.renamed and isinstance(value[0], dict):
        value = value[0] if row.place(path)[-1] != "accelerators" else value
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key), row)
    elif value is not None:
        yield path, value


def _resolved(one: Registration, path: Steps, planned: Json, adopted: Mapping[str, Recorded], there: Recorded) -> Json:
    """What a value that another resource decides becomes if that resource is adopted; else the value."""
    own = [adopted[urn] for urn in one.property_dependencies.get(path[0], ()) if urn in adopted]
    if not own or not _late(one, path, planned):
        return planned
    target = own[0]
    if path == ("launchTemplate", "version"):
        return str(value_of(target.state, "VersionNumber"))
    live = value_of(there.state, *recorded_types()[one.type].place(path))
    return live if str(live).rpartition("/")[2] == target.id.rpartition("/")[2] else target.id


def _late(one: Registration, path: Steps, planned: Json) -> bool:
    names = {urn.rpartition("::")[2] for urn in one.property_dependencies.get(path[0], ())}
    return planned == UNKNOWN or (isinstance(planned, str) and planned in names)


def _planned(one: Registration, path: Steps, planned: Json) -> str:
    if not _late(one, path, planned):
        return _text(planned)
    names = [urn.rpartition("::")[2] for urn in one.property_dependencies.get(path[0], ())]
    return f"of {names[0]}, which is created" if names else "decided by the cloud"


_NOTHING: Final[tuple[Json, ...]] = (None, "", [], {}, False, 0, "0", "false")
"""What APIs leave out of descriptions: https://protobuf.dev/programming-guides/json/."""


def _same(planned: Json, live: Json, path: Steps, row: RecordedType) -> bool:
    if planned in _NOTHING and live in _NOTHING:
        return True
    if isinstance(live, list) and len(live) == 1 and not isinstance(planned, list):
        live = live[0]
    if isinstance(planned, dict) and isinstance(live, dict):
        return all(_same(value, _at(live, (*path, key), row), (*path, key), row) for key, value in planned.items())
    if isinstance(planned, list) and isinstance(live, list):
        return len(planned) == len(live) and _pairs(planned, live, path, row)
    if path[-1] in {"version", "minMasterVersion", "orchestratorVersion", "kubernetesVersion"} and len(path) == 1:
        return str(live) == planned or str(live).startswith(f"{planned}.")
    return _plain(planned) == _plain(live)


def _at(live: Mapping[str, Json], path: Steps, row: RecordedType) -> Json:
    return value_of(live, *row.place(path)[len(row.place(path[:-1])) :])


def _pairs(planned: Sequence[Json], live: Sequence[Json], path: Steps, row: RecordedType) -> bool:
    """Whether each entry of one list is in the other; clouds do not keep their order."""
    rest = list(live)
    for item in planned:
        same = next((other for other in rest if _same(item, other, path, row)), None)
        if same is None:
            return False
        rest.remove(same)
    return True


def _plain(value: Json) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value % 1 == 0:
        return str(int(value))
    return str(value).lower() if value is not None else ""


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case dict():
            entries = cast("dict[str, Any]", value)
            return "{" + ", ".join(f"{key}: {_text(inner)}" for key, inner in entries.items()) + "}"
        case list():
            return "[" + ", ".join(map(_text, cast("list[Any]", value))) + "]"
        case _:
            return _plain(value) if isinstance(value, bool | float) else str(value)


def lines(differences: Iterable[CloudDifference]) -> Iterator[str]:
    """One line for each difference; the same one of several resources together."""
    names: dict[tuple[Effect, str, str, str, str], list[str]] = defaultdict(list)
    for each in differences:
        names[each.effect, each.field, each.live, each.planned, each.note].append(each.resource)
    for (effect, path, live, planned, note), resources in names.items():
        mark = "✗ " if effect == "replaced" else ""
        because = f" ({note})" if note else ""
        yield (
            f"{mark}{effect}: {', '.join(resources)}: {path}: {live or 'not set'} →"
            f" {planned or 'not in the stack'}{because}"
        )
