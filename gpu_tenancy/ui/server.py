"""Serves the page of a running cluster on the loopback; a watch triggers reads while a browser shows the page.

Each program of this machine can connect, and each web page can make a browser connect. So a request needs a secret
token in its URL, and the loopback as its Host against DNS rebinding. The server only reads. No response has a
credential, and none may be framed, cached or read from elsewhere.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from threading import BoundedSemaphore, Condition, Event, Thread
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import text_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import FORBIDDEN, UNAUTHORIZED, ApiError
from gpu_tenancy.model.names import KUEUE
from gpu_tenancy.ui.board import Board
from gpu_tenancy.ui.page import page, sections

# Kinds whose changes are shown at once; others within `_LONGEST`.
_WATCHED: Final = ((KUEUE, "Workload"), (KUEUE, "ClusterQueue"), ("v1", "Pod"), ("v1", "Node"))
_SHORTEST: Final = 1.0  # seconds between two reads; more if a read takes long
_LONGEST: Final = 30.0
_PART: Final = 3  # pause after a read, in multiples of its duration
_AGAIN: Final = 5.0  # seconds until a retry of a watch or a read


@dataclass(frozen=True, slots=True)
class Version:
    """Content of the page."""

    number: int  # counts changes
    sections: dict[str, str]  # HTML by id, of the last successful read
    at: str  # time of that read
    problem: str = ""  # why the cluster cannot be read; empty if it can


class Refreshing:
    """The current version of the page, refreshed by threads; watches namespace `own` without the right to watch all."""

    def __init__(self, cluster: Cluster, own: str, read: Callable[[], Board]) -> None:
        self._cluster, self._own, self._read = cluster, own, read
        self._changed, self._ended = Event(), Event()
        self._condition = Condition()
        self._looking = 0
        board = read()
        self._version = Version(1, sections(board), time_text(board.at))

    @property
    def version(self) -> Version:
        """The latest version."""
        return self._version

    @property
    def ended(self) -> bool:
        """Whether refreshing has stopped."""
        return self._ended.is_set()

    def start(self) -> None:
        """Starts the threads, which end with the process."""
        Thread(target=self._refresh, daemon=True).start()
        for api_version, kind in _WATCHED:
            Thread(target=self._watch, args=(api_version, kind), daemon=True).start()

    def stop(self) -> None:
        """Stops refreshing, and wakes waiting threads."""
        self._ended.set()
        self._changed.set()
        with self._condition:
            self._condition.notify_all()

    def changed(self) -> None:
        """Triggers a read of the cluster."""
        self._changed.set()

    def look(self, by: int) -> None:
        """Counts viewers: 1 for a new one, -1 for one that leaves."""
        with self._condition:
            self._looking += by
        self._changed.set()

    def after(self, number: int, seconds: float) -> Version | None:
        """The first version after `number`; None if there is none within the seconds, or refreshing stops."""
        with self._condition:
            self._condition.wait_for(lambda: self._version.number > number or self._ended.is_set(), seconds)
            return self._version if self._version.number > number and not self._ended.is_set() else None

    def _refresh(self) -> None:
        while not self._ended.is_set():
            self._changed.wait(_AGAIN if self._version.problem else _LONGEST)
            self._changed.clear()
            if not self._looking:
                continue
            began = time.monotonic()
            self._publish()
            self._ended.wait(max(_SHORTEST, _PART * (time.monotonic() - began)))

    def _publish(self) -> None:
        old = self._version
        try:
            board = self._read()
            new = Version(old.number + 1, sections(board), time_text(board.at))
        except (ApiError, ConsoleError) as error:
            new = Version(old.number + 1, old.sections, old.at, f"Not refreshed since {old.at}: {problem_text(error)}")
        with self._condition:
            self._version = new
            self._condition.notify_all()

    def _watch(self, api_version: str, kind: str) -> None:
        """Watches a kind in the whole cluster or, if forbidden, in the user's own namespace."""
        namespace, since = "", ""
        while not self._ended.is_set():
            try:
                since = since or self._cluster.version(api_version, kind, namespace=namespace)
                for event in self._cluster.watch(api_version, kind, namespace=namespace, since=since, seconds=50):
                    since = text_at(event.object, "metadata", "resourceVersion") or since
                    if event.type != "BOOKMARK":
                        self._changed.set()
            except ApiError as error:
                if error.status == FORBIDDEN and not namespace and self._own and kind not in {"Node", "ClusterQueue"}:
                    namespace = self._own
                    continue
                since = ""
                self._ended.wait(_LONGEST if error.status == FORBIDDEN else _AGAIN)
            except ConsoleError:
                since = ""
                self._changed.set()
                self._ended.wait(_AGAIN)


def time_text(moment: datetime) -> str:
    """Time of a read: `12:31:04 CET`."""
    return f"{moment:%H:%M:%S %Z}".strip()


def problem_text(error: ApiError | ConsoleError) -> str:
    """A problem and its fix, in one line."""
    if isinstance(error, ConsoleError):
        return f"{error.what}; {error.fix}"
    fix = "log in again, and start `tenancy ui` again" if error.status == UNAUTHORIZED else "it is tried again"
    return f"API server: {error.message}; {fix}"


LOOPBACK: Final = "127.0.0.1"
_BEAT: Final = 15.0  # seconds between empty lines, which detect closed connections
_LISTENERS: Final = 20  # open pages, each with a thread
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
    """Serves one page; port 0 is any free port.

    `ask` returns HTML that explains an object, by namespace, kind and name. `team` is empty for all; `cluster` is the
    address of its API server.
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
        """URL with the token."""
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
                self.wfile.write(_event(version, seen.sections if seen else {}) if version else b":\n\n")
                self.wfile.flush()
                seen = version or seen
        except OSError:
            pass  # the browser is gone
        finally:
            refreshing.look(-1)
            self.server.listeners.release()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the names of http.server
        """Prints nothing: the address has the token."""


def _event(version: Version, seen: dict[str, str]) -> bytes:
    # Only sections that changed since the last event.
    changed = {name: text for name, text in version.sections.items() if seen.get(name) != text}
    data = json.dumps({"sections": changed, "at": version.at, "problem": version.problem})
    return f"event: board\ndata: {data}\n\n".encode()
