"""Reads the live objects before an apply, in few requests."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpu_tenancy.kube.live import Live
from gpu_tenancy.kube.outcome import Failure
from gpu_tenancy.kube.parallel import in_parallel
from gpu_tenancy.kube.references import Reference

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Executor

    from gpu_tenancy.kube.client import Cluster
    from gpu_tenancy.kube.inventory import Entry


def survey(cluster: Cluster, pool: Executor, references: Iterable[Reference]) -> dict[Reference, Live | Failure | None]:
    """Returns the metadata of each object; None if it does not exist, a failure if it cannot be read.

    One object of a kind is read by name. Several are read by a list of their namespace, or of all namespaces if they
    are in more than one.
    """
    kinds: dict[tuple[str, str], list[Reference]] = defaultdict(list)
    for reference in references:
        kinds[reference.api_version, reference.kind].append(reference)
    existing: dict[Reference, Live | Failure | None] = {}
    queries = {same_kind[0]: same_kind for same_kind in kinds.values()}
    for first, answer in in_parallel(pool, lambda same_kind: _lives(cluster, same_kind), queries):
        for reference in queries[first]:
            failed = isinstance(answer, Failure)
            existing[reference] = Failure(reference, answer.why) if failed else answer.get(reference)
    return existing


def look(cluster: Cluster, reference: Reference) -> Live | None:
    """Returns the metadata of one object; None if it does not exist."""
    metadata = cluster.get(*reference, metadata_only=True)
    return Live.of(metadata) if metadata else None


def ours(entry: Entry | None, live: Live) -> bool:
    """Whether an object is the one that we applied, and not another with the same name.

    A killed run leaves objects without a uid in the inventory. They have our field manager, except objects whose
    manifest sets no field, such as a plain Namespace. Those are ours if they are in the inventory and have no other
    field manager.
    """
    if live.applied is not None:
        return True
    if entry is None:
        return False
    return entry.uid == live.uid if entry.uid else not live.managers


def foreign(reference: Reference, live: Live) -> str:
    """Why an existing object of somebody else is not applied, and how the stack can take it over."""
    owners = ", ".join(live.managers) or "an unknown field manager"
    return (
        f"already exists, owned by {owners}; rename it in the stack, delete the existing object, or add"
        f" {reference.adoptable} to cluster.adopt to take it over"
    )


def _lives(cluster: Cluster, same_kind: Sequence[Reference]) -> dict[Reference, Live]:
    """The metadata of the existing objects among those of one kind."""
    first = same_kind[0]
    if len(same_kind) == 1:
        live = look(cluster, first)
        return {first: live} if live else {}
    namespaces = {reference.namespace for reference in same_kind}
    namespace = namespaces.pop() if len(namespaces) == 1 else ""
    listed = cluster.list(first.api_version, first.kind, namespace=namespace, metadata_only=True)
    wanted = set(same_kind)
    return {name: Live.of(item) for item in listed if (name := Reference.of(item)) in wanted}
