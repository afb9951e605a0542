"""`tenancy ui` for a researcher on a real Kueue: its content, and an outage of the API server."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml
from queueing import Queueing, a_job
from researchers import TEAM, Researcher
from starts import GUARD

pytestmark = pytest.mark.platform
PATIENCE: Final = 600.0  # seconds until the board shows a change; 10 are usual


class Road:
    """A port that leads to the API server, until it is closed with all of its connections."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.open = True
        sockets: set[socket.socket] = set()
        road = self

        class Relay(BaseRequestHandler):
            def handle(self) -> None:
                if not road.open:
                    return
                with socket.create_connection(target) as there:
                    sockets.update((there, self.request))
                    back = Thread(target=_copy, args=(there, self.request), daemon=True)
                    back.start()
                    _copy(self.request, there)
                    back.join()

        ThreadingTCPServer.daemon_threads = True
        self.server = ThreadingTCPServer(("127.0.0.1", 0), Relay)
        self._sockets = sockets
        Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.open = False
        for one in list(self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while content := source.recv(65536):
            target.sendall(content)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextmanager
def command(kubeconfig: Path) -> Generator[tuple[subprocess.Popen[str], str]]:
    """The command and the address that it prints."""
    # As in a terminal: what is started in the background, as CI may be, ignores Ctrl-C.
    words = ["env", "--default-signal=INT", sys.executable, "-m", "gpu_tenancy", "ui", TEAM]
    words += ["--kubeconfig", str(kubeconfig)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout
            yield running, running.stdout.readline().strip()
        finally:
            running.kill()


def boards(address: str) -> Iterator[Any]:
    url = urlsplit(address)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=GUARD)
    connection.request("GET", f"{url.path}events")
    for line in iter(connection.getresponse().readline, b""):
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


def until(found: Iterator[Any], holds: Callable[[Any], bool]) -> Any:
    """The first board for which a condition holds."""
    end = time.monotonic() + PATIENCE
    for board in found:
        if holds(board):
            return board
        assert time.monotonic() < end, board
    pytest.fail("the command sends no more boards")


def why(address: str, name: str) -> str:
    url = urlsplit(address)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=GUARD)
    connection.request("GET", f"{url.path}why?namespace={TEAM}&kind=Job&name={name}")
    return connection.getresponse().read().decode()


def test_a_researcher_watches_the_queue_through_an_outage(
    researcher: Researcher, queueing: Queueing, tmp_path: Path
) -> None:
    config: Any = yaml.safe_load(researcher.kubeconfig.read_text(encoding="utf-8"))
    server = urlsplit(str(config["clusters"][0]["cluster"]["server"]))
    road = Road((server.hostname or "", server.port or 443))
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{road.server.server_address[1]}"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config), encoding="utf-8")
    made = None
    try:
        with command(tmp_path / "kubeconfig") as (running, address):
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", address)
            found = boards(address)
            first = next(found)["sections"]
            assert "ml-production" in first["tree"]
            assert "a100" in first["nodes"]
            assert "GPUs of pods that you may read" in first["nodes"]
            made = researcher.submit(a_job("watched", TEAM, {"nvidia.com/gpu": "8"}))
            until(found, lambda board: "watched" in board["sections"].get("admitted", ""))
            until(found, lambda board: "running" in board["sections"].get("jobs", ""))
            assert "not pending" in why(address, "watched")
            assert "not found" in why(address, "other")
            road.close()
            away = until(found, lambda board: bool(board["problem"]))
            assert away["problem"].startswith("Not refreshed since ")
            assert "is not reachable" in away["problem"]
            road.open = True
            until(found, lambda board: not board["problem"])
            researcher.end(made)
            made = None
            until(found, lambda board: "Admitted: 0 jobs" in board["sections"].get("admitted", ""))
            running.send_signal(signal.SIGINT)
            assert running.wait(60) == 0
            assert running.stderr
            lines = [line for line in running.stderr.read().splitlines() if not line.startswith("·")]
            assert lines == ["open this address; Ctrl-C ends it"]
    finally:
        road.server.shutdown()
        road.server.server_close()
        if made:
            researcher.end(made)
    assert queueing.cluster.ready()
