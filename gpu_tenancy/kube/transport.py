"""Requests to an API server by urllib3: connections with the CA and the proxy of a kubeconfig, retries, TLS errors."""

import json
import re
import ssl
import tempfile
import time
from collections.abc import Generator
from copy import copy
from ipaddress import ip_address, ip_network
from itertools import count
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager
from urllib3.exceptions import HTTPError, MaxRetryError, ReadTimeoutError
from urllib3.util import Retry, Timeout

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import patient
from gpu_tenancy.kube.contexts import Certificate, Entry, Login, content, entry_of
from gpu_tenancy.kube.errors import UNAUTHORIZED, UnreachableError, api_error
from gpu_tenancy.kube.request import CONNECTIONS, Request, RetryBudget, transient

_CONNECT: Final = 5.0  # seconds
_CHUNK: Final = 2**16
_OK: Final = 200


class Transport:
    """Sends requests with the server, credentials and CA of a kubeconfig; safe to share between threads."""

    def __init__(self, kubeconfig: Path, context: str | None, retry_seconds: float, answer_seconds: float = 60) -> None:
        """Reads the kubeconfig; see `RetryBudget` for `retry_seconds`."""
        self._budget = RetryBudget(retry_seconds)
        self._timeout = Timeout(connect=patient(_CONNECT), read=patient(answer_seconds))
        entry = entry_of(kubeconfig, context)
        self.server, self.namespace = entry.server, entry.namespace
        self._login = Login(entry, kubeconfig)
        self._as: dict[str, str] = {}
        self._pool = connections(entry, self._login.certificate, kubeconfig)

    def impersonating(self, user: str, group: str) -> Self:
        """The same connections and login with impersonation."""
        other = copy(self)
        other._as = {"Impersonate-User": user, **({"Impersonate-Group": group} if group else {})}
        return other

    def send(self, request: Request) -> bytes:
        """Body of `answer`, with the same errors."""
        return self.answer(request)[0]

    def answer(self, request: Request) -> tuple[bytes, tuple[str, ...]]:
        """Body and warnings; repeats the request while the server fails, then raises ApiError or UnreachableError."""
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
        pause = None if request.once else self._budget.pause(attempt, retry_after)
        time.sleep(pause or 0)
        return pause is not None

    def lines(self, request: Request) -> Generator[bytes]:
        """Yields the lines of an answer as they arrive, until the server ends it; raises the errors of `send`."""
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
        headers = self._login.headers()
        headers.update({"Accept": request.accept, "Content-Type": request.content_type, **self._as})
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


# urllib3's name of a connection before the problem; messages name the server already.
_CONNECTION: Final = re.compile(r"^(HTTPS?Connection(Pool)?\([^)]*\)|<[^>]*>): ")
_TLS: Final = {
    "certificate has expired": "renew the server's certificate, and check the clock of this machine",
    "certificate is not yet valid": "check the clock of this machine",
}
_OTHER_TLS: Final = "the kubeconfig may be of another cluster; get it again from the owner of the cluster"


def connections(entry: Entry, certificate: Certificate | None, place: Path) -> PoolManager:
    """Connections to the server of a context, with a client certificate; sends no request.

    Raises ConsoleError, which names the kubeconfig `place`, if a certificate or the kind of proxy cannot be used.
    """
    options: dict[str, Any] = {
        "maxsize": CONNECTIONS,
        "retries": Retry(0),  # `RetryBudget` decides
        "ssl_context": _context(entry, certificate, place) if entry.server.startswith("https") else None,
        "server_hostname": entry.cluster.get("tls-server-name"),
    }
    proxy = entry.cluster.get("proxy-url") or _proxy(entry.server)
    if not proxy:
        return PoolManager(**options)
    if not proxy.startswith("http"):
        raise ConsoleError(f"{place}: proxy {proxy} is not supported", "use a proxy with http:// or https://")
    return ProxyManager(proxy, **options)


def _context(entry: Entry, certificate: Certificate | None, place: Path) -> ssl.SSLContext:
    try:
        authority = content(entry.cluster, "certificate-authority", place).decode() or None
        context = ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError):
        raise ConsoleError(f"{place}: certificate-authority is not a certificate", "get the kubeconfig again") from None
    # As kubectl, which accepts authorities without the extensions that Python 3.13 asks for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if entry.cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        # `ssl` reads a client certificate from a file only; it has mode 0600 and is gone at once.
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"\n".join(certificate))
            file.flush()
            try:
                context.load_cert_chain(file.name)
            except ssl.SSLError:
                what = f"{place}: client certificate and key do not belong together, or are not PEM"
                raise ConsoleError(what, "get the kubeconfig again") from None
    return context


def _proxy(server: str) -> str | None:
    """Proxy by HTTPS_PROXY and NO_PROXY of the environment, read as Go does."""

    def within(host: str, network: str) -> bool:
        try:
            return ip_address(host) in ip_network(network)
        except ValueError:
            return False

    found, proxies = urlsplit(server), getproxies()
    host = found.hostname or ""
    if proxy_bypass(host) or any(within(host, entry.strip()) for entry in proxies.get("no", "").split(",")):
        return None
    return proxies.get(found.scheme)


def unreachable(server: str, error: Exception) -> UnreachableError:
    """Error for a server that did not answer, or whose certificate is not accepted."""
    if problem := certificate_problem(error):
        return UnreachableError(server, problem.verify_message, _TLS.get(problem.verify_message, _OTHER_TLS))
    reason = error.reason if isinstance(error, MaxRetryError) and error.reason else error
    if isinstance(reason, ReadTimeoutError):
        return UnreachableError(server, "it accepts connections but does not answer")
    return UnreachableError(server, _CONNECTION.sub("", str(reason)))


def certificate_problem(error: Exception) -> ssl.SSLCertVerificationError | None:
    """Problem of a server's certificate; None for any other error."""
    reason = error.reason if isinstance(error, MaxRetryError) else error
    inner = reason.args[0] if isinstance(reason, HTTPError) and reason.args else None
    return inner if isinstance(inner, ssl.SSLCertVerificationError) else None
