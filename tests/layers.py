"""Layers of the tests: the marks of a case say what it may do, and `make unit` and `make test` choose by them."""

import shutil
from collections.abc import Generator, Iterable
from typing import Final

import pytest
from starts import guarded

PULUMI: Final = "pulumi"
"""The mark of tests that need the Pulumi CLI."""
_REASON: Final = 400
"""Characters of a reason in the last lines of a run."""
_NO_PULUMI: Final = "there is no `pulumi` on the PATH: https://www.pulumi.com/docs/install/"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Has a case without marks fail where it starts a program, also by a fixture that it is the first to use."""
    allowed = any(item.get_closest_marker(name) for name in ("process", "platform"))
    with guarded("" if allowed else item.nodeid):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what needs the Pulumi CLI where there is none."""
    if item.get_closest_marker(PULUMI) and shutil.which("pulumi") is None:
        pytest.skip(_NO_PULUMI)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how many tests with the Pulumi CLI ran: a run without them looks as green as one with them."""
    if line := with_cli(_reports(terminalreporter)):
        terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends with what failed: CI keeps the last lines of a run, and pytest cuts its own to the width of a terminal."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(reporter, pytest.TerminalReporter):
        for line in failures(_reports(reporter)):
            reporter.write_line(line)


def _reports(reporter: pytest.TerminalReporter) -> list[pytest.TestReport]:
    stats: dict[str, list[object]] = reporter.stats
    return [one for some in stats.values() for one in some if isinstance(one, pytest.TestReport)]


def failures(reports: Iterable[pytest.TestReport]) -> list[str]:
    """The name of each failure, in which of its phases it failed, and the start of the reason."""
    lines: list[str] = []
    for one in (each for each in reports if each.failed):
        crash = getattr(one.longrepr, "reprcrash", None)
        reason: str = crash.message if crash else one.longreprtext
        lines.append(f"{one.nodeid} failed in its {one.when}: {reason[:_REASON]}")
    return lines


def with_cli(reports: Iterable[pytest.TestReport]) -> str:
    """How many tests with the Pulumi CLI ran, and why others did not; empty without such tests."""
    found = [one for one in reports if PULUMI in one.keywords]
    tests = {one.nodeid for one in found}
    why = {one.nodeid: one.longrepr[2] for one in found if isinstance(one.longrepr, tuple)}
    reasons = "".join(f"; {reason.removeprefix('Skipped: ')}" for reason in sorted(set(why.values())))
    return f"Tests with the Pulumi CLI: {len(tests - why.keys())} of {len(tests)} ran{reasons}" if tests else ""
