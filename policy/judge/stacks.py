"""All resources of a stack, for rules that compare resources."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

from judge.reading import CannotTellError
from judge.resources import Placed, Resource, Subject

T = TypeVar("T")
S = TypeVar("S", bound=Placed)
Among: TypeAlias = tuple[Callable[[S], object], object]
"""An index key of parts (a named function, not a lambda, so that the index is reused) and the wanted value."""


class Stack:
    """All resources of a stack, indexed by subject and key."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.resources = tuple(resources)
        self._secrets = {id(resource.secrets): resource.secrets for resource in self.resources}.values()
        self._known: dict[object, tuple[list[object], list[CannotTellError]]] = {}
        self._sorted: dict[object, tuple[dict[object, list[object]], list[CannotTellError]]] = {}
        self._made: dict[object, object] = {}

    def hide(self, text: str) -> str:
        """The text with all secrets of the stack hidden."""
        for secrets in self._secrets:
            text = secrets.hide(text)
        return text

    def all(self, subject: Subject[S]) -> list[S]:
        """All parts of one subject.

        Raises:
            CannotTellError: some of them are unknown.
        """
        known, unknown = self._parts(subject)
        if unknown:
            raise unknown[0]
        return known

    def first(self, subject: Subject[S], is_it: Callable[[S], bool], among: "Among[S] | None" = None) -> S | None:
        """The first part for which the predicate is true; None if there is none.

        Unknown parts matter only if no known part matches.

        Args:
            subject: the kind of part.
            is_it: the predicate.
            among: an index key and the value to look up; in a large stack, the index is built once.

        Raises:
            CannotTellError: no known part matches, and an unknown part may match.
        """
        return next(iter(self._matching(subject, is_it, among, first=True)), None)

    def matching(self, subject: Subject[S], is_it: Callable[[S], bool], among: "Among[S] | None" = None) -> list[S]:
        """All parts for which the predicate is true; the arguments are those of `first`.

        Raises:
            CannotTellError: it is unknown for one of them.
        """
        return list(self._matching(subject, is_it, among, first=False))

    def once(self, name: object, make: Callable[[], T]) -> T:
        """A value that several parts of the stack share, computed once.

        Args:
            name: the cache key.
            make: computes the value; a `CannotTellError` that it raises is raised each time.
        """
        if name not in self._made:
            try:
                self._made[name] = make()
            except CannotTellError as error:
                self._made[name] = error
        made = self._made[name]
        if isinstance(made, CannotTellError):
            raise made
        return made  # pyright: ignore[reportReturnType] - what was made under this name

    def told(self, subject: Subject[S], ask: Callable[[S], T]) -> Iterator[tuple[S, T]]:
        """Each part of a subject with the value of a function; parts with unknown values are skipped.

        For sums: a rule that uses it also reports each skipped part as unknown.
        """
        known, _ = self._parts(subject)
        for part in known:
            try:
                value = ask(part)
            except CannotTellError:
                continue
            yield part, value

    def has(self, subject: Subject[S]) -> bool:
        """Whether the stack has any part of this subject, known or unknown."""
        known, unknown = self._parts(subject)
        return bool(known or unknown)

    def _matching(
        self, subject: Subject[S], is_it: Callable[[S], bool], among: "Among[S] | None", *, first: bool
    ) -> Iterator[S]:
        known, unknown = self._parts(subject) if among is None else self._among(subject, among)
        doubts = list(unknown)
        for part in known:
            try:
                matches = is_it(part)
            except CannotTellError as error:
                doubts.append(_of(part, error))
                continue
            if matches:
                yield part
                if first:
                    return
        if doubts:
            raise doubts[0]

    def _among(self, subject: Subject[S], among: "Among[S]") -> tuple[list[S], list[CannotTellError]]:
        key, wanted = among
        if (subject, key) not in self._sorted:
            known, unknown = self._parts(subject)
            groups: dict[object, list[object]] = {}
            doubts = list(unknown)
            for part in known:
                try:
                    groups.setdefault(key(part), []).append(part)
                except CannotTellError as error:
                    doubts.append(_of(part, error))
            self._sorted[subject, key] = (groups, doubts)
        groups, doubts = self._sorted[subject, key]
        return groups.get(wanted, []), doubts  # pyright: ignore[reportReturnType] - parts of this subject

    def _parts(self, subject: Subject[S]) -> tuple[list[S], list[CannotTellError]]:
        if subject not in self._known:
            known: list[object] = []
            unknown: list[CannotTellError] = []
            for resource in self.resources:
                try:
                    known += resource.parts(subject)
                except CannotTellError as error:
                    unknown.append(_of(resource, error))
            self._known[subject] = (known, unknown)
        return self._known[subject]  # pyright: ignore[reportReturnType] - what `parts` of this subject gave


@contextmanager
def elsewhere(part: Placed) -> Generator[None]:
    """Adds a part's place to unknown values of a resource other than the evaluated one.

    Raises:
        CannotTellError: as raised within, with the part's place before its path.
    """
    try:
        yield
    except CannotTellError as error:
        raise _of(part, error) from error


def _of(part: Placed, error: CannotTellError) -> CannotTellError:
    """The same error with the place of its part; an error that already has a place is unchanged."""
    if error.path and ": " in error.path[0]:
        return error
    try:
        place = part.place
    except CannotTellError:
        return error
    return CannotTellError((f"{place}: {'.'.join(error.path)}",), error.why)
