"""Embedded platforms that tests start themselves."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from starts import guarded

from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.definitions import fetch
from gpu_tenancy.embedded.definitions.pins import Pin
from gpu_tenancy.embedded.platform import Platform


@contextmanager
def ending(home: Path) -> Generator[Platform]:
    """An embedded platform of a test; it is ended by its own pids."""
    found = Platform(home)
    try:
        yield found
    finally:
        with guarded(""):  # the last test of a run ends it, whatever its marks
            found.down()


@contextmanager
def running(home: Path, report: Report, service: str = "", pins: Sequence[Pin] = ()) -> Generator[Platform]:
    """A started platform of a test, with some definitions."""
    with ending(home) as found:
        found.up(report, service, fetch(pins, found.cache, report))
        yield found
