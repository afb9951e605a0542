"""A run of tests that is killed leaves no process of its platforms."""

import os
import subprocess
import sys
from contextlib import suppress
from uuid import uuid4

import psutil
import pytest
from repository import ROOT

from benchmarks.leftovers import RUN
from gpu_tenancy.embedded.parts import API_SERVER, ETCD
from gpu_tenancy.kube.waiting import wait_for

pytestmark = pytest.mark.platform

MARK = "TEST_LEFTOVERS"


def marked(mark: str) -> set[str]:
    """The words of the command lines of the processes that have inherited a mark."""
    found = set[str]()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                found.update(process.cmdline())
    return found


def test_a_killed_run_leaves_no_process() -> None:
    mark = uuid4().hex
    inherited = {name: value for name, value in os.environ.items() if name != RUN and not name.startswith("PYTEST_")}
    tests = [sys.executable, "-m", "pytest", "-n", "1", "tests/kube/test_kube_client.py"]
    run = subprocess.Popen(tests, cwd=ROOT, env={**inherited, MARK: mark}, stdout=subprocess.DEVNULL)
    wait_for(lambda: {ETCD, API_SERVER} <= marked(mark), timeout=300, poll=1, what="the platform to start")
    run.kill()
    run.wait()
    wait_for(lambda: not marked(mark), timeout=60, poll=1, what="its processes to be killed")
