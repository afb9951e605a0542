"""The Kubernetes objects of a program, as sent to an API server, and the waves in which they are applied."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Final, TypeAlias, cast
from weakref import WeakKeyDictionary

from gpu_tenancy.base.json import Json, Path, text_at
from gpu_tenancy.engine.recording import Registration, shown
from gpu_tenancy.engine.render import Rendered

_FIRST_KEYS = ("apiVersion", "kind", "metadata")


@dataclass(frozen=True, slots=True)
class KubernetesObject:
    """One declared object. `manifest` has secrets in clear text, `shown` has none; `depends_on` has URNs."""

    manifest: Mapping[str, Json] = field(repr=False)
    urn: str
    depends_on: tuple[str, ...] = ()
    secret_paths: tuple[Path, ...] = ()
    unknown_paths: tuple[Path, ...] = ()

    @property
    def api_version(self) -> str:
        """Group and version, such as `apps/v1`."""
        return text_at(self.manifest, "apiVersion")

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def kind(self) -> str:
        """The kind, such as `Deployment`."""
        return text_at(self.manifest, "kind")

    @property
    def name(self) -> str:
        """`metadata.name`, or the empty string if it is missing, unknown or secret."""
        return self._known("metadata", "name")

    @property
    def namespace(self) -> str:
        """`metadata.namespace`, or the empty string if it is missing, unknown or secret."""
        return self._known("metadata", "namespace")

    def withheld(self, *path: str) -> str:
        """Why the value at a path cannot be shown: `unknown` or `secret`; the empty string if it can."""
        if not self.unknown_paths and not self.secret_paths:  # as of most objects
            return ""
        for reason, paths in (("unknown", self.unknown_paths), ("secret", self.secret_paths)):
            if any(path[: len(hidden)] == hidden for hidden in paths):
                return reason
        return ""

    def _known(self, *path: str) -> str:
        return "" if self.withheld(*path) else text_at(self.manifest, *path)

    @property
    def shown(self) -> Mapping[str, Json]:
        """The manifest for output, with `[secret]` and `[unknown]` in place of such values."""
        return shown(self.manifest, self.secret_paths, self.unknown_paths)


def is_object(registration: Registration) -> bool:
    """Whether a registration is one object: no component, provider or release, and not only read."""
    package, _, rest = registration.type.partition(":")
    return (
        package == "kubernetes"
        and registration.custom
        and not registration.external_id
        and not rest.startswith("helm.sh/")
    )


_KNOWN: Final[WeakKeyDictionary[Rendered, tuple[KubernetesObject, ...]]] = WeakKeyDictionary()


def kubernetes_objects(rendered: Rendered) -> tuple[KubernetesObject, ...]:
    """Returns the objects that a stack declares, in the order of their URNs."""
    objects = _KNOWN.get(rendered)
    if objects is None:
        needs = _Needs(rendered.registrations)
        declared = filter(is_object, rendered.registrations)
        objects = _KNOWN[rendered] = tuple(_object(registration, needs.of(registration)) for registration in declared)
    return objects


def _object(registration: Registration, depends_on: tuple[str, ...]) -> KubernetesObject:
    inputs = registration.inputs
    # The data of a Secret is secret even if the program did not mark it.
    data = ("data", "stringData") if inputs.get("kind") == "Secret" else ()
    return KubernetesObject(
        manifest={**{key: inputs[key] for key in _FIRST_KEYS if key in inputs}, **inputs},
        urn=registration.urn,
        depends_on=depends_on,
        secret_paths=tuple(dict.fromkeys((*registration.secret_paths, *((key,) for key in data if key in inputs)))),
        unknown_paths=registration.unknown_paths,
    )


_Step: TypeAlias = tuple[str, bool]  # a URN; whether with its children, or only its needs


class _Needs:
    """The objects that must exist before another, by the rules of the Pulumi engine.

    A dependency on a component includes all its children. A resource that is not an object (a Helm release, a node
    pool, a provider) passes on its dependencies. A child depends on its parent object, or on its parent component's
    dependencies.
    """

    def __init__(self, registrations: Iterable[Registration]) -> None:
        self._known: dict[str, Registration] = {}
        self._children: dict[str, list[str]] = {}
        self._met: dict[_Step, frozenset[str]] = {}
        self._same: dict[frozenset[str], frozenset[str]] = {}
        self._sorted: dict[frozenset[str], tuple[str, ...]] = {}
        self._alike: dict[tuple[str, str, tuple[str, ...]], frozenset[str]] = {}
        for registration in registrations:
            self._known.setdefault(registration.urn, registration)
            self._children.setdefault(registration.parent, []).append(registration.urn)

    def of(self, registration: Registration) -> tuple[str, ...]:
        alike = (registration.parent, registration.provider, registration.dependencies)
        if alike not in self._alike:
            self._alike[alike] = self._objects((registration.urn, False))
        urns = self._alike[alike] - {registration.urn}
        if urns not in self._sorted:
            self._sorted[urns] = tuple(sorted(urns))
        return self._sorted[urns]

    def _objects(self, start: _Step) -> frozenset[str]:
        if start in self._met:
            return self._met[start]
        urns: set[str] = set()
        seen, left = {start}, [start]
        while left:
            step = left.pop()
            if step in self._met:
                urns |= self._met[step]
                continue
            urn, whole = step
            if whole and is_object(self._known[urn]):
                urns.add(urn)
                continue
            following = [one for one in self._next(self._known[urn], whole=whole) if one not in seen]
            seen.update(following)
            left += following
        all_urns = frozenset(urns)
        self._met[start] = self._same.setdefault(all_urns, all_urns)  # siblings share one set
        return self._met[start]

    def _next(self, registration: Registration, *, whole: bool) -> Iterator[_Step]:
        if whole:  # Not an object: all its children and its own dependencies.
            yield registration.urn, False
            yield from ((child, True) for child in self._children.get(registration.urn, ()))
            return
        parent = above = self._known.get(registration.parent)
        ancestors: set[str] = set()
        while above is not None:
            ancestors.add(above.urn)
            above = self._known.get(above.parent)
        for urn in sorted({*registration.dependencies, registration.provider.rpartition("::")[0]} - ancestors):
            if urn in self._known:
                yield urn, True
        if parent is not None:
            yield parent.urn, is_object(parent)


class DependencyCycleError(ValueError):
    """Objects depend on each other; `cycle` has their URNs and ends with the first one."""

    def __init__(self, cycle: Sequence[str]) -> None:
        self.cycle = tuple(cycle)
        super().__init__("dependency cycle: " + " → ".join(self.cycle))


_Foundation: TypeAlias = tuple[str, str, str]  # Namespace, empty, name; or CustomResourceDefinition, group, kind


def waves(objects: Sequence[KubernetesObject]) -> tuple[tuple[KubernetesObject, ...], ...]:
    """Groups objects into waves; dependencies are in earlier waves, and a cycle raises DependencyCycleError.

    Namespaces and definitions of kinds are dependencies too: Pulumi's provider retries until they exist, but an apply
    by waves does not.
    """
    positions = {urn: index for index, urn in reversed([(index, item.urn) for index, item in enumerate(objects)])}
    foundations: dict[_Foundation, int] = {}
    for index, item in enumerate(objects):
        if (item.group, item.kind) == ("", "Namespace"):
            foundations.setdefault(("Namespace", "", item.name), index)
        elif item.kind == "CustomResourceDefinition":
            group, kind = (text_at(item.manifest, "spec", *path) for path in (("group",), ("names", "kind")))
            foundations.setdefault(("CustomResourceDefinition", group, kind), index)
    sorter = TopologicalSorter[int]()
    for index, item in enumerate(objects):
        before = {positions[urn] for urn in item.depends_on if urn in positions}
        needed = ("Namespace", "", item.namespace), ("CustomResourceDefinition", item.group, item.kind)
        before |= {foundations[key] for key in needed if key in foundations}
        sorter.add(index, *sorted(before - {index}))
    try:
        sorter.prepare()
    except CycleError as error:
        # graphlib lists a cycle from dependency to dependent; the message has the opposite order.
        members = cast("list[int]", error.args[1])
        raise DependencyCycleError([objects[index].urn for index in reversed(members)]) from None
    grouped: list[tuple[KubernetesObject, ...]] = []
    while sorter.is_active():
        ready = sorter.get_ready()
        grouped.append(tuple(objects[index] for index in sorted(ready)))
        sorter.done(*ready)
    return tuple(grouped)
