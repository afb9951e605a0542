"""What a case without marks may not do: start a program, or listen on a port; and when what is started hangs."""

import importlib
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import pytest

GUARD: Final = 900
"""Seconds after which a program or a server counts as one that hangs, however busy the machine."""
_STARTS: Final = frozenset({"os.fork", "os.posix_spawn", "os.system", "socket.bind", "subprocess.Popen"})
"""Python's audit events of a program that is started, and of a port that is listened on."""
_running = [""]
"""The case that runs now, last; empty if it may start what it likes."""


@contextmanager
def guarded(case: str) -> Generator[None]:
    """Fails a case that starts something; the empty name allows it, also for a while within a case.

    A fixture of a whole file begins with the file's first case, which need not be one that uses what it starts.
    """
    _running.append(case)
    try:
        yield
    finally:
        _running.pop()


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event in _STARTS and (case := _running[-1]):
        pytest.fail(f"{case} has no mark `process`, but starts a program or a server: {event} {arguments[:1]}")


importlib.import_module("urllib3")  # binds a port when it is imported, to see whether there is IPv6
sys.addaudithook(_audit)
