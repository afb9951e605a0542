"""What the real Kueue 0.19.2 was recorded to do, and that the simulation does the same."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pytest
from typer import Typer
from typer.testing import CliRunner

from gpu_tenancy.console.commands.simulate import register
from gpu_tenancy.model.admission import Settled, Step, run
from gpu_tenancy.model.admission.scenarios import observe, read_steps, read_tenancy

SCENARIOS: Final = Path(__file__).parent / "recordings" / "kueue-0.19.2.jsonl"
LAST: Final = 0.99
STEPS: Final = 0.98
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
    """The recordings; the page beside them says how they were made."""
    return [json.loads(line) for line in SCENARIOS.read_text(encoding="utf-8").splitlines()]


def agrees(settled: Settled, observed: dict[str, Any]) -> bool:
    """Whether a step is as it was recorded, flavors included where they were."""
    if [each.name for each in settled.admitted] != observed["admitted"]:
        return False
    if [each.name for each in settled.pending] != observed["pending"]:
        return False
    return "flavors" not in observed or observed["flavors"] == {
        each.name: dict(each.flavors[0]) for each in settled.admitted
    }


def test_each_class_agrees_with_the_real_kueue_in_both_modes() -> None:
    last: dict[tuple[str, bool], list[bool]] = defaultdict(list)
    steps: dict[tuple[str, bool], list[bool]] = defaultdict(list)
    for each in scenarios():
        if each["stable"]:
            found = run(read_tenancy(each), read_steps(each))
            right = [agrees(*pair) for pair in zip(found, each["observed"], strict=True)]
            last[each["class"], each["fairSharing"]].append(right[-1])
            steps[each["class"], each["fairSharing"]] += right
    assert len(last) == 21
    assert {key: sum(right) / len(right) for key, right in last.items() if sum(right) < LAST * len(right)} == {}
    assert {key: sum(right) / len(right) for key, right in steps.items() if sum(right) < STEPS * len(right)} == {}


def test_what_never_came_to_rest_in_the_real_kueue_is_a_livelock_here() -> None:
    restless = [each for each in scenarios() if not each.get("settled", True)]
    assert restless
    for each in restless:
        assert any(step.livelock for step in run(read_tenancy(each), read_steps(each))), each["id"]


def test_what_ends_while_it_gives_way_for_ever_is_gone() -> None:
    """In a livelock something is on its way out at every moment, and may end by itself before it has left."""
    (world,) = (each for each in scenarios() if not each.get("settled", True))
    tenancy = read_tenancy(world)
    steps = [Step((each,)) for step in read_steps(world) for each in step.submit]
    settled = run(tenancy, steps)
    first = next(number for number, each in enumerate(settled) if each.livelock)
    for each in settled[first].admitted:
        after = run(tenancy, [*steps[: first + 1], Step(finish=(each.name,))])[-1]
        assert each.name not in {one.name for one in (*after.admitted, *after.pending)}


def test_a_scenario_becomes_who_is_admitted_and_who_waits_after_each_step() -> None:
    assert observe(MINIMAL) == {
        "id": "minimal",
        "observed": [
            {"admitted": ["one"], "pending": []},
            {"admitted": ["one"], "pending": ["two"]},
            {"admitted": ["two"], "pending": []},
        ],
    }


def simulated(at: Path, text: str) -> tuple[int, str]:
    """The exit code and the words of `tenancy simulate` on a file of this text."""
    app = Typer()
    register(app)
    app.callback()(lambda: None)
    (at / "scenarios.jsonl").write_text(text, encoding="utf-8")
    arguments = ["simulate", "--scenarios", str(at / "scenarios.jsonl"), "--out", str(at / "out" / "observed.jsonl")]
    result = CliRunner(env={"COLUMNS": "400"}).invoke(app, arguments)
    return result.exit_code, result.output.replace(str(at), "AT")


def test_the_command_writes_a_line_for_each_scenario(tmp_path: Path) -> None:
    line = json.dumps(MINIMAL)
    assert simulated(tmp_path, f"{line}\n\n{line}\n") == (0, "2 scenarios in AT/out/observed.jsonl\n")
    written = (tmp_path / "out" / "observed.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(each) for each in written] == [observe(MINIMAL)] * 2


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("{", "AT/scenarios.jsonl:1: not valid JSON: "),
        ("{}", "AT/scenarios.jsonl:1: missing key 'clusterQueues'; add the key to the scenario"),
        (
            json.dumps(MINIMAL).replace('"queue": "a"', '"queue": "b"'),
            "invalid scenario: workload 'one': ClusterQueue 'b' does not exist; correct the scenario",
        ),
    ],
)
def test_the_command_says_which_line_it_cannot_read(broken: str, words: str, tmp_path: Path) -> None:
    code, said = simulated(tmp_path, broken)
    assert (code, words in said) == (1, True), said
    assert not (tmp_path / "out").exists()
