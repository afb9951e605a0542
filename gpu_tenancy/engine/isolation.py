"""Isolates programs that run in this process: import state, garbage collector, event loop."""

import asyncio
import contextlib
import gc
import sys
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from pathlib import Path
from types import ModuleType
from typing import TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@contextlib.contextmanager
def program_scope(folder: Path) -> Generator[None]:
    """Runs its body as the engine runs a program: its folder is the working directory and first on `sys.path`.

    Afterwards both are restored, and modules from the program's folder are unloaded, so that two programs can each
    have a `helpers.py`, and module state does not outlive its stack. A package that was imported before is kept,
    because a partial reload would duplicate its classes.
    """
    roots_before = {name.partition(".")[0] for name in sys.modules}
    path_before = list(sys.path)
    sys.path.insert(0, str(folder))
    sys.path_importer_cache.pop(str(folder), None)  # it can be outdated
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        sys.path[:] = path_before
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] not in roots_before and _lives_in(module, folder):
                del sys.modules[name]


def _lives_in(module: ModuleType, folder: Path) -> bool:
    spec = module.__spec__
    if spec is None:
        return False
    places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
    # A virtual environment is often inside the project's folder; its packages are kept.
    return any(
        place is not None and Path(place).is_relative_to(folder) and "site-packages" not in Path(place).parts
        for place in places
    )


@contextlib.contextmanager
def relaxed_collector() -> Generator[None]:
    """Runs the garbage collector less often during its body.

    A preview creates millions of small objects and deletes few. With the default thresholds the collector scans all of
    them again and again: a fifth of the time at 1,000 teams, and the reason why it grew faster than the teams. Bodies
    can be nested. A caller's own freeze is kept.
    """
    thresholds = gc.get_threshold()
    unfrozen = gc.get_freeze_count() == 0
    if unfrozen:
        gc.freeze()
    gc.set_threshold(200_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if unfrozen:
            gc.unfreeze()


class _InlineLoop(asyncio.SelectorEventLoop):
    """An event loop that runs blocking calls immediately.

    Pulumi sends requests from a thread pool, because they can block. Here a request is a function call. Threads would
    make the order of registrations random, and all resources that are ready would keep their requests in memory until
    the next round of the loop.
    """

    def run_in_executor(
        self,
        executor: Executor | None,  # noqa: ARG002 - the base class gives the signature
        func: Callable[[Unpack[Ts]], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Returns a future that is done."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as failure:  # noqa: BLE001 - a future passes any exception to its reader
            future.set_exception(failure)
        return future


@contextlib.contextmanager
def event_loop() -> Generator[asyncio.AbstractEventLoop]:
    """A separate event loop for one render, deterministic and without tasks left at its end."""
    loop = _InlineLoop()
    # After one failure the dependent resources fail too; only the first is raised.
    loop.set_exception_handler(_ignore)
    try:
        yield loop
    finally:
        loop.run_until_complete(_cancel_the_rest())
        loop.close()


async def _cancel_the_rest() -> None:
    pending = asyncio.all_tasks() - {asyncio.current_task()}
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


def _ignore(_loop: asyncio.AbstractEventLoop, _context: dict[str, object]) -> None:
    pass
