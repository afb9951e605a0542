"""Layers of the tests: the marks of a case say what it may do, and `make unit` and `make test` choose by them."""

import importlib
import sys
from collections.abc import Generator
from typing import Final

import pytest

_STARTS: Final = frozenset({"os.fork", "os.posix_spawn", "os.system", "socket.bind", "subprocess.Popen"})
"""Python's audit events of a program that is started, and of a port that is listened on."""
_running: list[str] = []
"""The case that runs now, if it has none of the marks that allow these."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Has a case without marks fail where it starts a program, also by a fixture that it is the first to use."""
    if not any(item.get_closest_marker(name) for name in ("process", "platform")):
        _running.append(item.nodeid)
    try:
        return (yield)
    finally:
        _running.clear()


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event in _STARTS and _running:
        pytest.fail(f"{_running[0]} has no mark `process`, but starts a program or a server: {event} {arguments[:1]}")


importlib.import_module("urllib3")  # binds a port when it is imported, to see whether there is IPv6
sys.addaudithook(_audit)
