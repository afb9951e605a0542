"""An API server that serves given objects to any client, for commands that read a cluster."""

import json
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

# By API version and kind; None for a kind that the caller may not list.
Objects = Mapping[tuple[str, str], Iterable[Mapping[str, Any]] | None]


def _discovered(objects: Objects, *, core: bool) -> bytes:
    groups = [
        {
            "metadata": {"name": version.rpartition("/")[0]},
            "versions": [
                {
                    "version": version.rpartition("/")[2],
                    "resources": [
                        {"resource": kind.lower(), "responseKind": {"kind": kind}, "scope": _scope(kind)}
                        for other, kind in objects
                        if other == version
                    ],
                }
            ],
        }
        for version in dict.fromkeys(version for version, _ in objects)
        if ("/" not in version) is core
    ]
    return json.dumps({"kind": "APIGroupDiscoveryList", "items": groups}).encode()


def _scope(kind: str) -> str:
    """ConfigMaps are read by name, which needs a namespace; all other kinds are only listed."""
    return "Namespaced" if kind == "ConfigMap" else "Cluster"


@contextmanager
def serving(folder: Path, objects: Objects) -> Generator[Path]:
    """Serves objects as cluster-scoped ones; yields a kubeconfig."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the class has them
            """Prints nothing, because standard error is the command's."""

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            version, _, plural = path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")
            status = 200
            if path in {"/api", "/apis"}:
                body = _discovered(objects, core=path == "/api")
            else:
                found = [items for (of, kind), items in objects.items() if (of, kind.lower()) == (version, plural)]
                items = found[0] if found else ()
                status = 404 if not found else 403 if items is None else 200
                body = json.dumps({"kind": "Status", "items": [*(items or ())], "message": "forbidden"}).encode()
            self._answer(status, body)

        def do_POST(self) -> None:
            """The identity of the caller, the only object that these commands create."""
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(201, json.dumps({"status": {"userInfo": {"username": "ada"}}}).encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "u", "user": {}}],
        }
        file = folder / "kubeconfig"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        yield file
        server.shutdown()
        thread.join()
