"""Runs a Pulumi program without an engine, a cloud, a cluster or a login, and records its resources."""

import json
import runpy
from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from pathlib import Path

from pulumi.runtime import Settings, configure, reset_options, run_in_stack
from pulumi.runtime.config import set_all_config
from pulumi.runtime.settings import SETTINGS, get_monitor

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json
from gpu_tenancy.engine.deferred import Outstanding
from gpu_tenancy.engine.isolation import event_loop, program_scope, relaxed_collector
from gpu_tenancy.engine.lean import lean
from gpu_tenancy.engine.recording import NO_ANSWERS, RecordingMonitor, Registration, shown
from gpu_tenancy.engine.sharing import Sharing


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Rendered:
    """The resources and outputs of one stack.

    Two are equal only if they are the same, so that what follows from one can be kept with it.

    `registrations` are sorted by URN, so that the same stack gives the same bytes and a diff has only real changes.
    `outputs` are as printed by `pulumi stack output`, with `[secret]` and `[unknown]`.
    """

    project: str
    stack: str
    registrations: tuple[Registration, ...]
    outputs: Mapping[str, Json]


def render(
    program: Path,
    *,
    project: str,
    stack: str,
    config: Mapping[str, str],
    answers: Mapping[str, Mapping[str, Json]] = NO_ANSWERS,
) -> Rendered:
    """Runs a program as `pulumi preview` does, and returns its resources and outputs.

    Calls are independent of each other and of mocks that the caller has set, because the state of the SDK is in context
    variables and each call has its own context. It runs an event loop, so it cannot be called from a coroutine.

    Args:
        program: the program's folder or its `__main__.py`.
        project: name of the project, as in `Pulumi.yaml`.
        stack: name of the stack.
        config: values by full key (`gpu-tenancy:pools`); objects as JSON text, as from the engine.
        answers: results of provider functions by token, and states of resources that are read by type.

    Raises:
        ConsoleError: the program imports a package that is not installed.
        OfflineError: the program needs an engine, a cloud or a cluster.
        Exception: any exception of the program, unchanged.
    """
    main = program.resolve()
    if main.is_dir():
        main /= "__main__.py"
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
    with program_scope(main.parent):
        copy_context().run(_run, main, monitor, config)
    outputs = monitor.outputs
    return Rendered(
        project=monitor.project,
        stack=monitor.stack,
        registrations=_sorted(monitor.sharing.joined(monitor.registrations)),
        outputs=shown(outputs.properties, outputs.secret_paths, outputs.unknown_paths),
    )


def _run(main: Path, monitor: RecordingMonitor, config: Mapping[str, str]) -> None:
    """Runs the program as Pulumi's language host does.

    It uses `run_in_stack` and not `set_mocks`, which creates a stack resource before the program starts, loses the
    stack's outputs and does not support `pulumi.run`.
    """
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
        with event_loop() as loop, lean():
            complete = False
            try:
                loop.run_until_complete(run_in_stack(program))
                complete = True
            finally:
                if not monitor.sharing.is_first:
                    monitor.sharing.leave(monitor.registrations, complete=complete)
    finally:
        _forget(monitor)


def _forget(monitor: RecordingMonitor) -> None:
    """Removes a monitor from the SDK, which keeps the first one of a process as the default of all contexts."""
    if Context().run(get_monitor) is monitor:
        setattr(SETTINGS, "monitor", None)  # noqa: B010 - of this context; the stub misses the descriptor
        setattr(SETTINGS, "monitor", None)  # noqa: B010 - where it is None already: the default


def _sorted(registrations: Sequence[Registration]) -> tuple[Registration, ...]:
    """Sorts by URN, and duplicates by their inputs, so that the order of registration does not matter."""
    counts = Counter(registration.urn for registration in registrations)

    def order(registration: Registration) -> tuple[str, str]:
        urn = registration.urn
        return urn, json.dumps(registration.inputs, sort_keys=True) if counts[urn] > 1 else ""

    return tuple(sorted(registrations, key=order))
