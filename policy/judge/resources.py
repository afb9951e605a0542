"""What is judged: one resource of a Pulumi program, and a whole stack of them."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import analyzer_pb2

from judge.reading import CannotTellError, Reader, Unknown, View
from judge.secrets import Secrets

_KUBERNETES: Final = "kubernetes:"
_HIDDEN: Final = {"kubernetes:core/v1:Secret": ("data", "stringData")}


class Placed(Protocol):
    """What a rule judges: something of a resource that can say where it is."""

    @property
    def place(self) -> str:
        """Words that name it to a person: `Job ml-research/nightly, container main`."""
        ...


T = TypeVar("T")
S = TypeVar("S", bound=Placed)


@dataclass(slots=True, eq=False)
class Resource:
    """One resource, as Pulumi's engine hands it to a policy.

    Attributes:
        type: its type token, `kubernetes:apps/v1:Deployment`.
        protect: whether Pulumi refuses to delete it.
        ignored: properties whose changes Pulumi leaves alone.
        secrets: what no message may show of what was read.
        needs: for each property that the program gave, the URNs of resources that it comes from; empty where a resource
            is judged by itself, since the engine says it only of a whole stack.
    """

    type: str
    urn: str = ""
    name: str = ""
    protect: bool = False
    ignored: tuple[str, ...] = ()
    secrets: Secrets = field(default_factory=Secrets, repr=False)
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]], repr=False)
    _struct: Struct | None = field(default=None, repr=False)
    _props: View | None = field(default=None, repr=False)
    _found: dict[object, object] = field(default_factory=dict[object, object], repr=False)

    @property
    def props(self) -> View:
        """Its inputs; of a whole stack, its outputs. Read once, when a rule first wants them.

        What a preview of a stack does not know and the program did not give is left out: the cloud will fill it in.
        """
        if self._props is None:
            found = Reader(self.secrets).read(self._struct) if self._struct is not None else {}
            for key in _HIDDEN.get(self.type, ()):
                self.secrets.keep(found.get(key), whole=True)
            if self.needs:
                found = {key: each for key, each in found.items() if key in self.needs or not isinstance(each, Unknown)}
            self._props = View(found)
        return self._props

    @property
    def kind(self) -> str:
        """The last part of its type: `Deployment`."""
        return self.type.rsplit(":", 1)[-1]

    @property
    def group(self) -> str:
        """API group of a Kubernetes object (`core` for the nameless one); else empty."""
        if not self.type.startswith(_KUBERNETES):
            return ""
        return self.type.split(":")[1].split("/")[0]

    @property
    def place(self) -> str:
        """Kind, namespace and name of a Kubernetes object; else the kind and its name in the program."""
        return self.once("place", self._place)

    def _place(self) -> str:
        if not self.group:
            return f"{self.kind} {self.name}"
        try:
            name = self.props.text("metadata", "name") or self.name
            namespace = self.props.text("metadata", "namespace")
        except CannotTellError:
            return f"{self.kind} {self.name}"
        return f"{self.kind} {namespace}/{name}" if namespace else f"{self.kind} {name}"

    def parts(self, subject: "Subject[S]") -> list[S]:
        """What of this resource a rule judges; found once for all rules of that subject.

        Raises:
            CannotTellError: it cannot be known.
        """
        return self.once(subject, lambda: list(subject.find(self)) if subject.takes(self) else [])

    def once(self, key: Hashable, find: Callable[[], T]) -> T:
        """What many rules want to know of it, found once; what cannot be known is remembered, too.

        Args:
            key: names it, among all that is asked of this resource.
            find: finds it.

        Raises:
            CannotTellError: it cannot be known.
        """
        if key not in self._found:
            try:
                self._found[key] = find()
            except CannotTellError as error:
                self._found[key] = error
        found = self._found[key]
        if isinstance(found, CannotTellError):
            raise CannotTellError(found.path, found.why)
        return found  # pyright: ignore[reportReturnType] - what `find` of this key gave


@dataclass(frozen=True, slots=True, eq=False)
class Subject(Generic[S]):
    """A sort of thing that rules are about, and how it is found in a resource.

    Attributes:
        name: what documents call it: `containers`.
        takes: whether a resource can hold any; it sees the type alone.
        find: those of one resource; may raise `CannotTellError`.
    """

    name: str
    takes: Callable[[Resource], bool]
    find: Callable[[Resource], Iterable[S]]


def kubernetes(*kinds: str) -> Callable[[Resource], bool]:
    """Takes Kubernetes objects of these kinds, each `group:Kind`, whatever their version.

    Patches (`DeploymentPatch`) are left out: they say a part of an object, and nobody knows the rest.
    """
    wanted = frozenset(kinds)
    return lambda resource: f"{resource.group}:{resource.kind}" in wanted


def typed(*tokens: str) -> Callable[[Resource], bool]:
    """Takes resources of these type tokens."""
    wanted = frozenset(tokens)
    return lambda resource: resource.type in wanted


def read(
    request: analyzer_pb2.AnalyzeRequest | analyzer_pb2.AnalyzerResource, secrets: Secrets | None = None
) -> Resource:
    """A resource of the analyzer protocol.

    Args:
        request: what the engine sent.
        secrets: kept together for all resources of a stack; left out, the resource has its own.
    """
    options = request.options
    return Resource(
        request.type,
        request.urn,
        request.name,
        protect=options.protect,
        ignored=tuple(options.ignoreChanges),
        secrets=Secrets() if secrets is None else secrets,
        needs=_needs(request) if isinstance(request, analyzer_pb2.AnalyzerResource) else {},
        _struct=request.properties,
    )


def _needs(request: analyzer_pb2.AnalyzerResource) -> dict[str, tuple[str, ...]]:
    return {key: tuple(each.urns) for key, each in request.propertyDependencies.items()}
