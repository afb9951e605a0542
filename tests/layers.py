"""Layers of the tests: the marks of a case say what it may do, and `make unit` and `make test` choose by them."""

import shutil
from collections.abc import Generator, Iterable
from typing import Final

import pytest
from starts import guarded

PULUMI: Final = "pulumi"
"""The mark of tests that need the Pulumi CLI."""
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
    stats: dict[str, list[object]] = terminalreporter.stats
    reports = [one for some in stats.values() for one in some if isinstance(one, pytest.TestReport)]
    if line := with_cli(reports):
        terminalreporter.write_line(line)


def with_cli(reports: Iterable[pytest.TestReport]) -> str:
    """How many tests with the Pulumi CLI ran, and why others did not; empty without such tests."""
    found = [one for one in reports if PULUMI in one.keywords]
    tests = {one.nodeid for one in found}
    why = {one.nodeid: one.longrepr[2] for one in found if isinstance(one.longrepr, tuple)}
    reasons = "".join(f"; {reason.removeprefix('Skipped: ')}" for reason in sorted(set(why.values())))
    return f"Tests with the Pulumi CLI: {len(tests - why.keys())} of {len(tests)} ran{reasons}" if tests else ""
