"""Bringing one object to what its manifest says."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpu_tenancy.console.cluster.errors import ApiError, UnknownKindError
from gpu_tenancy.console.cluster.live import Live
from gpu_tenancy.console.cluster.references import Reference, is_definition, is_namespace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpu_tenancy.console.cluster.client import Cluster
    from gpu_tenancy.console.cluster.inventory import Entry
    from gpu_tenancy.console.cluster.outcome import Action
    from gpu_tenancy.console.offline.wire import Json

_CONFLICT: Final = 409
_UNPROCESSABLE: Final = 422
_IMMUTABLE: Final = re.compile(
    r"immutable|may not (be )?(change|update)|cannot change|updates to .* are forbidden", re.DOTALL
)
"""How API servers and the rules of custom resources say that a field stays as it was when the object was created."""

_GONE_WITHIN: Final = 180
"""Seconds: what is on its way out may be a namespace, which goes when its last Pod has ended."""

_SETTLING: Final = 2.0
"""Seconds that an API server is given, after a definition changed, to serve the new schema."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One object as it should be, and what is known of it.

    Attributes:
        manifest: what it should be.
        live: what is there; None for nothing.
        entry: what the inventory has of it.
    """

    manifest: Mapping[str, Json]
    live: Live | None
    entry: Entry | None

    @property
    def reference(self) -> Reference:
        """Which object."""
        return Reference.of(self.manifest)


class Placing:
    """Brings objects to what their manifests say; safe to share between threads."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._settled: dict[str, float] = {}

    def redefined(self, groups: Iterable[str]) -> None:
        """Takes note that kinds of these groups have just been defined, or defined anew."""
        settled = time.monotonic() + _SETTLING
        self._settled.update(dict.fromkeys(groups, settled))

    def place(self, wanted: Wanted) -> tuple[Action, Live]:
        """Creates, changes, replaces or leaves alone, and returns what is there then.

        Raises:
            ApiError: the API server refuses.
            WaitTimeoutError: an object that had to go first does not go.
        """
        live, reference = wanted.live, wanted.reference
        if live and live.deleting:
            self._cluster.wait_gone(reference, live.uid, timeout=_GONE_WITHIN)
            live = None
        if live is None:
            return "created", self._apply(wanted)
        # Objects of a kind that was defined anew are sent in any case: the new schema may refuse them.
        if wanted.entry and wanted.entry.current(live, wanted.manifest) and reference.group not in self._settled:
            return "unchanged", live
        try:
            after = self._apply(wanted)
        except ApiError as error:
            if not _may_replace(reference, error):
                raise
            # The garbage collector hears of custom kinds only now and then, and until then holds what waits for it.
            self._cluster.delete(reference, uid=live.uid, foreground="." not in reference.group)
            return "replaced", self._apply(wanted)
        if after.uid != live.uid:
            return "created", after
        return ("changed" if after.changed_since(live) else "unchanged"), after

    def _apply(self, wanted: Wanted) -> Live:
        """Sends a manifest; again for a while where the API server may not serve the kind's new schema yet.

        Behind one address there may be several API servers, each of which learns of a definition by itself.
        """
        settled = self._settled.get(wanted.reference.group, 0)
        while True:
            try:
                return Live.of(self._cluster.apply(wanted.manifest, metadata_only=True))
            except ApiError as error:
                final = error.status == _CONFLICT or isinstance(error, UnknownKindError) or immutable(error)
                if final or time.monotonic() >= settled:
                    raise
                time.sleep(0.1)


def immutable(error: ApiError) -> bool:
    """Whether all that is wrong with a manifest is that the object exists with other values already.

    A replacement that would be refused for another reason as well must not cost the object that is there.
    """
    messages = [cause.message for cause in error.causes] or [error.message]
    return error.status == _UNPROCESSABLE and all(_IMMUTABLE.search(one) for one in messages)


def _may_replace(reference: Reference, error: ApiError) -> bool:
    """Not a namespace or a definition: with these would go what others have in them."""
    return immutable(error) and not is_namespace(reference) and not is_definition(reference)
