"""The changes and the failures of an apply, by object, and parallel requests that collect them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias, TypeVar

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.kube.errors import ApiError, WaitTimeoutError
from gpu_tenancy.kube.references import Reference

Action: TypeAlias = Literal["created", "changed", "unchanged", "replaced", "pruned"]


@dataclass(frozen=True, slots=True)
class Change:
    """What was done to one object.

    Attributes:
        corrected: fields that others had changed or removed, and that are as in the stack again.
    """

    action: Action
    group: str
    kind: str
    namespace: str
    name: str
    corrected: tuple[str, ...] = ()

    @classmethod
    def of(cls, action: Action, reference: Reference, corrected: tuple[str, ...] = ()) -> Self:
        """The change of the object with this reference."""
        return cls(action, reference.group, reference.kind, reference.namespace, reference.name, corrected)

    @property
    def correction(self) -> str:
        """One line on the corrected fields: `ConfigMap ml/settings: data.a`."""
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {place}: {', '.join(self.corrected)}"


@dataclass(frozen=True, slots=True)
class Failure:
    """One object that could not be applied or deleted, and why."""

    reference: Reference
    why: str

    @classmethod
    def of(cls, reference: Reference, error: ApiError | ConsoleError) -> Self:
        """Takes the server's message; for a conflict, one message per field."""
        conflicts = _conflicts(error) if isinstance(error, ApiError) else ()
        return cls(reference, "; ".join(conflicts) or (error.message if isinstance(error, ApiError) else str(error)))

    def __str__(self) -> str:
        return f"{self.reference}: {self.why}"


class ApplyError(ConsoleError):
    """Some objects could not be applied or deleted; later waves were not attempted."""

    def __init__(self, failures: Sequence[Failure], changes: Sequence[Change]) -> None:
        self.failures, self.changes = tuple(failures), tuple(changes)
        listed = "\n".join(f"  {failure}" for failure in self.failures)
        count = f"{len(self.failures)} object" + ("s" if len(self.failures) > 1 else "")
        super().__init__(
            f"{count} could not be applied or deleted:\n{listed}", "fix the errors and run the same command again"
        )


def _conflicts(error: ApiError) -> tuple[str, ...]:
    """One message for each field that another manager owns; empty if the error is not a conflict."""
    return tuple(
        # The server's message is: conflict with "kubectl-scale" with subresource "scale" using apps/v1
        f"{cause.field.removeprefix('.')}: {cause.message}; remove the field from the stack, or from the other manager"
        for cause in error.causes
        if cause.reason == "FieldManagerConflict"
    )


_T = TypeVar("_T")
_R = TypeVar("_R")


def in_parallel(
    pool: Executor, work: Callable[[_T], _R], items: Mapping[Reference, _T]
) -> Iterator[tuple[Reference, _R | Failure]]:
    """Does the work for every object, and yields each result when it is done.

    An error of one object becomes its `Failure`. An API server that is not reachable affects all objects and is raised.
    """
    futures = {pool.submit(work, item): reference for reference, item in items.items()}
    for future in as_completed(futures):
        reference = futures[future]
        try:
            yield reference, future.result()
        except (ApiError, WaitTimeoutError) as error:
            yield reference, Failure.of(reference, error)
