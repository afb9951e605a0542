"""The jobs of a team: order, places, pods, use of GPUs, and a folder of code in a job's object."""

import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cli_builders import Screen
from live_builders import (
    GPU,
    HIDDEN_QUEUES,
    came,
    cluster_queue,
    condition,
    counted,
    cpu_job,
    job,
    local_queue,
    owned,
    pod,
    state,
    waits,
    with_cpu,
    workload,
)
from rich.text import Text

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.output import Output
from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.cluster.pods import name_of
from gpu_tenancy.cluster.reading import Missing, State, require_team
from gpu_tenancy.cluster.workloads import Workload, read_workloads
from gpu_tenancy.jobs import overview
from gpu_tenancy.jobs.job_files import LARGEST, packed
from gpu_tenancy.jobs.jobs import Jobs
from gpu_tenancy.jobs.kubectl import GpuUse, gpu_use, read_gpu_use, together
from gpu_tenancy.jobs.listing import data, listing, shown, with_gpu_use
from gpu_tenancy.jobs.overview import UseRow, chosen, of_jobs, of_pods, rows, used
from gpu_tenancy.jobs.requeueing import as_submitted
from gpu_tenancy.jobs.submitting import Wish, job_of
from gpu_tenancy.model.manifests.pods import ANNOTATION, STAYS, unpacking
from gpu_tenancy.model.names import IDLE, USER

NOW = datetime(2026, 1, 21, tzinfo=UTC)
BORROWED = (
    "queue research borrows 4 of its 12 a100 nvidia.com/gpu; can be preempted by queue speech at any time"
)  # fmt: skip


def busy(*more: Any) -> State:
    jobs = [came("old", "research", 8, day=2), came("new", "research", 4, day=9), came("talk", "speech", 4), *more]
    queues = counted(jobs, borrowingLimit=24)
    return state(
        ClusterQueue=queues, Cohort=[], LocalQueue=[local_queue("research"), local_queue("speech")], Workload=jobs
    )


def test_admitted_jobs_precede_pending_jobs_in_queue_order() -> None:
    found = listing(busy(waits("late"), waits("early", day=15), waits("urgent", priority=10)), "research")
    assert [(job.name, job.stands, job.flavors) for job in found.jobs] == [
        ("old", "admitted", ("a100",)),
        ("new", "admitted", ("a100",)),
        ("urgent", "pending, place 1", ()),
        ("early", "pending, place 2", ()),
        ("late", "pending, place 3", ()),
    ]
    assert {job.kind for job in found.jobs} == {"Job"}
    assert found.notes == (BORROWED,)


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [
        ("since 2026-01-21T10:20:00Z, requeue at 2026-01-21T12:20:00Z", "idle for 1 h 40 min, requeue in 20 min"),
        ("since 2026-01-21T11:20:00Z, cancel at 2026-01-21T11:59:00Z", "idle for 40 min, cancel in 0 min"),
        ("since 2026-01-20T11:20:00Z, notify at 2026-01-20T12:59:00Z", "idle for 24 h 40 min"),
        ("requeued, stopped at 2026-01-21T10:20:00Z", "requeued, stopped at 2026-01-21T10:20:00Z"),
        ("", ""),
    ],
)
def test_idle_jobs_have_their_time_and_end(annotation: str, shown: str) -> None:
    found = came("idler", "research", 8)
    found["metadata"]["annotations"] = {IDLE: annotation}
    assert Workload.of(found).idle(datetime(2026, 1, 21, 12, tzinfo=UTC)) == shown
    told = {row.name: bool(row.idle) for row in listing(busy(found), "research").jobs}
    assert told == {"old": False, "new": False, "idler": bool(annotation)}


def test_jobs_of_all_teams_have_their_namespace() -> None:
    screen = Screen.of(100, shown(listing(busy()), every_team=True, now=NOW))
    assert {"research/old", "research/new", "speech/talk"} <= screen.words
    assert [line for line in screen.lines if line.startswith("3 jobs")] == ["3 jobs: 3 admitted"]


