"""What becomes of each resource between two renderings of a stack."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import yaml

from gpu_tenancy.console.offline.recording import Registration
from gpu_tenancy.console.offline.render import Rendered
from gpu_tenancy.console.offline.wire import Json, text_at
from gpu_tenancy.console.review.replacements import forces_new

Action: TypeAlias = Literal["delete", "replace", "create", "update"]
ACTIONS: Final[tuple[Action, ...]] = ("delete", "replace", "create", "update")
"""In the order in which a reviewer should see them."""
_NODE_POOLS: Final = ("gcp:container/nodePool:NodePool", "azure-native:containerservice:AgentPool")
"""Resources that are a pool by themselves; on AWS a pool is a component."""
_TEAM: Final = "gpu-tenancy:tenancy:Team"
_TENANCY: Final = "gpu-tenancy:tenancy:Tenancy"
_OPERATOR: Final = "gpu-tenancy:operators:Operator"
_LONGEST: Final = 120


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One value of a resource; empty where it is not there. Secrets read `[secret]`, long values are cut."""

    path: str
    before: str
    after: str
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one resource.

    Attributes:
        group: whom it concerns: `team ml-research`, `pool a100`, `operator kueue`, `queues`, `cluster`.
        kind: `Deployment`, `NodeGroup`.
        name: `ml-research/nightly` of an object, else its name in the program.
        fields: what differs; empty where it is made or deleted.
    """

    action: Action
    group: str
    kind: str
    name: str
    urn: str
    fields: tuple[FieldChange, ...] = ()

    @property
    def place(self) -> str:
        """Kind and name."""
        return f"{self.kind} {self.name}"


def changes(before: Rendered, after: Rendered, pools: Iterable[str] = ()) -> tuple[Change, ...]:
    """What differs, deletes first, then by group, kind and name.

    Resources are the same where their URN is. Components and providers are left out: what they mean is in their
    children. Whether a cloud replaces a resource only its provider knows; Kubernetes objects are told by the provider's
    own table.

    Args:
        before: the stack as it was.
        after: and as it will be.
        pools: names of its node pools, then or now.
    """
    old, new = resources(before), resources(after)
    were, are = Groups(before, pools), Groups(after, pools)
    found = [
        *(_made("delete", old[urn], were) for urn in old.keys() - new.keys()),
        *(_made("create", new[urn], are) for urn in new.keys() - old.keys()),
        *(change for urn in old.keys() & new.keys() if (change := _changed(old[urn], new[urn], are))),
    ]
    return in_order(found)


def in_order(found: Iterable[Change]) -> tuple[Change, ...]:
    """Deletes first, then by whom they concern, kind and name."""
    return tuple(sorted(found, key=lambda one: (ACTIONS.index(one.action), one.group, one.kind, one.name, one.urn)))


def created(after: Rendered, pools: Iterable[str] = ()) -> tuple[Change, ...]:
    """Everything, as if nothing were there yet."""
    groups = Groups(after, pools)
    return in_order(_made("create", each, groups) for each in resources(after).values())


def resources(rendered: Rendered) -> dict[str, Registration]:
    """What will exist, by URN: no components, no providers, nothing that is only read."""
    return {one.urn: one for one in rendered.registrations if one.custom and one.will_exist}


def _made(action: Action, one: Registration, groups: "Groups") -> Change:
    return Change(action, groups.of(one), kind_of(one), name_of(one), one.urn)


def _changed(old: Registration, new: Registration, groups: "Groups") -> Change | None:
    provider = groups.provider(new)
    fields = tuple(
        FieldChange(path, _text(was), _text(now), replaces=forces_new(new.type, path, new.replace_on_changes, provider))
        for path, was, now in _differences(dict(old.shown), dict(new.shown), "")
        if not _ignored(path, new.ignore_changes)
    )
    if not fields:
        return None
    action: Action = "replace" if any(field.replaces for field in fields) else "update"
    return Change(action, groups.of(new), kind_of(new), name_of(new), new.urn, fields)


def _ignored(path: str, ignored: tuple[str, ...]) -> bool:
    return any(path == each or path.startswith(f"{each}.") for each in ignored)


class _Absent:
    """Nothing is there, which is not the same as null."""


_ABSENT: Final = _Absent()
_Side: TypeAlias = "Json | _Absent"


def _differences(before: _Side, after: _Side, path: str) -> Iterator[tuple[str, _Side, _Side]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from _differences(before.get(key, _ABSENT), after.get(key, _ABSENT), _join(path, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, _join(path, str(index)))
    elif before != after:
        old, new = _parsed(before), _parsed(after)
        if old is not None and new is not None:
            yield from _differences(old, new, path)
        else:
            yield path, before, after


def _parsed(value: _Side) -> "dict[str, Json] | None":
    """A text that is itself a map, in JSON or YAML, such as an operator's configuration; None for any other value."""
    if not isinstance(value, str) or ("\n" not in value and not value.startswith("{")):
        return None
    with suppress(yaml.YAMLError):
        found: Json = yaml.safe_load(value)
        return found if isinstance(found, dict) else None
    return None


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _text(value: _Side) -> str:
    return "" if isinstance(value, _Absent) else short(value)


