"""Layers of the tests: marks of tests define their needs, and `make unit` and `make test` select by marks."""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import platformdirs
import pytest
from starts import guarded

from gpu_tenancy.embedded.pulumi_engine import engine_path

PULUMI: Final = "pulumi"  # the mark of tests that need the Pulumi CLI
OFFICIAL: Final = "official"  # the mark of tests among them that the CLI of `make engine` cannot run
_REASON: Final = 400  # characters of a reason in the last lines of a run
_NOT_OFFICIAL: Final = "needs the official CLI: its language host, or a provider that can force an apply (4.29)"
_NO_PULUMI: Final = "there is no `pulumi` on the PATH; run `make engine`, or see https://www.pulumi.com/docs/install/"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Fails a test without marks that starts a program, also by a fixture that it is the first to use."""
    allowed = any(item.get_closest_marker(name) for name in ("process", "platform"))
    with guarded("" if allowed else item.nodeid), _pulumi_on_path(item):
        return (yield)


def _built() -> str:
    """The folders of the CLI that `make engine` built, as in a PATH."""
    return engine_path(platformdirs.user_cache_path("gpu-tenancy"))


@contextmanager
def _pulumi_on_path(item: pytest.Item) -> Generator[None]:
    """Puts the CLI of `make engine` on the PATH, for tests that need a CLI if none is installed."""
    if not item.get_closest_marker(PULUMI) or shutil.which("pulumi"):
        yield
        return
    folders = _built()
    with pytest.MonkeyPatch.context() as patch:
        if folders:
            patch.setenv("PATH", folders, prepend=os.pathsep)
            patch.setenv("VIRTUAL_ENV", sys.prefix)  # the environment in which the CLI runs programs
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if not item.get_closest_marker(PULUMI):
        return
    program = shutil.which("pulumi")
    if program is None:
        pytest.skip(_NO_PULUMI)
    if item.get_closest_marker(OFFICIAL) and str(Path(program).parent) in _built().split(os.pathsep):
        pytest.skip(_NOT_OFFICIAL)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Counts the tests with the Pulumi CLI that ran: a run without them looks as green as one with them."""
    if line := with_cli(_reports(terminalreporter), official=bool(shutil.which("pulumi"))):
        terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Prints the failures last: CI keeps the last lines of a run, and pytest cuts its own to a terminal's width."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(reporter, pytest.TerminalReporter):
        for line in failures(_reports(reporter)):
            reporter.write_line(line)


def _reports(reporter: pytest.TerminalReporter) -> list[pytest.TestReport]:
    stats: dict[str, list[object]] = reporter.stats
    return [one for some in stats.values() for one in some if isinstance(one, pytest.TestReport)]


def failures(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Name, phase and start of the reason of each failure."""
    lines: list[str] = []
    for one in (each for each in reports if each.failed):
        crash = getattr(one.longrepr, "reprcrash", None)
        reason: str = crash.message if crash else one.longreprtext
        lines.append(f"{one.nodeid} failed in its {one.when}: {reason[:_REASON]}")
    return lines


def with_cli(reports: Iterable[pytest.TestReport], *, official: bool) -> str:
    """Number of tests with the Pulumi CLI, and why others did not run; `official`: not by the CLI of `make engine`."""
    found = [one for one in reports if PULUMI in one.keywords]
    tests = {one.nodeid for one in found}
    why = {one.nodeid: one.longrepr[2] for one in found if isinstance(one.longrepr, tuple)}
    counts = Counter(reason.removeprefix("Skipped: ") for reason in why.values())
    reasons = "".join(f"; {count} did not: {reason}" for reason, count in sorted(counts.items()))
    ran = len(tests - why.keys())
    by = "" if official or not ran else " by the CLI of `make engine`, with a language host of our own"
    return f"Tests with the Pulumi CLI: {ran} of {len(tests)} ran{by}{reasons}" if tests else ""
