"""Decisions of the CronJobs of idle GPUs and uncounted pods, by a kubectl that answers with rows of pods and Workloads.

Real ones are in `test_live_idle.py` and `test_live_counted.py` of `tests/kueue/live`.
"""

import os
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from starts import GUARD

from components.idle import IdleGpus, UncountedPods
from gpu_tenancy.model.kinds import servers
from gpu_tenancy.model.names import IDLE

pytestmark = pytest.mark.process

_KUBECTL: Final = """#!/bin/sh
here=$(dirname "$0")
case "$*" in
  *--raw*) cat "$here/prometheus" ;;
  "get pods"*) cat "$here/pods" ;;
  *'held{{end}}'*) cat "$here/marked" ;;
  "get workloads"*) cat "$here/workloads" ;;
  *jsonpath=*) printf u ;;
  *) echo "$*" >> "$here/calls"
     case "$*" in *--filename*) cat "$HOME/events" >> "$here/created" ;; esac ;;
esac
"""
LONG_AGO: Final = "2026-01-01T00:00:00Z"


def _pod(name: str, workload: str = "w", owner: str = "Job", gpu: str = "nvidia.com/gpu", start: str = LONG_AGO) -> str:
    return f'P|{name}|{start}|cpu {gpu} |"{workload}"|"{owner}"'


def _workload(owners: str = "batch/v1 Job j u;", note: str = "", active: str = "<no value>", name: str = "w") -> str:
    return f"W|{name}|{active}|True|{note}|ml-high|cpu=4 nvidia.com/gpu=8 |{owners}"


@dataclass(frozen=True)
class Run:
    code: int
    calls: list[str]
    events: str
    errors: str


