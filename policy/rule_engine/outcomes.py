"""What the evaluation of a rule on a part of a resource results in, also if the resource is a patch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rule_engine.reading import UnknownValueError
from rule_engine.reads import Reads
from rule_engine.resources import Placed, Resource
from rule_engine.stacks import NOT_SET

_LISTED: Final = 5
"""Maximum number of fields in a message."""
_SET_IT: Final = "set it in the patch too, or change the object in its own stack"


class Outcome(StrEnum):
    """What a finding is about; `BROKEN` and `ERROR` have the level of their rule, all others are advisory."""

    BROKEN = "broken"
    EXEMPTED = "exempted"
    UNKNOWN = "unknown"
    ERROR = "error"


def place_of(part: Placed, resource: Resource) -> str:
    """The place of a part; that of its resource if it is unknown, and the type if that fails too."""
    for placed in (part, resource):
        try:
            return placed.place
        except Exception:  # noqa: BLE001, S112 - an error message must not fail
            continue
    return f"{resource.kind} {resource.name}"


def unread(place: str, error: UnknownValueError) -> tuple[Outcome, str]:
    """What is said of a value that is not known; of one that a patch does not set, at the level of the rule."""
    if error.why == NOT_SET:
        return Outcome.BROKEN, f"{place}: not evaluated: {error}; {_SET_IT}"
    return Outcome.UNKNOWN, f"{place}: not evaluated: {error}; check again after deployment, or set a literal value"


@dataclass(frozen=True, slots=True)
class PartOfPatch:
    """A part of a patch, as a rule was evaluated on it.

    Attributes:
        part: the part.
        resource: the patch.
        messages: those of the rule, each with what was read for it.
        read: all that was read.
    """

    part: Placed
    resource: Resource
    messages: Sequence[tuple[Outcome, str, Reads]]
    read: Reads

    def outcomes(self) -> Iterator[tuple[Outcome, str]]:
        """What is true of the object that the patch leaves, and what is not evaluated."""
        if not self._is_read and not any(outcome is Outcome.ERROR for outcome, _, _ in self.messages):
            return
        for outcome, text, since in self.messages:
            lacks = outcome is Outcome.UNKNOWN or (outcome is Outcome.BROKEN and not self.read.present)
            if lacks and since.absent:
                yield Outcome.BROKEN, self._unevaluated(since)
            else:
                yield outcome, f"{text} ({_not_set(since)})" if since.absent else text
        if not self.messages and self.read.absent:
            yield Outcome.BROKEN, self._unevaluated(self.read)

    @property
    def _is_read(self) -> bool:
        """Whether the rule reads what the patch sets."""
        of_all = any(not since.absent for _, _, since in self.messages)  # of the whole object, as all strings in it
        return bool(self.read.present) or (of_all and bool(self.resource.content()))

    def _unevaluated(self, read: Reads) -> str:
        return f"{place_of(self.part, self.resource)}: not evaluated: {_not_set(read)}; {_SET_IT}"


def _not_set(read: Reads) -> str:
    paths = [".".join(path) for path in read.absent]
    more = ", …" if len(paths) > _LISTED else ""
    return f"{', '.join(paths[:_LISTED])}{more} {'is' if len(paths) == 1 else 'are'} not set by the patch"
