import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

LOOPBACK: Final = "127.0.0.1"


class Handler(BaseHTTPRequestHandler):
    """Answers one request at a time, and logs nothing."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status: int, content: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(content)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class gives the name
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores a client that does not trust the certificate."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], pair: tuple[Path, Path] | None = None) -> Generator[str]:
    server = _Server((LOOPBACK, 0), handler)
    if pair:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
        # The handshake is in the thread of each connection: here it would keep all others waiting.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http{'s' if pair else ''}://{LOOPBACK}:{server.server_address[1]}"
        server.shutdown()


@contextmanager
def serving_content(content_of: Callable[[str], bytes | None]) -> Generator[str]:
    """Serves the content of a path, or status 404 for None."""

    class Content(Handler):
        def do_GET(self) -> None:
            content = content_of(self.path)
            self.answer(404 if content is None else 200, content or b"")

    with serving(Content) as address:
        yield address
