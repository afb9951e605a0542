"""Embedded platforms that tests start themselves."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from starts import guarded

from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.definitions import fetch
from gpu_tenancy.embedded.definitions.pins import Pin
from gpu_tenancy.embedded.platform import Platform

# More memory for the garbage collectors of a platform's programs; four platforms fit at once.
GARBAGE: Final = {"GOGC": "400", "GOMEMLIMIT": "1400MiB"}


@contextmanager
def ending(home: Path) -> Generator[Platform]:
    """An embedded platform of a test; it is ended by its own pids. See `GARBAGE` for its programs' memory."""
    found = Platform(home)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in GARBAGE.items():
            patch.setenv(name, value)
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
