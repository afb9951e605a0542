"""Changes of each resource between two renderings of a stack."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal, TypeAlias

from gpu_tenancy.base.json import Json, at, maps_at, text_at
from gpu_tenancy.base.quantity import format_duration
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.model.catalogue.updates import Nodes, cloud_type, forces_new, paths_in, without_indexes
from gpu_tenancy.model.yaml import UnreadableError, parse

Action: TypeAlias = Literal["delete", "replace", "create", "update"]
ACTIONS: Final[tuple[Action, ...]] = ("delete", "replace", "create", "update")  # in the order of a review
_NODE_POOLS: Final = ("gcp:container/nodePool:NodePool", "azure-native:containerservice:AgentPool")
"""Types whose resource is a whole node pool; on AWS a pool is a component."""
SYSTEM_NODES: Final = "system nodes"
_KARPENTER_POOL: Final = "kubernetes:karpenter.sh/v1:NodePool"
_TEAM: Final = "gpu-tenancy:tenancy:Team"
_TENANCY: Final = "gpu-tenancy:tenancy:Tenancy"
_OPERATOR: Final = "gpu-tenancy:operators:Operator"
_LONGEST: Final = 120
_UNKNOWN: Final = "[unknown]"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One changed value; an absent side is empty, secrets are `[secret]`, long values are cut."""

    path: str
    before: str
    after: str
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Effect:
    """Effect of a change of a cloud resource."""

    what: str = ""  # kind in a stack's terms, such as `cluster`; empty for its smaller parts
    label: str = ""  # `cluster ml-prod`, `pool h100`, `system nodes`
    deleted_first: bool = False
    protected: bool = False  # it must not be deleted, replaced or restarted: Pulumi refuses the first two
    stays: bool = False  # the old resource stays in the cloud, but Pulumi no longer manages it
    loses: str = ""  # effect of its deletion, besides the end of nodes and workloads, as a clause
    fixed: tuple[str, ...] = ()  # inputs that the cloud never changes, with the reason
    unsure: tuple[str, ...] = ()  # the same for inputs that may change; a preview does not know
    restarts: tuple[str, ...] = ()  # inputs for which the cloud replaces the nodes one after the other
    may_restart: tuple[str, ...] = ()  # inputs of nodes whose effect is unknown


@dataclass(frozen=True, slots=True)
class Change:
    """Change of one resource."""

    action: Action
    group: str  # its owner, such as `team ml-research`, `pool a100`, `operator kueue`, `queues` or `cluster`
    kind: str  # such as `Deployment`
    name: str  # `ml-research/nightly` for a Kubernetes object, else the name in the program
    urn: str
    fields: tuple[FieldChange, ...] = ()  # empty for created and deleted resources
    effect: Effect = Effect()

    @property
    def place(self) -> str:
        """Kind and name."""
        return f"{self.kind} {self.name}"


def changes(before: Rendered, after: Rendered, pools: Iterable[str] = ()) -> tuple[Change, ...]:
    """Changes between two renderings, matched by URN: deletions first, then by group, kind and name.

    Components and providers are omitted, since their children show their effect. Tables of the providers list inputs
    that replace a resource; an unknown output of a replaced resource in such an input replaces it, too.
    """
    old, new = resources(before), resources(after)
    were, are = Groups(before, pools), Groups(after, pools)
    kept = old.keys() & new.keys()
    found = {urn: changed(old[urn], "delete", (), were, protected=old[urn].protect) for urn in old.keys() - kept}
    found |= {urn: changed(new[urn], "create", (), are, protected=new[urn].protect) for urn in new.keys() - kept}
    found |= {urn: change for urn in kept if (change := _changed(old[urn], new[urn], are))}
    _cascade(found, [new[urn] for urn in kept], are)
    return in_order(found.values())


def _cascade(found: dict[str, Change], resources: Iterable[Registration], groups: "Groups") -> None:
    clouds = [resource for resource in resources if cloud_type(resource.type).replaces]
    sources = [change for change in found.values() if change.action == "replace" or change.effect.restarts]
    while sources:
        source = sources.pop()
        for resource in clouds:
            was, row = found.get(resource.urn), cloud_type(resource.type)
            if was and was.action == "replace":
                continue
            unknown = [
                without_indexes(path)
                for path in resource.unknown_paths
                if source.urn in resource.property_dependencies.get(str(path[0]), ())
            ]
            replaced = source.action == "replace"
            forcing = [field for field in unknown if replaced and row.forces([field])]
            if affected := forcing or [field for field in unknown if row.nodes(field) == "restart"]:
                after = f"[unknown, {source.place} {'is replaced' if replaced else 'changes'}]"
                fields = [FieldChange(field, _UNKNOWN, after, replaces=bool(forcing)) for field in affected]
                action: Action = "replace" if forcing else "update"
                known = was.fields if was else ()
                change = changed(resource, action, (*known, *fields), groups, protected=resource.protect)
                first = bool(forcing) and (change.effect.deleted_first or source.effect.deleted_first)
                # The cause, instead of what follows from it.
                causes = (
                    *(field for field in change.effect.restarts if field not in affected),
                    *source.effect.restarts,
                )
                restarts = () if forcing else tuple(dict.fromkeys(causes or affected))
                effect = replace(change.effect, deleted_first=first, restarts=restarts)
                found[resource.urn] = replace(change, effect=effect)
                sources.append(found[resource.urn])


