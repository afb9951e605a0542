"""What is there before an apply, in as few requests as tell it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpu_tenancy.console.cluster.live import Live
from gpu_tenancy.console.cluster.outcome import Failure
from gpu_tenancy.console.cluster.parallel import each
from gpu_tenancy.console.cluster.references import Reference

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Executor

    from gpu_tenancy.console.cluster.client import Cluster
    from gpu_tenancy.console.cluster.inventory import Entry


def survey(cluster: Cluster, pool: Executor, references: Iterable[Reference]) -> dict[Reference, Live | Failure | None]:
    """Returns the metadata of each object: None for one that is not there, a failure where it cannot be told.

    One object of a kind is asked for by name, several are picked from a list of their namespace, or of the
    whole cluster where they live in several.
    """
    kinds: dict[tuple[str, str], list[Reference]] = defaultdict(list)
    for one in references:
        kinds[one.api_version, one.kind].append(one)
    found: dict[Reference, Live | Failure | None] = {}
    questions = {same[0]: same for same in kinds.values()}
    for first, answer in each(pool, lambda same: _lives(cluster, same), questions):
        for one in questions[first]:
            found[one] = Failure(one, answer.why) if isinstance(answer, Failure) else answer.get(one)
    return found


def look(cluster: Cluster, reference: Reference) -> Live | None:
    """Returns the metadata of one object; None where it is not there."""
    found = cluster.get(*reference, metadata_only=True)
    return Live.of(found) if found else None


def ours(entry: Entry | None, live: Live) -> bool:
    """Whether an object is the one that we applied, and not another that took its name.

    A run that was killed leaves objects whose identity it could not write down any more. They carry our name as
    their manager; but a server keeps no account of a manifest that sets no field, such as a bare Namespace. Then
    it counts that we were about to create it and that nobody else signed it.
    """
    if live.applied is not None:
        return True
    if entry is None:
        return False
    return entry.uid == live.uid if entry.uid else not live.managers


def _lives(cluster: Cluster, same: Sequence[Reference]) -> dict[Reference, Live]:
    """The metadata of those objects of one kind that are there."""
    first = same[0]
    if len(same) == 1:
        live = look(cluster, first)
        return {first: live} if live else {}
    namespaces = {one.namespace for one in same}
    namespace = namespaces.pop() if len(namespaces) == 1 else ""
    listed = cluster.list(first.api_version, first.kind, namespace=namespace, metadata_only=True)
    wanted = set(same)
    return {name: Live.of(one) for one in listed if (name := Reference.of(one)) in wanted}
