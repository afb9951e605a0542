"""Pod specs and containers in objects of any kind, found by their shape.

Operators define new kinds with pods all the time, at paths of their own: a table of kinds is never complete. A pod spec
is recognised by its fields wherever it is: in a template, inlined in another map (KServe's predictor), partial
(overrides of a TrainJob), or in a manifest within an object (AppWrapper).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from rule_engine import Unknown, UnknownValueError, View
from rule_engine.reading import Path, Plain, Reads
from rule_engine.resources import item_name

CONTAINER_LISTS: Final = ("containers", "initContainers", "ephemeralContainers")
"""Fields of a pod spec with containers:
https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#podspec-v1-core."""
_MORE_LISTS: Final = frozenset({"sidecars", "steps"})
"""Lists of containers outside pod specs: Argo Workflows and the Spark operator, Tekton."""
_CONTAINER_MAPS: Final = frozenset({"container", "script", "stepTemplate"})
"""Maps that are a container: Argo Workflows (`container`, `script`), Tekton (`stepTemplate`)."""
_FLAGS: Final = frozenset({"hostPID", "hostIPC", "hostNetwork"})
_LISTS: Final = frozenset({*CONTAINER_LISTS, "volumes", "tolerations", "resourceClaims"})
_POD_FIELDS: Final = (
    frozenset({"affinity", "dnsConfig", "hostAliases", "imagePullSecrets", "nodeSelector", "readinessGates"})
    | frozenset({"schedulingGates", "securityContext", "topologySpreadConstraints"})
    | _LISTS
    | _FLAGS
)
_PRIVILEGES: Final = frozenset({"allowPrivilegeEscalation", "capabilities", "privileged", "procMount"})
"""Fields of the security context of a container that a pod's does not have."""
_CONTAINER_FIELDS: Final = frozenset(
    {"env", "envFrom", "lifecycle", "livenessProbe", "ports", "readinessProbe", "securityContext", "startupProbe"}
    | {"volumeDevices", "volumeMounts"}
)
_TYPES: Final = {"env": list, "envFrom": list, "resources": dict, "securityContext": dict, "volumeMounts": list}
"""Types of fields of a container."""
_FIELDS: Final = {"pod": _POD_FIELDS, "part": _POD_FIELDS, "container": _CONTAINER_FIELDS}
_NOT_SEARCHED: Final = frozenset({"metadata", "status"})
"""Top-level fields of an object without pods that anybody starts."""

Form = Literal["pod", "part", "container"]


@dataclass(frozen=True, slots=True)
class Found:
    """A pod spec, or a part of one."""

    form: Form  # `pod`: with containers; `part`: some fields; `container`: a container that is in no list of them
    view: View
    meta: View  # metadata beside its map; a view of None without
    label: str  # where it is, with names in place of numbers where items have one
    resources: str = "resources"  # the field of `view` with resources, if that is a container's


@dataclass(frozen=True, slots=True)
class _Node:
    """A map of the object, on the way through it."""

    value: dict[str, Plain]
    path: Path
    label: tuple[str, ...]
    above: dict[str, Plain] | None
    reads: Reads | None
    is_container: bool = False
    is_inside: bool = False
    """Whether it is in a field of a pod spec or of a container, in which only whole pod specs are found."""


def find_pods(properties: View, known: frozenset[Path] = frozenset()) -> Iterator[Found]:
    """All pod specs, parts of them, and containers of an object, in the order of its sorted keys.

    Without recursion, so that no depth of nesting ends the search. The maps at the `known` paths are not searched,
    because a table has them, and maps around them are no pod specs. Raises UnknownValueError if a whole field of the
    object is unknown.
    """
    around = {path[:length] for path in known for length in range(len(path))}
    top: dict[str, Plain] = {}
    for key, view in properties.entries().items():
        if key in _NOT_SEARCHED:
            continue
        if isinstance(view.value, Unknown):
            raise UnknownValueError(view.path, view.value.why)
        top[key] = view.value
    pending: list[_Node] = [_Node(top, properties.path, (), None, properties.reads)]
    while pending:
        node = pending.pop()
        if node.path in known:
            continue
        found = [] if node.path in around else [*_of(node)]
        yield from (pod for pod in found if pod.form == "pod" or not node.is_inside)
        pending += reversed([*_below(node, frozenset[str]().union(*(_FIELDS[pod.form] for pod in found)))])


