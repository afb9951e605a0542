"""All resources of a stack, for rules that compare resources."""

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, TypeVar

from rule_engine.reading import UnknownValueError
from rule_engine.resources import Placed, Resource, Subject, remembered

T = TypeVar("T")
S = TypeVar("S", bound=Placed)
Among: TypeAlias = tuple[Callable[[S], object], object]
"""An index key of parts (a named function, not a lambda, so that the index is reused) and the wanted value."""
NOT_SET: Final = "is not set by the patch"  # reason of an unknown value of a patched object


class Stack:
    """All resources of a stack, indexed by subject and key: items for lists, patched objects for patches."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.resources = tuple(_patched([found for resource in resources for found in resource.objects()]))
        self._secrets = {id(resource.secrets): resource.secrets for resource in self.resources}.values()
        self._known: dict[object, tuple[list[object], UnknownValueError | None]] = {}
        self._sorted: dict[object, tuple[dict[object, list[Any]], UnknownValueError | None]] = {}
        self._made: dict[object, object] = {}

    def hide(self, text: str) -> str:
        """The text with all secrets of the stack hidden."""
        for secrets in self._secrets:
            text = secrets.hide(text)
        return text

    def first(self, subject: Subject[S], predicate: Callable[[S], bool], *among: "Among[S]") -> S | None:
        """The first part for which the predicate is true; None if there is none.

        `among` are index keys, each with the value to look up, such as a namespace and then a name within it. Unknown
        parts raise only if no known part matches, and a part with an unknown key only if its keys before match.
        """
        return next(self._matching(subject, predicate, among), None)

    def matching(self, subject: Subject[S], predicate: Callable[[S], bool], *among: "Among[S]") -> list[S]:
        """All parts for which the predicate is true; arguments as for `first`."""
        return list(self._matching(subject, predicate, among))

    def once(self, name: Hashable, make: Callable[[], T]) -> T:
        """A shared value, computed once by `make`; an `UnknownValueError` of `make` is raised each time."""
        return remembered(self._made, name, make)

    def known_values(self, subject: Subject[S], function: Callable[[S], T]) -> Iterator[tuple[S, T]]:
        """Each known part with its value, for sums; a rule that uses it also reports each skipped part as unknown."""
        known, _ = self._parts(subject)
        for part in known:
            try:
                value = function(part)
            except UnknownValueError:
                continue
            yield part, value

    def has(self, subject: Subject[S]) -> bool:
        """Whether the stack has any part of this subject, known or unknown."""
        known, unknown = self._parts(subject)
        return bool(known or unknown)

    def _matching(
        self, subject: Subject[S], predicate: Callable[[S], bool], among: "Sequence[Among[S]]"
    ) -> Iterator[S]:
        known, unknown = self._among(subject, among)
        for part in known:
            try:
                matches = _known(part, predicate)
            except UnknownValueError as error:
                unknown = unknown or _of(part, error)
                continue
            if matches:
                yield part
        if unknown:
            raise unknown

    def _among(self, subject: Subject[S], keys: "Sequence[Among[S]]") -> tuple[list[S], UnknownValueError | None]:
        """The parts with these keys, and the first unknown value of others that can have them."""
        parts, unknown = self._parts(subject)
        index: tuple[object, ...] = (subject,)
        for key, wanted in keys:
            index = (*index, key)
            if index not in self._sorted:
                self._sorted[index] = _sorted_by(key, parts)
            groups, unknown_key = self._sorted[index]
            parts, unknown = groups.get(wanted, []), unknown or unknown_key
            index = (*index, wanted)
        return parts, unknown  # pyright: ignore[reportReturnType] - parts of this subject

    def _parts(self, subject: Subject[S]) -> tuple[list[S], UnknownValueError | None]:
        if subject not in self._known:
            known: list[object] = []
            unknown: UnknownValueError | None = None
            for resource in self.resources:
                try:
                    known += resource.parts(subject)
                except UnknownValueError as error:
                    unknown = unknown or _of(resource, error)
            self._known[subject] = (known, unknown)
        return self._known[subject]  # pyright: ignore[reportReturnType] - what `parts` of this subject gave


def _patched(resources: list[Resource]) -> Iterator[Resource]:
    patches: dict[tuple[str, ...], list[Resource]] = {}
    for resource in resources:
        if resource.reads is not None and (identity := _identity(resource)):
            patches.setdefault(identity, []).append(resource)
    types = {type_ for type_, *_ in patches}
    applied: set[int] = set()
    changed: dict[int, Resource] = {}
    for resource in resources if patches else ():
        if resource.reads is None and resource.object_kind in types:
            for patch in patches.get(_identity(resource), ()):
                changed[id(resource)] = changed.get(id(resource), resource).patched(patch)
                applied.add(id(patch))
    yield from (changed.get(id(resource), resource) for resource in resources if id(resource) not in applied)


def _identity(resource: Resource) -> tuple[str, ...]:
    """API group, kind, namespace and name of an object; empty if one of them is unknown."""
    try:
        metadata = [resource.props.text("metadata", key) for key in ("namespace", "name")]
    except UnknownValueError:
        return ()
    return (resource.object_kind, *metadata) if metadata[-1] else ()


def _known(part: S, function: Callable[[S], T]) -> T:
    """The value of a function of a part; a field that it needs and a patch does not set is unknown."""
    reads = part.resource.reads
    if reads is None:
        return function(part)
    before = reads.take()
    try:
        value, absent = function(part), [*reads.absent]
    finally:
        reads.take()
        reads.add(before)
    if absent:
        raise UnknownValueError(absent[0], NOT_SET)
    return value


def _sorted_by(
    key: Callable[[S], object], parts: Iterable[S]
) -> tuple[dict[object, list[S]], UnknownValueError | None]:
    groups: dict[object, list[S]] = {}
    unknown: UnknownValueError | None = None
    for part in parts:
        try:
            groups.setdefault(_known(part, key), []).append(part)
        except UnknownValueError as error:
            unknown = unknown or _of(part, error)
    return groups, unknown


@contextmanager
def located_at(part: Placed) -> Generator[None]:
    """Adds a part's place, before the path, to unknown values of a resource other than the evaluated one."""
    try:
        yield
    except UnknownValueError as error:
        raise _of(part, error) from error


def _of(part: Placed, error: UnknownValueError) -> UnknownValueError:
    """The same error with the place of its part; an error that already has a place is unchanged."""
    if ": " in error.path[0]:
        return error
    try:
        place = part.place
    except UnknownValueError:
        return error
    return UnknownValueError((f"{place}: {'.'.join(error.path)}",), error.why)
