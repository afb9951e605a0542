"""What is judged: one resource of a Pulumi program, and a whole stack of them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from pulumi.runtime.proto import analyzer_pb2

from judge.reading import CannotTellError, Reader, View, texts_in

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


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One resource, as Pulumi's engine hands it to a policy.

    Attributes:
        type: its type token, `kubernetes:apps/v1:Deployment`.
        props: its inputs; of a stack that runs, its outputs.
        protect: whether Pulumi refuses to delete it.
        ignored: properties whose changes Pulumi leaves alone.
        secrets: what no message may show.
    """

    type: str
    urn: str
    name: str
    props: View
    protect: bool = False
    ignored: tuple[str, ...] = ()
    secrets: frozenset[str] = frozenset()
    _found: dict[object, object] = field(default_factory=dict[object, object], repr=False)

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
        if subject not in self._found:
            try:
                self._found[subject] = list(subject.find(self)) if subject.takes(self) else []
            except CannotTellError as error:
                self._found[subject] = error
        found = self._found[subject]
        if isinstance(found, CannotTellError):
            raise found
        return found  # pyright: ignore[reportReturnType] - what `find` of this subject gave


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


class Stack:
    """All resources of a stack, for rules that compare one with others."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.resources = tuple(resources)
        self._known: dict[object, tuple[list[object], list[CannotTellError]]] = {}

    @property
    def secrets(self) -> frozenset[str]:
        """What no message may show."""
        return frozenset[str]().union(*(resource.secrets for resource in self.resources))

    def all(self, subject: Subject[S]) -> list[S]:
        """Everything of one sort.

        Raises:
            CannotTellError: some of it cannot be known.
        """
        known, unknown = self._parts(subject)
        if unknown:
            raise unknown[0]
        return known

    def first(self, subject: Subject[S], is_it: Callable[[S], bool]) -> S | None:
        """One for which this is true; None where there is none.

        What cannot be known matters only where no other one is it.

        Raises:
            CannotTellError: none is it for certain, and one of them might be.
        """
        return next(iter(self._matching(subject, is_it, first=True)), None)

    def matching(self, subject: Subject[S], is_it: Callable[[S], bool]) -> list[S]:
        """All for which this is true.

        Raises:
            CannotTellError: of one it cannot be known.
        """
        return list(self._matching(subject, is_it, first=False))

    def has(self, subject: Subject[S]) -> bool:
        """Whether the stack makes any of this sort, known or not."""
        known, unknown = self._parts(subject)
        return bool(known or unknown)

    def _matching(self, subject: Subject[S], is_it: Callable[[S], bool], *, first: bool) -> Iterator[S]:
        known, unknown = self._parts(subject)
        doubts = list(unknown)
        for each in known:
            try:
                true = is_it(each)
            except CannotTellError as error:
                doubts.append(error)
                continue
            if true:
                yield each
                if first:
                    return
        if doubts:
            raise doubts[0]

    def _parts(self, subject: Subject[S]) -> tuple[list[S], list[CannotTellError]]:
        if subject not in self._known:
            known: list[object] = []
            unknown: list[CannotTellError] = []
            for resource in self.resources:
                try:
                    known += resource.parts(subject)
                except CannotTellError as error:
                    unknown.append(CannotTellError((f"{resource.place}: {error.path[0]}", *error.path[1:]), error.why))
            self._known[subject] = (known, unknown)
        return self._known[subject]  # pyright: ignore[reportReturnType] - what `parts` of this subject gave


def read(request: analyzer_pb2.AnalyzeRequest | analyzer_pb2.AnalyzerResource) -> Resource:
    """A resource of the analyzer protocol."""
    reader = Reader()
    props = View(reader.read(request.properties))
    for key in _HIDDEN.get(request.type, ()):
        if isinstance(props.value, dict) and key in props.value:
            reader.secrets.update(texts_in(props.value[key]))
    options = request.options
    return Resource(
        request.type,
        request.urn,
        request.name,
        props,
        protect=options.protect,
        ignored=tuple(options.ignoreChanges),
        secrets=frozenset(reader.secrets),
    )