def test_ignored_workloads_have_no_place() -> None:
    gated = waits("gated", day=10)
    gated["metadata"]["annotations"] = {"kueue.x-k8s.io/admission-gated-by": "example.com/gate"}
    off = waits("off", day=11)
    off["spec"]["active"] = False
    checked = came("checked", "research", day=12)
    checked["status"]["conditions"] = [condition("QuotaReserved", "True", "QuotaReserved", "reserved")]
    found = listing(busy(gated, off, checked, waits("next")), "research")
    assert {job.name: job.stands for job in found.jobs if job.state != "admitted"} == {
        "checked": "reserved",
        "gated": "held back",
        "off": "stopped",
        "next": "pending, place 1",
    }


def test_a_place_is_the_earliest_where_others_may_not_be_read() -> None:
    workloads = Missing("Workload", "pending workloads, outside research", "you may not", "an admin", partly=True)
    jobs = [waits("mine")]
    queues = counted(jobs)
    queues[0]["status"]["pendingWorkloads"] = 3
    found = listing(state((workloads,), ClusterQueue=queues, Workload=jobs), "research")
    assert [job.stands for job in found.jobs] == ["pending, place 1 or later"]
    assert found.notes == ()
    every = listing(state((workloads,), ClusterQueue=queues, Workload=jobs))
    assert every.notes == ()
    words = [line.strip() for line in Screen.of(100, shown(every, every_team=True)).lines]
    assert "1 job: 1 pending (only teams that you may read)" in words


def test_a_team_that_may_not_be_read_is_not_one_without_jobs() -> None:
    hidden = Missing("Workload", "pending workloads", "you may not list workloads", "an admin")
    with pytest.raises(ConsoleError, match="jobs of speech are unknown: you may not list workloads; check the name"):
        require_team(state((hidden,), Workload=[]), "speech", "jobs", "Workload")


def test_names_cpu_that_the_guarantee_does_not_cover() -> None:
    queues = [with_cpu(cluster_queue("research", "org", borrowingLimit=8), 10, 4)]
    queues.append(with_cpu(cluster_queue("speech", "org", used=16, borrowingLimit=8), 64))
    pending = [workload(cpu_job(name, cpu=cpu)) for name, cpu in (("a", 32), ("b", 32), ("covered", 6))]
    found = listing(state(ClusterQueue=queues, Cohort=[], Workload=pending), "research")
    text = (
        "needs 22 CPUs more than research is guaranteed (10, 4 in use), so it cannot reclaim a100 GPUs from"
        " borrowers; request up to 6 CPUs, or raise teams.research.quota.a100.cpu.guaranteed"
    )
    assert [(each["name"], each["uncovered"]) for each in data(found)["jobs"]] == [
        ("a", text), ("b", text), ("covered", "")
    ]  # fmt: skip
    assert found.notes == (f"a, b pending: {text}",)


def test_lists_jobs_without_readable_queues() -> None:
    jobs = [came("runs", "research"), waits("mine")]
    found = listing(state((HIDDEN_QUEUES,), ClusterQueue=[], Workload=jobs), "research")
    assert [job.stands for job in found.jobs] == ["admitted", "pending, place 1 or later"]
    assert found.notes == (HIDDEN_QUEUES.text,)


