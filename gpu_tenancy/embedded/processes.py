"""Processes that outlive the command that started them, and are stopped only by pid; locks between processes."""

import fcntl
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from threading import current_thread, main_thread
from typing import Final

import psutil

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import Report

TERMINATED_WITHIN: Final = 10.0  # seconds between SIGTERM and SIGKILL


@dataclass(frozen=True, slots=True)
class Started:
    """A started process: its pid, and its start time, so that another process with the same pid is never stopped."""

    pid: int
    began: float

    @property
    def process(self) -> psutil.Process | None:
        """The process; None if it has exited."""
        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            # The kernel has a resolution of 10 ms, and the system clock can be changed.
            if abs(process.create_time() - self.began) < 1 and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None


@contextmanager
def uninterrupted() -> Generator[None]:
    """Delays Ctrl-C until the block ends, so that no process is started without a record or only partly stopped."""
    if current_thread() is not main_thread():  # Ctrl-C reaches only the main thread
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
    """Starts a process in its own session, so that Ctrl-C does not reach it; its output is written to the log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        # `stop` waits for it, in this process or a later one.
        child = subprocess.Popen(
            command,
            cwd=log.parent,
            env=os.environ | (environment or {}) | {_MARK: str(log)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _CHILDREN[child.pid] = child
    return Started(child.pid, psutil.Process(child.pid).create_time())


# Environment variable of every started process, with its log file, to recognize it without a record.
_MARK: Final = "GPU_TENANCY_LOG"


def marked(folder: Path) -> Iterator[Started]:
    """The processes that `start` started with a log in this folder, also if it was killed before it recorded them."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            log = process.environ().get(_MARK, "")
            if log and Path(log).parent == folder:
                yield Started(process.pid, process.create_time())


# Child processes, which stay zombies until this process waits for them.
_CHILDREN: Final[dict[int, subprocess.Popen[bytes]]] = {}


def stop(started: Iterable[Started]) -> None:
    """Terminates all processes at once, kills any that do not exit, and returns when all have exited."""
    processes = [process for item in started if (process := item.process)]
    for send in (psutil.Process.terminate, psutil.Process.kill):
        for process in filter(_runs, processes):
            with suppress(psutil.Error):
                send(process)
        deadline = time.monotonic() + TERMINATED_WITHIN
        while time.monotonic() < deadline and any(map(_runs, processes)):
            time.sleep(0.05)


def _runs(process: psutil.Process) -> bool:
    child = _CHILDREN.get(process.pid)
    if child is not None:
        return child.poll() is None
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


# Not for outgoing connections, one of which could take a port before its program listens: these have 32768-60999 by
# default on Linux (ip_local_port_range), and 49152-65535 on macOS. NodePorts are 30000-32767.
_PORTS: Final = range(20_000, 30_000)


def free_ports(count: int) -> list[int]:
    """Different free ports of loopback; raises ConsoleError if there are fewer."""
    found: list[int] = []
    for port in SystemRandom().sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            return found
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            found.append(port)
    raise ConsoleError(
        f"fewer than {count} ports of {_PORTS[0]}-{_PORTS[-1]} are free on loopback", "end programs that listen there"
    )


def listens(port: int) -> bool:
    """Whether a program listens at this port of loopback."""
    with socket.socket() as client:
        client.settimeout(2)
        return client.connect_ex(("127.0.0.1", port)) == 0


def tail(log: Path, lines: int = 12) -> str:
    """The last lines of a log; empty if there is no log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.is_file() else ""


_STARTS: Final = 3  # attempts, each with new ports, if another process takes a port


class PortTakenError(ConsoleError):
    """Another process took a port after it was chosen."""


def at_free_ports(begin: Callable[[], None]) -> None:
    """Starts programs, again at other ports if another process took one of theirs; the last attempt's error is raised.

    `begin` ends the programs of an earlier call, chooses ports and starts programs.
    """
    for _ in range(_STARTS - 1):
        with suppress(PortTakenError):
            begin()
            return
    begin()


def failure(name: str, what: str, log: Path) -> ConsoleError:
    """The error of a process that does not work, with the last lines of its log."""
    lines = tail(log)
    error = PortTakenError if "address already in use" in lines else ConsoleError
    return error(f"{name} {what}. Last log lines:\n{lines}", f"see the full log in {log}")


@contextmanager
def alone(lock: Path, report: Report, what: str) -> Generator[None]:
    """Holds a lock; if another process has it, reports its task `what` (`starting this platform`), and waits.

    The file is kept, because a process that waits for a removed file would no longer be locked out.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that is {what}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
