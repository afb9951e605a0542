"""Kubernetes client that takes and returns plain dictionaries."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self, TypeAlias, TypeVar, cast

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, at, maps_at, text_at
from gpu_tenancy.kube.errors import NOT_FOUND, ApiError, UnknownKindError, UnreachableError, api_error
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import APPLY, DISCOVERY, FIELD_MANAGER, JSON_PATCH, MERGE, Request, partial, writing
from gpu_tenancy.kube.waiting import holders, wait_for

Manifest: TypeAlias = dict[str, Json]

_T = TypeVar("_T")
_PAGE: Final = "500"
_BAD_REQUEST: Final = 400


class Event(NamedTuple):
    """A change, with the object after it. A `BOOKMARK` is no change, but has a later resource version."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Manifest


@dataclass(frozen=True, slots=True)
class Resource:
    """A served kind."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str = "", name: str = "") -> str:
        """URL path of one object, or of the whole list without a name."""
        root = "/apis" if "/" in self.api_version else "/api"
        parts = [root, self.api_version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *([name] if name else [])])


_Kinds: TypeAlias = Mapping[tuple[str, str], Resource]  # all served kinds; the preferred version first


class Cluster:
    """The objects of one API server.

    Every method raises `ApiError` if the server rejects a request, its subclass `UnknownKindError` if it does not serve
    the kind, and `UnreachableError` if it does not answer. Eight threads can share the connections without waiting.

    `api_version` is such as `apps/v1`. `namespace` is empty for cluster-scoped objects, and in lists for all
    namespaces. `metadata_only` requests `PartialObjectMetadata`, since one CustomResourceDefinition can have a megabyte
    of schema.
    """

    def __init__(
        self, kubeconfig: Path, context: str | None = None, *, retry_seconds: float = 2, answer_seconds: float = 60
    ) -> None:
        """Reads a context of the kubeconfig, None for the current one; sends no request.

        Requests are repeated for `retry_seconds` while the server or a webhook fails; each answer may take
        `answer_seconds`. The user's default kubeconfig is never used. Raises ConsoleError if the file or the context
        cannot be used.
        """
        # urllib3 takes a tenth of a second to import, which commands without a cluster do not need.
        from gpu_tenancy.kube.transport import Transport  # noqa: PLC0415 - see above

        self._transport: Transport = Transport(kubeconfig, context, retry_seconds, answer_seconds)
        self.server = self._transport.server  # its URL
        self.namespace = self._transport.namespace  # of the context; empty if it has none
        self._kinds: _Kinds | None = None
        self._discovering = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def ready(self) -> bool:
        """Whether the server reports that it is ready."""
        try:
            self._transport.send(Request("GET", "/readyz", once=True))
        except (ApiError, UnreachableError):
            return False
        return True

    def get(
        self, api_version: str, kind: str, name: str, namespace: str = "", *, metadata_only: bool = False
    ) -> Manifest | None:
        """One object; None if it does not exist."""
        path = self._path(Reference(api_version, kind, name, namespace))
        try:
            return self._ask(Request("GET", path, accept=partial(wanted=metadata_only)))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return None

    def exists(self, api_version: str, kind: str, name: str, namespace: str = "") -> bool:
        """Whether an object exists, by its metadata."""
        return self.get(api_version, kind, name, namespace, metadata_only=True) is not None

    def list(
        self, api_version: str, kind: str, *, namespace: str = "", labels: str = "", metadata_only: bool = False
    ) -> tuple[Manifest, ...]:
        """All objects of a kind, in the server's order; `labels` is a selector, such as `app=model-server`."""
        accept = partial("PartialObjectMetadataList", wanted=metadata_only)
        # List items have no apiVersion and kind, or have those of PartialObjectMetadata.
        common: Manifest = {"apiVersion": api_version, "kind": kind}
        pages = self._pages(api_version, kind, namespace, {"labelSelector": labels}, accept)
        return tuple({**item, **common} for page in pages for item in maps_at(page, "items"))

    def rows(self, api_version: str, kind: str, *, namespace: str = "") -> tuple[Manifest, ...]:
        """Metadata of all objects of a kind, with the columns of `kubectl get` as `cells`.

        The server sends no spec or data, so no value of a Secret.
        https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables
        """
        found: list[Manifest] = []
        columns: list[str] = []
        accept = partial("Table", wanted=True)
        for page in self._pages(api_version, kind, namespace, {"includeObject": "Metadata"}, accept):
            # Only the first page has the columns.
            columns = [text_at(column, "name") for column in maps_at(page, "columnDefinitions")] or columns
            for row in maps_at(page, "rows"):
                cells: Json = dict(zip(columns, cast("list[Json]", row["cells"] or []), strict=True))
                common: Manifest = {"apiVersion": api_version, "kind": kind}
                found.append({**common, "metadata": at(row, "object", "metadata"), "cells": cells})
        return tuple(found)

    def server_version(self) -> str:
        """Version of Kubernetes, such as `v1.36.3`; empty if the user may not read it."""
        try:
            return text_at(self._ask(Request("GET", "/version")), "gitVersion")
        except ApiError:
            return ""

    def version(self, api_version: str, kind: str, *, namespace: str = "") -> str:
        """Resource version of the list of a kind, for the start of a watch."""
        accept = partial("PartialObjectMetadataList", wanted=True)
        page = next(self._pages(api_version, kind, namespace, {"limit": "1"}, accept))
        return text_at(page, "metadata", "resourceVersion")

    def _pages(
        self, api_version: str, kind: str, namespace: str, query: Mapping[str, str], accept: str
    ) -> Iterator[Manifest]:
        path = self.resource(api_version, kind).path(namespace)
        following = ""
        while True:
            try:
                page = self._ask(Request("GET", path, {"limit": _PAGE, **query, "continue": following}, accept=accept))
            except ApiError as error:
                if error.status != NOT_FOUND:
                    raise
                # Its definition was deleted after the server named its kinds.
                self.forget_kinds()
                raise UnknownKindError(api_version, kind) from error
            yield page
            following = text_at(page, "metadata", "continue")
            if not following:
                return

    def watch(
        self, api_version: str, kind: str, *, namespace: str = "", since: str = "", seconds: int = 30
    ) -> Iterator[Event]:
        """Yields changes of a kind's objects after resource version `since`, for at most 50 seconds.

        Without `since`, every existing object is first `ADDED`. Raises ApiError (410) if `since` is too old; omit it.
        """
        query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": since, "timeoutSeconds": str(seconds)}
        path = self.resource(api_version, kind).path(namespace)
        for line in self._transport.lines(Request("GET", path, query)):
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise api_error(event["object"]["code"], "Expired", json.dumps(event["object"]).encode())
            yield Event(event["type"], event["object"])

    def log(
        self, namespace: str, pod: str, *, container: str = "", follow: bool = False, tail: int | None = None
    ) -> Iterator[str]:
        """Yields log lines of a container, all or the last `tail`; with `follow`, until the container ends.

        `container` can be empty for a pod with one container. Raises ApiError (400) while the container waits to start.
        """
        last = "" if tail is None else str(tail)
        query = {"container": container, "follow": "true" if follow else "", "tailLines": last}
        path = f"{self._path(Reference('v1', 'Pod', pod, namespace))}/log"
        for line in self._transport.lines(Request("GET", path, query, accept="*/*", endless=follow)):
            yield line.decode(errors="replace")

    def create(self, manifest: Mapping[str, Json], *, dry_run: bool = False, once: bool = False) -> Manifest:
        """Creates an object that must not exist yet, with strict field validation, and returns it.

        For objects that never change, such as a sample Pod with `generateName`; use `apply` for all others. With
        `once`, the request is not repeated while a webhook does not answer, for callers with their own retries.
        """
        reference = Reference.of(manifest)
        path = self._located(reference).path(reference.namespace)
        return self._ask(Request("POST", path, writing(dry_run=dry_run), manifest, once=once))

    def impersonating(self, user: str, group: str = "") -> "Cluster":
        """The same API server with impersonation; `group` is empty for no group."""
        other = copy(self)
        other._transport = self._transport.impersonating(user, group)
        return other

    def tried(self, target: Reference | None, manifest: Mapping[str, Json]) -> tuple[str, ...]:
        """Warnings of a dry run that creates an object, or changes `target` by a JSON merge patch."""
        if target:
            request = Request("PATCH", self._path(target), writing(dry_run=True), manifest, MERGE)
        else:
            reference = Reference.of(manifest)
            path = self._located(reference).path(reference.namespace)
            request = Request("POST", path, writing(dry_run=True), manifest)
        return self._transport.answer(request)[1]

    def apply(
        self, manifest: Mapping[str, Json], *, dry_run: bool = False, force: bool = False, metadata_only: bool = False
    ) -> Manifest:
        """Creates or updates an object by server-side apply with strict field validation.

        Removes our fields that are missing. `dry_run` validates, defaults and admits without storing. `force` takes
        fields from other managers instead of raising a conflict (409).
        """
        path, accept = self._path(Reference.of(manifest)), partial(wanted=metadata_only)
        return self._ask(Request("PATCH", path, writing(dry_run=dry_run, force=force), manifest, APPLY, accept))

    def patch(self, reference: Reference, patch: Mapping[str, Json], *, subresource: str = "") -> Manifest:
        """Changes fields by a JSON merge patch; `subresource` can be `status`, to act as a controller."""
        path = "/".join([self._path(reference), *([subresource] if subresource else [])])
        return self._ask(Request("PATCH", path, writing(), patch, MERGE))

    def amend(self, reference: Reference, operations: Sequence[Manifest], *, manager: str = FIELD_MANAGER) -> Manifest:
        """Changes an object by a JSON patch, all operations or none; raises ApiError (422) if a `test` fails."""
        query = {**writing(), "fieldManager": manager}
        return self._ask(Request("PATCH", self._path(reference), query, operations, JSON_PATCH))

    def token(self, namespace: str, account: str, *, seconds: int = 365 * 24 * 3600) -> str:
        """A token of a ServiceAccount (TokenRequest); the server may shorten its validity in seconds."""
        path = f"{self._path(Reference('v1', 'ServiceAccount', account, namespace))}/token"
        kind: Manifest = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        body: Manifest = {**kind, "spec": {"expirationSeconds": seconds}}
        return text_at(self._ask(Request("POST", path, body=body)), "status", "token")

    def delete(
        self,
        reference: Reference,
        *,
        uid: str = "",
        foreground: bool = False,
        grace: int | None = None,
        wait: float = 60,
    ) -> None:
        """Deletes an object, or its dependents first; a missing object is not an error.

        With `uid`, another object with the same name is not deleted (409). `grace` of a Pod is in seconds, None for its
        own. After `wait` seconds, raises WaitTimeoutError with finalizers and conditions; 0 to return immediately.
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
            if error.status != NOT_FOUND:
                raise
            return
        if wait:
            # The answer is the object if its deletion is pending, otherwise a Status with its uid.
            known = uid or text_at(answer, "metadata", "uid") or text_at(answer, "details", "uid")
            self.wait_gone(reference, known, timeout=wait)

    def wait_gone(self, reference: Reference, uid: str = "", *, timeout: float = 60) -> None:
        """Waits until an object, or that with `uid`, is deleted; WaitTimeoutError has its finalizers and conditions."""
        last: list[Manifest | None] = [None]

        def gone() -> bool:
            live = last[0] = self.get(*reference)
            return live is None or bool(uid and text_at(live, "metadata", "uid") != uid)

        wait_for(gone, what=f"{reference} to be deleted", timeout=timeout, fix=lambda: holders(last[0]))

    def wait_for(
        self,
        condition: Callable[[], _T | None],
        *,
        timeout: float = 60,
        poll: float = 0.25,
        what: str = "the expected state of the cluster",
    ) -> _T:
        """Polls a condition, see `waiting.wait_for`; raises WaitTimeoutError with `what` and the server."""
        return wait_for(condition, what=f"{what} at {self.server}", timeout=timeout, poll=poll)

    def resource(self, api_version: str, kind: str) -> Resource:
        """How a kind is served; looks up an unknown kind again, then raises UnknownKindError."""
        seen, key = self._kinds, (api_version, kind)
        resource = (seen.get(key) if seen else None) or self._discover(seen).get(key)
        if not resource:
            raise UnknownKindError(api_version, kind)
        return resource

    def served(self, reference: Reference) -> Reference | None:
        """The reference in a served version; None if the kind is no longer served."""
        try:
            self.resource(reference.api_version, reference.kind)
        except UnknownKindError:
            for version, kind in self._discover(None):
                if (version.rpartition("/")[0], kind) == (reference.group, reference.kind):
                    return reference._replace(api_version=version)
            return None
        return reference

    def versions(self, group: str) -> tuple[str, ...]:
        """Served versions of an API group, the preferred one first."""
        served = (version.rpartition("/") for version, _ in self._kinds or self._discover(None))
        return tuple(dict.fromkeys(version for of, _, version in served if of == group))

    def forget_kinds(self) -> None:
        """Clears the discovery cache, after a definition was changed or deleted."""
        self._kinds = None

    def _discover(self, seen: _Kinds | None) -> _Kinds:
        """Returns kinds that are newer than `seen`."""
        with self._discovering:
            if self._kinds is None or self._kinds is seen:
                answers = [self._ask(Request("GET", root, accept=DISCOVERY)) for root in ("/api", "/apis")]
                found: dict[tuple[str, str], Resource] = {}
                for resource in (resource for answer in answers for resource in _resources(answer)):
                    found.setdefault((resource.api_version, resource.kind), resource)
                self._kinds = found
            return self._kinds

    def _ask(self, request: Request) -> Manifest:
        return cast("Manifest", json.loads(self._transport.send(request)))

    def _located(self, reference: Reference) -> Resource:
        resource = self.resource(reference.api_version, reference.kind)
        if resource.namespaced != bool(reference.namespace):
            scope, fix = ("namespaced", "set") if resource.namespaced else ("cluster-scoped", "remove")
            raise ApiError(_BAD_REQUEST, "BadRequest", f"{reference.kind} is {scope}; {fix} metadata.namespace")
        return resource

    def _path(self, reference: Reference) -> str:
        if not reference.name:
            raise ApiError(_BAD_REQUEST, "BadRequest", f"{reference.kind}: metadata.name is missing")
        return self._located(reference).path(reference.namespace, reference.name)


def _resources(answer: Mapping[str, Json]) -> Iterator[Resource]:
    # In an aggregated discovery document, the preferred version of a group comes first.
    if answer.get("kind") != "APIGroupDiscoveryList":
        fix = "upgrade the cluster to Kubernetes 1.30 or later"
        raise ConsoleError("the API server does not support aggregated discovery v2", fix)
    for group in maps_at(answer, "items"):
        prefix = text_at(group, "metadata", "name")
        for version in maps_at(group, "versions"):
            name = text_at(version, "version")
            for resource in maps_at(version, "resources"):
                yield Resource(
                    api_version=f"{prefix}/{name}" if prefix else name,
                    kind=text_at(resource, "responseKind", "kind"),
                    plural=text_at(resource, "resource"),
                    namespaced=text_at(resource, "scope") == "Namespaced",
                )
