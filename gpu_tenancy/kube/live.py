"""Live objects by their metadata, with owners, changes and failures of an apply, and parallel reads."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass
from typing import Final, Literal, Self, TypeAlias, TypeVar

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.json import Json, int_at, maps_at, text_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import UNAUTHORIZED, ApiError, WaitTimeoutError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import FIELD_MANAGER
from gpu_tenancy.model.names import DEPLOYED_BY

Action: TypeAlias = Literal["created", "changed", "unchanged", "replaced", "pruned"]


@dataclass(frozen=True, slots=True)
class Change:
    """What was done to one object; `corrected` fields were changed or removed by others."""

    action: Action
    reference: Reference
    corrected: tuple[str, ...] = ()

    @property
    def correction(self) -> str:
        """One line on the corrected fields: `ConfigMap ml/settings: data.a`."""
        return f"{self.reference.kind} {self.reference.place}: {', '.join(self.corrected)}"


@dataclass(frozen=True, slots=True)
class Failure:
    """An object that could not be applied or deleted."""

    reference: Reference
    why: str

    @classmethod
    def of(cls, reference: Reference, error: ApiError | ConsoleError) -> Self:
        """Takes the server's message; for a conflict, one message for each field that another manager owns."""
        if isinstance(error, ConsoleError):
            return cls(reference, str(error))
        fix = "remove the field from the stack, or from the other manager"
        conflicts = [
            # The server's message is: conflict with "kubectl-scale" with subresource "scale" using apps/v1
            f"{cause.field.removeprefix('.')}: {cause.message}; {fix}"
            for cause in error.causes
            if cause.reason == "FieldManagerConflict"
        ]
        return cls(reference, "; ".join(conflicts) or error.message)

    def __str__(self) -> str:
        return f"{self.reference}: {self.why}"


class ApplyError(ConsoleError):
    """Objects could not be applied or deleted; later waves were not attempted."""

    def __init__(self, failures: Sequence[Failure], changes: Sequence[Change]) -> None:
        self.failures, self.changes = tuple(failures), tuple(changes)
        listed = "\n".join(f"  {failure}" for failure in self.failures)
        count = f"{len(self.failures)} object" + ("s" if len(self.failures) > 1 else "")
        fix = "fix the errors and run the same command again"
        super().__init__(f"{count} could not be applied or deleted:\n{listed}", fix)


_T = TypeVar("_T")
_R = TypeVar("_R")


def in_parallel(
    pool: Executor, work: Callable[[_T], _R], items: Mapping[Reference, _T]
) -> Iterator[tuple[Reference, _R | Failure]]:
    """Runs `work` for every object, and yields each result when it is done.

    An error of one object becomes its `Failure`. An API server that is not reachable, or does not accept the
    credentials, affects all objects and is raised.
    """
    futures = {pool.submit(work, item): reference for reference, item in items.items()}
    for future in as_completed(futures):
        reference = futures[future]
        try:
            yield reference, future.result()
        except (ApiError, WaitTimeoutError) as error:
            if isinstance(error, ApiError) and error.status == UNAUTHORIZED:
                raise ConsoleError(error.message, "log in again, then run the same command again") from error
            yield reference, Failure.of(reference, error)


_UNTRACKED: Final = "before-first-apply"  # the server's manager name for writes before the first apply


def digest(value: Mapping[str, Json]) -> str:
    """SHA-256 of an object's content."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Live:
    """The metadata of an object on the server."""

    uid: str
    resource_version: str  # changes with every write of any client
    deleting: bool  # its deletion is pending because of finalizers or a grace period
    generation: int  # changes with every write that changes the spec; 0 for kinds without one
    managed: tuple[Mapping[str, Json], ...]  # `managedFields`: which manager set which fields, and when
    deployed_by: str = ""  # environment whose deployment by Pulumi created it; empty without such a mark

    @classmethod
    def of(cls, manifest: Mapping[str, Json]) -> Self:
        """Reads an object, or its `PartialObjectMetadata`."""
        return cls(
            uid=text_at(manifest, "metadata", "uid"),
            resource_version=text_at(manifest, "metadata", "resourceVersion"),
            deleting=bool(text_at(manifest, "metadata", "deletionTimestamp")),
            generation=int_at(manifest, "metadata", "generation"),
            managed=tuple(maps_at(manifest, "metadata", "managedFields")),
            deployed_by=text_at(manifest, "metadata", "annotations", DEPLOYED_BY),
        )

    @property
    def applied(self) -> Mapping[str, Json] | None:
        """Our entry in `managedFields`; None if we never applied this object."""
        for entry in self.managed:
            own = (entry.get("manager"), entry.get("operation")) == (FIELD_MANAGER, "Apply")
            if own and "subresource" not in entry:
                return entry
        return None

    @property
    def mark(self) -> str:
        """Digest of `applied`: the fields that our last apply set and nobody changed, and its time."""
        return digest(self.applied or {})

    @property
    def managers(self) -> tuple[str, ...]:
        """Managers of any field, in alphabetical order."""
        return tuple(sorted({text_at(entry, "manager") for entry in self.managed} - {_UNTRACKED}))

    def changed_since(self, before: Self) -> bool:
        """Whether our apply, which returned this object, changed the object `before` it.

        The same resourceVersion means no. A different one can come from a controller that wrote the status in the
        meantime: then its entry in `managedFields` has a new time and ours does not, since an apply without changes
        keeps its time.
        """
        if self.resource_version == before.resource_version:
            return False
        return self.applied != before.applied or self.managed == before.managed


def survey(cluster: Cluster, pool: Executor, references: Iterable[Reference]) -> dict[Reference, Live | Failure | None]:
    """Metadata of each object; None if it does not exist, a failure if it cannot be read.

    Reads one object of a kind by name, and several by a list of their namespace, or of all namespaces.
    """

    def read(same_kind: Sequence[Reference]) -> dict[Reference, Live]:
        first = same_kind[0]
        if len(same_kind) == 1:
            metadata = cluster.get(*first, metadata_only=True)
            return {first: Live.of(metadata)} if metadata else {}
        namespaces = {reference.namespace for reference in same_kind}
        namespace = namespaces.pop() if len(namespaces) == 1 else ""
        listed = cluster.list(first.api_version, first.kind, namespace=namespace, metadata_only=True)
        wanted = set(same_kind)
        return {name: Live.of(item) for item in listed if (name := Reference.of(item)) in wanted}

    kinds = grouped(((reference.api_version, reference.kind), reference) for reference in references)
    existing: dict[Reference, Live | Failure | None] = {}
    queries = {same_kind[0]: same_kind for same_kind in kinds.values()}
    for first, answer in in_parallel(pool, read, queries):
        for reference in queries[first]:
            failed = isinstance(answer, Failure)
            # pyrefly: ignore[missing-attribute]
            existing[reference] = Failure(reference, answer.why) if failed else answer.get(reference)
    return existing


def foreign(reference: Reference, live: Live) -> str:
    """Why an existing object of another owner is not applied, and how the stack can adopt it."""
    owners = ", ".join(live.managers) or "an unknown field manager"
    adopt = f"add {reference.adoptable} to cluster.adopt to take it over"
    return f"already exists, owned by {owners}; rename it in the stack, delete the existing object, or {adopt}"