def test_gangs_of_volcano_are_listed() -> None:
    meta = {
        "name": "gang-7f",
        "namespace": "research",
        "ownerReferences": [{"kind": "Job", "name": "gang", "uid": "uid-gang"}],
        "creationTimestamp": "2026-01-20T23:00:00Z",
    }
    # As Volcano's controller writes it: also by the names of a ResourceQuota.
    amounts = {GPU: "16", f"requests.{GPU}": "16", "cpu": "4", "limits.cpu": "4", "pods": "2", "count/pods": "2"}
    spec = {"minResources": amounts, "queue": "research-l4", "priorityClassName": "high"}
    groups = [
        {"metadata": meta, "spec": spec, "status": {"phase": "Running"}},
        {"metadata": {**meta, "name": "bare", "ownerReferences": []}, "spec": {}, "status": {"phase": "Inqueue"}},
    ]
    classes = [{"metadata": {"name": "high"}, "value": 1000}]
    found = listing(state(PodGroup=groups, Workload=[], PriorityClass=classes), "research")
    assert [(job.name, job.kind, job.state, job.requests, job.flavors, job.priority) for job in found.jobs] == [
        ("gang", "Volcano Job", "admitted", {GPU: 16, "cpu": 4000}, ("l4",), 1000),
        ("bare", "Volcano pods", "pending", {}, (), 0),
    ]


def test_gang_that_kueue_admitted_is_listed_once() -> None:
    job: Any = came("runs", "research")
    owner = job["metadata"]["ownerReferences"][0]
    meta: Any = {"name": "podgroup-1", "namespace": job["metadata"]["namespace"], "ownerReferences": [owner]}
    group = {"metadata": meta, "spec": {"queue": "default"}, "status": {"phase": "Running"}}
    found = listing(state(PodGroup=[group], Workload=[job]), meta["namespace"])
    assert [(one.name, one.kind) for one in found.jobs] == [("runs", "Job")]


@pytest.mark.parametrize(
    ("ago", "age"), [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (200_000, "2d")]
)
def test_times_are_in_the_largest_unit_of_which_they_have_two(ago: int, age: str) -> None:
    since = datetime(2026, 1, 20, tzinfo=UTC)
    screen = Screen.of(
        100, shown(listing(state(Workload=[waits("mine")])), every_team=False, now=since + timedelta(seconds=ago))
    )
    assert age in screen.words


def test_shows_gpu_use_of_admitted_jobs() -> None:
    jobs = [came("trains", "research", 8), came("hides", "research", 4), came("starts", "research", 4), waits("later")]
    pods: list[Any] = [
        owned(pod(name, on=on), uid)
        for name, on, uid in (("a", "n1", "uid-trains"), ("b", "n1", "uid-trains"), ("c", "n1", "uid-hides"),
                              ("d", "", "uid-starts"), ("e", "n1", "uid-other"))
    ]  # fmt: skip
    objects = (*({"kind": "Pod", **one} for one in pods), *(job(name) for name in ("trains", "hides", "starts")))
    answers = {"a": "90, 1, 2\n", "b": "0, 1, 2\n", "c": "[N/A], 1, 2\n"}
    listed = listing(state(ClusterQueue=counted(jobs), LocalQueue=[local_queue("research")], Workload=jobs), "research")
    found = with_gpu_use(listed, Jobs("research", objects, read_workloads(jobs)), answers.__getitem__)
    assert {job["name"]: job["gpus"] and job["gpus"]["percent"] for job in data(found)["jobs"]} == {
        "trains": (90, 0), "hides": None, "starts": None, "later": None
    }  # fmt: skip
    screen = Screen.of(80, shown(found, every_team=False, busy=True, now=NOW))
    assert screen.too_long == []
    rows = {line.split()[0]: line for line in screen.lines if line}
    assert "45 %, one 0 %" in rows["trains"]
    assert [rows[name].split()[-1] for name in ("hides", "starts")] == ["?", "?"]
    assert "?" not in rows["later"]
    assert {
        "GPU use of 1 pod unknown: nvidia-smi has no number, as for MIG partitions",
        "GPU use of 1 job unknown: no running pods found",
    } <= {*screen.lines}


@pytest.mark.parametrize("width", [80, 60])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    found = shown(listing(busy(waits("a-name-that-is-as-long-as-names-get"))), every_team=True, now=NOW)
    screen, wide = Screen.of(width, found), Screen.of(240, found)
    assert (screen.too_long, screen.words - wide.words) == ([], set())


