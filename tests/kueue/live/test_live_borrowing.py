"""Members' view of borrowed GPUs, evictions and broken nodes, with their own rights, on 80 columns."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from queueing import a_job
from repository import ROOT
from researchers import TEAM, Researcher

from gpu_tenancy.base.json import text_at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true

pytestmark = [pytest.mark.platform, pytest.mark.process]
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
BORROWER: Final = "ml-experiments"
WIDTH: Final = 80
AMOUNTS: Final = {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "8"}


def asked(kubeconfig: Path, *words: str) -> str:
    """The output of a command on a terminal, in one line; each of its lines fits the screen."""
    screen, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, WIDTH, 0, 0))
    command = [sys.executable, "-m", "gpu_tenancy", *words, "--kubeconfig", str(kubeconfig)]
    env = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "LINES"}} | {"TERM": "xterm"}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=terminal, stderr=subprocess.PIPE) as running:
        os.close(terminal)
        printed = b"".join(iter(partial(_more, screen), b"")).decode()
        assert running.wait() == 0, running.stderr and running.stderr.read()
    os.close(screen)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", printed).splitlines()
    assert max(map(len, lines)) <= WIDTH
    return " ".join(" ".join(lines).split())


def _more(screen: int) -> bytes:
    """The next output of a terminal; empty after its program has ended."""
    try:
        return os.read(screen, 65536)
    except OSError:
        return b""


def has(cluster: Cluster, team: str, kind: str) -> bool | None:
    return any(is_true(one, kind) for one in cluster.list(KUEUE, "Workload", namespace=team)) or None


@contextmanager
def scarce(cluster: Cluster) -> Generator[None]:
    """Without the quota of the root, so that only the A100s that the researcher's team is guaranteed exist."""
    found: Any = cluster.get(KUEUE, "Cohort", "org")
    before = found["spec"]["resourceGroups"]
    after = deepcopy(before)
    lines = (
        line
        for group in after
        for flavor in group["flavors"]
        if flavor["name"] == "a100"
        for line in flavor["resources"]
    )
    for line in lines:
        if line["name"] == "nvidia.com/gpu":
            line["nominalQuota"] = "0"
    cluster.patch(Reference(KUEUE, "Cohort", "org"), {"spec": {"resourceGroups": after}})
    yield
    cluster.patch(Reference(KUEUE, "Cohort", "org"), {"spec": {"resourceGroups": before}})


def test_members_read_who_can_preempt_and_who_did(researcher: Researcher) -> None:
    cluster, file = researcher.cluster, researcher.kubeconfig
    told = partial(asked, file, "why", f"{BORROWER}/long")
    line = f"queue {BORROWER} borrows 8 of its 8 a100 nvidia.com/gpu; "
    made: list[Manifest] = []
    try:
        made.append(researcher.own.create(a_job("long", BORROWER, AMOUNTS)))
        cluster.wait_for(partial(has, cluster, BORROWER, "Admitted"), what="the borrower to be admitted")
        cluster.wait_for(lambda: f"{line}no queue reclaims it" in told() or None, what="Kueue to count the borrower")
        with scarce(cluster):
            assert f"{line}can be preempted by queue {TEAM} at any time; its pods then have 30 s to stop" in told()
            made.append(researcher.own.create(a_job("claim", TEAM, AMOUNTS)))
            cluster.wait_for(partial(has, cluster, BORROWER, "Evicted"), what="the borrower to be preempted")
            counted = r"1 eviction \(1 Preempted\) after \d+\.\d GPU-hours"
            assert re.search(counted, told())
            assert re.search(f"{BORROWER}: {counted}, of 1 workload", asked(file, "usage", BORROWER))
    finally:
        for one in made:
            cluster.delete(Reference.of(one), wait=60)


def test_members_read_guaranteed_gpus_on_broken_nodes(researcher: Researcher) -> None:
    names = (text_at(one, "metadata", "name") for one in researcher.cluster.list("v1", "Node"))
    node = Reference("v1", "Node", next(name for name in names if name.startswith("a100-")))
    researcher.cluster.patch(node, {"spec": {"unschedulable": True}})
    try:
        found = asked(researcher.kubeconfig, "usage", TEAM)
        assert f"24 can be used: 8 on nodes that are cordoned ({node.name})" in found
    finally:
        researcher.cluster.patch(node, {"spec": {"unschedulable": None}})
