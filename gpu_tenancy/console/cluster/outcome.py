"""What an apply did to each object, and what it could not do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from gpu_tenancy.console.cluster.errors import ApiError
from gpu_tenancy.console.errors import ConsoleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_tenancy.console.cluster.references import Reference

Action: TypeAlias = Literal["created", "changed", "unchanged", "replaced", "pruned"]


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one object."""

    action: Action
    group: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, action: Action, reference: Reference) -> Change:
        """Returns what became of the object with this name."""
        return cls(action, reference.group, reference.kind, reference.namespace, reference.name)


@dataclass(frozen=True, slots=True)
class Failure:
    """One object that is not as it was wanted, and why."""

    reference: Reference
    why: str

    @classmethod
    def of(cls, reference: Reference, error: ApiError | ConsoleError) -> Failure:
        """Puts an error in words: the server's own, but a conflict field by field."""
        conflicts = _conflicts(error) if isinstance(error, ApiError) else ()
        return cls(reference, "; ".join(conflicts) or (error.message if isinstance(error, ApiError) else str(error)))

    def __str__(self) -> str:
        return f"{self.reference}: {self.why}"


class ApplyError(ConsoleError):
    """Some objects are not as they were wanted, and what comes after them was not tried.

    Attributes:
        failures: every object that failed.
        changes: what was done before and beside them.
    """

    def __init__(self, failures: Sequence[Failure], changes: Sequence[Change]) -> None:
        self.failures, self.changes = tuple(failures), tuple(changes)
        listed = "\n".join(f"  {one}" for one in self.failures)
        count = f"{len(self.failures)} object" + ("s" if len(self.failures) > 1 else "")
        super().__init__(
            f"{count} could not be brought to the wanted state:\n{listed}", "mend these and run again: it goes on here"
        )


def _conflicts(error: ApiError) -> tuple[str, ...]:
    """Which fields belong to whom, where an apply met fields of other managers."""
    return tuple(
        # The server's words are: conflict with "kubectl-scale" with subresource "scale" using apps/v1
        f"{cause.field.removeprefix('.')}: {cause.message}; drop the field or let its manager go"
        for cause in error.causes
        if cause.reason == "FieldManagerConflict"
    )
