"""How long a pending workload is expected to wait: by deadlines, by recorded jobs, or unknown."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli_builders import Screen
from live_builders import Data, came, counted, job, local_queue, only_gpus, state, waits

from gpu_tenancy.cluster.demand import demand
from gpu_tenancy.cluster.estimate import ENOUGH, Estimate, History, about
from gpu_tenancy.cluster.reading import Missing, State
from gpu_tenancy.cluster.target import target_of
from gpu_tenancy.explain import show
from gpu_tenancy.explain.fit import judge
from gpu_tenancy.explain.why import why
from gpu_tenancy.jobs.listing import listing, shown
from gpu_tenancy.kueue import (
    ClusterQueue,
    FlavorQuotas,
    PodSet,
    Quota,
    ResourceGroup,
    Simulation,
    Tenancy,
    Workload,
)
from gpu_tenancy.kueue.replay import waits as waits_for
from gpu_tenancy.simulation.replay import Trace

HOUR = 3600.0


def _since(found: Data, **ago: float) -> Data:
    """A workload that was admitted a while ago."""
    moment = (datetime.now(UTC) - timedelta(**ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
    for each in found["status"]["conditions"]:
        each["lastTransitionTime"] = moment
    return found


def _limited(found: Data, hours: float) -> Data:
    found["spec"]["maximumExecutionTimeSeconds"] = int(hours * HOUR)
    return found


def _cluster(me: Data, *others: Data, missing: tuple[Missing, ...] = (), **objects: list[Data]) -> State:
    queues = [local_queue("research"), local_queue("speech")]
    there = counted([me, *others])
    return state(missing, ClusterQueue=there, Cohort=[], LocalQueue=queues, Workload=[me, *others], **objects)


def _estimate(me: Data, found: State) -> Estimate:
    about_me = only_gpus(job(me["metadata"]["name"]))
    me["metadata"]["ownerReferences"][0]["uid"] = about_me["metadata"]["uid"]
    unblock = why(target_of(about_me, found), found).unblock
    assert unblock is not None
    assert unblock.estimate is not None
    return unblock.estimate


def _two(hours: float = 3, ran: float = 1) -> tuple[Data, Data]:
    """One workload of each team, which have all GPUs."""
    return (
        _limited(_since(came("mine", "research"), hours=ran), hours),
        _limited(_since(came("theirs", "speech"), hours=ran + 1), hours),
    )


def test_a_deadline_of_what_runs_is_the_longest_wait() -> None:
    me = waits("me")
    found = _estimate(me, _cluster(me, *_two()))
    assert found.text == "expected wait: at most 60 min, by deadlines"
    assert found.high == pytest.approx(HOUR, abs=60)


def test_a_deadline_of_a_job_counts_as_one_of_kueue() -> None:
    me, others = waits("me"), [_since(came(name, team), hours=1) for name, team in (("a", "research"), ("b", "speech"))]
    jobs: list[Data] = []
    for other, hours in zip(others, (3, 30), strict=True):
        uid = f"uid-{other['metadata']['name']}"
        other["metadata"]["ownerReferences"][0]["uid"] = uid
        jobs.append({"metadata": {"name": uid, "uid": uid}, "spec": {"activeDeadlineSeconds": hours * 3600}})
    assert _estimate(me, _cluster(me, *others, Job=jobs)).text == "expected wait: at most 2 h, by deadlines"


def test_those_ahead_wait_and_run_first() -> None:
    """The first gets the GPUs of the one that ends in an hour, and me those of the other, which ends in two."""
    me, first = waits("me", day=21), _limited(waits("first", day=20), 50)
    mine, theirs = _two()
    mine["spec"]["priority"] = theirs["spec"]["priority"] = 10
    assert _estimate(me, _cluster(me, mine, theirs, first)).text == "expected wait: at most 2 h, by deadlines"


def test_what_nothing_bounds_is_named() -> None:
    me = waits("me")
    found = _estimate(me, _cluster(me, came("mine", "research"), came("theirs", "speech")))
    assert found.text == ("wait unknown: no deadline and no recorded job tells the end of research/mine, speech/theirs")
    assert (found.low, found.high) == (0, None)


def test_recorded_jobs_of_the_team_give_a_span() -> None:
    me = waits("me")
    others = [_since(came(name, team), hours=1) for name, team in (("mine", "research"), ("theirs", "speech"))]
    # Of those that ran longer than an hour, a tenth ended within half an hour more, and nine tenths within 4.5.
    durations = [0.5 * HOUR] * 50 + [HOUR + 0.5 * step * HOUR for step in range(1, 11)]
    history = History.of((team, 8, seconds) for team in ("research", "speech") for seconds in durations)
    found = _estimate(me, replace(_cluster(me, *others), history=history))
    assert found.text == "expected wait: about 30 min to 5 h"
    fewer = History.of(("research", 8, seconds) for seconds in durations[-9:])
    assert _estimate(me, replace(_cluster(me, *others), history=fewer)).high is None


def test_a_deadline_is_earlier_than_recorded_jobs() -> None:
    me = waits("me")
    history = History.of(("research", 8, 100 * HOUR) for _ in range(ENOUGH))
    assert _estimate(me, replace(_cluster(me, *_two()), history=history)).text == "expected wait: about 60 min"


def test_what_more_ends_than_are_simulated_might_admit_is_unknown() -> None:
    me = waits("me", gpus=8)
    mine = [_limited(_since(came(f"r{at}", "research", 1), hours=1), 3) for at in range(8)]
    theirs = [_limited(_since(came(f"s{at}", "speech", 1), hours=1), 3) for at in range(8)]
    first = [_limited(waits(f"first{at}", gpus=1, day=10, priority=9), 1) for at in range(120)]
    found = _estimate(me, _cluster(me, *mine, *theirs, *first))
    assert (found.beyond, found.text) == (True, "wait unknown: the next 100 ends do not admit it")


def test_a_member_is_told_nothing_about_workloads_that_may_not_be_read() -> None:
    """Speech's 8 GPUs are counted, its workload is not read; research has none that could end."""
    me = waits("me", gpus=16)
    theirs = _limited(_since(came("theirs", "speech"), hours=1), 3)
    whole = _cluster(me, theirs)
    partly = Missing("Workload", "pending workloads", "you may not list them", "an admin", partly=True)
    found = replace(whole, objects={**whole.objects, "Workload": (me,)}, missing={"Workload": partly})
    about_me = only_gpus(job("me", gpus=16))
    me["metadata"]["ownerReferences"][0]["uid"] = about_me["metadata"]["uid"]
    answer = why(target_of(about_me, found), found)
    assert answer.unblock is not None
    assert answer.unblock.estimate == Estimate()
    assert "theirs" not in str(show.data(answer))


