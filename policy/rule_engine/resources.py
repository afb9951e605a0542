"""Resources of a Pulumi program, and their parts that rules check."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Generic, Protocol, TypeVar

from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import analyzer_pb2

from rule_engine.reading import Plain, Reads, Unknown, UnknownValueError, View, is_whole, read_struct
from rule_engine.values import Secrets

_KUBERNETES: Final = "kubernetes:"
_PATCH: Final = "Patch"
"""Suffix of the types of Pulumi's patches, which have a part of an object: `DeploymentPatch`.
https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/managing-resources-with-server-side-apply/"""
_LIST: Final = "List"
_STACK: Final = "gpu-tenancy:"  # begins the types of this project's components
_OF_ALL: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})  # fields of all Kubernetes objects
_HIDDEN: Final = {"kubernetes:core/v1:Secret": ("data", "stringData")}


class Placed(Protocol):
    """A resource, or a part of one, that a rule checks, with its place."""

    @property
    def resource(self) -> "Resource":
        """The resource: of itself, a resource is the whole."""
        ...

    @property
    def place(self) -> str:
        """The place for messages: `Job ml-research/nightly, container main`."""
        ...


T = TypeVar("T")
S = TypeVar("S", bound=Placed)


@dataclass(slots=True, eq=False)
class Resource:
    """One resource, as Pulumi's engine passes it to a policy."""

    type: str  # its type token, `kubernetes:apps/v1:Deployment`; of a patch (`DeploymentPatch`), that of the object
    urn: str = ""
    name: str = ""
    ignored: tuple[str, ...] = ()  # properties in `ignoreChanges`
    secrets: Secrets = field(default_factory=Secrets, repr=False)  # that messages must not show
    # URNs of the dependencies of each property that the program set. Empty if a resource is evaluated alone: the engine
    # sends this only for a whole stack.
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]], repr=False)
    patch: bool = False
    # Notes the fields of a patch that are read, if the rest is unknown
    reads: Reads | None = field(default=None, repr=False)
    _struct: Struct | None = field(default=None, repr=False)
    _props: View | None = field(default=None, repr=False)
    _found: dict[object, object] = field(default_factory=dict[object, object], repr=False)
    _read: dict[object, Reads] = field(default_factory=dict[object, Reads], repr=False)

    @property
    def resource(self) -> "Resource":
        """Itself, as a part has the resource that it is of."""
        return self

    @property
    def props(self) -> View:
        """Its inputs; in a whole stack, its outputs, without unknown values that the cloud will set."""
        if self._props is None:
            props = read_struct(self._struct, self.secrets) if self._struct is not None else {}
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
    def group(self) -> str:
        """API group of a Kubernetes object (`core` for the unnamed one); else empty."""
        if not self.type.startswith(_KUBERNETES):
            return ""
        return self.type.split(":")[1].split("/")[0]

    @property
    def object_kind(self) -> str:
        """API group and kind of a Kubernetes object, also of a patch: `apps:Deployment`."""
        return f"{self.group}:{self.kind}"

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
        kind = f"{self.kind}Patch" if self.patch else self.kind
        if not self.group:
            return f"{kind} {self.name}"
        try:
            name = self.props.text("metadata", "name") or self.name
            namespace = self.props.text("metadata", "namespace")
        except UnknownValueError:
            return f"{kind} {self.name}"
        return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"

    def parts(self, subject: "Subject[S]") -> list[S]:
        """The parts of this resource that a rule checks; computed once for all rules with this subject."""
        return self.once(subject, lambda: list(subject.find(self)) if subject.selects(self) else [])

    def objects(self) -> "list[Resource]":
        """Its objects: the items of a list, else itself. A list of unknown length has one unknown item."""
        if not item_type(self.type, {"apiVersion": "v1", "kind": "Any"}):
            return [self]
        items = self.props.value.get("items") if isinstance(self.props.value, dict) else None
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
        """The names of its own fields: fields of its spec, and all others beside its metadata."""
        fields = self.props.value if isinstance(self.props.value, dict) else {}
        spec = fields.get("spec", {})
        return {key for key in fields if key not in _OF_ALL} | ({*spec} if isinstance(spec, dict) else {"spec"})

    def patched(self, patch: "Resource") -> "Resource":
        """The object after a patch; messages name the patch."""
        props = View(merged(self.props.value, patch.props.value))
        return replace(patch, reads=None, needs={}, _props=props, _struct=None, _found={}, _read={})

    def once(self, key: Hashable, find: Callable[[], T]) -> T:
        """A fact that several rules need, computed once by `find`; an unknown result is cached too."""
        if self.reads is None:
            return remembered(self._found, key, find)
        before = self.reads.take()
        try:
            return remembered(self._found, key, find)
        finally:
            read = self._read.setdefault(key, self.reads.take())
            self.reads.add(before)
            self.reads.add(read)


