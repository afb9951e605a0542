"""What members of teams read of borrowed GPUs, evictions and broken nodes, with their own rights, on 80 columns."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from repository import ROOT
from researchers import TEAM, Researcher

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true

pytestmark = [pytest.mark.platform, pytest.mark.process]
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
BORROWER: Final = "ml-experiments"
WIDTH: Final = 80


def job(team: str, name: str, pods: int) -> Manifest:
    """Pods with eight GPUs each."""
    requests: Json = {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "8"}
    container: Json = {
        "name": "main",
        "image": "registry.example.com/job:1",
        "resources": {"requests": requests, "limits": requests},
    }
    template: Json = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec: Json = {"parallelism": pods, "completions": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": team}, "spec": spec}


def asked(kubeconfig: Path, *words: str) -> str:
    """What a command prints on a terminal, in one line; each of its lines fits the screen."""
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
    """What a terminal shows next; nothing once its program has ended."""
    try:
        return os.read(screen, 65536)
    except OSError:
        return b""


def has(cluster: Cluster, team: str, kind: str) -> bool | None:
    return any(is_true(one, kind) for one in cluster.list(KUEUE, "Workload", namespace=team)) or None


def test_a_member_reads_who_can_preempt_then_who_did_and_after_how_long(researcher: Researcher) -> None:
    cluster, file = researcher.cluster, researcher.kubeconfig
    made: list[Manifest] = []
    try:
        made.append(researcher.own.create(job(BORROWER, "long", 1)))
        cluster.wait_for(partial(has, cluster, BORROWER, "Admitted"), what="the borrower to be admitted")
        told = partial(asked, file, "why", f"{BORROWER}/long")
        line = f"queue {BORROWER} borrows 8 of its 8 a100 nvidia.com/gpu; can be preempted by queue {TEAM} at any time"
        cluster.wait_for(lambda: line in told() or None, what="Kueue to count the borrower")
        made.append(researcher.own.create(job(TEAM, "large", 4)))
        cluster.wait_for(partial(has, cluster, BORROWER, "Evicted"), what="the borrower to be preempted")
        cluster.wait_for(partial(has, cluster, TEAM, "Admitted"), what="the preemptor to be admitted")
        counted = r"1 eviction \(1 Preempted\) after \d+\.\d GPU-hours"
        assert re.search(counted, told())
        assert re.search(f"{BORROWER}: {counted}, of 1 workload", asked(file, "usage", BORROWER))
        mine = f"queue {TEAM} borrows 24 of its 32 a100 nvidia.com/gpu; no queue reclaims it"
        cluster.wait_for(lambda: mine in asked(file, "why", f"{TEAM}/large") or None, what="Kueue to count it")
    finally:
        for one in made:
            cluster.delete(Reference.of(one), wait=60)


def test_a_member_reads_which_guaranteed_gpus_are_on_a_broken_node(researcher: Researcher) -> None:
    names = (text_at(one, "metadata", "name") for one in researcher.cluster.list("v1", "Node"))
    node = Reference("v1", "Node", next(name for name in names if name.startswith("a100-")))
    researcher.cluster.patch(node, {"spec": {"unschedulable": True}})
    try:
        found = asked(researcher.kubeconfig, "usage", TEAM)
        assert f"24 can be used: 8 on nodes that are cordoned ({node.name})" in found
    finally:
        researcher.cluster.patch(node, {"spec": {"unschedulable": None}})