@pytest.mark.parametrize("width", [120, 80, 60])
def test_two_hundred_jobs_are_two_hundred_lines(width: int) -> None:
    jobs = [came(f"train-{number:03}-of-a-sweep-with-a-long-name", "research", 1) for number in range(200)]
    jobs[0]["metadata"]["annotations"] = {IDLE: "since 2026-01-20T00:00:00Z, requeue at 2026-01-22T00:00:00Z"}
    listed = listing(state(ClusterQueue=counted(jobs), LocalQueue=[local_queue("research")], Workload=jobs), "research")
    lines = Screen.of(width, shown(listed, every_team=False, now=NOW)).lines
    assert sum(line.startswith("train-") for line in lines) == 201  # with the note about the one that is idle
    assert len(lines) < 212


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["old", "new", "mine"]),
        ({"user": "rita"}, ["mine"]),
        ({"pending": True}, ["mine"]),
        ({"by": "age"}, ["old", "new", "mine"]),
        ({"by": "gpus"}, ["old", "mine", "new"]),
        ({"by": "name"}, ["mine", "new", "old"]),
        ({"by": "user"}, ["new", "old", "mine"]),
    ],
)
def test_chosen_and_ordered_jobs(options: Any, names: list[str]) -> None:
    mine = waits("mine")
    mine["metadata"]["labels"] = {USER: "rita"}
    found = listing(busy(mine), "research")
    assert [job.name for job in chosen(found.jobs, **options)] == names


def test_programs_get_the_same() -> None:
    found = data(listing(busy(waits("mine")), "research"))
    assert [job["name"] for job in found["jobs"]] == ["old", "new", "mine"]
    assert found["jobs"][2] | {"requests": {GPU: 8}, "place": 1, "since": "2026-01-20T00:00:00Z"} == found["jobs"][2]


def test_nothing_to_list_and_an_unknown_namespace() -> None:
    assert Screen.of(80, shown(listing(state()), every_team=True)).lines[0] == "no jobs"
    with pytest.raises(ConsoleError, match="namespace reserch not found"):
        listing(state(), "reserch")


# What belongs to a job, in which order its pods are, and what is listed of it.


def made(kind: str, name: str, *above: Any, created: int = 1, **fields: Any) -> Any:
    """An object with its owner."""
    versions = {"Pod": "v1", "TrainJob": "trainer.kubeflow.org/v1alpha1", "JobSet": "jobset.x-k8s.io/v1alpha2"}
    metadata = {
        "name": name,
        "namespace": "ml",
        "uid": f"uid-{name}-{kind}",
        "creationTimestamp": f"2026-01-{created:02}T00:00:00Z",
        "ownerReferences": [{"uid": one["metadata"]["uid"], "controller": True} for one in above],
        **fields.pop("metadata", {}),
    }
    return {"apiVersion": versions.get(kind, "batch/v1"), "kind": kind, "metadata": metadata, **fields}


def jobs_pod(name: str, above: Any, phase: str = "Running", *, index: int | None = None, created: int = 1) -> Any:
    more: Any = {} if index is None else {"labels": {"batch.kubernetes.io/job-completion-index": str(index)}}
    metadata = {"generateName": name.rpartition("-")[0] + "-", **more}
    spec = {"nodeName": "n1", "containers": [{"name": "train", "resources": {"limits": {GPU: "4"}}}]}
    return made("Pod", name, above, created=created, metadata=metadata, spec=spec, status={"phase": phase})


def names(jobs: Jobs, manifest: Any) -> list[str]:
    return [name_of(one) for one in jobs.pods(manifest)]


TRAIN = made(
    "TrainJob", "train", spec={"trainer": {"numNodes": 2}}, metadata={"labels": {"gpu-tenancy.dev/user": "anna"}}
)
SET = made("JobSet", "train", TRAIN)
JOB = made("Job", "train-node-0", SET)
PODS = [jobs_pod(f"train-node-0-{index}-x{index}", JOB, index=index) for index in (10, 9)]


