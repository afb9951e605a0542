"""Runs a Pulumi program without engine, cloud, cluster or login, and keeps what it declares."""

import json
import runpy
from collections.abc import Mapping
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path

from pulumi.runtime import Settings, configure, reset_options, run_in_stack
from pulumi.runtime.config import set_all_config

from gpu_tenancy.console.offline.isolation import event_loop, program_scope, relaxed_collector
from gpu_tenancy.console.offline.recording import NO_ANSWERS, RecordingMonitor, Registration, shown
from gpu_tenancy.console.offline.wire import Json


@dataclass(frozen=True, slots=True)
class Rendered:
    """What one stack of a program declares.

    `registrations` are sorted by URN, so that the same stack gives the same bytes and a diff shows the change
    alone. `outputs` are as `pulumi stack output` prints them: `[secret]` and `[unknown]` where it says so.
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
    """Runs a program as `pulumi preview` would and returns what it declares.

    Calls are independent of one another, and of whatever mocks the caller has set: all of the SDK's state
    lives in context variables, and each call has a context of its own. It runs an event loop, so it cannot be
    called from a coroutine.

    Args:
        program: the program's folder or its `__main__.py`.
        project: the project's name, as in `Pulumi.yaml`.
        stack: the stack's name.
        config: values by full key (`gpu-tenancy:pools`); objects as JSON text, as the engine sends them.
        answers: what provider functions return, by token.

    Raises:
        OfflineError: the program asks what only an engine, a cloud or a cluster can tell.
        Exception: whatever the program itself raises, unchanged.
    """
    main = program.resolve()
    if main.is_dir():
        main /= "__main__.py"
    monitor = RecordingMonitor(project, stack, answers)
    with relaxed_collector(), program_scope(main.parent):
        copy_context().run(_run, main, monitor, config)
    outputs = monitor.outputs
    return Rendered(
        project=project,
        stack=stack,
        registrations=tuple(sorted(monitor.registrations, key=_order)),
        outputs=shown(outputs.properties, outputs.secret_paths, outputs.unknown_paths),
    )


def _run(main: Path, monitor: RecordingMonitor, config: Mapping[str, str]) -> None:
    """Runs the program the way Pulumi's own language host does.

    That is `run_in_stack` and not `set_mocks`, which makes a stack resource before the program starts: it
    would lose the stack's outputs and refuse `pulumi.run`.
    """
    reset_options()  # the public way to drop the stack resource that a caller's mocks may have left
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
        runpy.run_path(str(main), run_name="__main__")

    with event_loop() as loop:
        loop.run_until_complete(run_in_stack(program))


def _order(registration: Registration) -> tuple[str, str]:
    """Sorts by URN; where a program declares one twice, what it says decides, never the order of arrival."""
    return registration.urn, json.dumps(registration.inputs, sort_keys=True)
