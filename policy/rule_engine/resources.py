"""Resources of a Pulumi program, and the parts of them that rules are about."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Generic, Protocol, TypeVar

from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import analyzer_pb2

from rule_engine.patches import item_type, merged, object_type
from rule_engine.reading import Plain, Reader, Unknown, UnknownValueError, View
from rule_engine.reads import Reads
from rule_engine.secrets import Secrets

_KUBERNETES: Final = "kubernetes:"
_STACK: Final = "gpu-tenancy:"
"""Begins the types of this project's components."""
_OF_ALL: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
"""Fields of all Kubernetes objects."""
_HIDDEN: Final = {"kubernetes:core/v1:Secret": ("data", "stringData")}


class Placed(Protocol):
    """A part of a resource that a rule checks, with its place."""

    @property
    def place(self) -> str:
        """The place for messages: `Job ml-research/nightly, container main`."""
        ...


T = TypeVar("T")
S = TypeVar("S", bound=Placed)


@dataclass(slots=True, eq=False)
class Resource:
    """One resource, as Pulumi's engine passes it to a policy.

    Attributes:
        type: its type token, `kubernetes:apps/v1:Deployment`; of a patch, that of the object.
        protect: whether Pulumi refuses to delete it.
        ignored: properties in `ignoreChanges`.
        secrets: values of this resource that messages must not show.
        needs: for each property that the program set, the URNs of the resources that it depends on; empty if a
            resource is evaluated alone, because the engine sends this only for a whole stack.
        patch: whether it is a patch of an object (`DeploymentPatch`).
        reads: notes what is read of a patch if the rest of the object is unknown; else None.
    """

    type: str
    urn: str = ""
    name: str = ""
    protect: bool = False
    ignored: tuple[str, ...] = ()
    secrets: Secrets = field(default_factory=Secrets, repr=False)
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]], repr=False)
    patch: bool = False
    reads: Reads | None = field(default=None, repr=False)
    _struct: Struct | None = field(default=None, repr=False)
    _props: View | None = field(default=None, repr=False)
    _found: dict[object, object] = field(default_factory=dict[object, object], repr=False)
    _read: dict[object, Reads] = field(default_factory=dict[object, Reads], repr=False)

    @property
    def props(self) -> View:
        """Its inputs; in a whole stack, its outputs. Read once, on first use.

        Values that a preview of a stack does not know and the program did not set are left out: the cloud sets them.
        """
        if self._props is None:
            props = Reader(self.secrets).read(self._struct) if self._struct is not None else {}
            for key in _HIDDEN.get(self.type, ()):
                self.secrets.keep(props.get(key), whole=True)
            if self.needs:
                props = {
                    key: value for key, value in props.items() if key in self.needs or not isinstance(value, Unknown)
                }
            self._props = View(props, (), self.reads)
        return self._props

    @property
    def kind(self) -> str:
        """The last part of its type: `Deployment`."""
        return self.type.rpartition(":")[2]

    @property
    def shown_kind(self) -> str:
        """The kind as messages show it: `DeploymentPatch` for a patch."""
        return f"{self.kind}Patch" if self.patch else self.kind

    @property
    def group(self) -> str:
        """API group of a Kubernetes object (`core` for the unnamed one); else empty."""
        if not self.type.startswith(_KUBERNETES):
            return ""
        return self.type.split(":")[1].split("/")[0]

    @property
    def of_stack(self) -> bool:
        """Whether a component of GPU tenancy made it, from a stack's file: its URN has the types of its parents."""
        _, _, types = self.urn.partition("::")[2].partition("::")
        return types.startswith(_STACK) or f"${_STACK}" in types

    @property
    def place(self) -> str:
        """Kind, namespace and name of a Kubernetes object; else the kind and its name in the program."""
        return self.once("place", self._place)

    def _place(self) -> str:
        if not self.group:
            return f"{self.shown_kind} {self.name}"
        try:
            name = self.props.text("metadata", "name") or self.name
            namespace = self.props.text("metadata", "namespace")
        except UnknownValueError:
            return f"{self.shown_kind} {self.name}"
        return f"{self.shown_kind} {namespace}/{name}" if namespace else f"{self.shown_kind} {name}"

    def parts(self, subject: "Subject[S]") -> list[S]:
        """The parts of this resource that a rule checks; computed once for all rules with this subject.

        Raises:
            UnknownValueError: they are unknown.
        """
        return self.once(subject, lambda: list(subject.find(self)) if subject.selects(self) else [])

    def objects(self) -> "list[Resource]":
        """The objects that it has: the items of a list, else itself. A list of unknown length has one unknown item."""
        if not item_type(self.type, {"apiVersion": "v1", "kind": "Any"}):
            return [self]
        value = self.props.value
        items: Plain = value.get("items") if isinstance(value, dict) else None
        if isinstance(items, Unknown):
            return [self._item(items, ("items",))]
        if not isinstance(items, list):
            return [self]
        return [self._item(item, ("items", str(index))) for index, item in enumerate(items)]

    def _item(self, value: Plain, path: tuple[str, ...]) -> "Resource":
        type_ = item_type(self.type, value)
        if isinstance(value, dict):
            for key in _HIDDEN.get(type_, ()):
                self.secrets.keep(value.get(key), whole=True)
        return replace(self, type=type_, reads=None, _props=View(value, path), _struct=None, _found={}, _read={})

    def content(self) -> set[str]:
        """The names of its fields that say what it is: those of its spec, and all others beside its metadata."""
        fields = self.props.value if isinstance(self.props.value, dict) else {}
        spec = fields.get("spec", {})
        return {key for key in fields if key not in _OF_ALL} | ({*spec} if isinstance(spec, dict) else {"spec"})

    def patched(self, patch: "Resource") -> "Resource":
        """The object that a patch leaves of this one; messages name the patch.

        Raises:
            UnknownValueError: the properties of one of them are unknown.
        """
        props = View(merged(self.props.value, patch.props.value))
        return replace(patch, reads=None, needs={}, _props=props, _struct=None, _found={}, _read={})

    def once(self, key: Hashable, find: Callable[[], T]) -> T:
        """A fact that several rules need, computed once; an unknown result is cached too.

        Args:
            key: identifies the fact within this resource.
            find: computes it.

        Raises:
            UnknownValueError: it is unknown.
        """
        before = (self.reads or Reads()).take()
        if key not in self._found:
            try:
                self._found[key] = find()
            except UnknownValueError as error:
                self._found[key] = error
            if self.reads:
                self._read[key] = self.reads.take()
        if self.reads:
            self.reads.add(before)
            self.reads.add(self._read[key])
        fact = self._found[key]
        if isinstance(fact, UnknownValueError):
            raise UnknownValueError(fact.path, fact.why)
        return fact  # pyright: ignore[reportReturnType] - what `find` of this key gave


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of a resource that has no place of its own in messages."""

    resource: Resource

    @property
    def place(self) -> str:
        """The place of its resource."""
        return self.resource.place


@dataclass(frozen=True, slots=True, eq=False)
class Subject(Generic[S]):
    """A kind of part that rules check, and how it is found in a resource.

    Attributes:
        name: its name in the documentation: `containers`.
        selects: whether a resource can have such parts; reads only the type.
        find: the parts of one resource; may raise `UnknownValueError`.
    """

    name: str
    selects: Callable[[Resource], bool]
    find: Callable[[Resource], Iterable[S]]


def kubernetes(*kinds: str) -> Callable[[Resource], bool]:
    """Selects Kubernetes objects of these kinds and patches of them, each `group:Kind`, in any version."""
    wanted = frozenset(kinds)
    return lambda resource: f"{resource.group}:{resource.kind}" in wanted


def typed(*tokens: str) -> Callable[[Resource], bool]:
    """Selects resources with these type tokens."""
    wanted = frozenset(tokens)
    return lambda resource: resource.type in wanted


def read(
    request: analyzer_pb2.AnalyzeRequest | analyzer_pb2.AnalyzerResource, secrets: Secrets | None = None
) -> Resource:
    """Reads a resource of the analyzer protocol.

    Args:
        request: the engine's message.
        secrets: shared by all resources of a stack; by default, the resource has its own.
    """
    options = request.options
    type_, is_patch = object_type(request.type)
    return Resource(
        type_,
        request.urn,
        request.name,
        protect=options.protect,
        ignored=tuple(options.ignoreChanges),
        secrets=Secrets() if secrets is None else secrets,
        needs=_needs(request) if isinstance(request, analyzer_pb2.AnalyzerResource) else {},
        patch=is_patch,
        reads=Reads() if is_patch else None,
        _struct=request.properties,
    )


def _needs(request: analyzer_pb2.AnalyzerResource) -> dict[str, tuple[str, ...]]:
    return {key: tuple(dependencies.urns) for key, dependencies in request.propertyDependencies.items()}
