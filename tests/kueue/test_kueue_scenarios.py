"""Recordings of the real Kueue 0.19.2, and features that the simulation does not model."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pytest
from typer import Typer
from typer.testing import CliRunner

from gpu_tenancy.kueue import Settled, Step, Unmodelled, run, unmodelled
from gpu_tenancy.kueue.scenarios import observe, read_steps, read_tenancy
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
