"""Locks between processes, for work that only one process may do at a time."""

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from gpu_tenancy.base.progress import Report


@contextmanager
def alone(lock: Path, report: Report, what: str) -> Generator[None]:
    """Holds a lock; if another process has it, reports this and waits.

    Args:
        lock: the file; it is kept, because a process that waits for a removed file would no longer be locked out.
        report: receives a line if this process has to wait.
        what: what the other process is doing, such as `starting or stopping this platform`.

    Raises:
        OSError: the file is not writable.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that is {what}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