class CronJob:
    """One team with `requeue` after 2 hours; metrics are seconds since a pod was busy."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, int(time.time())
        (folder / "kubectl").write_text(_KUBECTL, encoding="utf-8")
        (folder / "kubectl").chmod(0o755)

    def since(self, seconds: int) -> str:
        return f"{datetime.fromtimestamp(self.now - seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"

    def run(
        self, busy: dict[str, int], pods: Iterable[str], workloads: Iterable[str], marked: str = "", team: str = ""
    ) -> Run:
        series = ",".join(
            f'{{"metric":{{"__name__":"gpu_tenancy:pod_busy_at","namespace":"a","pod":"{pod}"}},'
            f'"value":[{self.now}.25,"{self.now - seconds}"]}}'
            for pod, seconds in busy.items()
        )
        answer = f'{{"status":"success","data":{{"resultType":"vector","result":[{series}]}}}}'
        for name, text in {"prometheus": answer, "marked": marked}.items():
            (self.folder / name).write_text(text, encoding="utf-8")
        variables = {"ANNOTATION": IDLE, "SERVERS": " ".join(servers()), "TEAMS": team or "a requeue 7200 5 nightly"}
        variables |= {"SERVER": "http://prometheus", "QUERY": "/query"}
        return self.started(IdleGpus.script, pods, workloads, variables)

    def started(self, script: str, pods: Iterable[str], workloads: Iterable[str], variables: dict[str, str]) -> Run:
        texts = {"pods": "\n".join(pods), "workloads": "\n".join(workloads), "calls": "", "created": ""}
        for name, text in texts.items():
            (self.folder / name).write_text(text, encoding="utf-8")
        variables = {"TEAMS": "a", **variables, "PATH": f"{self.folder}:{os.environ['PATH']}", "HOME": str(self.folder)}
        command = ["/bin/sh", "-c", script]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=GUARD, check=False)
        calls = [call.split(" ", 3)[0] for call in self.read("calls").splitlines()]
        return Run(done.returncode, calls, self.read("created"), done.stderr)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")


@pytest.fixture
def cronjob(tmp_path: Path) -> CronJob:
    return CronJob(tmp_path)


TOLD: Final = ["annotate", "create"]
# Seconds since each pod was busy, pods, Workloads, and the calls that change something.
DECISIONS: Final[dict[str, tuple[dict[str, int], list[str], list[str], list[str]]]] = {
    "idle for half of the time": ({"p": 4000}, [_pod("p")], [_workload()], TOLD),
    "idle for less": ({"p": 3000}, [_pod("p")], [_workload()], []),
    "idle for long, and nobody was told": ({"p": 90000}, [_pod("p")], [_workload()], TOLD),
    "a busy job that was told": ({"p": 0}, [_pod("p")], [_workload(note="since x")], ["annotate"]),
    "a gang with one busy pod": ({"p": 9000, "q": 10}, [_pod("p"), _pod("q")], [_workload()], []),
    "a pod without metrics": ({"p": 9000}, [_pod("p"), _pod("q")], [_workload()], []),
    "a pod without GPUs beside": ({"p": 9000}, [_pod("p"), _pod("q", gpu="")], [_workload()], TOLD),
    "a partition": ({"p": 9000}, [_pod("p", gpu="nvidia.com/mig-1g.10gb")], [_workload()], TOLD),
    "pods of a server": ({"p": 9000}, [_pod("p", owner="ReplicaSet")], [_workload("v1 Pod p u;")], []),
    "pods of a notebook": ({"p": 9000}, [_pod("p", owner="StatefulSet")], [_workload("v1 Pod p u;")], []),
    "a RayService": ({"p": 9000}, [_pod("p", owner="RayCluster")], [_workload("ray.io/v1 RayService r u;")], []),
    "a group of pods": ({"p": 9000}, [_pod("p", owner="")], [_workload("v1 Pod p u;v1 Pod q u;")], TOLD),
    "an excepted job": ({"p": 9000}, [_pod("p")], [_workload("batch/v1 Job nightly u;")], []),
    "a deactivated job": ({"p": 9000}, [_pod("p")], [_workload(active="false")], []),
    "a forged line in an annotation": ({"p": 0, "q": 9000},
        [_pod("p"), _pod("q", workload=r"x\nP|q|2026-01-01T00:00:00Z|nvidia.com/gpu|w|")], [_workload()], []),
    "a pod that Kueue does not know": ({"p": 9000}, [_pod("p", workload="")], [_workload()], []),
}  # fmt: skip


@pytest.mark.parametrize("name", DECISIONS)
def test_only_known_idle_jobs_are_told(cronjob: CronJob, name: str) -> None:
    busy, pods, workloads, calls = DECISIONS[name]
    done = cronjob.run(busy, pods, workloads)
    assert (done.code, done.calls, done.errors) == (0, calls, "")


def test_a_new_pod_with_an_old_name_is_not_idle(cronjob: CronJob) -> None:
    assert cronjob.run({"p": 9000}, [_pod("p", start=cronjob.since(600))], [_workload()]).calls == []


def test_a_told_job_is_stopped_then_queued_again(cronjob: CronJob) -> None:
    note = f"since {cronjob.since(9000)}, requeue at {cronjob.since(1800)}"
    # An earlier run stopped `w`, somebody else `y`; `x` runs.
    marked = (
        f"w|false||requeue: stopped at {LONG_AGO}, idle since {LONG_AGO}\nx|true|held|requeue: x\ny|false||since x\n"
    )
    done = cronjob.run({"p": 9000}, [_pod("p")], [_workload(note=note)], marked)
    assert done.calls == ["patch", "patch", "create", "patch"]
    first, second, *_ = cronjob.read("calls").splitlines()
    assert f'"{IDLE}":"requeued, stopped at {LONG_AGO}' in first
    assert '"spec":{"active":true}' in first
    assert f'"{IDLE}":"requeue: stopped at ' in second
    assert '"spec":{"active":false}' in second
    assert "reason: IdleGPUsStopped" in done.events
    assert f"8 GPUs below 5 % since {cronjob.since(9000)} (150 min): requeue" in done.events


@pytest.mark.slow
def test_a_thousand_jobs_take_two_calls(cronjob: CronJob) -> None:
    """3,000 pods of 1,000 Workloads, idle since the same minute: one call annotates them, one creates the events."""
    busy = {f"p{number}": 4000 for number in range(3000)}
    pods = [_pod(f"p{number}", workload=f"w{number % 1000}") for number in range(3000)]
    done = cronjob.run(busy, pods, [_workload(name=f"w{number}") for number in range(1000)])
    assert (done.code, done.calls) == (0, TOLD)
    assert done.events.count("kind: Event") == 1000


GPU: Final = "nvidia.com/gpu"
OF_JOB: Final = "Job batch/v1 j u;"
# Requests of the pod `p` of the Workload `w`, other rows, and what is deleted.
BEYOND: Final[dict[str, tuple[str, list[str], list[str]]]] = {
    "counted": (f"c {GPU} 4;", [f"A|w|true||{GPU} 4;||"], []),
    "without a Workload": (f"c {GPU} 4;", ["A|x|true||||"], ["pods p"]),
    "of a job that has ended": (f"c {GPU} 4;", [f"A|w|true|Finished|{GPU} 4;||{OF_JOB}"], ["Job.batch j", "pods p"]),
    "of a preempted job": (f"c {GPU} 4;", [f"W|w|true||||{OF_JOB}", "A|x|true||||"], ["Job.batch j", "pods p"]),
    "of a job that was evicted, beside idle quota": (f"c {GPU} 4;",
        [f"A|w|true|Evicted {LONG_AGO};|{GPU} 4;||{OF_JOB}", f"A|x|true||{GPU} 8;||"], ["Job.batch j", "pods p"]),
    "of others, and a job that was evicted keeps quota": ("c example.com/nic 4;",
        [f"A|x|true|Evicted {LONG_AGO};|{GPU} 4;||{OF_JOB}"], ["workloads.kueue.x-k8s.io x"]),
    "of others, and Kueue keeps the deleted Workload of such a job": ("",
        [f"A|x|true|Evicted {LONG_AGO};|{GPU} 4;||{OF_JOB}|{LONG_AGO}"],
        ["workloads.kueue.x-k8s.io x", "Job.batch j"]),
    "of a CPU job that was evicted": (
        "c cpu 4;", [f"A|w|true|Evicted {LONG_AGO};|cpu 4;||{OF_JOB}"], ["workloads.kueue.x-k8s.io w", "Job.batch j"]
    ),
    "of a CPU job that ends slowly": (
        "", ['D|q|v|c cpu 4;|"x"||||', f"A|x|true|Evicted {LONG_AGO};|cpu 4;||{OF_JOB}"], []
    ),
    "of CPU only, of a job that was evicted and keeps GPUs": ("c cpu 4;",
        [f"A|w|true|Evicted {LONG_AGO};|cpu 4;{GPU} 4;||{OF_JOB}"], ["workloads.kueue.x-k8s.io w", "Job.batch j"]),
    "of a job that was evicted, whose next size waits": (f"c {GPU} 4;",
        [f"A|w|true|Evicted {LONG_AGO};|{GPU} 4;||", "W|t|true|||w|", f"A|x|true||{GPU} 8;||"], ["pods p"]),
    "of others, and a stopped job keeps quota": ("", [f"A|x|false|Evicted {LONG_AGO};|{GPU} 4;||{OF_JOB}"], []),
    "of a job with ending pods": ("", [f'D|q|v|c {GPU} 4;|"x"||||', f"A|x|true|Evicted {LONG_AGO};|{GPU} 4;||"], []),
    "of a job that is being evicted": (f"c {GPU} 4;", [f"A|w|true|Evicted 2999-01-01T00:00:00Z;|{GPU} 4;||"], []),
    "of a Workload that is switched off": (f"c {GPU} 4;", [f"A|w|false||{GPU} 4;||"], ["pods p"]),
    "of a server": (f"c {GPU} 4;", ["A|w|true|Finished|||StatefulSet apps/v1 s u;"], ["pods p"]),
    "of a group of pods": (f"c {GPU} 4;", ["A|w|true|Finished|||Pod v1 p u;Pod v1 q v;"], ["pods p"]),
    "of a job with a new uid": (f"c {GPU} 4;", ["A|w|true|Finished|||Job batch/v1 j other;"], ["pods p"]),
    "without a Workload, beside idle quota": (f"c {GPU} 4;", [f"A|x|true||{GPU} 4;||"], ["pods p"]),
    "of a job in suspension, beside idle quota": (f"c {GPU} 4;", [f"A|x|true||{GPU} 4;||", "W|w|false||||"], []),
    "of two, the one beyond": (f"c {GPU} 4;", [f'P|q|v|c {GPU} 4;|"x"||||', f"A|x|true||{GPU} 4;||"], ["pods p"]),
    "by a sidecar": (f"c {GPU} 4;s {GPU} 1;", [f"A|w|true||{GPU} 4;||"], ["pods p"]),
    "an init container beside a container": (f"i {GPU} 4;c {GPU} 4;", [f"A|w|true||{GPU} 4;||"], []),
    "by an init container beside a sidecar": (f"s {GPU} 1;i {GPU} 4;", [f"A|w|true||{GPU} 4;||"], ["pods p"]),
    "of the other resources": ("c example.com/nic 4;", [f"A|w|true||{GPU} 4;||"], []),
    "of the next size of an elastic job": (f"c {GPU} 4;", [f"A|t|true||{GPU} 4;|s|", "A|w|true|Finished||s|"], []),
    "of an older size that is gone": (f'c {GPU} 4;|"job-j-a"||"job-j-b"||', [f"A|t|true||{GPU} 4;|job-j-b|"], []),
    "of a forged size of another job": (
        f'c {GPU} 4;|"job-x-a"||"job-j-b"||', [f"A|job-j-b|true||{GPU} 1;|job-j-b|{OF_JOB}"], ["pods p"]
    ),
    "counted in thousands": (f"c {GPU} 1k;", [f"A|w|true||{GPU} 1k;||"], []),
    "of a group without a name": (f'c {GPU} 4;||||"hash"|', [f"A|w|true||{GPU} 1;||"], ["pods p"]),
    "of a prebuilt group": (f'c {GPU} 4;||"g"|||', [f"A|g|true|Finished|{GPU} 4;||"], ["pods p"]),
    "of a group by its label": (f'c {GPU} 4;|||||"g"', [f"A|g|true|Finished|{GPU} 4;||"], ["pods p"]),
    "older than Kueue": (f"c {GPU} 4;|||||", ["A|x|true||||"], []),
    "with forged lines": (
        f"c {GPU} 4;", [f"A|w|true||{GPU} 4;||", rf'P|q|v|c {GPU} 4;|"x\nA|x|true||{GPU} 4;||"||||'], ["pods q"]
    ),
}  # fmt: skip


def beyond(cronjob: CronJob, requests: str, rows: list[str]) -> Run:
    pods = [
        f"P|p|u|{requests}" if "|" in requests else f'P|p|u|{requests}|"w"||||',
        *(row for row in rows if row[0] in "PD"),
    ]
    variables = {"GPUS": GPU, "KINDS": "Job.batch JobSet.jobset.x-k8s.io", "PAUSE": "0", "STOPS": "1800"}
    return cronjob.started(UncountedPods.script, pods, (row for row in rows if row[0] in "AW"), variables)


@pytest.mark.parametrize("name", BEYOND)
def test_pods_beyond_their_workload_are_deleted(cronjob: CronJob, name: str) -> None:
    requests, rows, deleted = BEYOND[name]
    done = beyond(cronjob, requests, rows)
    assert (done.code, done.errors) == (0, "")
    calls = [call for call in cronjob.read("calls").splitlines() if call.startswith("delete ")]
    assert [call.rpartition("--wait=false ")[2].strip() for call in calls] == deleted
    assert done.events.count("reason: UncountedGPUs") == len(deleted)


def test_without_an_admitted_workload_no_pod_is_deleted(cronjob: CronJob) -> None:
    done = beyond(cronjob, f"c {GPU} 4;", ["W|w|true||||"])
    assert (done.code, done.calls) == (1, [])
    assert "no Workload is admitted" in done.errors
