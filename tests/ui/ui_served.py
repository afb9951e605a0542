"""The page of `tenancy ui` from a server, with boards of a test."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Final

import yaml
from live_builders import GPU, came, cohort, counted, local_queue, node, pod, state, waits

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cluster.reading import State
from gpu_tenancy.explain.running import Why
from gpu_tenancy.jobs.overview import JobRow
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.ui.board import Board, board_of
from gpu_tenancy.ui.page import explained
from gpu_tenancy.ui.server import Refreshing, Server

SCRIPT: Final = "<img src=x onerror=document.title='taken'>"  # an attacker's message or label on the page


def busy(*names: str) -> State:
    """Two teams of one cohort: research borrows, and these jobs of it are pending."""
    running = [came("old", "research", 8, day=2), came("new", "research", 4, day=9), came("talk", "speech", 4)]
    jobs = [*running, *(waits(name, day=10 + at % 10) for at, name in enumerate(names))]
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    nodes = [node(name) for name in ("n1", "n2")]
    nodes[0]["status"] |= ready
    return state(
        ClusterQueue=counted(jobs, borrowingLimit=24),
        Cohort=[cohort("org", "company", nominal=8), cohort("company", nominal=16)],
        LocalQueue=[local_queue("research"), local_queue("speech")],
        Workload=jobs,
        Node=nodes,
        Pod=[pod("old-0", on="n1")],
    )


def job(name: str, shown: str = "running") -> JobRow:
    return JobRow(name, "Job", shown, 1, 1, {GPU: 8}, "2026-01-02T00:00:00Z", "rita")


@dataclass
class Served:
    """A server with its next board; a text in its place is an error."""

    server: Server
    refreshing: Refreshing
    board: Board | str

    def change(self, board: Board | str) -> None:
        self.board = board
        self.refreshing.changed()


@contextmanager
def serving(board: Board, folder: Path) -> Generator[Served]:
    """A page whose API server does not answer watches."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "secret-token"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(config), encoding="utf-8")
    boards = [board]
    with Cluster(folder / "kubeconfig", retry_seconds=0) as cluster:

        def read() -> Board:
            now = served.board if made else board
            if isinstance(now, str):
                raise ConsoleError(now, "wait")
            return now

        made = False
        refreshing = Refreshing(cluster, "research", read)
        server = Server(0, refreshing, _why, "research", "https://127.0.0.1:1")
        served = Served(server, refreshing, boards[0])
        made = True
        refreshing.start()
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield served
        finally:
            refreshing.stop()
            server.shutdown()
            server.server_close()
            thread.join(30)


def _why(namespace: str, kind: str, name: str) -> str:
    return explained(Why((f"of {kind}",), f"{SCRIPT} is ahead", "wait", title=f"{kind} {namespace}/{name}"), "12:00:00")


def research(*names: str) -> Board:
    return board_of(busy(*names), "research", (job("old"), job("failed", "failed")))


def events(lines: Iterator[bytes]) -> Iterator[str]:
    for line in lines:
        if line.startswith(b"data: "):
            yield line.removeprefix(b"data: ").decode()
