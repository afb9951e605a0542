"""The Kubernetes objects among a program's registrations, as an API server gets them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpu_tenancy.console.offline.recording import shown
from gpu_tenancy.console.offline.wire import text_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpu_tenancy.console.offline.recording import Registration
    from gpu_tenancy.console.offline.render import Rendered
    from gpu_tenancy.console.offline.wire import Json, Path

_FIRST_KEYS = ("apiVersion", "kind", "metadata")


@dataclass(frozen=True, slots=True)
class KubernetesObject:
    """One object that a program declares.

    `manifest` is what goes to an API server, secrets in clear and therefore out of the `repr`; `shown` is
    what may be written down. `depends_on` has the URNs of the objects that the program wants to be there
    before this one.
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
        """`metadata.name`, or the empty string where it is absent, unknown or a secret."""
        return self._told("metadata", "name")

    @property
    def namespace(self) -> str:
        """`metadata.namespace`, or the empty string where it is absent, unknown or a secret."""
        return self._told("metadata", "namespace")

    def withheld(self, *path: str) -> str:
        """Why the value at a path cannot be told: `unknown`, `secret`, or the empty string where it can."""
        for reason, paths in (("unknown", self.unknown_paths), ("secret", self.secret_paths)):
            if any(path[: len(hidden)] == hidden for hidden in paths):
                return reason
        return ""

    def _told(self, *path: str) -> str:
        return "" if self.withheld(*path) else text_at(self.manifest, *path)

    @property
    def shown(self) -> Mapping[str, Json]:
        """The manifest as it may be written down, with `[secret]` and `[unknown]` in place of such values."""
        return shown(self.manifest, self.secret_paths, self.unknown_paths)


def is_object(registration: Registration) -> bool:
    """Whether a registration becomes one object: not a component, a provider, a release or something read."""
    package, _, rest = registration.type.partition(":")
    return (
        package == "kubernetes"
        and registration.custom
        and not registration.external_id
        and not rest.startswith("helm.sh/")
    )


def kubernetes_objects(rendered: Rendered) -> tuple[KubernetesObject, ...]:
    """Returns the objects that a stack declares, in the order of their URNs."""
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
    """A Secret's data is secret even where the program forgot to say so."""
    if registration.inputs.get("kind") != "Secret":
        return ()
    return tuple((key,) for key in ("data", "stringData") if key in registration.inputs)


@dataclass(frozen=True, slots=True)
class _Step:
    """A resource on the way to what is needed: the whole of it with its children, or only what it waits for."""

    urn: str
    whole: bool = False


class _Needs:
    """Which objects must be there before another, by the rules of Pulumi's engine.

    A dependency on a component is one on all its children. A resource that is no object here (a Helm release,
    a node pool, a provider) passes on what it needs itself. A child waits for its parent's URN, so a child of
    an object needs that object, and a child of a component what the component needs.
    """

    def __init__(self, registrations: Iterable[Registration]) -> None:
        self._known: dict[str, Registration] = {}
        self._children: dict[str, list[str]] = {}
        self._met: dict[_Step, frozenset[str]] = {}
        for registration in registrations:
            self._known.setdefault(registration.urn, registration)
            self._children.setdefault(registration.parent, []).append(registration.urn)

    def of(self, registration: Registration) -> tuple[str, ...]:
        return tuple(sorted(self._objects(_Step(registration.urn)) - {registration.urn}))

    def _objects(self, start: _Step) -> frozenset[str]:
        """All objects on the way from a step; whoever shares a parent shares what the parent waits for."""
        if start in self._met:
            return self._met[start]
        found: set[str] = set()
        seen = {start}
        left = [start]
        while left:
            step = left.pop()
            if step in self._met:
                found |= self._met[step]
                continue
            registration = self._known[step.urn]
            if step.whole and is_object(registration):
                found.add(step.urn)
                continue
            for each in self._next(registration, step):
                if each not in seen:
                    seen.add(each)
                    left.append(each)
        self._met[start] = frozenset(found)
        return self._met[start]

    def _next(self, registration: Registration, step: _Step) -> Iterator[_Step]:
        if step.whole:  # No object: all its children, and what it waits for itself.
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
