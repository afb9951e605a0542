"""`tenancy local up` and `down` as processes that are killed, stopped, run side by side or have a full disk.

`make faults` kills `up` at more points, and has the tests that take minutes.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from textwrap import dedent
from typing import Final, Literal

import psutil
import pytest
from cli_builders import Home
from starts import GUARD

from gpu_tenancy.embedded.parts import API_SERVER
from gpu_tenancy.engine.project import preview
from gpu_tenancy.kube.client import Cluster

pytestmark = pytest.mark.platform

KILLS: Final = int(os.environ.get("GPU_TENANCY_KILLS", "0"))
"""Number of points at which `up` is killed, besides the one of the test that always runs."""
slow = pytest.mark.skipif(not os.environ.get("GPU_TENANCY_FAULTS"), reason="takes minutes; `make faults` runs it")

# Starts of the progress lines of `up`, in their order.
STAGES: Final = ("reading", "starting the control", "creating", "applying", "waiting", "verifying")
ASLEEP: Final = 210.0
"""Seconds; longer than every timeout of a request (60), of an outage (30), and until a node is not ready (200)."""


@dataclass(frozen=True)
class Point:
    """A moment at which `up` is killed: `delay` seconds after the line of a stage."""

    stage: str
    delay: float
    scope: Literal["up", "all"]  # `up` and its children alone, or the control plane too, as by a crash of the machine

    def __str__(self) -> str:
        return f"{self.stage.split()[0]}+{self.delay:.1f}s-{self.scope}"


def points(count: int) -> list[Point]:
    """The same points in each run."""
    chance = Random(20)  # noqa: S311 - no secret
    stages = [STAGES[number % len(STAGES)] for number in range(count)]
    return [Point(stage, chance.uniform(0, 2), chance.choice(("up", "all"))) for stage in stages]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home.at(tmp_path)
    yield found
    found.run("local", "down")


def wait_for_line(running: "subprocess.Popen[str]", start: str) -> None:
    """Reads progress until a line begins so; or the end, if the command is faster."""
    assert running.stdout
    for line in running.stdout:
        if line.startswith(f"· {start}"):
            return


def kill(home: Home, point: Point) -> None:
    running = home.begin(home.upping())
    with running:
        wait_for_line(running, point.stage)
        time.sleep(point.delay)
        others = home.processes() if point.scope == "all" else []
        for pid in [child.pid for child in psutil.Process(running.pid).children(recursive=True)] + others:
            os.kill(pid, signal.SIGKILL)
        running.kill()


def is_whole(home: Home) -> None:
    """Every object exists, and another `up` changes nothing."""
    with Cluster(home.kubeconfig) as cluster:
        for one in preview("good", home.project.folder).objects:
            assert cluster.exists(one.api_version, one.kind, one.name, one.namespace), one
    again = home.up()
    assert (again.returncode, "no changes" in again.stdout) == (0, True), again.stdout + again.stderr


def leaves_nothing(home: Home) -> None:
    gone = home.run("local", "down")
    assert gone.returncode == 0, gone.stderr
    assert home.processes() == []
    assert [file for file in (home.folder / "state").rglob("*") if not file.is_dir()] == []


@slow
def test_parallel_runs_after_a_kill_end_in_one_platform(home: Home) -> None:
    # One test, because each needs a platform, and the end of one is a good beginning for the next.
    kill(home, Point("applying", 0.1, "up"))

    first, second = home.begin(home.upping()), home.begin(home.upping())
    texts = [running.communicate(timeout=GUARD)[0] for running in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), texts
    waited = ["waiting for another process that is deploying to this platform" in text for text in texts]
    assert sorted(waited) == [False, True]
    assert "no changes" in texts[waited.index(True)]

    changing = home.begin(home.upping())
    wait_for_line(changing, "reading")
    psutil.Process(changing.pid).suspend()  # so that it is not done before the other begins
    going = home.begin(home.command("local", "down"))
    wait_for_line(going, "waiting for another process that is deploying to this platform")
    psutil.Process(changing.pid).resume()
    text, _ = changing.communicate(timeout=GUARD)
    assert (changing.returncode, "no changes" in text) == (0, True), text
    assert going.communicate(timeout=GUARD)[0] == "embedded platform removed\n"
    leaves_nothing(home)


@pytest.mark.parametrize("point", points(KILLS), ids=str)
def test_after_a_kill_up_converges_and_down_removes_everything(home: Home, point: Point) -> None:
    kill(home, point)
    done = home.up()
    assert done.returncode == 0, done.stdout + done.stderr
    is_whole(home)
    leaves_nothing(home)


@pytest.mark.parametrize("point", points(KILLS // 3), ids=str)
def test_after_a_kill_down_removes_everything(home: Home, point: Point) -> None:
    kill(home, point)
    leaves_nothing(home)


def runs(part: str, process: psutil.Process) -> bool:
    """Whether a process is a part of the control plane: as a program of its own, or as the program with all parts."""
    return part in [Path(argument).name for argument in process.cmdline()[:2]]


@slow
@pytest.mark.parametrize("who", ["all", API_SERVER])
def test_a_suspended_machine_continues_or_reports_why_not(home: Home, who: str) -> None:
    running = home.begin(home.upping())
    wait_for_line(running, "applying")
    stopped = [psutil.Process(pid) for pid in home.processes()]
    stopped = [psutil.Process(running.pid), *stopped] if who == "all" else [one for one in stopped if runs(who, one)]
    assert stopped
    for process in stopped:
        process.suspend()
    time.sleep(ASLEEP)
    for process in stopped:
        process.resume()
    text, _ = running.communicate(timeout=GUARD)
    if running.returncode:
        assert re.search(r"error: .*; .*again", text, re.DOTALL), text
        assert "Traceback" not in text
    assert home.up().returncode == 0
    is_whole(home)


@slow
@pytest.mark.skipif(
    subprocess.run(["unshare", "--map-root-user", "--mount", "true"], capture_output=True, check=False).returncode != 0,
    reason="no user namespaces here, in which a small file system could be mounted",
)
def test_a_full_disk_is_named_and_with_room_again_all_converges(home: Home) -> None:
    state, out, cache = home.folder / "state", home.folder / "out", home.folder / "cache"
    up = " ".join(home.upping())
    script = dedent(f"""
        mkdir -p {state} {out} {cache}
        mount -t tmpfs -o size=150m none {state}
        full() {{ head -c $(( $(df --output=avail -B1 {state} | tail -1) - $1 )) /dev/zero > {state}/filler; }}
        step() {{ name=$1; shift; "$@" > {home.folder}/"$name" 2>&1; echo "exit $?" >> {home.folder}/"$name"; }}
        mount -t tmpfs -o size=4k none {cache}
        step definitions env XDG_CACHE_HOME={cache} {up}
        mount -o remount,size=16m {cache}
        step programs env XDG_CACHE_HOME={cache} GPU_TENANCY_REGISTRY=off {up}
        mount -t tmpfs -o size=20k none {out}
        full 10000; step certificates {up}; rm {state}/filler
        full 1000000; step etcd {up}; rm {state}/filler
        step report {up}
        umount {out}
        full 0; step filled {up}; rm {state}/filler
        step whole {up}
        step again {up}
        step down {" ".join(home.command("local", "down"))}
        find {state} -type f > {home.folder}/left
    """)
    subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script],
        cwd=home.folder,
        env=home.environment,
        check=True,
        timeout=GUARD,
    )
    said = {file: (home.folder / file).read_text() for file in SAID}
    for file, (words, code) in SAID.items():
        assert said[file].endswith(f"exit {code}\n"), said[file]
        assert re.search(words, said[file]), said[file]
        assert "Traceback" not in said[file]
    assert (home.folder / "left").read_text() == ""
    assert home.processes() == []


_FIX: Final = "free disk space, then run the same command again"
# Output of each step, as a regular expression, and its exit code.
SAID: Final = {
    "definitions": (rf"error: /.*/cache/gpu-tenancy/.*: No space left on device; {_FIX}", 1),
    "programs": (
        rf"error: (/.*/cache/gpu-tenancy/.*: No space left on device; {_FIX}|disk full: .*; free 4 GB, then run)",
        1,
    ),
    "certificates": (rf"error: /.*/certificates\.new/.*: No space left on device; {_FIX}", 1),
    "etcd": (rf"error: etcd exited: disk full: /.*/embedded; {_FIX}", 1),
    "report": (rf"error: /.*/out/good/report\.html: No space left on device; {_FIX}", 1),
    "filled": (rf"error: /.*: No space left on device; {_FIX}", 1),
    "whole": ("good on the embedded platform", 0),
    "again": ("no changes", 0),
    "down": ("embedded platform removed", 0),
}
