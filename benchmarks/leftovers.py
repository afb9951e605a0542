"""Kills what a benchmark or a run of tests has started as soon as it has ended, also by SIGKILL.

A platform lives on after the command that started it, as users want it to; one of a run that was killed would live on
for ever.
"""

import os
import subprocess
import sys
from contextlib import suppress
from typing import Final
from uuid import uuid4

import psutil

RUN: Final = "GPU_TENANCY_RUN"
"""Environment variable of all processes of a run, which each of them passes on."""


def kill_at_end() -> None:
    """Has a process wait for the end of this one, and kill all that was started from here and still runs then."""
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
    """The processes that a run has started and that still run."""
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
