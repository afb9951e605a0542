"""Shares the registrations of a large program between processes.

A program asks the monitor for its `share` of independent parts, such as teams. The monitor forks the process for each
further core. Each process registers its own share and sends the registrations to the first process as serialized bytes.
Sorted by URN, the result is the same as of one process. Only Linux can fork safely, without further threads.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

if TYPE_CHECKING:
    from gpu_tenancy.engine.recording import Registration

T = TypeVar("T")

SMALLEST: Final = 100  # parts below which one process is as fast: a fork and its answer take 0.2 s
CORES: Final = "GPU_TENANCY_CORES"  # environment variable: number of processes; default: the cores that it may use
_MOST: Final = 4  # processes of one preview: each has its own memory, and a third of the time is not shared


class ShareError(Exception):
    """A process with a share of the parts ended without its registrations: one process has to register all."""


class Sharing:
    """The processes of one render; with one of `cores`, this process registers everything."""

    def __init__(self, cores: int | None = None) -> None:
        self._cores = cores or _cores()
        self._others: list[tuple[int, int]] = []  # process and pipe of each other share
        self.shared = False  # whether several processes register parts
        self.answer: int | None = None  # pipe to the first process, in a process with a further share

    def share(self, parts: Sequence[T]) -> Sequence[T]:
        """The parts that this process has to register; forks at the first call with many of them."""
        shares = min(self._cores, len(parts) // (SMALLEST // 2))
        can_fork = sys.platform == "linux" and threading.active_count() == 1
        if shares < 2 or self.shared or not can_fork:  # noqa: PLR2004 - one share is all
            return parts
        self.shared = True
        for number in range(1, shares):
            if self._fork():
                return parts[number::shares]
        return parts[::shares]

    def _fork(self) -> bool:
        """Starts a process; True in the new process."""
        reader, writer = os.pipe()
        loop = asyncio.get_running_loop()
        process = os.fork()
        if process:
            os.close(writer)
            self._others.append((process, reader))
            return False
        for pipe in (reader, *(pipe for _, pipe in self._others)):
            os.close(pipe)
        self._others.clear()
        self.answer = writer
        asyncio._set_running_loop(loop)  # asyncio knows a running loop by its process
        return True

    # pyrefly: ignore[bad-return]
    def leave(self, registrations: Sequence[Registration], *, complete: bool) -> NoReturn:
        """Ends a process with a further share, after it sent its registrations if these are complete."""
        assert self.answer is not None  # noqa: S101 - the first process goes on
        status = 1
        try:
            if complete:
                with os.fdopen(self.answer, "wb") as pipe:
                    pickle.dump(registrations, pipe, pickle.HIGHEST_PROTOCOL)
                status = 0
        finally:
            os._exit(status)  # not by an exception: the event loop and open files belong to the first process

    def joined(self, own: Sequence[Registration]) -> list[Registration]:
        """Registrations of all processes; raises ShareError if one failed, or two differ in a resource with one URN."""
        known = {registration.urn: registration for registration in own}
        joined = list(own)
        if self._others and len(known) != len(own):
            raise ShareError
        while self._others:
            process, reader = self._others.pop()
            with os.fdopen(reader, "rb") as pipe:
                content = pipe.read()
            _, status = os.waitpid(process, 0)
            if status:
                raise ShareError
            for registration in pickle.loads(content):  # noqa: S301 - from a fork of this process
                if registration.urn not in known:
                    joined.append(registration)
                elif known[registration.urn] != registration:
                    raise ShareError
                known[registration.urn] = registration
        return joined

    def abandon(self) -> None:
        """Waits for processes whose registrations are not read; each ends when its pipe is closed."""
        while self._others:
            process, reader = self._others.pop()
            os.close(reader)
            os.waitpid(process, 0)


def _cores() -> int:
    given = os.environ.get(CORES, "")
    if given.isdigit():
        return max(1, int(given))
    return min(_MOST, len(os.sched_getaffinity(0))) if sys.platform == "linux" else 1
