"""Events that admit a pending workload, by simulation, and its expected wait."""

import json
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from cli_builders import Screen
from live_builders import Data, came, condition, counted, flavor, job, local_queue, meta, only_gpus, state, waits

from gpu_tenancy.cluster.demand import demand, target_of
from gpu_tenancy.cluster.estimate import ENOUGH, Estimate, History, about
from gpu_tenancy.cluster.reading import Missing, State
from gpu_tenancy.explain import show, unblock
from gpu_tenancy.explain.fit import judge
from gpu_tenancy.explain.running import Why
from gpu_tenancy.explain.unblock import Unblock
from gpu_tenancy.explain.why import why
from gpu_tenancy.jobs.listing import listing, shown
from gpu_tenancy.kueue import ClusterQueue, FlavorQuotas, PodSet, Quota, ResourceGroup, Simulation, Tenancy, Workload
from gpu_tenancy.kueue.replay import waits as waits_for
from gpu_tenancy.simulation.records import Trace

HEAD = "a100 nvidia.com/gpu:"
ASK = "or request less, or ask the platform team to raise the guarantee"


def asked(me: Data, others: list[Data], change: Any = None, /, **objects: list[Data]) -> Why:
    """`why` of a job of research; `change` edits its own queue and the other first."""
    there = counted([me, *others])
    if change:
        change(*there)
    queues = [local_queue("research"), local_queue("speech")]
    return why_of(me, state(ClusterQueue=there, Cohort=[], LocalQueue=queues, Workload=[me, *others], **objects))


def why_of(me: Data, found: State) -> Why:
    """`why` of the job of a workload."""
    (container,) = me["spec"]["podSets"][0]["template"]["spec"]["containers"]
    about = only_gpus(job(me["metadata"]["name"], gpus=int(container["resources"]["requests"]["nvidia.com/gpu"])))
    me["metadata"]["ownerReferences"][0]["uid"] = about["metadata"]["uid"]
    return why(target_of(about, found), found)


def said(found: Why) -> tuple[str, ...]:
    """The lines about the simulation."""
    return tuple(
        each for each in found.lines if not each.startswith(("Workload ", "Kueue condition", "no workload is ahead"))
    )


def mine_takes_nothing(own: Data, _: Data) -> None:
    own["spec"]["preemption"] = {"reclaimWithinCohort": "Never", "withinClusterQueue": "Never"}


# It is let in.


def leaving() -> Data:
    found = came("leaving", "research")
    found["status"]["conditions"].append(condition("Evicted", "True", "Preempted", "x"))
    return found


