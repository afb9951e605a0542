"""Members' view of borrowed GPUs, evictions and broken nodes, with their own rights, on 80 columns."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from queueing import Queueing, a_job
from repository import ROOT
from researchers import TEAM, Researcher

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import condition, is_true

pytestmark = [pytest.mark.platform, pytest.mark.process]
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
BORROWER: Final = "ml-experiments"
WIDTH: Final = 80


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


@contextmanager
def submitted(researcher: Researcher) -> Generator[Callable[..., Manifest]]:
    """Creates Jobs with pods on A100s; deletes them afterwards."""
    made: list[Manifest] = []

    def submit(name: str, team: str, gpus: int = 8, pods: int = 1, **spec: Any) -> Manifest:
        one: Any = a_job(name, team, {"cpu": str(gpus), "memory": "4Gi", "nvidia.com/gpu": str(gpus)})
        one["spec"] |= {"parallelism": pods, "completions": pods}
        one["spec"]["template"]["spec"] |= spec
        made.append(researcher.own.create(one))
        return made[-1]

    try:
        yield submit
    finally:
        for one in made:
            researcher.cluster.delete(Reference.of(one), wait=60)


def pods_of(cluster: Cluster, job: str, team: str, pods: int = 1, *, scheduled: bool = True) -> list[Manifest]:
    """Waits until all pods of a Job run, or the scheduler finds no node for them."""

    def settled() -> list[Manifest] | None:
        own = cluster.list("v1", "Pod", namespace=team, labels=f"batch.kubernetes.io/job-name={job}")
        done = [one for one in own if text_at(condition(one, "PodScheduled"), "status") == str(scheduled)]
        return done if len(done) == len(own) == pods else None

    return cluster.wait_for(settled, timeout=60, what=f"{pods} pods of {job}, {scheduled=}")


def waits(cluster: Cluster, job: str) -> bool:
    """Whether the scheduler looks for no pod to end for an admitted job."""
    (one,) = pods_of(cluster, job, TEAM, scheduled=False)
    return "preemptionPolicy=Never" in text_at(condition(one, "PodScheduled"), "message")


def test_a_pinned_job_ends_no_pod_of_another_team(researcher: Researcher) -> None:
    cluster = researcher.cluster
    with submitted(researcher) as submit:
        victim = submit("victim", BORROWER)
        (before,) = pods_of(cluster, "victim", BORROWER)
        submit("aimed", TEAM, nodeSelector={"kubernetes.io/hostname": text_at(before, "spec", "nodeName")})
        assert waits(cluster, "aimed")
        submit("free", TEAM)
        pods_of(cluster, "free", TEAM)
        (after,) = pods_of(cluster, "victim", BORROWER)
        assert text_at(before, "metadata", "uid") == text_at(after, "metadata", "uid")
        cluster.delete(Reference.of(victim), wait=60)
        pods_of(cluster, "aimed", TEAM)


def test_members_read_that_free_gpus_are_in_pieces(researcher: Researcher, queueing: Queueing) -> None:
    cluster = researcher.cluster
    spread: Json = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"batch.kubernetes.io/job-name": "pieces"}},
    }
    with submitted(researcher) as submit:
        submit("pieces", BORROWER, 2, 4, topologySpreadConstraints=[spread])
        pieces = pods_of(cluster, "pieces", BORROWER, 4)
        submit("whole", TEAM)
        assert waits(cluster, "whole")
        needs, about = "a pod needs 8 nvidia.com/gpu on one node", f"{TEAM}/whole"
        found = asked(researcher.kubeconfig, "why", about)
        assert f"{needs}, and none has 8 free; queues count 24 of 32 as free" in found
        assert "pieces" not in found
        found = asked(queueing.platform.kubeconfig, "why", about)
        assert f"{needs}, and 24 are free on 4 nodes" in found
        for one in pieces:
            assert f"{text_at(one, 'spec', 'nodeName')}: 2 by {BORROWER}/{text_at(one, 'metadata', 'name')}" in found
        cluster.delete(Reference.of(pieces[0]))
        pods_of(cluster, "whole", TEAM)


def test_members_read_who_can_preempt_and_who_did(researcher: Researcher) -> None:
    cluster, file = researcher.cluster, researcher.kubeconfig
    told = partial(asked, file, "why", f"{BORROWER}/long")
    line = f"queue {BORROWER} borrows 8 of its 8 a100 nvidia.com/gpu; "
    with submitted(researcher) as submit:
        submit("long", BORROWER)
        cluster.wait_for(partial(has, cluster, BORROWER, "Admitted"), what="the borrower to be admitted")
        cluster.wait_for(lambda: f"{line}no queue reclaims it" in told() or None, what="Kueue to count the borrower")
        with scarce(cluster):
            assert f"{line}can be preempted by queue {TEAM} at any time; its pods then have 30 s to stop" in told()
            submit("claim", TEAM)
            cluster.wait_for(partial(has, cluster, BORROWER, "Evicted"), what="the borrower to be preempted")
            counted = r"1 eviction \(1 Preempted\) after \d+\.\d GPU-hours"
            assert re.search(counted, told())
            assert re.search(f"{BORROWER}: {counted}, of 1 workload", asked(file, "usage", BORROWER))


def test_members_read_guaranteed_gpus_on_broken_nodes(researcher: Researcher) -> None:
    names = (text_at(one, "metadata", "name") for one in researcher.cluster.list("v1", "Node"))
    node = Reference("v1", "Node", next(name for name in names if name.startswith("a100-")))
    researcher.cluster.patch(node, {"spec": {"unschedulable": True}})
    try:
        found = asked(researcher.kubeconfig, "usage", TEAM)
        assert f"24 can be used: 8 on nodes that are cordoned ({node.name})" in found
    finally:
        researcher.cluster.patch(node, {"spec": {"unschedulable": None}})
