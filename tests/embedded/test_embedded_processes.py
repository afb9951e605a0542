import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from embedded_builders import a_program

from gpu_tenancy.embedded import processes
from gpu_tenancy.embedded.processes import free_ports, start, stop, tail, uninterrupted

pytestmark = pytest.mark.process


def test_a_process_runs_until_it_is_stopped_and_its_words_are_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "part.log"
    started = start([str(a_program(tmp_path, "part", "echo $WORD", "exec sleep 60"))], log, environment={"WORD": "up"})
    try:
        assert started.process
        deadline = time.monotonic() + 300
        while not tail(log) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert tail(log) == "up"
    finally:
        stop([started])
    assert started.process is None


def test_a_process_that_does_not_listen_is_ended_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "TERMINATED_WITHIN", 0.3)
    log = tmp_path / "part.log"
    program = a_program(tmp_path, "part", "trap '' TERM", "echo deaf", "while true; do sleep 0.05; done")
    started = start([str(program)], log)
    deadline = time.monotonic() + 300
    while not tail(log) and time.monotonic() < deadline:
        time.sleep(0.01)
    stop([started])
    assert started.process is None


def test_another_process_that_took_the_pid_is_left_alone(tmp_path: Path) -> None:
    started = start([str(a_program(tmp_path, "part", "exec sleep 60"))], tmp_path / "part.log")
    try:
        other = replace(started, began=started.began - 60)
        assert other.process is None
        stop([other])
        assert psutil.Process(started.pid).is_running()
    finally:
        stop([started])


def test_a_process_that_ended_by_itself_is_no_longer_there(tmp_path: Path) -> None:
    started = start([str(a_program(tmp_path, "part", "exit 3"))], tmp_path / "part.log")
    deadline = time.monotonic() + 300
    while started.process and time.monotonic() < deadline:
        time.sleep(0.01)
    assert started.process is None
    stop([started])


def test_ctrl_c_waits_for_uninterruptible_work() -> None:
    done: list[str] = []

    def work() -> None:
        with uninterrupted():
            for moment in ("once", "again"):  # `uv run` passes on what the terminal has sent already
                os.kill(os.getpid(), signal.SIGINT)
                done.append(moment)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["once", "again"]


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"{number}\n" for number in range(20)))
    assert tail(log, 2) == "18\n19"
    assert tail(tmp_path / "none") == ""
