"""The Kubernetes objects of a program, as sent to an API server, and the waves in which they are applied."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Final, cast
from weakref import WeakKeyDictionary

from gpu_tenancy.base.json import Json, Path, text_at
from gpu_tenancy.engine.recording import Registration, shown
from gpu_tenancy.engine.render import Rendered

_FIRST_KEYS = ("apiVersion", "kind", "metadata")


@dataclass(frozen=True, slots=True)
class KubernetesObject:
    """One object that a program declares.

    `manifest` is for the API server and has secrets in clear text, so it is not in the `repr`. `shown` is for output.
    `depends_on` has the URNs of the objects that must exist first.
    """

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
    """Whether a registration is one object, and not a component, a provider, a release or only read."""
    package, _, rest = registration.type.partition(":")
    return (
        package == "kubernetes"
        and registration.custom
        and not registration.external_id
        and not rest.startswith("helm.sh/")
    )


_KNOWN: Final[WeakKeyDictionary[Rendered, tuple[KubernetesObject, ...]]] = WeakKeyDictionary()
"""The objects of each stack in use: problems, files, tree and report all ask for them."""


def kubernetes_objects(rendered: Rendered) -> tuple[KubernetesObject, ...]:
    """Returns the objects that a stack declares, in the order of their URNs."""
    objects = _KNOWN.get(rendered)
    if objects is None:
        objects = _KNOWN[rendered] = _objects(rendered)
    return objects


def _objects(rendered: Rendered) -> tuple[KubernetesObject, ...]:
    needs = _Needs(rendered.registrations)
    return tuple(
        KubernetesObject(
            manifest=_manifest(registration.inputs),
            urn=registration.urn,
            depends_on=needs.of(registration),
            secret_paths=tuple(dict.fromkeys((*registration.secret_paths, *_secret_data(registration)))),
            unknown_paths=registration.unknown_paths,
        )
        for registration in rendered.registrations
        if is_object(registration)
    )


def _manifest(inputs: Mapping[str, Json]) -> dict[str, Json]:
    order = (
        *(key for key in _FIRST_KEYS if key in inputs),
        *(key for key in inputs if key not in _FIRST_KEYS),
    )
    return {key: inputs[key] for key in order}


def _secret_data(registration: Registration) -> tuple[Path, ...]:
    """The data of a Secret, which is secret even if the program did not mark it."""
    if registration.inputs.get("kind") != "Secret":
        return ()
    return tuple((key,) for key in ("data", "stringData") if key in registration.inputs)


@dataclass(frozen=True, slots=True)
class _Step:
    """A node of the dependency search: a resource as a `whole` with its children, or only its dependencies."""

    urn: str
    whole: bool = False


class _Needs:
    """The objects that must exist before another, by the rules of the Pulumi engine.

    A dependency on a component is a dependency on all its children. A resource that is not an object (a Helm release,
    a node pool, a provider) passes on its own dependencies. A child depends on its parent object, or on the
    dependencies of its parent component.
    """

    def __init__(self, registrations: Iterable[Registration]) -> None:
        self._known: dict[str, Registration] = {}
        self._children: dict[str, list[str]] = {}
        self._met: dict[_Step, frozenset[str]] = {}
        self._same: dict[frozenset[str], frozenset[str]] = {}
        self._sorted: dict[frozenset[str], tuple[str, ...]] = {}
        for registration in registrations:
            self._known.setdefault(registration.urn, registration)
            self._children.setdefault(registration.parent, []).append(registration.urn)

    def of(self, registration: Registration) -> tuple[str, ...]:
        urns = self._objects(_Step(registration.urn)) - {registration.urn}
        if urns not in self._sorted:
            self._sorted[urns] = tuple(sorted(urns))
        return self._sorted[urns]

    def _objects(self, start: _Step) -> frozenset[str]:
        """All objects that a step depends on; results are kept, because siblings share their parent's."""
        if start in self._met:
            return self._met[start]
        urns: set[str] = set()
        seen = {start}
        left = [start]
        while left:
            step = left.pop()
            if step in self._met:
                urns |= self._met[step]
                continue
            registration = self._known[step.urn]
            if step.whole and is_object(registration):
                urns.add(step.urn)
                continue
            for following in self._next(registration, step):
                if following not in seen:
                    seen.add(following)
                    left.append(following)
        all_urns = frozenset(urns)
        self._met[start] = self._same.setdefault(all_urns, all_urns)  # siblings share one set
        return self._met[start]

    def _next(self, registration: Registration, step: _Step) -> Iterator[_Step]:
        if step.whole:  # Not an object: all its children and its own dependencies.
            yield _Step(step.urn)
            yield from (_Step(child, whole=True) for child in self._children.get(step.urn, ()))
            return
        ancestors = frozenset(self._ancestors(registration))
        provider = registration.provider.rpartition("::")[0]
        for urn in sorted({*registration.dependencies, provider} - ancestors):
            if urn in self._known:
                yield _Step(urn, whole=True)
        parent = self._known.get(registration.parent)
        if parent is not None:
            yield _Step(parent.urn, whole=is_object(parent))

    def _ancestors(self, registration: Registration) -> Iterable[str]:
        parent = self._known.get(registration.parent)
        while parent is not None:
            yield parent.urn
            parent = self._known.get(parent.parent)


class DependencyCycleError(ValueError):
    """Objects depend on each other; `cycle` has their URNs and ends with the first one."""

    def __init__(self, cycle: Sequence[str]) -> None:
        self.cycle = tuple(cycle)
        super().__init__("dependency cycle: " + " → ".join(self.cycle))


def waves(objects: Sequence[KubernetesObject]) -> tuple[tuple[KubernetesObject, ...], ...]:
    """Groups objects into waves, so that the dependencies of each object are in earlier waves.

    An object depends also on its namespace and the definition of its kind, if these are among the objects: Pulumi's
    provider retries until both exist, but an apply by waves does not. Each wave keeps the order of `objects`.

    Raises:
        DependencyCycleError: there is a dependency cycle.
    """
    positions = {urn: index for index, urn in reversed([(index, item.urn) for index, item in enumerate(objects)])}
    foundations = _foundations(objects)
    sorter = TopologicalSorter[int]()
    for index, item in enumerate(objects):
        before = {positions[urn] for urn in item.depends_on if urn in positions}
        before |= {foundations[key] for key in _foundations_of(item) if key in foundations}
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


_Foundation = tuple[str, str, str]


def _foundations(objects: Sequence[KubernetesObject]) -> dict[_Foundation, int]:
    positions: dict[_Foundation, int] = {}
    for index, item in enumerate(objects):
        if (item.group, item.kind) == ("", "Namespace"):
            positions.setdefault(("Namespace", "", item.name), index)
        elif item.kind == "CustomResourceDefinition":
            spec = ("spec", "group"), ("spec", "names", "kind")
            group, kind = (text_at(item.manifest, *path) for path in spec)
            positions.setdefault(("CustomResourceDefinition", group, kind), index)
    return positions


def _foundations_of(item: KubernetesObject) -> tuple[_Foundation, _Foundation]:
    return ("Namespace", "", item.namespace), ("CustomResourceDefinition", item.group, item.kind)
