"""Progress of work that takes longer than a few seconds, and time limits of waits."""

import math
import os
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Thread
from typing import Final, Protocol, runtime_checkable

from gpu_tenancy.base.errors import ConsoleError

Report = Callable[[str], None]  # takes one line of progress
Advance = Callable[[int], None]  # takes the number of units that are done so far

INTERVAL: Final = 15.0  # seconds between two progress lines if no bar can be drawn


@runtime_checkable
class Bars(Protocol):
    """A report that can draw bars."""

    def bar(self, what: str, total: int, unit: str) -> AbstractContextManager[Advance]:
        """A bar from 0 to `total` units, drawn until the context ends."""
        ...


@contextmanager
def measured(report: Report, what: str, total: int, unit: str) -> Generator[Advance]:
    """Shows progress as a bar if the report can draw one, otherwise as a line every `INTERVAL` seconds.

    `what` is the work, such as `compiling`, and `unit` the noun for its units, such as `packages`.
    """
    if isinstance(report, Bars):
        with report.bar(what, total, unit) as advance:
            yield advance
        return
    began, done, ended = time.monotonic(), 0, Event()

    def count(now: int) -> None:
        nonlocal done
        done = now

    def report_regularly() -> None:
        while not ended.wait(INTERVAL):
            report(line(what, done, total, unit, time.monotonic() - began))

    reporter = Thread(target=report_regularly, daemon=True)
    reporter.start()
    try:
        yield count
    finally:
        ended.set()
        reporter.join()


def line(what: str, done: int, total: int, unit: str, seconds: float) -> str:
    """One line of progress: `compiling: 812 of 2,673 packages, about 4 min left`."""
    counted = f"{what}: {done:,} of {total:,} {unit}"
    if not 0 < done < total:
        return counted
    left = seconds / done * (total - done)
    return f"{counted}, about {f'{left / 60:.0f} min' if left > _IN_SECONDS else f'{left:.0f} s'} left"


_IN_SECONDS: Final = 90  # longer times are shown in minutes

# Environment variable: a number from 1 that multiplies limits of waits; default: 1.
PATIENCE: Final = "GPU_TENANCY_PATIENCE"


def patient(seconds: float) -> float:
    """The limit of a wait here, of `seconds` on a usual machine. Raises ConsoleError if PATIENCE is not a number."""
    given = os.environ.get(PATIENCE) or "1"
    try:
        factor = float(given)
    except ValueError:
        factor = math.nan
    if not 1 <= factor < math.inf:
        raise ConsoleError(f"{PATIENCE} is {given!r}, not a number from 1", "set it to a number such as 3, or unset it")
    return seconds * factor
