"""A webhook that a test runs, and that refuses for a while as one does that has just started."""

import json
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from chart_repository import LOOPBACK

_OK, _UNAVAILABLE = 200, 503


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to judge an object.

    Attributes:
        dry_run: nothing would have been kept of it.
        allowed: False where the webhook did not judge yet, and so the API server refused.
    """

    kind: str
    name: str
    dry_run: bool
    allowed: bool


@dataclass
class Webhook:
    """What a webhook was asked, in that order.

    Attributes:
        address: its URL.
        refusals: how many requests it does not answer at first.
    """

    address: str
    refusals: int
    asked: list[Asked] = field(default_factory=list[Asked])
    _lock: Lock = field(default_factory=Lock)

    def judge(self, request: Any) -> bool:
        """Whether a request is answered, as a review's `request` says it; whatever is judged is allowed."""
        with self._lock:
            allowed = len(self.asked) >= self.refusals
            name, kind = request.get("name", ""), request["kind"]["kind"]
            self.asked.append(Asked(kind, name, bool(request.get("dryRun")), allowed))
            return allowed


@contextmanager
def webhook(certificate: Path, key: Path, refusals: int) -> Generator[Webhook]:
    """Serves a webhook on the loopback as long as it is open."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            allowed = found.judge(review["request"])
            answer = {**review, "response": {"uid": review["request"]["uid"], "allowed": True}}
            content = json.dumps(answer).encode() if allowed else b"starting"
            self.send_response(_OK if allowed else _UNAVAILABLE)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            """Says nothing: what was asked is kept."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Says nothing of a client that does not trust the certificate: the test counts its refusals itself."""

    server = Server((LOOPBACK, 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    # The handshake is each connection's own thread's: here it would keep everybody else waiting.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    found = Webhook(f"https://{LOOPBACK}:{server.server_address[1]}/judge", refusals)
    with server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield found
        server.shutdown()