def bounded(own: Data, _: Data) -> None:
    own["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = "0"


def strict(own: Data, _: Data) -> None:
    own["spec"]["queueingStrategy"] = "StrictFIFO"


def odd(own: Data, _: Data) -> None:
    own["spec"]["queueingStrategy"] = "Lottery"


def miscounted(_: Data, other: Data) -> None:
    other["status"]["flavorsReservation"][0]["resources"][0]["total"] = "16"


def quarrel(own: Data, other: Data) -> None:
    """`own` reclaims its quota from `lent`, `me` preempts `own`, `lent` reclaims its share from `me`."""
    for each, nominal in ((own, "2"), (other, "4")):
        each["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = nominal
        each["status"]["fairSharing"] = {"weightedShare": 0}


FREE = "quota is free but the workload is not admitted; if this persists, check the Kueue controller"
NEXT = "simulation: admitted in the next scheduling cycle, no preemption"
AFTER = "simulation: admitted after the end of"
ONE = "simulation: ending one workload would not admit it"
AHEAD = [waits(f"first{at}", day=10 + at, priority=9) for at in range(3)]
CASES: dict[str, tuple[Data, list[Data], Any, tuple[str, ...], str]] = {
    "free quota": (waits("me"), [], None, (f"{HEAD} 8 requested, fits now (guaranteed 8, unused 8)", NEXT), FREE),
    "quota of an evicted workload": (waits("me", priority=10), [leaving(), came("s", "speech")], None, (NEXT, ),
        "Kueue is about to admit it; if this persists, check the Kueue controller"),
    "a single sufficient workload": (waits("me", gpus=4, day=21), [came("r1", "research", 4), came("r2", "research",
        4), came("s1", "speech", 8), waits("first", gpus=4)], None,
        ("1 workload is ahead of it, requesting 4 nvidia.com/gpu: research/first",
        f"{HEAD} 4 requested, 4 missing (guaranteed 8, unused 0; limit 16, used 8)",
        f"{AFTER} speech/s1 (tested 3 of 3 running workloads)",
        "quota freed by the others would go to: research/first"),
        ("queue research cannot borrow enough: 4 of 4 a100 GPUs missing (8 in use, 8 guaranteed);"
        f" wait until speech/s1 ends; {ASK}")),
    "sufficient workloads, the nearest first": (waits("me"), [came("far", "speech"), came("near", "research")], None,
        (f"{AFTER} any one of these: research/near, speech/far (tested 2 of 2 running workloads)", ),
        f"; wait until one of these ends: research/near, speech/far; {ASK}"),
    "a team at its limit": (waits("me"), [came("own", "research")], bounded,
        (f"{AFTER} research/own (tested 1 of 1 running workload)", ),
        ("queue research is at its limit: 8 of 8 a100 GPUs in use; wait until research/own ends; or ask the"
        " platform team to raise the limit of the team")),
    "no reclaim": (waits("me"), [came("s1", "speech"), came("s2", "speech")], mine_takes_nothing,
        (f"{HEAD} 8 requested, 8 missing (guaranteed 8, unused 8; limit 16, used 0)",
        "a100 nvidia.com/gpu borrowed now by: speech 8",
        f"{AFTER} any one of these: speech/s1, speech/s2 (tested 2 of 2 running workloads)"),
        ("other workloads get the quota first: insufficient unused quota for nvidia.com/gpu in flavor a100, 8 more"
        " needed; no workload may be preempted for it; wait until one of these ends: speech/s1, speech/s2")),
    "others that take the freed quota": (waits("me"), [came("r", "research", priority=9), came("s", "speech",
        priority=9), *AHEAD], None, (f"{ONE} (tested 2 of 2 running workloads)",
        "the freed quota would go to: research/first0",
        "simulation: ending 2 workloads in sequence, lowest priority first, would not admit it"),
        f"; wait for the workloads that are admitted first, such as research/first0; {ASK}"),
    "an impossible head of a strict queue": (waits("me"), [came("s", "speech", 4), waits("huge", gpus=24, day=10)],
        strict, (f"{HEAD} 8 requested, 12 available (guaranteed 8, unused 8; limit 16, used 0)",
        f"{ONE} (tested 1 of 1 running workload)",
        "simulation: admitted after the removal of the workloads ahead of it: research/huge"),
        ("queue research is StrictFIFO, and research/huge is ahead of it;"
        " wait, or remove the workloads ahead of it: research/huge")),
    "more than the limit": (waits("me", gpus=24), [], None, (f"{HEAD} 24 requested, exceeds the limit of 16", ),
        ("queue research can never admit it: 24 a100 GPUs requested, limit 16; request at most 16, or ask the"
        " platform team to raise the limit of the team")),
    "inconsistent usage": (waits("me"), [came("s", "speech")], miscounted,
        (("not simulated: Kueue reports 16 nvidia.com/gpu of a100 in use in queue speech, but its"
        " workloads hold 8; retry in a moment"), ),
        ("others borrow guaranteed quota of queue research: 8 a100 GPUs; no action needed: Kueue reclaims it from"
        " speech")),
    "unknown fields of a queue": (waits("me"), [], odd,
        ("not simulated: the queue configuration is invalid: 'Lottery' is not a valid Strategy", ), FREE),
    "a livelock": (waits("me", gpus=6, priority=1), [came("lent", "speech", 5), waits("own", gpus=2, day=21)], quarrel,
        ("not simulated: workloads of this cohort tree preempt one another endlessly, in Kueue too", ), ""),
}  # fmt: skip


@pytest.mark.parametrize(("me", "others", "change", "lines", "conclusion"), CASES.values(), ids=CASES)
def test_a_pending_workload_is_explained_by(
    me: Data, others: list[Data], change: Any, lines: tuple[str, ...], conclusion: str
) -> None:
    found = asked(deepcopy(me), deepcopy(others), change)
    assert said(found)[-len(lines) :] == lines
    assert found.conclusion.endswith(conclusion)
    tested = any("not simulated" not in line and "simulation" in line for line in lines)
    assert (found.unblock is not None) == tested
    assert NEXT not in lines or found.unblock == Unblock(admitted=True)


@pytest.mark.parametrize(
    ("gpus", "who", "way"), [(8, ["old", "new"], "speech/new"), (6, ["old", "mid", "new"], "speech/mid, speech/new")]
)
def test_names_workloads_preempted_for_a_guarantee(gpus: int, who: list[str], way: str) -> None:
    others = [came(name, "speech", 8 if gpus == 8 else 4, day) for day, name in enumerate(who, 1)]
    filler = [] if gpus == 8 else [came("own", "speech", 4, 1, priority=5)]
    found = asked(waits("me", gpus=gpus), [*others, *filler])
    assert said(found)[-1] == f"simulation: admitted in the next scheduling cycle, preempts {way}"
    assert found.conclusion == f"Kueue is about to admit it and to preempt {way}; no action needed"
    assert "fits" not in " ".join(found.lines)


# It waits, and one end is enough.


def test_no_more_than_five_ends_are_looked_for() -> None:
    found = asked(waits("me", gpus=1), [came(f"r{at}", "research" if at < 8 else "speech", 1) for at in range(16)])
    assert found.unblock is not None
    assert (len(found.unblock.ends), found.unblock.tested, found.unblock.running) == (5, 5, 16)


# One end is not enough.


def test_ends_fewest_workloads_of_lowest_priority() -> None:
    others = [
        came("dear", "research", 4, 1, 10),
        came("old", "research", 2, 1),
        came("new", "research", 2, 2),
        came("s1", "speech", 4, 3, 20),
        came("s2", "speech", 4, 4, 20),
    ]
    found = asked(waits("me", gpus=4), others)
    assert found.unblock is not None
    assert found.unblock.ends == ("research/dear", "speech/s2", "speech/s1")
    larger = asked(waits("me", gpus=8), others, mine_takes_nothing)
    assert said(larger)[-2:] == (
        "simulation: ending one workload would not admit it (tested 5 of 5 running workloads)",
        "simulation: admitted after these 3 end: research/dear, research/new, research/old",
    )
    assert larger.fix == f"wait until these 3 end: research/dear, research/new, research/old; {ASK}"


def test_a_large_tree_is_simulated_less_and_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unblock, "WORK", 0)
    others = [came(f"s{at}", "speech", 1) for at in range(12)] + [came("r", "research", 4)]
    found = asked(waits("me", gpus=12), others, mine_takes_nothing)
    assert said(found)[-2:] == (
        "simulation: ending one workload would not admit it (tested 8 of 13 running workloads)",
        "simulation: ending 8 workloads in sequence, lowest priority first, would not admit it",
    )
    assert found.fix == f"wait until several workloads end: no single one would admit it; {ASK}"


# It is not simulated.


HIDDEN: Final = tuple(
    Missing(kind, f"{kind}s, outside research", "you may not list them", "an admin", partly=True)
    for kind in ("Workload", "LocalQueue")
)


def as_member(me: Data, own: list[Data], others: list[Data], change: Any = None, /) -> Why:
    """`why` for a member of research, who cannot read speech's Workloads; Kueue reports its usage and pending ones."""
    there = counted([me, *own, *others])
    there[1]["status"]["pendingWorkloads"] = sum("admission" not in each["status"] for each in others)
    if change:
        change(*there)
    found = state(HIDDEN, ClusterQueue=there, Cohort=[], Workload=[me, *own], LocalQueue=[local_queue("research")])
    return why_of(me, found)


def test_member_sees_own_workloads_that_would_have_to_end() -> None:
    own = [came("r1", "research", 4), came("r2", "research", 4)]
    found = as_member(waits("me", gpus=4), own, [came("s", "speech"), waits("next", "speech")])
    assert found.fix == f"wait until one of these ends: research/r1, research/r2; {ASK}"
    assert said(found)[1:] == (
        (
            "simulation: admitted after the end of any one of these: research/r1, research/r2"
            " (tested 2 of 2 running workloads)"
        ),
        "1 workload of other teams pending in the same cohorts can get freed quota first",
    )


def test_member_sees_amounts_but_no_names_of_others() -> None:
    found = as_member(waits("me", gpus=8), [], [came("s1", "speech"), came("s2", "speech")])
    assert found.conclusion == (
        "others borrow guaranteed quota of queue research: 8 a100 GPUs; no action needed: Kueue reclaims it from speech"
    )
    waiting = as_member(waits("me", gpus=8), [], [came("s1", "speech"), came("s2", "speech")], mine_takes_nothing)
    reason = waiting.unblock.reason if waiting.unblock else ""
    assert waiting.unblock == Unblock(admitted=False, reason=reason, ends=("others in speech",))
    assert waiting.fix == "wait until others in speech end"
    assert "speech/" not in " ".join((*waiting.lines, waiting.conclusion, found.conclusion, *found.lines))


def test_inconsistent_usage_is_not_simulated_for_members() -> None:
    def otherwise(own: Data, _: Data) -> None:
        own["status"]["flavorsReservation"][0]["resources"][0]["total"] = "4"

    found = as_member(waits("me"), [came("r", "research")], [], otherwise)
    assert said(found)[-1].startswith("not simulated: Kueue reports 4 nvidia.com/gpu of a100 in use in queue research")


# What Kueue uses and the simulation does not know.


CHECKS = "admission checks: a workload with quota may still wait for a check, and be evicted by it"
TOPOLOGY = "topology-aware scheduling: a workload may wait for nodes that are near one another"
PARTIAL = "partial admission: a workload with a minimum count may run with fewer pods"
ELSEWHERE = "MultiKueue: a workload may run in another cluster"


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        *(("checks", [CHECKS]), ("by strategy", [CHECKS]), ("elsewhere", [CHECKS, ELSEWHERE])),
        *(("topology", [TOPOLOGY]), ("partial", [PARTIAL]), ("nothing", [])),
    ],
)
def test_unmodelled_features_are_reported_where_used(which: str, expected: list[str]) -> None:
    place, controller = flavor(), "kueue.x-k8s.io/provisioning-request"
    me, other = waits("me"), waits("other", "speech", day=21)

    def change(own: Data, theirs: Data) -> None:
        theirs["spec"]["admissionChecks"] = ["another"]
        if which == "by strategy":
            own["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "check"}]}
        elif which in {"checks", "elsewhere"}:
            own["spec"]["admissionChecks"] = ["check"]

    if which == "elsewhere":
        controller = "kueue.x-k8s.io/multikueue"
    if which == "topology":
        place["spec"]["topologyName"] = "racks"
    if which == "partial":
        other["spec"]["podSets"][0]["minCount"] = 1
    # As Kueue writes it into every workload, whether or not there is a topology.
    me["spec"]["podSets"][0]["topologyRequest"] = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}
    checks = [
        {"metadata": meta("check"), "spec": {"controllerName": controller}},
        {"metadata": meta("another"), "spec": {"controllerName": "kueue.x-k8s.io/multikueue"}},
    ]
    found = asked(
        me, [came("r", "research"), came("s", "speech"), other], change, ResourceFlavor=[place], AdmissionCheck=checks
    )
    told = [each for each in found.lines if each.startswith("used by this queue but not simulated")]
    assert told == ([f"used by this queue but not simulated: {'; '.join(expected)}"] if expected else [])