def short(value: Json) -> str:
    """A value in one line, cut where it is long."""
    text = value if isinstance(value, str) else _json(value)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _json(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case dict():
            return "{" + ", ".join(f"{key}: {_json(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(_json(item) for item in value) + "]"
        case _:
            return str(value)


def kind_of(one: Registration) -> str:
    """The last part of its type, as people say it: `NodeGroup`."""
    return one.type.rpartition(":")[2]


def name_of(one: Registration) -> str:
    """Namespace and name of an object; of anything else its name in the program."""
    name = text_at(one.inputs, "metadata", "name")
    if not one.type.startswith("kubernetes:") or not name:
        return one.name
    namespace = text_at(one.inputs, "metadata", "namespace")
    return f"{namespace}/{name}" if namespace else name


class Groups:
    """Whom each resource of a rendering concerns."""

    def __init__(self, rendered: Rendered, pools: Iterable[str] = ()) -> None:
        self._pools = sorted(pools, key=lambda name: (-len(name), name))
        self._known = {one.urn: one for one in rendered.registrations}
        self._teams = {one.name for one in rendered.registrations if one.type == _TEAM}

    def of(self, one: Registration) -> str:
        """A team, a pool, an operator, or a part of the platform such as `queues`."""
        line = list(self._line(one))
        for each in line:
            if pool := self._pool(each):
                return f"pool {pool}"
            if each.type == _TEAM:
                return f"team {each.name}"
            if each.type == _OPERATOR:
                return f"operator {each.name.removeprefix('operators-')}"
        own = text_at(one.inputs, "metadata", "name")
        if own in self._teams and kind_of(one) == "ClusterQueue":
            return f"team {own}"
        return line[-2].name if len(line) > 1 and line[-1].type == _TENANCY else line[-1].name

    def provider(self, one: Registration) -> Mapping[str, Json]:
        """The inputs of a resource's provider; nothing where it has none of its own."""
        # A reference to a provider is its URN, and after it its id.
        found = self._known.get(one.provider.rpartition("::")[0])
        return found.inputs if found else {}

    def _pool(self, one: Registration) -> str | None:
        for pool in self._pools:
            of_aws = f"cluster-pool-{pool}"
            if one.name == of_aws or one.name.startswith(f"{of_aws}-"):
                return pool
            if one.type in _NODE_POOLS and one.name == f"cluster-{pool}":
                return pool
        return None

    def _line(self, one: Registration) -> Iterator[Registration]:
        """A resource and everything above it."""
        found: Registration | None = one
        while found is not None:
            yield found
            found = self._known.get(found.parent)