def test_why_and_fit_show_it() -> None:
    me = waits("me")
    found = _cluster(me, *_two())
    about_me = only_gpus(job("me"))
    me["metadata"]["ownerReferences"][0]["uid"] = about_me["metadata"]["uid"]
    answer = why(target_of(about_me, found), found)
    assert any("expected wait: at most 60 min" in str(part) for part in show.why(answer).renderables)
    another = judge(found, "research", demand(only_gpus(job("another")), "research"))
    # The first to end leaves its GPUs to `me`, which runs on.
    assert "expected wait: at most 2 h, by deadlines" in [line for result in another.answers for line in result.lines]


def test_queue_lists_the_waits_of_all_that_are_pending() -> None:
    me, later = waits("me"), waits("later", day=21)
    held = waits("held", day=22)
    held["metadata"]["annotations"] = {"kueue.x-k8s.io/admission-gated-by": "example.com/gate"}
    found = listing(_cluster(me, *_two(), later, held), "research")
    assert {job.name: job.wait.short if job.wait else "" for job in found.jobs} == {
        "mine": "",
        "me": "at most 60 min",
        "later": "at most 2 h",
        "held": "",
    }
    screen = Screen.of(100, shown(found, every_team=False))
    assert any("pending, place 2" in line and line.rstrip().endswith("at most 2 h") for line in screen.lines)
    assert Screen.of(80, shown(found, every_team=False)).too_long == []
    nothing_waits = listing(_cluster(*_two()), "research")
    assert "wait" not in Screen.of(100, shown(nothing_waits, every_team=False)).words


def test_queue_lists_jobs_where_nothing_can_be_simulated() -> None:
    me = waits("me")
    flavors = Missing("ResourceFlavor", "nodes of each flavor", "you may not list them", "an admin")
    found = listing(_cluster(me, *_two(), missing=(flavors,)), "research")
    assert [job.wait for job in found.jobs] == [None, None]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "5 min"),
        (330, "5 min"),
        (331, "10 min"),
        (5400, "90 min"),
        (6000, "2 h"),
        (48 * HOUR, "48 h"),
        (3 * 24 * HOUR, "3 d"),
    ],
)
def test_times_are_rounded_up(seconds: float, text: str) -> None:
    assert about(seconds) == text


def test_durations_are_read_from_recorded_jobs(tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    lines = [{"at": 0, "duration": "90m", "team": "a", "gpus": 4, "pods": 2}, {"at": 1, "duration": "5s"}]
    file.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    assert list(Trace(file).durations()) == [("a", 8, 5400)]


def test_workloads_that_start_before_run_their_whole_time() -> None:
    quotas = ResourceGroup((FlavorQuotas("f", {"g": Quota(1)}),))
    simulation = Simulation(Tenancy((ClusterQueue("q", (quotas,)),)))
    for name in ("first", "second", "third"):
        simulation.submit(Workload(name, "q", (PodSet({"g": 1}),)))
    simulation.rest()
    fork = simulation.fork()
    left, whole = {"first": 60.0}, {"second": 600.0}
    assert waits_for(fork(), left.get, whole.get, most=2) == ({"first": 0, "second": 60, "third": 660}, False)
    assert waits_for(fork(), left.get, whole.get, most=1) == ({"first": 0, "second": 60}, True)
    assert waits_for(fork(), left.get, left.get, most=2) == ({"first": 0, "second": 60}, False)
    assert waits_for(fork(), left.get, whole.get, most=2, until="second")[0] == {"first": 0, "second": 60}
