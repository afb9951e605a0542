"""The jobs of a team: their order, places, and what is said of what they borrow."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cli_builders import Screen
from live_builders import GPU, HIDDEN_QUEUES, came, condition, counted, job, local_queue, owned, pod, state, waits

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cluster.reading import Missing, State
from gpu_tenancy.cluster.workloads import read_workloads
from gpu_tenancy.jobs.jobs import Jobs
from gpu_tenancy.jobs.listing import data, listing, shown, with_gpu_use

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


def test_admitted_jobs_come_first_then_pending_ones_in_the_order_of_the_queue() -> None:
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


def test_jobs_of_all_teams_have_their_namespace() -> None:
    screen = Screen.of(100, shown(listing(busy()), every_team=True, now=NOW))
    assert {"research/old", "research/new", "speech/talk"} <= screen.words
    assert [line for line in screen.lines if line.startswith("3 jobs")] == ["3 jobs: 3 admitted"]


def test_what_kueue_does_not_consider_has_no_place_and_takes_none() -> None:
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
    assert found.notes == (workloads.text,)


def test_without_the_queues_jobs_are_listed_and_it_is_said_what_is_missing() -> None:
    jobs = [came("runs", "research"), waits("mine")]
    found = listing(state((HIDDEN_QUEUES,), ClusterQueue=[], Workload=jobs), "research")
    assert [job.stands for job in found.jobs] == ["admitted", "pending, place 1 or later"]
    assert found.notes == (HIDDEN_QUEUES.text,)


def test_gangs_of_volcano_are_listed() -> None:
    owner = {"kind": "Job", "name": "gang", "uid": "uid-gang"}
    meta = {
        "name": "gang-7f",
        "namespace": "research",
        "ownerReferences": [owner],
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


def test_what_gpus_of_admitted_jobs_do_is_asked_in_their_pods_and_reasons_are_below_the_table() -> None:
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


def test_programs_get_the_same() -> None:
    found = data(listing(busy(waits("mine")), "research"))
    assert [job["name"] for job in found["jobs"]] == ["old", "new", "mine"]
    assert found["jobs"][2] | {"requests": {GPU: 8}, "place": 1, "since": "2026-01-20T00:00:00Z"} == found["jobs"][2]


def test_nothing_to_list_and_an_unknown_namespace() -> None:
    assert Screen.of(80, shown(listing(state()), every_team=True)).lines[0] == "no jobs"
    with pytest.raises(ConsoleError, match="namespace reserch not found"):
        listing(state(), "reserch")
