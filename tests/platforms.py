"""Embedded platforms that tests start themselves."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.definitions import fetch
from gpu_tenancy.embedded.definitions.pins import Pin
from gpu_tenancy.embedded.platform import Platform


@contextmanager
def ending(home: Path) -> Generator[Platform]:
    """An embedded platform of the tests' own, which they start; it is ended by its own pids.

    The garbage collectors of its programs have memory to spend.
    """
    found = Platform(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOGC", "400")
        try:
            yield found
        finally:
            found.down()


@contextmanager
def running(home: Path, report: Report, service: str = "", pins: Sequence[Pin] = ()) -> Generator[Platform]:
    """A started platform of the tests' own, with some definitions."""
    with ending(home) as found:
        found.up(report, service, fetch(pins, found.cache, report))
        yield found
