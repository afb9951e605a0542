"""Requests to an API server, by urllib3 with the server, credentials and CA of a kubeconfig."""

import json
import time
from collections.abc import Generator
from copy import copy
from itertools import count
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlencode

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError
from urllib3.util import Timeout

from gpu_tenancy.base.patience import patient
from gpu_tenancy.kube.contexts import entry_of
from gpu_tenancy.kube.credentials import Login
from gpu_tenancy.kube.errors import UNAUTHORIZED, api_error
from gpu_tenancy.kube.request import Request, RetryBudget, transient
from gpu_tenancy.kube.tls import certificate_problem, connections, unreachable

_CONNECT: Final = 5.0
"""Seconds to wait for a connection."""
_CHUNK: Final = 2**16
_OK: Final = 200


class Transport:
    """Sends requests with the server, credentials and CA of a kubeconfig; safe to share between threads."""

    def __init__(self, kubeconfig: Path, context: str | None, retry_seconds: float, answer_seconds: float = 60) -> None:
        """Reads the kubeconfig; see `RetryBudget` for the seconds of repetition."""
        self._budget = RetryBudget(retry_seconds)
        self._timeout = Timeout(connect=patient(_CONNECT), read=patient(answer_seconds))
        entry = entry_of(kubeconfig, context)
        self.server, self.namespace = entry.server, entry.namespace
        self._login = Login(entry, kubeconfig)
        self._as: dict[str, str] = {}
        self._pool = connections(entry, self._login.certificate, kubeconfig)

    def impersonating(self, user: str, group: str) -> Self:
        """The same connections and login, for requests as somebody else."""
        other = copy(self)
        other._as = {"Impersonate-User": user, **({"Impersonate-Group": group} if group else {})}
        return other

    def send(self, request: Request) -> bytes:
        """Returns the body of the answer; repeats the request while the server does not work.

        Raises:
            ApiError, UnreachableError: as for `answer`.
        """
        return self.answer(request)[0]

    def answer(self, request: Request) -> tuple[bytes, tuple[str, ...]]:
        """Returns the body and the warnings of the answer; repeats the request while the server does not work.

        Raises:
            ApiError: the server rejected the request.
            UnreachableError: the server did not answer.
        """
        for attempt in count():
            started = time.monotonic()
            try:
                answer = self._call(request)
                content = answer.data
            except HTTPError as error:
                # A server that did not answer for longer than an outage may last is not asked again.
                lasted = time.monotonic() - started > self._budget.seconds
                repeatable = transient(request.method, 0) and not certificate_problem(error) and not lasted
                if not (repeatable and self._repeats(request, attempt)):
                    raise unreachable(self.server, error) from error
                continue
            failed = transient(request.method, answer.status, content)
            if failed and self._repeats(request, attempt, answer.headers.get("Retry-After")):
                continue
            self._check(answer, content)
            if attempt:
                self._budget.over()
            return content, tuple(answer.headers.getlist("Warning"))
        raise AssertionError("unreachable: every attempt returns, raises or repeats")

    def _repeats(self, request: Request, attempt: int, retry_after: str | None = None) -> bool:
        """Whether to send a failed request again, after a pause; not if it only asks whether the server works."""
        pause = None if request.once else self._budget.pause(attempt, retry_after)
        time.sleep(pause or 0)
        return pause is not None

    def lines(self, request: Request) -> Generator[bytes]:
        """Yields the lines of an answer as they arrive, until the server ends it.

        Raises:
            ApiError, UnreachableError: as for `send`; also while lines arrive.
        """
        try:
            answer = self._call(request)
            if answer.status != _OK:
                self._check(answer, answer.data)
            rest = b""
            try:
                for chunk in answer.stream(_CHUNK):
                    *complete, rest = (rest + chunk).split(b"\n")
                    yield from complete
                if rest:
                    yield rest
            finally:
                answer.close()
        except HTTPError as error:
            raise unreachable(self.server, error) from error

    def _check(self, answer: BaseHTTPResponse, content: bytes) -> None:
        if answer.status == UNAUTHORIZED:
            raise self._login.rejected(self.server)
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - the HTTP success range
            raise api_error(answer.status, answer.reason or "", content)

    def _call(self, request: Request) -> BaseHTTPResponse:
        headers = {"Accept": request.accept, "Content-Type": request.content_type, **self._login.headers(), **self._as}
        query = urlencode([(key, value) for key, value in request.query.items() if value])
        url = f"{self.server}{request.path}{'?' if query else ''}{query}"
        body = None if request.body is None else json.dumps(request.body)
        timeout = Timeout(connect=self._timeout.connect_timeout, read=None) if request.endless else self._timeout
        return self._pool.request(
            request.method, url, headers=headers, body=body, timeout=timeout, preload_content=False
        )

    def close(self) -> None:
        """Closes the connections."""
        self._pool.clear()
