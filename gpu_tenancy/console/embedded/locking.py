"""Locks between processes, for what only one of them may do at a time."""

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from gpu_tenancy.console.progress import Report


@contextmanager
def alone(lock: Path, report: Report, what: str) -> Generator[None]:
    """Holds a lock; where another process has it, says so and waits.

    Args:
        lock: the file; it stays afterwards, since a lock that is removed no longer keeps out who already waits for it.
        report: told when this process has to wait.
        what: what the other process does, such as `starts or stops this platform`.

    Raises:
        OSError: the file cannot be written.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting: another process {what}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
