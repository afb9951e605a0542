"""Connections to an API server, by the `kubernetes` package, which only this module and `credentials` use."""

from __future__ import annotations

import json
import time
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol, cast

from kubernetes.client.api_client import ApiClient
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError
from urllib3.util.retry import Retry

from gpu_tenancy.kube.contexts import entry_of, impersonation
from gpu_tenancy.kube.credentials import (
    certificate_problem,
    read_kubeconfig,
    rejected,
    unreachable,
)
from gpu_tenancy.kube.errors import UNAUTHORIZED, api_error
from gpu_tenancy.kube.patience import Patience, transient
from gpu_tenancy.kube.request import CONNECTIONS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from gpu_tenancy.kube.request import Request

_TIMEOUT: Final = (5.0, 60.0)
_CHUNK: Final = 2**16
_OK: Final = 200


class _Stream(Protocol):
    """The used methods of `urllib3.BaseHTTPResponse`."""

    def stream(self, amt: int) -> Iterator[bytes]: ...

    def close(self) -> None: ...


class _Answer(Protocol):
    status: int
    reason: str
    response: _Stream

    def read(self) -> bytes: ...

    def getheader(self, name: str) -> str | None: ...


class _Client(Protocol):
    """The used methods of `kubernetes.client.ApiClient`, which has no types."""

    def param_serialize(
        self,
        method: str,
        resource_path: str,
        *,
        query_params: list[tuple[str, str]],
        header_params: dict[str, str],
        auth_settings: list[str],
    ) -> tuple[str, str, dict[str, str], object, object]: ...

    def call_api(
        self,
        method: str,
        url: str,
        header_params: dict[str, str],
        body: object,
        *,
        _request_timeout: tuple[float, float],
    ) -> _Answer: ...

    def close(self) -> None: ...


class Transport:
    """Sends requests with the server, credentials and CA of a kubeconfig; safe to share between threads."""

    def __init__(self, kubeconfig: Path, context: str | None, patience: float) -> None:
        """Reads the kubeconfig; `patience` is in seconds, see `Patience`."""
        self._patience = Patience(patience)
        configuration = read_kubeconfig(kubeconfig, context)
        configuration.connection_pool_maxsize = CONNECTIONS
        configuration.retries = Retry(0)  # `Patience` decides
        self.server = configuration.host
        self._kubeconfig, self._configuration = kubeconfig, configuration
        self._client = cast("_Client", ApiClient(configuration))
        self._identity = impersonation(entry_of(kubeconfig, context).user)

    def send(self, request: Request) -> bytes:
        """Returns the body of the answer; repeats the request while the server does not work.

        Raises:
            ApiError: the server rejected the request.
            UnreachableError: the server did not answer.
        """
        for attempt in count():
            try:
                answer = self._call(request)
                content = answer.read()
            except (HTTPError, ApiException) as error:
                repeatable = transient(request.method, 0) and not certificate_problem(error)
                if not (repeatable and self._repeats(request, attempt)):
                    raise unreachable(self.server, error) from error
                continue
            failed = transient(request.method, answer.status, content)
            if failed and self._repeats(request, attempt, answer.getheader("Retry-After")):
                continue
            self._check(answer, content)
            if attempt:
                self._patience.over()
            return content
        raise AssertionError("unreachable: every attempt returns, raises or repeats")

    def _repeats(self, request: Request, attempt: int, asked: str | None = None) -> bool:
        """Whether to send a failed request again, after a pause; not if it only asks whether the server works."""
        pause = None if request.once else self._patience.pause(attempt, asked)
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
                self._check(answer, answer.read())
            rest = b""
            try:
                for chunk in answer.response.stream(_CHUNK):
                    *complete, rest = (rest + chunk).split(b"\n")
                    yield from complete
            finally:
                answer.response.close()
        except (HTTPError, ApiException) as error:
            raise unreachable(self.server, error) from error

    def _check(self, answer: _Answer, content: bytes) -> None:
        if answer.status == UNAUTHORIZED:
            raise rejected(self._configuration, self._kubeconfig)
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - the HTTP success range
            raise api_error(answer.status, answer.reason, content)

    def _call(self, request: Request) -> _Answer:
        method, url, headers, _, _ = self._client.param_serialize(
            request.method,
            request.path,
            query_params=[(key, value) for key, value in request.query.items() if value],
            header_params={"Accept": request.accept, "Content-Type": request.content_type, **self._identity},
            auth_settings=["BearerToken"],
        )
        # The package itself serializes bodies whose content type is JSON.
        body = request.body if request.body is None or "json" in request.content_type else json.dumps(request.body)
        return self._client.call_api(method, url, headers, body, _request_timeout=_TIMEOUT)

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()
