"""Runs a Pulumi program without an engine, a cloud, a cluster or a login, and records its resources."""

import asyncio
import contextlib
import json
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Executor
from contextvars import Context, copy_context
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeVar, TypeVarTuple, Unpack

from pulumi.runtime import Settings, configure, reset_options, run_in_stack
from pulumi.runtime.config import set_all_config
from pulumi.runtime.settings import SETTINGS, get_monitor

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json
from gpu_tenancy.engine import relaxed_collector
from gpu_tenancy.engine.lean import Outstanding, lean
from gpu_tenancy.engine.recording import NO_ANSWERS, RecordingMonitor, Registration, shown
from gpu_tenancy.engine.sharing import Sharing

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Rendered:
    """The resources and outputs of one stack, compared by identity, so that derived results can be cached with it."""

    project: str
    stack: str
    registrations: tuple[Registration, ...]  # sorted by URN, so that a diff has only real changes
    outputs: Mapping[str, Json]  # as printed by `pulumi stack output`, with `[secret]` and `[unknown]`


def render(
    program: Path,
    *,
    project: str,
    stack: str,
    config: Mapping[str, str],
    answers: Mapping[str, Mapping[str, Json]] = NO_ANSWERS,
) -> Rendered:
    """Runs a program (a folder or its `__main__.py`) as `pulumi preview` does; returns its resources and outputs.

    Calls are independent of each other and of a caller's mocks. Each runs an event loop, so it cannot be called from a
    coroutine. `config` has values by full key (`gpu-tenancy:pools`), objects as JSON text. `answers` are results of
    provider functions by token, and states of read resources by type.

    Raises ConsoleError if there is no program, or it imports a package that is not installed, OfflineError if it needs
    an engine, a cloud or a cluster, and any exception of the program, unchanged.
    """
    main = program.resolve()
    if main.is_dir():
        main /= "__main__.py"
    if not main.exists():
        fix = "run `tenancy stack init FOLDER` for a new project, and copy its __main__.py here"
        raise ConsoleError(f"{main.parent}: no __main__.py, the program that makes the resources of a stack", fix)
    with relaxed_collector():
        monitor = RecordingMonitor(project, stack, answers)
        sharing = monitor.sharing = Sharing()
        try:
            return _rendered(main, monitor, config)
        except Exception:
            if not sharing.shared:
                raise
        finally:
            sharing.abandon()
        # In one process, so that an error is the first one in the order of the program.
        return _rendered(main, RecordingMonitor(project, stack, answers), config)


def _rendered(main: Path, monitor: RecordingMonitor, config: Mapping[str, str]) -> Rendered:
    with _program_scope(main.parent):
        copy_context().run(_run, main, monitor, config)
    registrations = monitor.sharing.joined(monitor.registrations)
    counts = Counter(registration.urn for registration in registrations)

    def order(registration: Registration) -> tuple[str, str]:
        """Sorts by URN, and duplicates by their inputs: the order of registration does not matter."""
        urn = registration.urn
        return urn, json.dumps(registration.inputs, sort_keys=True) if counts[urn] > 1 else ""

    outputs = monitor.outputs
    return Rendered(
        project=monitor.project,
        stack=monitor.stack,
        registrations=tuple(sorted(registrations, key=order)),
        outputs=shown(outputs.properties, outputs.secret_paths, outputs.unknown_paths),
    )


def _run(main: Path, monitor: RecordingMonitor, config: Mapping[str, str]) -> None:
    """Runs the program as Pulumi's language host does; `set_mocks` loses outputs and does not support `pulumi.run`."""
    reset_options()  # removes the stack resource of a caller's mocks
    configure(
        Settings(
            project=monitor.project,
            stack=monitor.stack,
            monitor=monitor,
            dry_run=True,
            organization="organization",
            root_directory=str(main.parent),
        )
    )
    set_all_config(dict(config), [])

    def program() -> None:
        try:
            runpy.run_path(str(main), run_name="__main__")
        except ModuleNotFoundError as error:
            needed = "install the requirements.txt of the project, and use the `tenancy` of that environment"
            raise ConsoleError(f"{main} imports {error.name}, which this Python does not have", needed) from error

    setattr(SETTINGS, "outputs", Outstanding())  # noqa: B010 - the stub misses the descriptor
    try:
        # It cancels tasks that are left. Not `run`, which delays Ctrl-C until the program awaits something.
        with asyncio.Runner(loop_factory=_InlineLoop) as runner, lean():
            loop, complete = runner.get_loop(), False
            # After one failure the dependent resources fail too; only the first is raised.
            loop.set_exception_handler(lambda _loop, _context: None)
            try:
                loop.run_until_complete(run_in_stack(program))
                complete = True
            finally:
                if monitor.sharing.answer is not None:
                    monitor.sharing.leave(monitor.registrations, complete=complete)
    finally:
        # The SDK keeps the first monitor of a process as the default of all contexts.
        if Context().run(get_monitor) is monitor:
            setattr(SETTINGS, "monitor", None)  # noqa: B010 - of this context; the stub misses the descriptor
            setattr(SETTINGS, "monitor", None)  # noqa: B010 - where it is None already: the default


@contextlib.contextmanager
def _program_scope(folder: Path) -> Generator[None]:
    """Runs its body as the engine runs a program: its folder is the working directory and first on `sys.path`."""
    # Afterwards both are restored, and the folder's modules are unloaded: two programs can each have a `helpers.py`.
    # Earlier imports are kept, because a partial reload would duplicate classes.
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


class _InlineLoop(asyncio.SelectorEventLoop):
    """An event loop that runs blocking calls immediately.

    Pulumi sends requests from a thread pool; threads would make the order of registrations random and use more memory.
    """

    def run_in_executor(
        self,
        executor: Executor | None,  # noqa: ARG002 - the base class gives the signature
        func: Callable[[Unpack[Ts]], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as failure:  # noqa: BLE001 - a future passes any exception to its reader
            future.set_exception(failure)
        return future