def test_pods_of_a_job_are_sorted_by_number() -> None:
    other = made("Job", "other")
    jobs = Jobs("ml", (TRAIN, SET, JOB, *PODS, other))
    assert jobs.named("train") == TRAIN
    assert jobs.roots == (TRAIN, other)
    assert names(jobs, TRAIN) == names(jobs, JOB) == ["train-node-0-9-x9", "train-node-0-10-x10"]
    assert (names(jobs, other), names(jobs, PODS[0])) == ([], ["train-node-0-10-x10"])


def test_newest_pod_of_an_index_counts() -> None:
    job = made("Job", "j")
    failed, again = jobs_pod("j-0-b", job, "Failed", index=0), jobs_pod("j-0-a", job, index=0, created=2)
    assert names(Jobs("ml", (job, again, failed)), job) == ["j-0-a"]
    assert names(Jobs("ml", (job, jobs_pod("j-b", job), jobs_pod("j-a", job))), job) == ["j-a", "j-b"]


def test_owned_objects_name_owners_but_cron_runs_do_not() -> None:
    cron = made("CronJob", "nightly", spec={"schedule": "0 2 * * *"})
    run = made("Job", "nightly-1", cron)
    jobs = Jobs("ml", (TRAIN, SET, JOB, *PODS, cron, run))
    assert (jobs.owner(TRAIN), jobs.owner(SET), jobs.owner(PODS[0])) == (None, TRAIN, JOB)
    assert jobs.owner(run) is None


def test_names_that_are_not_there_or_of_several_kinds() -> None:
    jobs = Jobs("ml", (made("Job", "same"), made("JobSet", "same"), TRAIN))
    with pytest.raises(ConsoleError, match=r"ml/same: several objects have this name: Job \(batch/v1\), JobSet"):
        jobs.named("same")
    assert jobs.named("same", "jobset")["kind"] == "JobSet"
    with pytest.raises(ConsoleError, match="ml/trian: object not found, or not readable by you") as error:
        jobs.named("trian")
    assert "did you mean 'train'" in str(error.value)


def _workload(manifest: Any, job: Any) -> Workload:
    manifest["metadata"]["ownerReferences"] = [{"uid": job["metadata"]["uid"], "name": "x"}]
    (found,) = read_workloads([manifest])
    return found


def test_rows_show_running_first_and_ended_last() -> None:
    queued, off = made("Job", "queued", created=2), made("Job", "off")
    stopped = waits("off")
    stopped["spec"]["active"] = False
    done = made("Job", "done", status={"conditions": [{"type": "Complete", "status": "True"}]}, created=9)
    lost = made("Job", "lost", status={"conditions": [{"type": "Failed", "status": "True"}]})
    cron = made("CronJob", "nightly", spec={"schedule": "0 2 * * *"})
    half = made("Job", "half", spec={"parallelism": 2})
    workloads = (_workload(came("train", "ml"), TRAIN), _workload(waits("queued"), queued), _workload(stopped, off))
    found = overview.beside(
        Jobs("ml", (done, lost, cron, queued, off, TRAIN, SET, JOB, *PODS, half, jobs_pod("half-a", half)), workloads),
        (),
    )
    assert [(row.name, row.state, row.running, row.pods) for row in found] == [
        ("train", "running", 2, 2),
        ("half", "starting", 1, 2),
        ("queued", "pending", 0, 1),
        ("off", "stopped", 0, 1),
        ("done", "complete", 0, 1),
        ("lost", "failed", 0, 1),
        ("nightly", "at 0 2 * * *", 0, 0),
    ]
    assert (found[0].user, found[0].requests[GPU], found[1].requests[GPU]) == ("anna", 8, 4)
    screen = Screen.of(80, overview.shown(found, NOW))
    assert (screen.too_long, screen.lines[1].split()) == (
        [],
        ["train", "TrainJob", "running", "2/2", "8", GPU, "20d", "anna"],
    )