# How long a pending workload is expected to wait: by deadlines, by recorded jobs, or unknown.


HOUR = 3600.0


def _since(found: Data, **ago: float) -> Data:
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
    unblock = why_of(me, found).unblock
    assert unblock is not None
    assert unblock.estimate is not None
    return unblock.estimate


def _two(hours: float = 3, ran: float = 1) -> tuple[Data, Data]:
    """One workload of each team, which use all GPUs."""
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
    """`first` gets the GPUs of the workload that ends in an hour, `me` the GPUs of the one that ends in two."""
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


def test_unknown_beyond_the_simulated_ends() -> None:
    me = waits("me", gpus=8)
    mine = [_limited(_since(came(f"r{at}", "research", 1), hours=1), 3) for at in range(8)]
    theirs = [_limited(_since(came(f"s{at}", "speech", 1), hours=1), 3) for at in range(8)]
    first = [_limited(waits(f"first{at}", gpus=1, day=10, priority=9), 1) for at in range(120)]
    found = _estimate(me, _cluster(me, *mine, *theirs, *first))
    assert (found.beyond, found.text) == (True, "wait unknown: the next 100 ends do not admit it")


def test_members_learn_nothing_of_unreadable_workloads() -> None:
    """Speech's 8 GPUs are counted, its workload is not read; research has none that could end."""
    me = waits("me", gpus=16)
    whole = _cluster(me, _limited(_since(came("theirs", "speech"), hours=1), 3))
    partly = Missing("Workload", "pending workloads", "you may not list them", "an admin", partly=True)
    answer = why_of(me, replace(whole, objects={**whole.objects, "Workload": (me,)}, missing={"Workload": partly}))
    assert answer.unblock is not None
    assert answer.unblock.estimate == Estimate()
    assert "theirs" not in str(show.data(answer))


def test_why_and_fit_show_it() -> None:
    me = waits("me")
    found = _cluster(me, *_two())
    answer = why_of(me, found)
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
