"""Guards a test without marks: it starts no program, listens on no port, and reads no cache of downloads."""

import importlib
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import platformdirs
import pytest

GUARD: Final = 900
"""Seconds after which a program or a server counts as one that hangs, however busy the machine."""
# Python's audit events of a started program, and of a port that is listened on.
_STARTS: Final = frozenset({"os.fork", "os.posix_spawn", "os.system", "socket.bind", "subprocess.Popen"})
CACHES: Final = (
    f"{platformdirs.user_cache_path('gpu-tenancy')}{os.sep}",
    os.environ.get("GOMODCACHE", f"{Path.home() / 'go' / 'pkg' / 'mod'}{os.sep}"),
)
"""Folders of downloaded or built files. They are empty on a fresh machine, where a test that reads them starts a
program; so a test without marks fails on every machine, with any content of the caches."""
_running = [""]  # the running tests, the present one last; empty if it may start programs


@contextmanager
def guarded(case: str) -> Generator[None]:
    """Fails a test that starts a program or reads a cache; the empty name allows both, also for a while within a test.

    A fixture of a whole file begins with the file's first test, which need not be one that uses it.
    """
    _running.append(case)
    try:
        yield
    finally:
        _running.pop()


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if not (case := _running[-1]):
        return
    if event in _STARTS:
        pytest.fail(f"{case} has no mark `process`, but starts a program or a server: {event} {arguments[:1]}")
    if event == "open" and str(arguments[0]).startswith(CACHES):
        pytest.fail(f"{case} has no mark `process`, but reads a file that a fresh machine downloads: {arguments[0]}")


importlib.import_module("urllib3")  # binds a port when it is imported, to see whether there is IPv6
sys.addaudithook(_audit)