def in_order(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Deletions first, then by group, kind and name."""

    def place(change: Change) -> tuple[int, str, str, str, str]:
        return ACTIONS.index(change.action), change.group, change.kind, change.name, change.urn

    return tuple(sorted(changes, key=place))


def resources(rendered: Rendered) -> dict[str, Registration]:
    """Resources by URN, without components, providers and resources that are only read."""
    return {one.urn: one for one in rendered.registrations if one.custom and one.will_exist}


def changed(
    resource: Registration, action: Action, fields: tuple[FieldChange, ...], groups: "Groups", *, protected: bool
) -> Change:
    """The change of a resource with its effect; `protected`: Pulumi refuses to delete the deployed resource."""
    group, row = groups.of(resource), cloud_type(resource.type)
    name, renamed = resource.inputs.get(row.name), [field.before for field in fields if field.path == row.name]
    in_use = isinstance(name, str) and not renamed
    label = f"{row.what} {(renamed[0] if renamed else name) if isinstance(name, str) else resource.name}"
    nodes: dict[Nodes, list[str]] = {"restart": [], "may restart": []}
    stay = at(resource.inputs, *row.stay.split(".")) if row.stay else row.drift and not groups.drifts
    for field in fields if action == "update" else ():
        path = without_indexes(field.path.split("."))
        nodes.setdefault(row.nodes(path, removed=_removes(field)), []).append(path)
    restarts = () if stay else tuple(dict.fromkeys(nodes["restart"]))
    may_restart = tuple(dict.fromkeys(nodes["may restart"]))
    of_system = row.system and all(path.startswith(row.system) for path in (*restarts, *may_restart))
    if row.what == "pool" or ((of_system or not row.what) and (restarts or may_restart)):
        label = group if group.startswith("pool ") else SYSTEM_NODES
    were = {field.path: field.before for field in fields}
    had = not row.fixed_if or were.get(row.fixed_if, at(resource.inputs, *row.fixed_if.split(".")))
    # The rule `self == oldSelf` of a definition says nothing of a field that appears or disappears.
    by_rule = resource.type.startswith("kubernetes:") and not row.fixed_if
    fixed = [field for field in fields if had and (not by_rule or (field.before and field.after))]
    kept = [(field, reason) for field in fixed if (reason := row.kept(without_indexes(field.path.split("."))))]
    unknown = [pair for pair in kept if _UNKNOWN in {pair[0].before, pair[0].after}]
    effect = Effect(
        row.what,
        label if row.what or row.drift or may_restart else "",
        deleted_first=action == "replace" and (resource.delete_before_replace or in_use),
        protected=protected and (action in {"delete", "replace"} or bool(restarts)),
        stays=action in {"delete", "replace"} and resource.retain_on_delete,
        loses=row.loses,
        fixed=tuple(f"{field.path}: {reason}" for field, reason in kept if (field, reason) not in unknown),
        unsure=tuple(f"{field.path}: {reason}" for field, reason in unknown),
        restarts=restarts,
        may_restart=may_restart,
    )
    return Change(action, group, kind_of(resource), name_of(resource), resource.urn, fields, effect)


def _removes(field: FieldChange) -> bool:
    """Whether a changed list, such as of zones, or a changed entry of it loses an entry; an absent list has others."""
    before, after = (set(side.strip("[]").split(", ")) for side in (field.before, field.after))
    return not before <= after


def _changed(old: Registration, new: Registration, groups: "Groups") -> Change | None:
    provider, row = groups.provider(new), cloud_type(new.type)
    fields = tuple(
        FieldChange(
            path,
            "" if isinstance(was, _Absent) else short(was, path),
            "" if isinstance(now, _Absent) else short(now, path),
            replaces=forces_new(new.type, path, new.replace_on_changes, provider)
            or row.forces(paths_in(without_indexes(path.split(".")), was, now)),
        )
        for path, was, now in _differences(dict(old.shown), dict(new.shown), "")
        if not any(path == field or path.startswith(f"{field}.") for field in new.ignore_changes)
    )
    if not fields:
        return None
    action: Action = "replace" if any(field.replaces for field in fields) else "update"
    return changed(new, action, fields, groups, protected=old.protect)


class _Absent:
    """As opposed to null."""


_ABSENT: Final = _Absent()
_Side: TypeAlias = "Json | _Absent"


def _differences(before: _Side, after: _Side, path: str) -> Iterator[tuple[str, _Side, _Side]]:
    below = f"{path}." if path else ""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from _differences(before.get(key, _ABSENT), after.get(key, _ABSENT), f"{below}{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, f"{below}{index}")
    elif before != after:
        old, new = _parsed(before), _parsed(after)
        if old is not None and new is not None:
            yield from _differences(old, new, path)
        else:
            yield path, before, after


def _parsed(value: _Side) -> "dict[str, Json] | None":
    """The map in a string of JSON or YAML, such as an operator's configuration; None for other values."""
    if not isinstance(value, str) or ("\n" not in value and not value.startswith("{")):
        return None
    with suppress(UnreadableError):
        parsed: Json = parse(value)
        return parsed if isinstance(parsed, dict) else None
    return None


def short(value: Json, path: str = "") -> str:
    """A value in one line, cut to 120 characters; seconds also in a larger unit: `604800s (7d)`."""
    text = " ".join(_json(value).split())
    if re.fullmatch(r"\d+s?" if path.lower().endswith("seconds") else r"\d+s", text):
        seconds = text.removesuffix("s")
        duration = format_duration(int(seconds))
        return text if duration == f"{seconds}s" else f"{text} ({duration})"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _json(value: Json) -> str:
    match value:
        case None | bool():
            return "null" if value is None else str(value).lower()
        case dict():
            return "{" + ", ".join(f"{key}: {_json(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(_json(item) for item in value) + "]"
        case _:
            return str(value)


def kind_of(resource: Registration) -> str:
    """Last part of the type token: `NodeGroup`."""
    return resource.type.rpartition(":")[2]


def name_of(resource: Registration) -> str:
    """Namespace and name of a Kubernetes object; for other resources the name in the program."""
    name = text_at(resource.inputs, "metadata", "name")
    if not resource.type.startswith("kubernetes:") or not name:
        return resource.name
    namespace = text_at(resource.inputs, "metadata", "namespace")
    return f"{namespace}/{name}" if namespace else name


class Groups:
    """Assigns each resource of a rendering to a team, pool, operator or part of the platform."""

    def __init__(self, rendered: Rendered, pools: Iterable[str] = ()) -> None:
        self._pools = sorted(pools, key=lambda name: (-len(name), name))
        self._known = {registration.urn: registration for registration in rendered.registrations}
        self._teams = {registration.name for registration in rendered.registrations if registration.type == _TEAM}

    def of(self, resource: Registration) -> str:
        """`team X`, `pool X`, `operator X`, or a part of the platform such as `queues`."""
        if cloud_type(resource.type).drift:  # The name of Karpenter's objects; `-base` is for the minimum of nodes.
            name = text_at(resource.inputs, "metadata", "name")
            return f"pool {name if name in self._pools else name.removesuffix('-base')}"
        line = [resource]
        while parent := self._known.get(line[-1].parent):
            line.append(parent)
        for ancestor in line:
            for pool in self._pools:
                of_aws = f"cluster-pool-{pool}"
                if f"{ancestor.name}-".startswith(f"{of_aws}-") or (
                    ancestor.type in _NODE_POOLS and ancestor.name == f"cluster-{pool}"
                ):
                    return f"pool {pool}"
            if ancestor.type == _TEAM:
                return f"team {ancestor.name}"
            if ancestor.type == _OPERATOR:
                return f"operator {ancestor.name.removeprefix('operators-')}"
        name = text_at(resource.inputs, "metadata", "name")
        if name in self._teams and kind_of(resource) == "ClusterQueue":
            return f"team {name}"
        return line[-2].name if len(line) > 1 and line[-1].type == _TENANCY else line[-1].name

    @cached_property
    def drifts(self) -> bool:
        """Whether Karpenter may replace nodes with pods."""
        pools = [one.inputs for one in self._known.values() if one.type == _KARPENTER_POOL]
        budgets = [budget for pool in pools for budget in maps_at(pool, "spec", "disruption", "budgets")]
        return any(budget.get("reasons") == ["Drifted"] and budget.get("nodes") != "0" for budget in budgets)

    def provider(self, resource: Registration) -> Mapping[str, Json]:
        """Inputs of a resource's explicit provider; empty without one."""
        # A reference to a provider is its URN, followed by its id.
        provider = self._known.get(resource.provider.rpartition("::")[0])
        return provider.inputs if provider else {}
