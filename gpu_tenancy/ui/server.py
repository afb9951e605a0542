"""The HTTP server of the page: on the loopback, with a token in its address, and for reading only.

Each program of this machine can connect, and each web page can make a browser do so. So a request needs the token,
which nobody can guess, and the loopback as its Host, which a page does not have whose own name was bound to 127.0.0.1
(DNS rebinding). No answer has a credential, and none may be framed, cached or read from elsewhere.
"""

import json
from collections.abc import Callable
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from threading import BoundedSemaphore
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from gpu_tenancy.ui.page import page
from gpu_tenancy.ui.refreshing import Refreshing, Version

LOOPBACK: Final = "127.0.0.1"
_BEAT: Final = 15.0
"""Seconds after which a line without content shows whether the browser still listens."""
_LISTENERS: Final = 20
"""Open pages at a time, each of which has a thread."""
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_NOTHING: Final = "default-src 'none'; frame-ancestors 'none'"


class Server(ThreadingHTTPServer):
    """Serves one page.

    Args:
        port: 0 for any free one.
        refreshing: the sections of the page.
        ask: HTML that explains an object, by its namespace, kind and name.
        team: namespace; empty for all.
        cluster: address of the API server.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self, port: int, refreshing: Refreshing, ask: Callable[[str, str, str], str], team: str, cluster: str
    ) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.refreshing, self.ask, self.team, self.cluster = refreshing, ask, team, cluster
        self.token = token_urlsafe(24)
        self.listeners = BoundedSemaphore(_LISTENERS)
        self.asking = BoundedSemaphore(1)
        self.hosts = {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}

    @property
    def address(self) -> str:
        """The address to open, with the token."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints nothing: browsers close connections at any time."""


class _Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = 30
    server_version, sys_version = "tenancy", ""

    def do_GET(self) -> None:
        """Answers a request."""
        url = urlsplit(self.path)
        _, token, *rest = url.path.split("/", 2)
        if self.headers.get("Host", "") not in self.server.hosts:
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
        elif not (rest and compare_digest(token.encode(), self.server.token.encode())):
            self._refuse(HTTPStatus.NOT_FOUND)
        elif rest == [""]:
            version = self.server.refreshing.version
            text, policy = page(self.server.team, self.server.cluster, version.sections, version.at)
            self._send(text, policy)
        elif rest == ["events"]:
            self._events()
        elif rest == ["why"]:
            query = parse_qs(url.query)
            namespace, kind, name = (query.get(key, [""])[0] for key in ("namespace", "kind", "name"))
            with self.server.asking:
                text = self.server.ask(namespace, kind, name)
            self._send(text)
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def _send(self, text: str, policy: str = _NOTHING) -> None:
        content = text.encode()
        self._head(HTTPStatus.OK, "text/html; charset=utf-8", policy, {"Content-Length": str(len(content))})
        self.wfile.write(content)

    def _head(self, status: HTTPStatus, content_type: str, policy: str, more: dict[str, str]) -> None:
        self.send_response(status)
        headers = {"Content-Type": content_type, "Content-Security-Policy": policy, **_HEADERS, **more}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus) -> None:
        self._head(status, "text/plain", _NOTHING, {"Content-Length": "0"})

    def _events(self) -> None:
        """Sends each version of the page as a server-sent event, the first at once."""
        if not self.server.listeners.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
            return
        refreshing = self.server.refreshing
        refreshing.look(1)
        try:
            self._head(HTTPStatus.OK, "text/event-stream", _NOTHING, {"X-Accel-Buffering": "no"})
            seen: Version | None = None
            while not refreshing.ended:
                version = refreshing.after(seen.number if seen else 0, _BEAT)
                self.wfile.write(_event(version, seen) if version else b":\n\n")
                self.wfile.flush()
                seen = version or seen
        except OSError:
            pass  # the browser is gone
        finally:
            refreshing.look(-1)
            self.server.listeners.release()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the names of http.server
        """Prints nothing: the address has the token."""


def _event(version: Version, seen: Version | None) -> bytes:
    """An event with the sections that differ from those that were sent before."""
    changed = {name: text for name, text in version.sections.items() if seen is None or seen.sections.get(name) != text}
    data = json.dumps({"sections": changed, "at": version.at, "problem": version.problem})
    return f"event: board\ndata: {data}\n\n".encode()
