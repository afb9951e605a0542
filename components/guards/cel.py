"""CEL of plain values, and of the places of pods in kinds: https://kubernetes.io/docs/reference/using-api/cel/."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, cast

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.model.kinds import Queued, Step, WorkloadKind, kinds

KINDS: Final = tuple(kind for kind in kinds().values() if kind.guarded)
"""Kinds that contain pods. The pods of any other kind are evaluated when its controller creates them."""
SIZED: Final = tuple(kind for kind in KINDS if any(pods.count for pods in kind.pods))  # kinds with a number of pods
_WIDTH: Final = 100  # characters of a line of a long list


def key(kind: WorkloadKind) -> str:
    """Group and kind as the policies compare them: `batch/Job`, `/Pod`."""
    return f"{kind.group}/{kind.kind}"


def queue_place(kind: WorkloadKind, frameworks: Collection[str]) -> Queued:
    """Where the queue label must be, with these integrations of Kueue."""
    return kind.queue if kind.without is None or kind.integration in frameworks else kind.without


def literal(value: object) -> str:
    """The CEL literal of a string, number, boolean, or a list or map of them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, object]", value).items()
        return "{" + _joined(f"{literal(name)}: {literal(item)}" for name, item in pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + _joined(map(literal, cast("Iterable[object]", value))) + "]"
    return repr(value)


def _joined(items: Iterable[str]) -> str:
    lines = [""]
    for item in items:
        if len(lines[-1]) + len(item) > _WIDTH:
            lines.append("  ")
        lines[-1] += f"{item}, "
    return "\n".join(line.rstrip() for line in lines).removesuffix(",")


def places_of_pods() -> dict[str, str]:
    """CEL of the places of pods in the object `o`, at all paths of all kinds: lists of optional values.

    `templatePlaces` are the pod templates of `object` with their JSON pointers, as a list of maps.
    """
    pods = [pods for kind in KINDS for pods in kind.pods]
    parents: dict[str, None] = {}
    alone: dict[str, None] = {}
    items: dict[str, dict[str, None]] = {}  # fields of lists and maps, by the path in an item
    for of in pods:
        template = _dotted(of.template)
        if of.at and of.at[-1].form in {"[]", "{}"}:
            parents[_dotted(of.at[:-1])] = items.setdefault(template, {})[of.at[-1].field] = None
        elif template:
            parents[_dotted(of.at)] = alone[template] = None
    # Every field is read in every parent `s`: the API server removes those that a kind does not have.
    roots = _joined(f"?'{_pointer(at)}': object{_optional(at)}" for at in parents)
    templates = [_list(f"s{_optional(at)}" for at in alone)]
    pointed = ["[{", _joined(f"?(p + '{_pointer(at)}'): s{_optional(at)}" for at in alone), "}]"]
    for at, fields in items.items():
        each = f"\n    + {literal([*fields])}.map(f, s[?f].orValue([])"
        below = f"p + '/' + f + '/' + string(k).replace('~', '~0').replace('/', '~1') + '{_pointer(at)}'"
        templates.append(f"{each}.transformList(k, i, i{_optional(at)})).flatten()")
        pointed.append(f"{each}.transformMapEntry(k, i,\n      {{?({below}): i{_optional(at)}}}))")
    return {
        "templates": f"{_list(f'o{_optional(at)}' for at in parents)}.map(s, {''.join(templates)}).flatten()",
        "templatePlaces": f"{{{roots}}}.transformList(p, s, {''.join(pointed)}).flatten()",
        "resources": _list(f"{_at(of.at)}.?{of.resources}" for of in pods if of.resources),
        "rayClusters": _list(_at(of.at) for of in pods if of.adds == "ray"),
    }


def _pointer(path: str) -> str:
    return f"/{path.replace('.', '/')}"


def gang_specs() -> str:
    """CEL of the specs of the object `o` that name a Volcano queue."""
    kinds_of = grouped((_dotted(kind.gang), key(kind)) for kind in KINDS if kind.gang)
    choices = (f"variables.kind in {literal(keys)} ? [o.{path}]" for path, keys in kinds_of.items())
    return " : ".join((*choices, "[]"))


def sizes(of: Iterable[WorkloadKind]) -> str:
    """CEL of a map of the fields by which the object `o` gets more pods than Kueue counted, by their paths."""
    found: dict[str, str] = {}
    for kind in of:
        if kind.suspend:
            found[_dotted(kind.suspend)] = f"{_at(kind.suspend)}.orValue(false)"
        for pods in kind.pods if kind.suspend or kind.groups else ():
            fields, form = [*pods.count, *pods.sizes], pods.at[-1].form if pods.at else ""
            if form in {"[]", "{}"} and fields:
                values = ", ".join(f"v{_optional(field)}" for field in fields)
                items = f"orValue({form}).transform{'List' if form == '[]' else 'Map'}(k, v, [{values}])"
                found[f"{_dotted(pods.at)}{form}"] = f"{_at(pods.at)}.{items}"
            elif form in {"", "?"}:
                found |= {f"{_dotted(pods.at)}.{field}": f"{_at(pods.at)}{_optional(field)}" for field in fields}
    return "{" + _joined(f"{literal(name)}: dyn({value})" for name, value in found.items()) + "}"


def _dotted(path: Iterable[Step]) -> str:
    return ".".join(step.field for step in path)


def _optional(field: str) -> str:
    """The optional value of a field, which can be a path with dots."""
    return f".?{field.replace('.', '.?')}"


def pod_counts() -> dict[str, str]:
    """CEL of how many pods the object `o` has: its items, by the fields that say so, and the number of an item `i`."""
    items: dict[str, str] = {}
    fields: dict[str, None] = {}
    # The groups of a kind are counted beside what has its pods.
    for kind in sorted(SIZED, key=lambda kind: kind.groups is None):
        pods = next(pods for pods in kind.pods if pods.count)
        at, within = (pods.at[:1], f"{pods.at[1].field}.") if kind.groups else (pods.at, "")
        own = [f"{within}{field}" for field in pods.count] + ["replicas"] * bool(kind.groups)
        fields |= dict.fromkeys(own)
        form = {"[]": "", "{}": ".optMap(m, dyn(m.map(k, m[k])))"}
        alone = f"{_optional(own[0])}.optMap(n, dyn([{_at(at).replace('?', '')}]))"
        place = ".".join(f"{step.field}{step.form}".rstrip("?") for step in at)
        items[f"{place}.{' * '.join(own)}"] = f"{_at(at)}{form.get(at[-1].form, alone)}"
    numbers = {field: f"int(i{_optional(field)}.orValue(1))" for field in fields}
    # KubeRay runs minReplicas if replicas is less.
    numbers["replicas"] = f"[{numbers['replicas']}, int(i.?minReplicas.orValue(0))].max()"
    places = "{" + _joined(f"?'{name}': {cel}" for name, cel in items.items()) + "}"
    return {"sized": places, "sizeOfItem": " * ".join(numbers.values()), "replicasOfItem": numbers["replicas"]}


def patches() -> str:
    """CEL of the partial pod specs of `object`: lists of lists of optional values."""
    texts = (_items("object", path) for kind in KINDS for path in kind.patches)
    return "\n  + ".join(text if text.count(".map(") > 1 else f"[{text}]" for text in texts)


def secret_names() -> str:
    """CEL of the names of Secrets outside of the pods of the object `o`: lists of lists of optional values."""
    places = grouped((secrets.names, _at(secrets.at)) for kind in KINDS for secrets in kind.secrets)
    return "\n    + ".join(
        f"{_list(found)}\n      .map(c, {' + '.join(f'[{text}]' if '.map(' not in text else text for text in texts)})"
        for names, found in places.items()
        for texts in [[_items("c", path) for path in names]]
    )


def _items(item: str, path: tuple[Step, ...]) -> str:
    """The optional value at a path from an item, or a list of them for each list in the path."""
    # The first list or map.
    many = next((index for index, step in enumerate(path) if step.form in {"[]", "{}"}), None)
    if many is None:
        return f"{item}{_fields(path)}" if path else f"optional.of({item})"
    return f"{item}{_fields(path[: many + 1])}.orValue([]).map(i, {_items('i', path[many + 1 :])})"


def _at(path: Iterable[Step]) -> str:
    return f"o{_fields(path)}"


def _fields(path: Iterable[Step]) -> str:
    return "".join(f".?{step.field}" for step in path)


def _list(items: Iterable[str]) -> str:
    return f"[{_joined(dict.fromkeys(items))}]"
