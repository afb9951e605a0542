"""A whole stack of resources, for rules that compare one with others."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

from judge.reading import CannotTellError
from judge.resources import Placed, Resource, Subject

T = TypeVar("T")
S = TypeVar("S", bound=Placed)
Among: TypeAlias = tuple[Callable[[S], object], object]
"""A key of parts, a function of its own name rather than a lambda, and the value that is looked for."""


class Stack:
    """All resources of a stack, for rules that compare one with others."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.resources = tuple(resources)
        self._secrets = {id(each.secrets): each.secrets for each in self.resources}.values()
        self._known: dict[object, tuple[list[object], list[CannotTellError]]] = {}
        self._sorted: dict[object, tuple[dict[object, list[object]], list[CannotTellError]]] = {}
        self._made: dict[object, object] = {}

    def hide(self, text: str) -> str:
        """The text without any secret of what was read of the stack."""
        for secrets in self._secrets:
            text = secrets.hide(text)
        return text

    def all(self, subject: Subject[S]) -> list[S]:
        """Everything of one sort.

        Raises:
            CannotTellError: some of it cannot be known.
        """
        known, unknown = self._parts(subject)
        if unknown:
            raise unknown[0]
        return known

    def first(self, subject: Subject[S], is_it: Callable[[S], bool], among: "Among[S] | None" = None) -> S | None:
        """One for which this is true; None where there is none.

        What cannot be known matters only where no other one is it.

        Args:
            subject: its sort.
            is_it: whether it is the one.
            among: a key, and its value for those that come into question: in a large stack, all are sorted by it once.

        Raises:
            CannotTellError: none is it for certain, and one of them might be.
        """
        return next(iter(self._matching(subject, is_it, among, first=True)), None)

    def matching(self, subject: Subject[S], is_it: Callable[[S], bool], among: "Among[S] | None" = None) -> list[S]:
        """All for which this is true; the arguments are those of `first`.

        Raises:
            CannotTellError: of one it cannot be known.
        """
        return list(self._matching(subject, is_it, among, first=False))

    def once(self, name: object, make: Callable[[], T]) -> T:
        """What is made for many parts of the stack alike, made once.

        Args:
            name: by which it is found again.
            make: makes it; a doubt that it raises is raised each time.
        """
        if name not in self._made:
            try:
                self._made[name] = make()
            except CannotTellError as error:
                self._made[name] = error
        found = self._made[name]
        if isinstance(found, CannotTellError):
            raise found
        return found  # pyright: ignore[reportReturnType] - what was made under this name

    def told(self, subject: Subject[S], ask: Callable[[S], T]) -> Iterator[tuple[S, T]]:
        """What this says of each of one sort of which it can be told.

        For sums: a rule that uses it also says the doubt of each that is left out.
        """
        known, _ = self._parts(subject)
        for each in known:
            try:
                found = ask(each)
            except CannotTellError:
                continue
            yield each, found

    def has(self, subject: Subject[S]) -> bool:
        """Whether the stack makes any of this sort, known or not."""
        known, unknown = self._parts(subject)
        return bool(known or unknown)

    def _matching(
        self, subject: Subject[S], is_it: Callable[[S], bool], among: "Among[S] | None", *, first: bool
    ) -> Iterator[S]:
        known, unknown = self._parts(subject) if among is None else self._among(subject, among)
        doubts = list(unknown)
        for each in known:
            try:
                true = is_it(each)
            except CannotTellError as error:
                doubts.append(_of(each, error))
                continue
            if true:
                yield each
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
            for each in known:
                try:
                    groups.setdefault(key(each), []).append(each)
                except CannotTellError as error:
                    doubts.append(_of(each, error))
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
    """Names a part in what cannot be told of it: for values of another resource than the one that is judged.

    Raises:
        CannotTellError: as raised within, its path beginning with the part's place.
    """
    try:
        yield
    except CannotTellError as error:
        raise _of(part, error) from error


def _of(part: Placed, error: CannotTellError) -> CannotTellError:
    """The same doubt, with the place of the part that it is about; one that has a place keeps it."""
    if error.path and ": " in error.path[0]:
        return error
    try:
        place = part.place
    except CannotTellError:
        return error
    return CannotTellError((f"{place}: {'.'.join(error.path)}",), error.why)
