"""Kills all processes of a benchmark or a run of tests as soon as it has ended, also by SIGKILL.

A platform outlives the command that started it, as users want; a killed run's platform would never stop.
"""

import os
import subprocess
import sys
from contextlib import suppress
from typing import Final
from uuid import uuid4

import psutil

RUN: Final = "GPU_TENANCY_RUN"  # environment variable of all processes of a run; child processes inherit it


def kill_at_end() -> None:
    """Starts a process that waits for the end of this one, and then kills the running processes of this run."""
    if RUN in os.environ:  # part of a run that is waited for
        return
    run = uuid4().hex
    subprocess.Popen(
        [sys.executable, __file__, str(os.getpid()), run],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.environ[RUN] = run


def processes_of(run: str) -> list[psutil.Process]:
    """The processes of a run that still run."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(RUN) == run:
                found.append(process)
    return found


def _wait_and_kill(pid: int, run: str) -> None:
    with suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait()
    while found := processes_of(run):  # again, for what one of them has just started
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=5)


if __name__ == "__main__":
    _wait_and_kill(int(sys.argv[1]), sys.argv[2])
