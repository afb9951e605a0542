"""Recordings of the real Kueue 0.19.2, `make agree`, and features that the simulation does not model."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from queue_changes import changed_objects, nominal, with_change
from repository import ROOT
from typer import Typer
from typer.testing import CliRunner

from benchmarks.agree import __main__ as program
from benchmarks.agree import kueue
from benchmarks.agree.__main__ import Run
from benchmarks.agree.comparing import Compared, Verdict, compare, compared
from benchmarks.agree.drawing import classes, draw
from benchmarks.agree.kueue import Objects
from benchmarks.agree.playing import CAREFUL, QUICK, Pace, Played
from gpu_tenancy.cluster.pods import name_of
from gpu_tenancy.kueue import Settled, Step, Unmodelled, run, unmodelled
from gpu_tenancy.kueue.scenarios import observe, read_steps, read_tenancy
from gpu_tenancy.model.catalogue.operators import charts
from gpu_tenancy.simulation.__main__ import main

RECORDINGS: Final = Path(__file__).parent / "recordings"
LAST: Final = 0.99  # minimum part of scenarios whose last step agrees
STEPS: Final = 0.98  # minimum part of steps that agree
MINIMAL: Final = {
    "id": "minimal",
    "clusterQueues": [{"name": "a", "resources": [{"flavor": "f", "resource": "gpu", "nominal": 2}]}],
    "priorities": {"high": 10},
    "steps": [
        {"submit": [{"name": "one", "queue": "a", "requests": {"gpu": 2}}]},
        {"submit": [{"name": "two", "queue": "a", "requests": {"gpu": 1}, "pods": 2, "priority": "high"}]},
        {"finish": ["one"]},
    ],
}


def scenarios() -> list[dict[str, Any]]:
    """The recordings; the page next to them describes how they were made."""
    return read("kueue-0.19.2.jsonl")


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDINGS / name).read_text(encoding="utf-8").splitlines()]


def agrees(settled: Settled, observed: dict[str, Any]) -> bool:
    """Whether a state equals a recorded one, with its flavors if they were recorded."""
    if [workload.name for workload in settled.admitted] != observed["admitted"]:
        return False
    if [workload.name for workload in settled.pending] != observed["pending"]:
        return False
    return "flavors" not in observed or observed["flavors"] == {
        workload.name: dict(workload.flavors[0]) for workload in settled.admitted
    }


def below(minimum: float, agreeing: dict[tuple[str, bool], list[bool]]) -> dict[tuple[str, bool], float]:
    """The classes of which a smaller part agrees, with that part."""
    return {key: sum(values) / len(values) for key, values in agreeing.items() if sum(values) < minimum * len(values)}


@pytest.mark.slow
def test_each_class_agrees_with_the_real_kueue_in_both_modes() -> None:
    last: dict[tuple[str, bool], list[bool]] = defaultdict(list)
    steps: dict[tuple[str, bool], list[bool]] = defaultdict(list)
    for scenario in scenarios():
        if scenario["stable"]:
            states = run(read_tenancy(scenario), read_steps(scenario))
            agreeing = [agrees(*pair) for pair in zip(states, scenario["observed"], strict=True)]
            last[scenario["class"], scenario["fairSharing"]].append(agreeing[-1])
            steps[scenario["class"], scenario["fairSharing"]] += agreeing
    assert len(last) == 21
    assert below(LAST, last) == {}
    assert below(STEPS, steps) == {}


def test_unsettled_recordings_are_livelocks() -> None:
    livelocks = [scenario for scenario in scenarios() if not scenario.get("settled", True)]
    assert livelocks
    for scenario in livelocks:
        states = run(read_tenancy(scenario), read_steps(scenario))
        assert any(settled.livelock for settled in states), scenario["id"]


@pytest.mark.parametrize("miss", read("kueue-0.19.2-misses.jsonl"), ids=lambda miss: miss["id"])
def test_recorded_disagreements_agree(miss: dict[str, Any]) -> None:
    """Preemptions too, because a miss can be in them alone."""
    states = run(read_tenancy(miss), read_steps(miss))
    assert [agrees(*pair) for pair in zip(states, miss["observed"], strict=True)] == [True] * len(states)
    assert not any(settled.livelock for settled in states)
    for settled, trace in zip(states, miss["trace"], strict=True):
        evicted = [f"-{one.name} {one.reason} by {one.by}" for one in settled.evicted]
        assert sorted(evicted) == sorted(text for _, text in trace if text.startswith("-"))


def test_a_workload_that_finishes_during_a_livelock_is_removed() -> None:
    """In a livelock, evictions are always in progress, and such a workload may finish before it has stopped."""
    (scenario,) = (scenario for scenario in scenarios() if not scenario.get("settled", True))
    tenancy = read_tenancy(scenario)
    steps = [Step((workload,)) for step in read_steps(scenario) for workload in step.submit]
    states = run(tenancy, steps)
    first = next(number for number, settled in enumerate(states) if settled.livelock)
    for finished in states[first].admitted:
        after = run(tenancy, [*steps[: first + 1], Step(finish=(finished.name,))])[-1]
        assert finished.name not in {workload.name for workload in (*after.admitted, *after.pending)}


def test_observe_returns_states_after_each_step() -> None:
    assert observe(MINIMAL) == {
        "id": "minimal",
        "observed": [
            {"admitted": ["one"], "pending": []},
            {"admitted": ["one"], "pending": ["two"]},
            {"admitted": ["two"], "pending": []},
        ],
    }


def simulated(folder: Path, text: str) -> tuple[int, str]:
    """The exit code and the output of `make simulate` for a file with this text."""
    (folder / "scenarios.jsonl").write_text(text, encoding="utf-8")
    out = folder / "out" / "observed.jsonl"
    program = Typer()
    program.command()(main)
    result = CliRunner(env={"COLUMNS": "400"}).invoke(program, [str(folder / "scenarios.jsonl"), str(out)])
    return result.exit_code, result.output.replace(str(folder), "AT")


def test_the_command_writes_a_line_for_each_scenario(tmp_path: Path) -> None:
    line = json.dumps(MINIMAL)
    assert simulated(tmp_path, f"{line}\n\n{line}\n") == (0, "2 scenarios in AT/out/observed.jsonl\n")
    written = (tmp_path / "out" / "observed.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in written] == [observe(MINIMAL)] * 2


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("{", "AT/scenarios.jsonl:1: not valid JSON: "),
        ("{}", "AT/scenarios.jsonl:1: missing key 'clusterQueues'; add the key to the scenario"),
        (
            json.dumps(MINIMAL).replace('"queue": "a"', '"queue": "b"'),
            "invalid scenario: workload 'one': ClusterQueue 'b' does not exist; correct the scenario",
        ),
    ],
)
def test_the_command_reports_the_line_that_it_cannot_read(broken: str, message: str, tmp_path: Path) -> None:
    code, output = simulated(tmp_path, broken)
    assert (code, message in output) == (1, True), output
    assert not (tmp_path / "out").exists()


# Features that are not modelled.


def manifest(kind: str, **spec: Any) -> dict[str, Any]:
    """An object that uses no such feature, except in `spec`."""
    return {"kind": kind, "metadata": {"name": "x"}, "spec": spec}


def test_plain_objects_use_no_feature_that_is_not_modelled() -> None:
    kinds = ("ClusterQueue", "LocalQueue", "Cohort", "ResourceFlavor", "Workload", "Job")
    assert unmodelled([manifest(kind) for kind in kinds]) == ()


USED: list[tuple[dict[str, Any], Unmodelled]] = [
    (manifest("ResourceFlavor", topologyName="racks"), Unmodelled.TOPOLOGY),
    (manifest("Workload", podSets=[{"topologyRequest": {"required": "rack"}}]), Unmodelled.TOPOLOGY),
    (manifest("Workload", podSets=[{"minCount": 1}]), Unmodelled.PARTIAL_ADMISSION),
    (
        manifest("ClusterQueue", admissionChecksStrategy={"admissionChecks": [{"name": "x"}]}),
        Unmodelled.ADMISSION_CHECKS,
    ),
    (manifest("ClusterQueue", admissionScope={"admissionMode": "x"}), Unmodelled.ADMISSION_FAIR_SHARING),
    (
        {"kind": "Workload", "metadata": {"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}},
        Unmodelled.ELASTIC_JOBS,
    ),
]


@pytest.mark.parametrize(("used", "feature"), USED)
def test_each_used_feature_is_reported(used: dict[str, Any], feature: Unmodelled) -> None:
    assert unmodelled([manifest("Job"), used]) == (feature,)


Data = dict[str, Any]
LIVELOCKS = ROOT / "tests/kueue/recordings/kueue-0.19.2.jsonl"


def scenario(identity: str = "one") -> Data:
    """One queue with a GPU, for which two workloads are pending, of two steps."""
    line = {"flavor": "main", "resource": "nvidia.com/gpu", "nominal": 1}
    requests = {"nvidia.com/gpu": 1}
    return {
        "id": identity,
        "class": "flat-equal",
        "fairSharing": False,
        "cohorts": [{"name": "root", "parent": None}],
        "clusterQueues": [{"name": "qa", "cohort": "root", "resources": [line]}],
        "priorities": {},
        "steps": [
            {"submit": [{"name": name, "queue": "qa", "requests": requests} for name in ("w01", "w02")]},
            {"finish": ["w01"]},
        ],
    }


RIGHT = Played(observe(scenario())["observed"], [[[0.0, "+w01"]], [[1.1, "+w02"]]], settled=True, tie=False)
WRONG = replace(RIGHT, observed=[RIGHT.observed[0], {"admitted": [], "pending": ["w02"]}])


# How plays are judged.


@pytest.mark.parametrize(
    ("plays", "verdict"),
    [
        pytest.param([RIGHT], "agrees", id="one play is as foreseen"),
        pytest.param([WRONG, RIGHT, RIGHT], "agrees", id="only the play in a hurry was not at rest"),
        pytest.param([WRONG, WRONG, WRONG], "differs", id="every play is otherwise"),
        pytest.param([RIGHT, WRONG, WRONG], "differs", id="careful plays count"),
        pytest.param([WRONG, RIGHT, WRONG], "unstable", id="careful plays differ"),
        pytest.param([WRONG, WRONG, RIGHT], "unstable", id="careful plays differ, the last is as foreseen"),
        pytest.param([replace(WRONG, tie=True)] * 3, "unstable", id="Kueue decided by a random id"),
        pytest.param([replace(RIGHT, tie=True)] * 3, "agrees", id="a random id made no difference"),
        pytest.param([replace(RIGHT, settled=False)] * 3, "differs", id="Kueue did not come to rest"),
    ],
)
def test_the_verdict_depends_on_all_plays(plays: Sequence[Played], verdict: Verdict) -> None:
    assert compared(scenario(), plays).verdict == verdict


def test_livelocks_in_both_are_not_counted() -> None:
    lines = map(json.loads, LIVELOCKS.read_text(encoding="utf-8").splitlines())
    (restless,) = (one for one in lines if not one.get("settled", True))
    played = Played(restless["observed"], restless["trace"], settled=False, tie=False)
    assert compared(restless, [played]).verdict == "livelock"
    assert not compared(restless, [played]).counted
    assert compared(restless, [replace(played, settled=True)] * 3).verdict == "differs"


def test_a_difference_names_the_side_that_does_not_settle() -> None:
    restless = replace(RIGHT, settled=False)
    assert program.difference(compared(scenario(), [restless] * 3)) == "one: only Kueue does not come to rest"
    assert program.difference(compared(scenario(), [WRONG] * 3)) == "one: step 2"


def test_preemptions_are_compared_too_but_do_not_decide() -> None:
    otherwise = replace(RIGHT, trace=[[[0.0, "+w01"], [0.1, "-w01 InClusterQueue by w02"]], [[1.1, "+w02"]]])
    result = compared(scenario(), [otherwise])
    assert (result.verdict, result.preemptions) == ("agrees", (False, True))


def test_flavors_are_compared_where_there_are_several() -> None:
    two = scenario()
    two["clusterQueues"][0]["resources"].append({"flavor": "other", "resource": "nvidia.com/gpu", "nominal": 0})
    flavors = [{"w01": {"nvidia.com/gpu": "main"}}, {"w02": {"nvidia.com/gpu": "main"}}]
    right = [{**state, "flavors": flavor} for state, flavor in zip(RIGHT.observed, flavors, strict=True)]
    wrong = [right[0], {**right[1], "flavors": {"w02": {"nvidia.com/gpu": "other"}}}]
    assert compared(two, [replace(RIGHT, observed=right)]).verdict == "agrees"
    assert compared(two, [replace(RIGHT, observed=wrong)] * 3).steps == (True, False)


def test_only_disagreements_are_repeated() -> None:
    asked: list[tuple[list[str], Pace]] = []

    def play(scenarios: Sequence[Data], pace: Pace) -> list[Played]:
        asked.append(([one["id"] for one in scenarios], pace))
        return [RIGHT if one["id"] == "right" else WRONG for one in scenarios]

    results = compare([scenario("right"), scenario("wrong")], play)
    assert asked == [(["right", "wrong"], QUICK), (["wrong"], CAREFUL), (["wrong"], CAREFUL)]
    assert [one.verdict for one in results] == ["agrees", "differs"]


# What is reported.


def run_of(*plays: Sequence[Played]) -> Run:
    results = [compared(scenario(f"s{number}"), made) for number, made in enumerate(plays)]
    return Run(kueue="0.19.2", source="seed 1", date="2026-11-22", scenarios=results)


def test_the_part_that_agrees_decides() -> None:
    assert run_of(*[[RIGHT]] * 99, [WRONG] * 3).enough
    assert not run_of(*[[RIGHT]] * 98, [WRONG] * 3).enough
    assert not run_of([WRONG, RIGHT, WRONG]).enough, "nothing was counted"


def test_a_miss_is_a_recording_that_can_be_played_again(tmp_path: Path) -> None:
    run = run_of([RIGHT], [WRONG] * 3, [WRONG, RIGHT, WRONG])
    assert program.write_misses(run_of([RIGHT]), tmp_path) is None
    assert program.write_misses(run, tmp_path) == tmp_path / "misses.jsonl"
    (miss,) = map(json.loads, (tmp_path / "misses.jsonl").read_text(encoding="utf-8").splitlines())
    assert (miss["id"], miss["observed"], miss["trace"]) == ("s1", WRONG.observed, WRONG.trace)
    assert miss["steps"] == scenario()["steps"]
    assert (miss["stable"], miss["passes"]) == (True, 2)
    assert run.agreement == 0.5
    assert "| flat-equal | 1 of 2 | - |" in run.markdown()
    assert "play to play: 1 (s2)." in " ".join(run.markdown().split())


def test_the_page_gets_the_result(tmp_path: Path) -> None:
    page = tmp_path / "simulation.md"
    page.write_text(
        "before\n<!-- accuracy: written by `make agree DOCS=yes` -->\nold\n<!-- end of accuracy -->\nafter\n", "utf-8"
    )
    for _ in range(2):
        program.update_page(run_of([RIGHT], [RIGHT], [WRONG] * 3), page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n<!-- accuracy")
    assert text.endswith("<!-- end of accuracy -->\nafter\n")
    assert "old" not in text
    assert text.count("| flat-equal | 2 of 3 | - |") == 1
    assert "On 2026-11-22, 3 random scenarios (seed 1) were played on Kueue 0.19.2" in text


def test_a_page_without_a_place_for_the_result_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("nothing", "utf-8")
    with pytest.raises(ValueError, match=r"page.md: no lines `<!-- accuracy"):
        program.update_page(run_of([RIGHT]), tmp_path / "page.md")


def test_the_docs_were_measured_with_the_kueue_that_is_installed() -> None:
    text = (ROOT / program.PAGE).read_text(encoding="utf-8")
    version = charts()["kueue"].version
    assert f"were played on Kueue {version} " in " ".join(text.split()), "run `make agree DOCS=yes`"


def test_scenarios_play_on_the_installed_kueue() -> None:
    assert kueue.version() == charts()["kueue"].version


# The command.


def command(*arguments: str) -> tuple[int, str]:
    app = Typer()
    app.command()(program.main)
    result = CliRunner(env={"COLUMNS": "400"}).invoke(app, arguments)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("{", "--scenarios AT/scenarios.jsonl", "1: invalid scenario: Expecting property name"),
        ("{}", "--scenarios AT/scenarios.jsonl", "1: invalid scenario: 'clusterQueues'; correct the scenario"),
        ("", "--scenarios AT/none.jsonl", "none.jsonl is not a file; specify a file with"),
        ("", "--only vectors", "--only: class vectors not found; did you mean 'vector'?"),
    ],
)
def test_unusable_arguments_are_errors(text: str, arguments: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "scenarios.jsonl").write_text(text, "utf-8")
    code, output = command(*arguments.replace("AT", str(tmp_path)).split())
    assert (code, message in output) == (1, True), output


def test_too_few_scenarios_do_not_go_into_the_docs() -> None:
    assert command("--docs", "--count", "21") == (
        1, "error: --docs: fewer than 200 random scenarios of all classes; specify --count 200 or more\n",
    )  # fmt: skip


def played(play: Played, _scenarios: Sequence[Data], _home: Path, *, fair: bool) -> list[Compared]:
    """In place of a platform: the same play three times."""
    return [] if fair else [compared(scenario(), [play] * 3)]


def test_a_run_ends_with_the_agreement_and_its_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(json.dumps(scenario()), "utf-8")
    arguments = ("--scenarios", str(tmp_path / "one.jsonl"), "--out", str(tmp_path / "out"))
    for play, code, word in ((RIGHT, 0, "1 of 1"), (WRONG, 3, "differs: one: step 2")):
        monkeypatch.setattr(program, "play_mode", partial(played, play))
        assert (command(*arguments)[0], word in command(*arguments)[1]) == (code, True)


# The random scenarios.


def test_a_seed_gives_the_same_scenarios() -> None:
    assert draw(7, 50)[:30] == draw(7, 30)
    assert draw(7, 23) != draw(8, 23)


def test_every_class_is_drawn_equally_often() -> None:
    drawn = Counter((one["class"], one["fairSharing"]) for one in draw(1, 3 * 23))
    assert drawn == dict.fromkeys(classes(), 3)
    assert len(drawn) == 23
    assert len({one["id"] for one in draw(1, 230)}) == 230


def test_queues_contend_in_what_is_drawn() -> None:
    """After a change of the shapes, scenarios must not consist of workloads that all fit."""
    played = [run(read_tenancy(one), read_steps(one)) for one in draw(1, 230)]
    assert sum(any(state.pending for state in states) for states in played) > 190
    assert sum(any(state.evicted for state in states) for states in played) > 80


def test_gpus_cpu_and_memory_bind_in_turn() -> None:
    bound, reclaimed = Counter[str](), 0
    chosen = draw(1, 100, only="vector")
    for one in chosen:
        states = run(read_tenancy(one), read_steps(one))
        reasons = "".join(workload.why for state in states for workload in state.pending)
        bound.update(name for name in ("nvidia.com/gpu", "cpu", "memory") if f" {name} in flavor" in reasons)
        reclaimed += any(state.evicted for state in states)
    assert {one["class"] for one in chosen} == {"vector"}
    assert (len(chosen), min(bound.values()) > 50, reclaimed > 40) == (100, True, True), (bound, reclaimed)


def test_a_scenario_has_at_most_the_requested_workloads() -> None:
    for one in draw(3, 46, workloads=6):
        assert 1 <= sum(len(step.get("submit") or ()) for step in one["steps"]) <= 6
        assert one["id"].endswith("-w6")


def test_objects_have_all_that_the_scenario_has() -> None:
    """For the class with every feature: the object of a queue has it in Kueue's terms."""
    for one in draw(1, 460):
        if one["class"] == "mixed":
            written = {str(item["metadata"]["name"]): item for item in _objects(one) if item["kind"] == "ClusterQueue"}
            for queue in one["clusterQueues"]:
                spec = written[f"s1-{queue['name']}"]["spec"]
                assert spec["preemption"] == queue["preemption"]
                assert spec["queueingStrategy"] == queue["strategy"]
                assert spec.get("flavorFungibility") == queue.get("flavorFungibility")
                assert float(spec.get("fairSharing", {}).get("weight", -1)) == queue.get("weight", -1)
                assert _lines(spec) == queue["resources"]


def _objects(one: Data) -> list[Data]:
    return [dict[str, Any](item) for item in Objects(one, "s1").queues()]


def _lines(spec: Data) -> list[Data]:
    """The lines of a scenario, from the resource groups of an object."""
    keys = {"nominalQuota": "nominal", "borrowingLimit": "borrowingLimit", "lendingLimit": "lendingLimit"}
    return [
        {
            "flavor": flavor["name"],
            "resource": quota["name"],
            **{ours: int(quota[theirs]) for theirs, ours in keys.items() if theirs in quota},
        }
        for group in spec["resourceGroups"]
        for flavor in group["flavors"]
        for quota in flavor["resources"]
    ]


def test_a_change_gives_up_quota_before_another_queue_gets_it() -> None:
    """Otherwise Kueue admits the quota of both queues between two writes, and a preview cannot forecast it."""
    moved = 0
    for scenario in map(with_change, draw(1, 230)):
        before = {(one["kind"], name_of(one)): nominal(one) for one in Objects(scenario, "p").queues()}
        steps = [nominal(one) - before[one["kind"], name_of(one)] for one in changed_objects(scenario, "p")]
        assert steps == sorted(steps)
        moved += len(steps) > 1
    assert moved > 40
