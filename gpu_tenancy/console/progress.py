"""Progress of work that takes longer than a few seconds: lines for a log, a bar for a terminal."""

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Thread
from typing import Final, Protocol, runtime_checkable

Report = Callable[[str], None]
"""Takes one line of progress."""

Advance = Callable[[int], None]
"""Takes how many units are done by now, of the total."""

INTERVAL: Final = 15.0
"""Seconds between two lines where no bar can be drawn."""


@runtime_checkable
class Bars(Protocol):
    """A report that can draw bars."""

    def bar(self, what: str, total: int, unit: str) -> AbstractContextManager[Advance]:
        """A bar from 0 to `total` units, drawn until the context ends."""
        ...


@contextmanager
def measured(report: Report, what: str, total: int, unit: str) -> Generator[Advance]:
    """Shows how much of a piece of work is done: as a bar where the report can draw one, else by a line now and then.

    Args:
        report: who is told.
        what: the work, such as `compiling`.
        total: how many units it has.
        unit: the noun they count, such as `packages`.
    """
    if isinstance(report, Bars):
        with report.bar(what, total, unit) as advance:
            yield advance
        return
    with _told(report, what, total, unit) as advance:
        yield advance


@contextmanager
def _told(report: Report, what: str, total: int, unit: str) -> Generator[Advance]:
    began, done, ended = time.monotonic(), 0, Event()

    def advance(now: int) -> None:
        nonlocal done
        done = now

    def tell() -> None:
        while not ended.wait(INTERVAL):
            report(line(what, done, total, unit, time.monotonic() - began))

    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield advance
    finally:
        ended.set()
        teller.join()


def line(what: str, done: int, total: int, unit: str, seconds: float) -> str:
    """Progress in words: `compiling: 812 of 2,673 packages, about 4 min left`."""
    counted = f"{what}: {done:,} of {total:,} {unit}"
    if not 0 < done < total:
        return counted
    left = seconds / done * (total - done)
    return f"{counted}, about {f'{left / 60:.0f} min' if left > _IN_SECONDS else f'{left:.0f} s'} left"


_IN_SECONDS: Final = 90
"""Up to here, seconds read better than minutes."""
