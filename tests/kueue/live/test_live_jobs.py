"""Commands about jobs by name: list, measure, read, cancel, create again and evict."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import pytest
from kubelet import kubelet
from queueing import Queueing
from researchers import TEAM, Researcher, identified
from typer.testing import CliRunner, Result

from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.cli.main import app
from gpu_tenancy.jobs.jobs import read_jobs, uid_of
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.names import IDLE
from gpu_tenancy.model.spec.people import Person

pytestmark = pytest.mark.platform
NO_KUBELET: Final = (
    'error: Internal error occurred: error sending request: Post "https://:10250/exec/ml-research/pair/node?command='
    'nvidia-smi": dial tcp :10250: connect: connection refused'
)


def tenancy(researcher: Researcher, *words: object, kubeconfig: Path | None = None) -> Result:
    place = ("--kubeconfig", str(kubeconfig or researcher.kubeconfig), "-n", TEAM)
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, [*map(str, words), *place])


@pytest.fixture
def pair(researcher: Researcher) -> Iterator[Any]:
    words = ("--image", "registry.example.com/ml/train:3.0.1", "--gpus", 4, "--nodes", 2, "--framework", "pytorch")
    done = tenancy(researcher, "submit", "--name", "pair", *words)
    assert done.exit_code == 0, done.output
    made: Any = read_jobs(researcher.own, TEAM).named("pair")
    try:
        researcher.running("pair", 2)
        yield made
    finally:
        researcher.end(made)


def test_a_job_is_listed_measured_and_cancelled(
    researcher: Researcher,
    pair: Any,  # noqa: ARG001 - it runs
) -> None:
    found = json.loads(tenancy(researcher, "queue", "-v", "-o", "json").stdout)
    (row,) = found["jobs"]
    assert (row["name"], row["kind"], row["state"], found["others"]) == ("pair", "TrainJob", "admitted", [])
    assert row["requests"]["nvidia.com/gpu"] == 8

    def measured() -> list[Any] | None:
        found = tenancy(researcher, "top", "pair", "-o", "json")
        rows: list[Any] = json.loads(found.stdout) if found.exit_code == 0 else []
        return rows if rows and all(one["used"] for one in rows) else None

    rows = researcher.cluster.wait_for(measured, timeout=60, what="metrics of both pods")
    assert [one["name"].split()[0] for one in rows] == ["0", "1"]
    assert all(0 < one["used"]["cpu"] <= one["requests"]["cpu"] for one in rows)
    (whole,) = json.loads(tenancy(researcher, "top", "-o", "json").stdout)
    assert (whole["name"], whole["where"]) == ("pair", "2 pods")
    (workload,) = researcher.cluster.list("kueue.x-k8s.io/v1beta2", "Workload", namespace=TEAM)
    idle: Any = {"metadata": {"annotations": {IDLE: "since 2026-01-01T00:00:00Z, notify at 2026-01-01T02:00:00Z"}}}
    researcher.cluster.patch(Reference.of(workload), idle)
    for words, told in (["top"], "pair: idle for "), (["top", "pair"], "idle for "), (["queue"], "pair: idle for "):
        assert f"\n{told}" in tenancy(researcher, *words).stdout, words
    unasked = tenancy(researcher, "cancel", "pair")
    assert (unasked.exit_code, "confirm with --yes" in unasked.stderr) == (1, True)
    part = text_at(researcher.pods("pair")[0], "metadata", "name")
    refused = tenancy(researcher, "cancel", part, "--yes")
    assert f"Pod {TEAM}/{part}: is a part of " in refused.stderr
    done = tenancy(researcher, "cancel", "pair", "--yes")
    assert (done.exit_code, done.stdout) == (0, f"TrainJob {TEAM}/pair cancelled\n")
    researcher.cluster.wait_for(lambda: not researcher.pods("pair") or None, what="the end of its pods")


def test_what_gpus_do_is_asked_in_the_pods(
    researcher: Researcher,
    pair: Any,  # noqa: ARG001 - it runs
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Simulated nodes run nothing, so another kubectl answers for one pod, and the real one's error for the other."""
    first, _ = sorted(text_at(pod, "metadata", "name") for pod in researcher.running("pair", 2))
    researcher.cluster.wait_for(
        lambda: tenancy(researcher, "top", "pair").exit_code == 0 or None, timeout=60, what="metrics"
    )
    other = tmp_path / "kubectl"
    answer = f"case \"$*\" in *'exec {first} -- nvidia-smi --query-gpu='*) printf '97, 61440, 81920\\n%.0s' 1 2 3 4;;"
    other.write_text(f"#!/bin/sh\n{answer} *) echo '{NO_KUBELET}' >&2; exit 1;; esac\n", encoding="utf-8")
    other.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        rows = json.loads(tenancy(researcher, "top", "pair", "--gpus", "-o", "json").stdout)
        (whole,) = json.loads(tenancy(researcher, "top", "--gpus", "-o", "json").stdout)
        queued = json.loads(tenancy(researcher, "queue", "--gpus", "-o", "json").stdout)
        table = tenancy(researcher, "queue", "--gpus").stdout
        all_teams = ["queue", "--gpus", "--all", "--kubeconfig", str(researcher.kubeconfig)]
        everybody = CliRunner().invoke(app, all_teams)
        shown = tenancy(researcher, "top", "pair", "--gpus").stdout
        patched.setenv("PATH", str(tmp_path / "none"))
        without = tenancy(researcher, "top", "pair", "--gpus")
    told = {"percent": [97] * 4, "used": 240 * 2**30, "memory": 320 * 2**30}
    assert [row["gpus"] for row in rows] == [told, None]
    assert whole["gpus"] == told
    assert [(job["name"], job["gpus"]) for job in queued["jobs"]] == [("pair", told)]
    note = "GPU use of 1 pod unknown: simulated nodes run no containers"
    assert [one for one in queued["notes"] if one.startswith(note)]
    for screen in (table, shown):
        assert "97 %" in screen
        assert note in screen
    assert (everybody.exit_code, "reads the pods of one team" in " ".join(everybody.stderr.split())) == (2, True)
    assert "240Gi of 320Gi" in shown
    assert (without.exit_code, "kubectl not found" in without.stderr) == (1, True)


