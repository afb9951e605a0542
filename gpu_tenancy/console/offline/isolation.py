"""What a program may change in this process while it runs, and how that is undone."""

import asyncio
import contextlib
import gc
import sys
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@contextlib.contextmanager
def program_scope(folder: Path) -> Generator[None]:
    """Runs its body as the engine runs a program: its folder is the working folder and first on `sys.path`.

    Afterwards both are as before, and modules that the program brought from its own folder are forgotten, so
    that two programs may each have a `helpers.py`, and module-level state never outlives its stack. A package
    that was imported before stays whole, since half of it anew would double its classes.
    """
    roots_before = {name.partition(".")[0] for name in sys.modules}
    path_before = list(sys.path)
    sys.path.insert(0, str(folder))
    sys.path_importer_cache.pop(str(folder), None)  # it may list files of an earlier moment
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
    # A virtual environment often lies inside the project's folder; what is installed there stays.
    return any(
        place is not None and Path(place).is_relative_to(folder) and "site-packages" not in Path(place).parts
        for place in places
    )


@contextlib.contextmanager
def relaxed_collector() -> Generator[None]:
    """Spares the garbage collector during its body.

    A render builds hundreds of thousands of small objects and drops few: with the usual thresholds the
    collector takes more than half of its time, walking again and again over what was imported. A caller's own
    freeze is kept.
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


class _InlineExecutor(ThreadPoolExecutor):
    """Runs what it is given at once, in the caller's thread.

    Pulumi sends each request from a pool of threads, since it may block. Ours is a function call: threads
    would only make the order of registrations, and of everything awaited after them, a matter of luck.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as failure:  # noqa: BLE001 - a future carries any failure to whoever awaits it
            future.set_exception(failure)
        return future


@contextlib.contextmanager
def event_loop() -> Generator[asyncio.AbstractEventLoop]:
    """A loop of one's own for one render: deterministic, and with nothing left running at its end."""
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_InlineExecutor(max_workers=1))
    # After a failure other resources fail for want of the first; that one is raised, the rest is noise.
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