def _below(node: _Node, fields: frozenset[str]) -> Iterator[_Node]:
    """The maps right below a map, or in lists below it; `fields` are a pod spec's or a container's fields."""
    for key in sorted(node.value):
        is_inside = node.is_inside or key in fields
        values = [(node.value[key], (*node.path, key), (*node.label, key))]
        while values:
            value, path, label = values.pop()
            if isinstance(value, dict):
                is_item = key in _MORE_LISTS and len(path) > len(node.path) + 1
                is_container = is_item or path[-1] in _CONTAINER_MAPS
                yield _Node(value, path, label, node.value, node.reads, is_container, is_inside)
            elif isinstance(value, list):
                values += [
                    (inner, (*path, str(index)), (*label, item_name(inner) or str(index)))
                    for index, inner in reversed([*enumerate(value)])
                ]


def _of(node: _Node) -> Iterator[Found]:
    view, value = View(node.value, node.path, node.reads), node.value
    is_pod = _is_pod(value)
    if is_pod or _is_part(value):
        label = node.label[:-1] if node.label[-1:] == ("spec",) else node.label
        above = value if "metadata" in value else node.above or {}
        meta = View(above.get("metadata"), (*node.path[: None if above is value else -1], "metadata"), node.reads)
        yield Found("pod" if is_pod else "part", view, meta, ".".join(label))
    if is_pod:
        return
    label = ".".join(node.label)
    resources = [key for key in sorted(value) if _are_resources(key, value[key])]
    if node.is_container or resources or _is_container(value):
        first, *more = resources or ["resources"]
        meta = View(value.get("metadata"), (*node.path, "metadata"), node.reads)
        yield Found("container", view, meta, label, first)
        for key in more:
            yield Found("container", View({key: value[key]}, node.path, node.reads), View(None), f"{label}.{key}", key)


def _is_pod(value: dict[str, Plain]) -> bool:
    """Whether a map has a list of containers, or one that is not known yet."""
    items = value.get("containers")
    if not isinstance(items, list):
        return isinstance(items, Unknown)
    # The fields of a container have these types, where it has them.
    types = {key: (type(None), Unknown, type_) for key, type_ in _TYPES.items()}
    maps = (item for item in items if isinstance(item, dict))
    return any(all(isinstance(item.get(key), allowed) for key, allowed in types.items()) for item in maps)


def _is_part(value: dict[str, Plain]) -> bool:
    return (
        not _FLAGS.isdisjoint(value)
        or any(_of_maps(value.get(key)) for key in _LISTS)
        or isinstance(value.get("priorityClassName"), str)
        or isinstance(value.get("terminationGracePeriodSeconds"), int | float | str)
        or _has(value.get("affinity"), frozenset({"podAffinity", "podAntiAffinity"}))
        or _has(value.get("podSecurityContext"), frozenset({"windowsOptions", "seccompProfile", "sysctls"}))
        or _has(value.get("securityContext"), frozenset({"windowsOptions", "sysctls"}))
    )


def _is_container(value: dict[str, Plain]) -> bool:
    return (
        any(_of_maps(value.get(key)) for key in ("env", "envFrom", "volumeDevices"))
        or _has(value.get("securityContext"), _PRIVILEGES)
        or _has(value.get("gpu"), frozenset({"quantity"}))
    )


def _are_resources(key: str, value: Plain) -> bool:
    """Whether a field has requests and limits: `resources`, `resourcesPerNode`, `workerResources`."""
    return (
        "resource" in key.lower()
        and isinstance(value, dict)
        and any(isinstance(value.get(side), (dict, Unknown)) for side in ("limits", "requests"))
    )


def _has(value: Plain, keys: frozenset[str]) -> bool:
    return isinstance(value, dict) and not keys.isdisjoint(value)


def _of_maps(value: Plain) -> bool:
    """Whether a value is a list with a map in it."""
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def strings(properties: View) -> Iterator[View]:
    """All strings of an object outside of its metadata and status."""
    pending = [View(properties.value, properties.path, properties.reads)]
    while pending:
        view = pending.pop()
        if isinstance(view.value, str):
            yield view
        elif isinstance(view.value, list):
            pending += reversed(view.items())
        elif isinstance(view.value, dict):
            top = view.path == properties.path
            entries = [item for key, item in view.entries().items() if not (top and key in _NOT_SEARCHED)]
            pending += reversed(entries)