def test_logs_of_all_pods_are_numbered_and_followed(
    researcher: Researcher,
    pair: Any,  # noqa: ARG001 - it runs
    queueing: Queueing,
) -> None:
    pods = researcher.running("pair", 2)
    nodes = {text_at(pod, "spec", "nodeName") for pod in pods}
    ended = Event()
    unread = tenancy(researcher, "logs", "pair")
    assert "not readable: simulated nodes run no containers" in " ".join(unread.stderr.split())
    with kubelet(queueing.platform, researcher.cluster, nodes, ended):
        names = sorted(text_at(pod, "metadata", "name") for pod in pods)
        done = tenancy(researcher, "logs", "pair")
        assert done.stdout.splitlines() == [
            f"[{number}] {line}"
            for number, name in enumerate(names)
            for line in (f"node of {name} starts", "step 1", "step 2")
        ]
        assert tenancy(researcher, "logs", names[1]).stdout.splitlines()[1:] == ["step 1", "step 2"]
        followed: list[Result] = []
        reader = Thread(target=lambda: followed.append(tenancy(researcher, "logs", "pair", "-f")))
        reader.start()
        for pod in pods:
            status: Any = {"phase": "Succeeded", "conditions": [], "containerStatuses": []}
            researcher.cluster.patch(Reference.of(pod), {"status": status}, subresource="status")
        ended.set()
        reader.join(60)
    (done,) = followed
    assert (done.exit_code, done.stderr) == (0, "pair: complete\n")
    assert sorted(done.stdout.splitlines()) == sorted(
        f"[{number}] {line}"
        for number, name in enumerate(names)
        for line in (f"node of {name} starts", "step 1", "step 2")
    )


def test_a_lead_has_kueue_evict_a_job_which_keeps_its_place(researcher: Researcher, pair: Any, tmp_path: Path) -> None:
    before = {uid_of(pod) for pod in researcher.running("pair", 2)}
    done = tenancy(
        researcher, "requeue", "pair", "-y", kubeconfig=identified(researcher, Person("user", "rosa"), tmp_path)
    )
    assert f"TrainJob {TEAM}/pair evicted by Kueue and queued again, at the place of its creation" in done.stdout

    def others() -> bool:
        found = {uid_of(pod) for pod in researcher.pods("pair") if at(pod, "spec", "nodeName")}
        return len(found) == 2 and not found & before

    researcher.cluster.wait_for(lambda: others() or None, timeout=60, what="two other pods")
    assert uid_of(read_jobs(researcher.own, TEAM).named("pair")) == uid_of(pair)
