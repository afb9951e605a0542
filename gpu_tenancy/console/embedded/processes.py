"""Processes that outlive the command that started them, and are ended by nothing but their own pid."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import current_thread, main_thread
from typing import Final

import psutil

PATIENCE: Final = 10.0
"""Seconds that a process has to end by itself before it is ended."""


@dataclass(frozen=True, slots=True)
class Started:
    """A process that was started: its pid, and when it began, so that another one with its pid is left alone."""

    pid: int
    began: float

    @property
    def process(self) -> psutil.Process | None:
        """The process while it runs; None once it has ended."""
        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            # The kernel counts in hundredths of a second, and the clock that it counts from may be set.
            if abs(process.create_time() - self.began) < 1 and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None


@contextmanager
def uninterrupted() -> Generator[None]:
    """Holds ctrl-C back until the block ends, so that no process is started and not noted, or ended halfway."""
    if current_thread() is not main_thread():  # ctrl-C reaches the main thread alone
        yield
        return
    pressed = False

    def note(*_: object) -> None:
        nonlocal pressed
        pressed = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def start(command: Sequence[str], log: Path, *, environment: dict[str, str] | None = None) -> Started:
    """Starts a process in a session of its own, so that no Ctrl-C meant for us reaches it; its words go to the log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as words:
        # Waited for by `stop`, in this process or a later one.
        child = subprocess.Popen(
            command,
            cwd=log.parent,
            env=os.environ | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _CHILDREN[child.pid] = child
    return Started(child.pid, psutil.Process(child.pid).create_time())


_CHILDREN: Final[dict[int, subprocess.Popen[bytes]]] = {}
"""Our own children, which stay zombies until they are waited for."""


def stop(started: Iterable[Started]) -> None:
    """Asks each to end, all at once, and ends those that do not; returns when none is left."""
    running = {each.pid: process for each in started if (process := each.process)}
    for process in running.values():
        with suppress(psutil.Error):
            process.terminate()
    _gone(running, PATIENCE)
    for process in running.values():
        with suppress(psutil.Error):
            if process.is_running():
                process.kill()
    _gone(running, PATIENCE)


def _gone(running: dict[int, psutil.Process], patience: float) -> None:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and any(_runs(pid, process) for pid, process in running.items()):
        time.sleep(0.05)


def _runs(pid: int, process: psutil.Process) -> bool:
    child = _CHILDREN.get(pid)
    if child is not None:
        return child.poll() is None
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on; held together, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def tail(log: Path, lines: int = 12) -> str:
    """The last words of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.is_file() else ""
