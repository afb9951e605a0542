"""A test without marks belongs to `make unit`: it starts no program."""

import socket
import subprocess

import pytest
from layers import PULUMI, failures, with_cli
from starts import CACHES, guarded


def test_unmarked_test_can_neither_start_programs_nor_listen() -> None:
    with pytest.raises(pytest.fail.Exception, match="has no mark `process`"):
        subprocess.run(["true"], check=False)
    with socket.socket() as listener, pytest.raises(pytest.fail.Exception, match="has no mark `process`"):
        listener.bind(("127.0.0.1", 0))


@pytest.mark.parametrize("cache", CACHES)
def test_a_test_without_a_mark_reads_no_cache_of_downloads(cache: str) -> None:
    with pytest.raises(pytest.fail.Exception, match="reads a file that a fresh machine downloads"):
        open(f"{cache}any", encoding="utf-8")  # noqa: SIM115, PTH123 - it fails before it opens the file


def report(name: str, when: str, why: str = "", *, mark: str = PULUMI) -> pytest.TestReport:
    outcome, reason = ("skipped", ("layers.py", 1, f"Skipped: {why}")) if why else ("passed", None)
    place = (name, 1, name)
    return pytest.TestReport(name, place, {mark: 1}, outcome, reason, when)  # pyright: ignore[reportArgumentType]


def test_run_counts_tests_with_the_cli_and_names_reasons() -> None:
    ran = [report("a", "setup"), report("a", "call"), report("a", "teardown")]
    skipped = [report("b", "setup", "no CLI"), report("b", "teardown"), report("c", "setup", "no CLI")]
    assert with_cli(ran, official=True) == "Tests with the Pulumi CLI: 1 of 1 ran"
    assert with_cli([*ran, *skipped], official=True) == "Tests with the Pulumi CLI: 1 of 3 ran; 2 did not: no CLI"
    assert "1 of 3 ran by the CLI of `make engine`" in with_cli([*ran, *skipped], official=False)
    assert with_cli(skipped, official=False) == "Tests with the Pulumi CLI: 0 of 2 ran; 2 did not: no CLI"
    assert not with_cli([report("d", "call", mark="process")], official=True)


def test_a_run_ends_with_what_failed_and_why() -> None:
    lost = report("b", "teardown")
    lost.outcome, lost.longrepr = "failed", "timed out after 600 s"
    assert failures([report("a", "call"), lost]) == ["b failed in its teardown: timed out after 600 s"]


def test_fixture_of_a_file_can_start_programs() -> None:
    with guarded(""):
        subprocess.run(["true"], check=True)
    with pytest.raises(pytest.fail.Exception, match="has no mark `process`"):
        subprocess.run(["true"], check=False)