def test_jobs_and_queue_name_what_is_refused() -> None:
    refused = made("TrainJob", "tune")
    event: Any = {
        "metadata": {"name": "e", "namespace": "research"},
        "reason": "TrainJobResourcesCreationFailed",
        "involvedObject": {"kind": "TrainJob", "name": "tune", "uid": refused["metadata"]["uid"]},
        "message": 'jobsets.jobset.x-k8s.io "tune" is forbidden: no such class',
    }
    words = "admitted, but its JobSet is refused: no such class; fix this error"
    own = came("tune", "research")
    admitted = _workload(own, refused)
    own["metadata"]["ownerReferences"][0]["name"] = "tune"
    (row,) = rows(Jobs("research", (refused,), (admitted,), (event,)))
    assert (row.state, row.refused) == ("refused", words)
    assert f"tune: {words}" in Screen.of(100, overview.shown((row,), NOW)).lines
    for team, name in (("research", "tune"), ("", "research/tune")):
        found = listing(state(Workload=[own], Event=[event]), team)
        assert found.notes[0] == f"{name}: {words}"
    created = {**event, "reason": "SuccessfulCreate", "lastTimestamp": "2026-01-02T00:00:00Z"}
    (row,) = rows(Jobs("research", (refused,), (admitted,), (event, created)))
    assert (row.state, row.refused) == ("starting", "")


def test_shows_use_of_requests_or_unknown() -> None:
    jobs = Jobs("ml", (TRAIN, SET, JOB, *PODS, made("Job", "queued")))
    measured = {"train-node-0-9-x9": {"cpu": 1234, "memory": 3 * 2**30 + 1}}
    assert tuple(of_jobs(jobs, measured, {})) == (UseRow("train", "2 pods", measured["train-node-0-9-x9"], {GPU: 8}),)
    screen = Screen.of(80, used(tuple(of_pods(jobs, TRAIN, measured, {})), pods=True))
    assert [line.split() for line in screen.lines[1:3]] == [
        ["0", "train-node-0-9-x9", "n1", "1.3", "of", "0", "3Gi", "of", "0", "4", GPU],
        ["1", "train-node-0-10-x10", "n1", "?", "of", "0", "?", "of", "0", "4", GPU],
    ]
    assert Screen.of(80, used((), pods=False)).lines[0] == "no running pods"


def test_top_says_since_when_gpus_of_a_job_are_idle() -> None:
    found = came("train", "ml")
    found["metadata"]["annotations"] = {IDLE: "since 2026-01-01T00:00:00Z, notify at 2026-01-01T02:00:00Z"}
    (row,) = of_jobs(Jobs("ml", (TRAIN, SET, JOB, *PODS), (_workload(found, TRAIN),)), {}, {})
    assert row.idle.startswith("idle for ")
    assert f"train: {row.idle}" in Screen.of(80, used((row,), pods=False)).lines


def test_requeued_elastic_job_has_its_requested_pods() -> None:
    annotations = {
        "kueue.x-k8s.io/job-min-parallelism": "1",
        "kueue.x-k8s.io/job-completions-equal-parallelism": "true",
    }
    job = made("Job", "sweep", metadata={"annotations": annotations}, spec={"parallelism": 2, "completions": 2})
    manifest = waits("sweep")
    manifest["spec"]["podSets"][0]["count"] = 4
    again = as_submitted(job, Workload.of(manifest))
    assert (again["spec"]["parallelism"], again["spec"]["completions"]) == (4, 4)
    assert "uid" not in again["metadata"]
    assert job["spec"]["parallelism"] == 2


def test_a_requeued_job_has_nothing_that_only_kueue_may_set() -> None:
    metadata = {
        "labels": {"kueue.x-k8s.io/podset": "main", "app": "x"},
        "annotations": {"kueue.x-k8s.io/workload": "w"},
    }
    job = made("Job", "sweep", spec={"template": {"metadata": metadata, "spec": {}}})
    assert as_submitted(job, None)["spec"]["template"]["metadata"] == {"labels": {"app": "x"}, "annotations": {}}


