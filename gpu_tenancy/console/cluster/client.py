"""A Kubernetes API server, spoken to in plain dictionaries."""

from __future__ import annotations

import json
from threading import Lock
from typing import TYPE_CHECKING, Final, Self, TypeAlias, TypeVar, cast

from gpu_tenancy.console.cluster.discovery import Catalogue, Resource, resources
from gpu_tenancy.console.cluster.errors import ApiError, UnknownKindError, UnreachableError
from gpu_tenancy.console.cluster.references import Reference
from gpu_tenancy.console.cluster.request import APPLY, DISCOVERY, MERGE, Request, partial, writing
from gpu_tenancy.console.cluster.waiting import holders, wait_for
from gpu_tenancy.console.offline.wire import maps_at, text_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from gpu_tenancy.console.cluster.transport import Transport
    from gpu_tenancy.console.offline.wire import Json

Manifest: TypeAlias = "dict[str, Json]"

_T = TypeVar("_T")
_PAGE: Final = "500"
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404


class Cluster:
    """The objects of one API server.

    Every method raises `ApiError` where the server refuses, `UnknownKindError` (one of them) where it serves no
    such kind, and `UnreachableError` where it does not answer. Connections are kept alive; eight threads share
    them without waiting for one another.

    `metadata_only` asks for `PartialObjectMetadata`: a CustomResourceDefinition alone may have a megabyte of
    schema that nobody who asks for its resourceVersion wants to read.
    """

    def __init__(self, kubeconfig: Path, context: str | None = None) -> None:
        """Reads the kubeconfig; nothing is sent yet.

        Args:
            kubeconfig: the file; the user's own is never looked for.
            context: the context in it; None for its current one.

        Raises:
            ConsoleError: the file or the context cannot be used.
        """
        # The kubernetes package takes half a second to import: a command without a cluster should not wait for it.
        from gpu_tenancy.console.cluster.transport import Transport  # noqa: PLC0415 - see above

        self._transport: Transport = Transport(kubeconfig, context)
        self._catalogue: Catalogue | None = None
        self._discovering = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives the connections back."""
        self._transport.close()

    @property
    def server(self) -> str:
        """The server's address."""
        return self._transport.server

    def ready(self) -> bool:
        """Whether the server answers and says that it is ready."""
        try:
            self._transport.send(Request("GET", "/readyz"))
        except (ApiError, UnreachableError):
            return False
        return True

    def get(
        self, api_version: str, kind: str, name: str, namespace: str = "", *, metadata_only: bool = False
    ) -> Manifest | None:
        """Returns one object, or None where there is none.

        Args:
            api_version: such as `apps/v1`.
            kind: such as `Deployment`.
            name: of the object.
            namespace: where it lives; empty for what belongs to the whole cluster.
            metadata_only: leave spec and status out.
        """
        path = self._path(Reference(api_version, kind, name, namespace))
        try:
            return self._ask(Request("GET", path, accept=partial(wanted=metadata_only)))
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            return None

    def exists(self, api_version: str, kind: str, name: str, namespace: str = "") -> bool:
        """Whether an object is there."""
        return self.get(api_version, kind, name, namespace, metadata_only=True) is not None

    def list(
        self, api_version: str, kind: str, *, namespace: str = "", labels: str = "", metadata_only: bool = False
    ) -> tuple[Manifest, ...]:
        """Returns all objects of a kind, in the server's order.

        Args:
            api_version: such as `apps/v1`.
            kind: such as `Deployment`.
            namespace: only those in it; empty for all.
            labels: a label selector, such as `app=model-server`; empty for all.
            metadata_only: leave spec and status out.
        """
        path = self.resource(api_version, kind).path(namespace)
        accept = partial("PartialObjectMetadataList", wanted=metadata_only)
        found: list[Manifest] = []
        following = ""
        while True:
            query = {"limit": _PAGE, "labelSelector": labels, "continue": following}
            page = self._ask(Request("GET", path, query, accept=accept))
            # A list leaves out of its items what they have in common, or calls them PartialObjectMetadata.
            common: Manifest = {"apiVersion": api_version, "kind": kind}
            found += [{**one, **common} for one in maps_at(page, "items")]
            following = text_at(page, "metadata", "continue")
            if not following:
                return tuple(found)

    def create(self, manifest: Mapping[str, Json], *, dry_run: bool = False) -> Manifest:
        """Creates an object that must not be there, under strict field validation, and returns it.

        For what is made once and never changed, such as a sample Pod with `generateName`; everything else is
        for `apply`.
        """
        reference = Reference.of(manifest)
        path = self._located(reference).path(reference.namespace)
        return self._ask(Request("POST", path, writing(dry_run=dry_run), manifest))

    def apply(
        self, manifest: Mapping[str, Json], *, dry_run: bool = False, force: bool = False, metadata_only: bool = False
    ) -> Manifest:
        """Brings an object to what a manifest says, by server-side apply under strict field validation.

        Args:
            manifest: every field that is to be ours; one that was ours and is missing here is removed.
            dry_run: validate, default and admit, but keep nothing.
            force: take fields from other managers instead of raising the conflict (409).
            metadata_only: return only what became of the metadata.
        """
        path, accept = self._path(Reference.of(manifest)), partial(wanted=metadata_only)
        query = writing(dry_run=dry_run, force=force)
        return self._ask(Request("PATCH", path, query, manifest, APPLY, accept))

    def patch(self, reference: Reference, patch: Mapping[str, Json], *, subresource: str = "") -> Manifest:
        """Changes some fields by a JSON merge patch; `subresource` may be `status`, to play a controller."""
        path = "/".join([self._path(reference), *([subresource] if subresource else [])])
        return self._ask(Request("PATCH", path, writing(), patch, MERGE))

    def delete(
        self,
        reference: Reference,
        *,
        uid: str = "",
        foreground: bool = False,
        grace: int | None = None,
        wait: float = 60,
    ) -> None:
        """Deletes an object; one that is not there is no error.

        Args:
            reference: the object.
            uid: delete only the object with this identity, not another of its name (else 409).
            foreground: let the object stay until all that it owns is gone.
            grace: seconds that a Pod has to end; None for its own.
            wait: seconds to wait until it is gone; 0 to return at once.

        Raises:
            WaitTimeoutError: it is still there; the message has what holds it.
        """
        options: Manifest = {"propagationPolicy": "Foreground" if foreground else "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        path = self._path(reference)
        try:
            answer = self._ask(Request("DELETE", path, body=options))
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            return
        if wait:
            # The answer is the object where it takes its time to go, else a Status that names it.
            known = uid or text_at(answer, "metadata", "uid") or text_at(answer, "details", "uid")
            self.wait_gone(reference, known, timeout=wait)

    def wait_gone(self, reference: Reference, uid: str = "", *, timeout: float = 60) -> None:
        """Waits until an object is gone, or (where `uid` says which it was) another has its name.

        Raises:
            WaitTimeoutError: it is still there; the message has what holds it.
        """
        last: list[Manifest | None] = [None]

        def gone() -> bool:
            found = last[0] = self.get(*reference)
            return found is None or bool(uid and text_at(found, "metadata", "uid") != uid)

        wait_for(gone, what=f"{reference} to be gone", timeout=timeout, mend=lambda: holders(last[0]))

    def wait_for(
        self,
        condition: Callable[[], _T | None],
        *,
        timeout: float = 60,
        poll: float = 0.25,
        what: str = "the cluster to be as it must",
    ) -> _T:
        """Asks until there is an answer other than None or False, and returns it.

        Raises:
            WaitTimeoutError: it did not come in time; the message says `what` was waited for.
        """
        return wait_for(condition, what=f"{what} at {self.server}", timeout=timeout, poll=poll)

    def resource(self, api_version: str, kind: str) -> Resource:
        """Returns how a kind is served; asks the server again where it is not known yet.

        Raises:
            UnknownKindError: the server does not serve the kind in this version.
        """
        seen = self._catalogue
        found = seen.find(api_version, kind) if seen else None
        found = found or self._discover(seen).find(api_version, kind)
        if not found:
            raise UnknownKindError(api_version, kind)
        return found

    def served(self, reference: Reference) -> Reference | None:
        """Returns the same object in a version that the server still serves; None where its kind is gone."""
        try:
            self.resource(reference.api_version, reference.kind)
        except UnknownKindError:
            other = self._discover(None).preferred(reference.group, reference.kind)
            return reference._replace(api_version=other.api_version) if other else None
        return reference

    def forget_kinds(self) -> None:
        """Has the next request ask what the server serves: for when a definition changed or left."""
        self._catalogue = None

    def _discover(self, seen: Catalogue | None) -> Catalogue:
        """Returns a catalogue that is newer than the one in which the caller looked in vain."""
        with self._discovering:
            if self._catalogue is None or self._catalogue is seen:
                answers = [self._ask(Request("GET", root, accept=DISCOVERY)) for root in ("/api", "/apis")]
                self._catalogue = Catalogue(one for answer in answers for one in resources(answer))
            return self._catalogue

    def _ask(self, request: Request) -> Manifest:
        return cast("Manifest", json.loads(self._transport.send(request)))

    def _located(self, reference: Reference) -> Resource:
        """The kind of an object, whose scope must be that of the object."""
        found = self.resource(reference.api_version, reference.kind)
        if found.namespaced != bool(reference.namespace):
            scope = "needs a namespace" if found.namespaced else "belongs to the whole cluster and has no namespace"
            raise ApiError(_BAD_REQUEST, "BadRequest", f"a {reference.kind} {scope}")
        return found

    def _path(self, reference: Reference) -> str:
        if not reference.name:
            raise ApiError(_BAD_REQUEST, "BadRequest", f"this {reference.kind} has no name")
        return self._located(reference).path(reference.namespace, reference.name)
