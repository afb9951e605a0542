"""Embedded platforms that tests start themselves."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.platform import Platform


@contextmanager
def running(home: Path, report: Report, service: str = "") -> Generator[Platform]:
    """An embedded platform of the tests' own, ended by its own pids.

    The garbage collectors of its programs have memory to spend.
    """
    found = Platform(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOGC", "400")
        found.up(report, service)
    try:
        yield found
    finally:
        found.down()