# What GPUs of pods do, as nvidia-smi prints it, and its table.


GIB = 2**30
MISSING = ' failed: exec failed: "{}": exec: "nvidia-smi": executable file not found in $PATH: unknown'
# Errors of kubectl about pods, after the command.
REFUSED = {
    "no-smi": MISSING.format("4f0e"),
    "other": MISSING.format("5c1d"),
    "denied": ' failed: Error from server (Forbidden): pods "denied" is forbidden: cannot create resource "pods/exec"',
    "silent": ": no answer within 20 s",
    "restarts": " failed: error: unable to upgrade connection",
}


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ("97, 61440, 81920\n99, 61440, 81920\n", GpuUse((97, 99), 120 * GIB, 160 * GIB)),
        ("[N/A], 1024, 20480\n", None),
        ("No devices were found\n", None),
        ("", None),
    ],
)
def test_what_nvidia_smi_prints_is_read_or_unknown(printed: str, found: GpuUse | None) -> None:
    assert read_gpu_use(printed) == found


def test_asks_only_running_pods_with_gpus() -> None:
    asked: list[str] = []

    def run(name: str) -> str:
        asked.append(name)
        if name in REFUSED:
            raise ConsoleError(f"`kubectl exec {name} -- nvidia-smi`{REFUSED[name]}", "see `tenancy logs`")
        return "[N/A], 1024, 20480\n" if name == "mig" else "50, 0, 81920"

    cpu: Any = pod("cpu", gpus=0, on="n1")
    found = gpu_use([*(pod(name, on="n1") for name in ("train", "mig", *REFUSED)), pod("pending"), cpu], run)
    assert found.use == {"train": GpuUse((50,), 0, 80 * GIB)}
    assert sorted(asked) == sorted(["mig", "train", *REFUSED])
    assert found.notes == (
        "GPU use of 1 pod unknown: nvidia-smi has no number, as for MIG partitions",
        "GPU use of 2 pods unknown: their image has no nvidia-smi",
        "GPU use of 1 pod unknown: you may not exec into them",
        "GPU use of 1 pod unknown: no answer in time",
        "GPU use of 1 pod unknown: error: unable to upgrade connection; see `tenancy logs`",
    )


def test_of_a_job_the_mean_and_a_gpu_that_does_nothing_are_told() -> None:
    of = {"a": GpuUse((90, 95), GIB, 160 * GIB), "b": GpuUse((0, 95), GIB, 160 * GIB)}
    assert of["a"].busy == "92 %"
    whole = together(of, ("a", "b", "unknown"))
    assert whole
    assert (whole.busy, whole.filled) == ("70 %, one 0 %", "2Gi of 320Gi")
    assert together(of, ("unknown",)) is None


def test_the_table_fits_80_columns_with_what_gpus_do() -> None:
    requests = {CPU: 86400, MEMORY: 900 * GIB, GPU: 8}
    taken = {CPU: 40000, MEMORY: 300 * GIB}
    found = (
        UseRow("0 pair-node-0-0-abcde", "a100-node-1", taken, requests, GpuUse((90,) * 8, 488 * GIB, 640 * GIB)),
        UseRow("1 pair-node-0-1-fghij", "a100-node-2", taken, requests, None),
    )
    console = Output(width=80, terminal=True)
    with console.capture() as captured:
        console.print(used(found, pods=True, busy=True))
    lines = Text.from_ansi(captured.get()).plain.splitlines()
    assert all(len(line) <= 80 for line in lines)
    told, unknown, left_out = lines[-3:]
    assert told.split()[-5:] == ["90", "%", "488Gi", "of", "640Gi"]
    assert unknown.split()[-2:] == ["?", "?"]
    assert left_out == "not shown, because the terminal is narrow: CPUs"