def remembered(facts: dict[object, object], key: Hashable, find: Callable[[], T]) -> T:
    """The fact under a key, computed once by `find`; an `UnknownValueError` of `find` is raised each time."""
    if key not in facts:
        try:
            facts[key] = find()
        except UnknownValueError as error:
            facts[key] = error
    fact = facts[key]
    if isinstance(fact, UnknownValueError):
        raise UnknownValueError(fact.path, fact.why)
    return fact  # pyright: ignore[reportReturnType] - what `find` of this key gave


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A resource, or a part of one; `label` is the part's name, empty if messages show only the resource."""

    resource: Resource
    view: View
    label: str = ""

    @property
    def place(self) -> str:
        """The resource, and the name of the part."""
        return f"{self.resource.place}, {self.label}" if self.label else self.resource.place


@dataclass(frozen=True, slots=True, eq=False)
class Subject(Generic[S]):
    """A kind of part that rules check, and how it is found in a resource."""

    name: str  # for the documentation: `containers`
    selects: Callable[[Resource], bool]  # reads only the type
    find: Callable[[Resource], Iterable[S]]  # may raise `UnknownValueError`


def kubernetes(*kinds: str) -> Callable[[Resource], bool]:
    """Selects Kubernetes objects of these kinds and patches of them, each `group:Kind`, in any version."""
    wanted = frozenset(kinds)
    return lambda resource: resource.object_kind in wanted


def read(
    request: analyzer_pb2.AnalyzeRequest | analyzer_pb2.AnalyzerResource, secrets: Secrets | None = None
) -> Resource:
    """Reads a resource of the analyzer protocol; all resources of a stack can share `secrets`."""
    type_, is_patch = object_type(request.type)
    needs: dict[str, tuple[str, ...]] = {}
    if isinstance(request, analyzer_pb2.AnalyzerResource):
        needs = {key: tuple(dependencies.urns) for key, dependencies in request.propertyDependencies.items()}
    return Resource(
        type_,
        request.urn,
        request.name,
        ignored=tuple(request.options.ignoreChanges),
        secrets=Secrets() if secrets is None else secrets,
        needs=needs,
        patch=is_patch,
        reads=Reads() if is_patch else None,
        _struct=request.properties,
    )


def object_type(type_: str) -> tuple[str, bool]:
    """The type of the object that a resource is or patches, and whether it is a patch."""
    token = type_.removesuffix(_PATCH)
    is_patch = type_.startswith(_KUBERNETES) and token != type_ and not token.endswith(":")
    return (token, True) if is_patch else (type_, False)


def item_type(type_: str, item: Plain) -> str:
    """The type of an item: from the list's type, or from the item in a list of any kinds; empty if it is no list."""
    token = type_.removesuffix(_LIST)
    if not type_.startswith(_KUBERNETES) or token == type_:
        return ""
    if not token.endswith(":"):
        return token
    fields = item if isinstance(item, dict) else {}
    version, kind = fields.get("apiVersion"), fields.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return ""
    return f"{_KUBERNETES}{version if '/' in version else f'core/{version}'}:{kind}"


def merged(below: Plain, above: Plain, field: str = "") -> Plain:
    """The result of server-side apply of a patch's value to an object's; `field` is the name of their field."""
    if isinstance(below, dict) and isinstance(above, dict) and not is_whole(field, is_list=False):
        both = {key: merged(below[key], above[key], key) for key in below if key in above}
        return {**below, **above, **both}
    if isinstance(below, list) and isinstance(above, list) and not is_whole(field, is_list=True):
        return [*_merged_items(below, above)]
    return above


def _merged_items(below: list[Plain], above: list[Plain]) -> Iterator[Plain]:
    named = {item_name(item): item for item in above}
    known = {item_name(item) for item in below}
    for item in below:
        yield merged(item, named[item_name(item)]) if item_name(item) in named else item
    yield from (item for item in above if item_name(item) not in known)


def item_name(item: Plain) -> str:
    """The name of an item of a list; empty without."""
    name = item.get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) else ""
