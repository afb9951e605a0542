"""Embedded platforms that tests start themselves."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpu_tenancy.console.embedded import platform as embedded
from gpu_tenancy.console.embedded.parts import Places, Ports, flags
from gpu_tenancy.console.embedded.platform import Platform
from gpu_tenancy.console.progress import Report


def sparing(part: str, places: Places, ports: Ports) -> list[str]:
    """The flags of a part, without the controller that checks the types of policies."""
    more = ",-validatingadmissionpolicy-status-controller"
    return [flag + more if flag.startswith("--controllers=") else flag for flag in flags(part, places, ports)]


@contextmanager
def running(home: Path, report: Report) -> Generator[Platform]:
    """An embedded platform of the tests' own, ended by its own pids.

    It spares what no test asks for: the collectors of its programs have memory to spend, and no controller compiles
    each policy to write warnings into its status, which is more than half of what applying a stack costs here.
    """
    found = Platform(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOGC", "400")
        patch.setattr(embedded, "flags", sparing)
        found.up(report)
    try:
        yield found
    finally:
        found.down()