IMAGE = "registry.example.com/ml/train:3.0.1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "project"
    (found / "pkg" / "__pycache__").mkdir(parents=True)
    (found / ".venv").mkdir()
    for name in ("train.py", "pkg/model.py", "pkg/__pycache__/model.pyc", ".venv/lib.py", "data.bin"):
        (found / name).write_text(f"print('{name}')\n", encoding="utf-8")
    (found / "run.sh").write_text('#!/bin/sh\necho "$PWD:$*"\n', encoding="utf-8")
    (found / "run.sh").chmod(0o755)
    (found / "link.py").symlink_to("train.py")
    return found


def unpacked(code: str, tmp_path: Path, *command: str) -> tuple[str, set[str]]:
    """Runs a command as the container of a pod would, with folders of this machine."""
    there = tmp_path / "container"
    there.mkdir()
    (tmp_path / "archive").write_text(code, encoding="utf-8")
    shell, option, script, *rest = unpacking(command)
    script = script.replace("/gpu-tenancy/code", str(tmp_path / "archive")).replace("cd /code", f"cd {there}")
    done = subprocess.run([shell, option, script, *rest], capture_output=True, text=True, check=True)
    files = {str(Path(above, name).relative_to(there)) for above, _, names in os.walk(there) for name in names}
    return done.stdout.replace(str(there), "THERE"), files


@pytest.mark.process
def test_the_command_runs_where_the_code_is_unpacked(folder: Path, tmp_path: Path) -> None:
    output, files = unpacked(packed(folder), tmp_path, "./run.sh", "--lr", "0.1 x")
    assert output == "THERE:--lr 0.1 x\n"
    assert files == {"train.py", "pkg/model.py", "data.bin", "run.sh", "link.py"}


@pytest.mark.process
def test_a_work_tree_of_git_leaves_out_what_git_ignores(folder: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / ".gitignore").write_text("*.bin\n.venv/\n__pycache__/\n", encoding="utf-8")
    _, files = unpacked(packed(folder), tmp_path, "true")
    assert files == {"train.py", "pkg/model.py", "run.sh", "link.py", ".gitignore"}


@pytest.mark.process
def test_the_same_files_are_the_same_text(folder: Path) -> None:
    first = packed(folder)
    os.utime(folder / "train.py", (1, 1))
    assert packed(folder) == first


@pytest.mark.process
def test_what_is_too_large_or_no_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "weights").write_bytes(os.urandom(LARGEST + 1))
    with pytest.raises(ConsoleError) as error:
        packed(folder)
    assert "exceed 180 KiB; largest files: weights, " in error.value.what
    assert "--mount" in error.value.fix
    with pytest.raises(ConsoleError, match="is not a folder"):
        packed(folder / "train.py")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConsoleError, match="has no files"):
        packed(tmp_path / "empty")


def test_pods_get_the_archive_as_a_file() -> None:
    wish = Wish(IMAGE, ("python", "train.py"), "x", code="Y29kZQ==")
    template = job_of(wish, "research", state())["spec"]["template"]
    assert template["metadata"]["annotations"] == {**STAYS, ANNOTATION: "Y29kZQ=="}
    (container,) = template["spec"]["containers"]
    assert container["command"][-2:] == ["python", "train.py"]
    assert {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]} == {
        "code": "/code",
        "code-archive": "/gpu-tenancy",
    }
    assert template["spec"]["volumes"][1]["downwardAPI"]["items"] == [
        {"path": "code", "fieldRef": {"fieldPath": f"metadata.annotations['{ANNOTATION}']"}}
    ]


def test_code_needs_a_command_of_each_pod() -> None:
    with pytest.raises(ConsoleError, match="no command"):
        job_of(Wish(IMAGE, code="x"), "research", state())
    with pytest.raises(ConsoleError, match="--framework ray"):
        job_of(Wish(IMAGE, ("python",), code="x", framework="ray"), "research", state())
