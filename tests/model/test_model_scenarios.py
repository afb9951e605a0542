"""A user's jobs over time: parsing, and results."""

import json
from pathlib import Path

import pytest
import yaml
from builders import Data, h100, play_scenario, server, stack, team, tree_of

from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.simulation.scenario import ScenarioError, read_scenario
from gpu_tenancy.simulation.stage import JobStep, meaning


def told(tmp_path: Path, found: Tree, text: str) -> list[JobStep]:
    file = tmp_path / "scenario.yaml"
    file.write_text(text, encoding="utf-8")
    return read_scenario(file, found)


def sections() -> Data:
    return stack(
        priorities={"high": 100, "low": 1},
        teams={
            "a": team(gpus=h100(8, 16), priority="low"),
            "b": team(gpus=h100(8, 8), priority="low", serving={"api": server()}),
            "c": team(gpus={**h100(0, 8), "a100": {"guaranteed": 8}}),
        },
    )


def test_jobs_come_wait_and_run_when_others_end(tmp_path: Path) -> None:
    found = tree_of(sections())
    steps = told(
        tmp_path,
        found,
        """
steps:
- submit: [{name: one, team: a, gpus: 8}]
- submit: [{name: two, team: a, gpus: 4, pods: 2}, {name: soon, team: a, gpus: 8, priority: high}]
- finish: [soon]
""",
    )
    came, more, ended = play_scenario(found, steps)
    assert [(each.workload, each.flavor, each.gpus) for each in came.running] == [("one", "h100", 8)]
    assert [each.workload for each in more.running] == ["soon"]
    assert [(each.workload, each.by, each.reason) for each in more.evicted] == [("one", "soon", "InClusterQueue")]
    assert {each.workload: each.gpus for each in more.waiting} == {"one": 8, "two": 8}
    assert all("nvidia.com/gpu" in each.why for each in more.waiting)
    assert [each.workload for each in ended.running] == ["one"]
    assert ended.label == "3. finish soon"


def test_a_job_that_waits_may_end_and_its_name_is_free_again(tmp_path: Path) -> None:
    found = tree_of(sections())
    text = """
steps:
- label: the office opens
  submit: [{name: one, team: a, gpus: 8}, {name: two, team: a, gpus: 8}]
- finish: [two]
- submit: [{name: two, team: a, gpus: 8, priority: high}]
"""
    opens, ended, again = play_scenario(found, told(tmp_path, found, text))
    assert [each.label for each in (opens, ended, again)] == ["1. the office opens", "2. finish two", "3. submit two"]
    assert [each.workload for each in opens.waiting] == ["two"]
    assert ended.waiting == ()
    assert [each.workload for each in again.running] == ["two"]


def test_a_step_of_many_jobs_shows_their_number(tmp_path: Path) -> None:
    found = tree_of(sections())
    jobs = [{"name": f"j{number}", "team": "a"} for number in range(4)]
    steps = [{"submit": jobs[:3]}, {"submit": jobs[3:], "finish": ["j0", "j1"]}, {}]
    labels = [step.label for step in told(tmp_path, found, json.dumps({"steps": steps}))]
    assert labels == ["1. submit j0, j1, j2", "2. finish j0, j1; submit j3", "3. no change"]
    four = told(tmp_path, found, json.dumps({"steps": [{"submit": jobs}]}))
    assert four[0].label == "1. submit 4 jobs"


def test_equal_jobs_end_together_or_one_by_one(tmp_path: Path) -> None:
    found = tree_of(sections())
    text = """
steps:
- submit: [{name: s, team: a, gpus: 2, jobs: 3, cpu: 1, memory: 1Gi}, {name: one, team: b}]
- finish: [s-2]
- finish: [s]
- submit: [{name: s, team: a, jobs: 2}]
"""
    steps = told(tmp_path, found, text)
    assert [job.name for job in steps[0].submit] == ["s-1", "s-2", "s-3", "one"]
    assert len({(job.team, job.flavor, job.pods, *job.requests.values()) for job in steps[0].submit[:3]}) == 1
    assert [step.finish for step in steps] == [(), ("s-2",), ("s-3", "s-1"), ()]
    labels = "1. submit s-1 to s-3, one; 2. finish s-2; 3. finish s; 4. submit s-1 to s-2"
    assert [step.label for step in steps] == labels.split("; ")
    moments = play_scenario(found, steps)
    running = [" ".join(job.workload for job in moment.running) for moment in moments[:3]]
    assert running == ["s-1 s-2 s-3 one", "s-1 s-3 one", "one"]


def test_cpu_jobs_are_the_default_without_gpus(tmp_path: Path) -> None:
    found = tree_of({**sections(), "teams": {**sections()["teams"], "d": team()}})
    jobs = [{"name": "of-team", "team": "d"}, {"name": "of-flavor", "team": "a", "flavor": "cpu"}]
    (step,) = told(tmp_path, found, json.dumps({"steps": [{"submit": jobs}]}))
    assert [(job.flavor, set(job.requests)) for job in step.submit] == [("cpu", {"cpu", "memory"})] * 2


def test_cpu_and_memory_have_the_units_of_stacks(tmp_path: Path) -> None:
    found = tree_of(sections())
    jobs = [
        {"name": "said", "team": "a", "cpu": "500m", "memory": "2Gi"},
        {"name": "unsaid", "team": "a"},
        {"name": "without", "team": "a", "gpus": 0},
    ]
    (step,) = told(tmp_path, found, json.dumps({"steps": [{"submit": jobs}]}))
    said, unsaid, without = (job.workload.pod_sets[0] for job in step.submit)
    assert said.requests == {"cpu": 500, "memory": 2 * 2**30, "nvidia.com/gpu": 1}
    assert unsaid.requests["cpu"] > 1000
    assert (without.flavors, set(without.requests)) == (frozenset({"cpu"}), {"cpu", "memory"})


def test_the_reason_of_a_pending_job_has_units_and_its_flavor(tmp_path: Path) -> None:
    found = tree_of(sections())
    large = {"team": "a", "gpus": 1}
    jobs = [
        {"name": "cpus", "cpu": 500, "memory": "1Gi", **large},
        {"name": "bytes", "cpu": 1, "memory": "9Ti", **large},
        {"name": "gpus", "cpu": 1, "memory": "1Gi", "team": "a", "gpus": 17},
    ]
    (moment,) = play_scenario(found, told(tmp_path, found, json.dumps({"steps": [{"submit": jobs}]})))
    why = {each.workload: each.why for each in moment.waiting}
    assert why["cpus"] == "insufficient quota for cpu in flavor h100, request > maximum capacity (500 > 191)"
    assert why["bytes"] == "insufficient quota for memory in flavor h100, request > maximum capacity (9Ti > 1911Gi)"
    assert why["gpus"] == "insufficient quota for nvidia.com/gpu in flavor h100, request > maximum capacity (17 > 8)"


REFUSED: list[dict[str, str]] = yaml.safe_load(Path(__file__).with_name("scenarios.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.get("step", case.get("text")))
def test_problems_of_a_scenario_have_their_place(tmp_path: Path, case: dict[str, str]) -> None:
    text = case["text"] if "text" in case else f"steps: [{{{case['step']}}}]"
    with pytest.raises(ScenarioError) as error:
        told(tmp_path, tree_of(sections()), text)
    (line,) = error.value.lines
    place = "" if "text" in case else ":1: steps[0]."
    assert line.startswith(f"{tmp_path / 'scenario.yaml'}{place}{case['words']}")


def test_all_problems_of_a_scenario_are_reported_with_lines(tmp_path: Path) -> None:
    found = tree_of(sections())
    text = """\
steps:
- submit:
  - {name: big, team: a, gpus: many}
  - name: late
    team: d
    team: e
- finishes: [big]
- finish: [big, late, never]
step: []
"""
    with pytest.raises(ScenarioError) as error:
        told(tmp_path, found, text)
    assert [line.partition("scenario.yaml:")[2] for line in error.value.lines] == [
        "3: steps[0].submit[0].gpus: many must be an integer; gpus: GPUs of each pod; 0 for CPU jobs",
        "6: steps[0].submit[1].team: duplicate key, first set on line 5 (YAML keeps the last); remove one of them",
        "6: steps[0].submit[1].team: e is not a known team; known: a, b, c",
        "7: steps[1].finishes: unknown key; did you mean 'finish'? Known: finish, label, submit",
        "8: steps[2].finish[2]: never is not a running or pending job; none exist",
        "9: step: unknown key; did you mean 'steps'? Known: steps",
    ]


@pytest.mark.parametrize(
    ("fairness", "jobs", "reason", "words"),
    [
        ("hierarchical", (("a", 16, "low"), ("a", 16, "high")), "InClusterQueue", "a job of the same queue"),
        ("hierarchical", (("a", 16, "low"), ("b", 4, "low")), "InCohortReclamation",
         "its quota was borrowed, and the team or group"),
        ("hierarchical", (("a", 16, "low"), ("b", 8, "high")), "InCohortReclaimWhileBorrowing", "of higher priority"),
        ("even", (("a", 16, "low"), ("b", 8, "low")), "InCohortFairSharing", "its fair share by weight"),
    ],
)  # fmt: skip
def test_each_reason_of_kueue_is_explained(
    tmp_path: Path, fairness: str, jobs: tuple[tuple[str, int, str], ...], reason: str, words: str
) -> None:
    rules = {"withinClusterQueue": "LowerPriority", "borrowWithinCohort": "LowerPriority"}
    if fairness == "even":
        rules["borrowWithinCohort"] = "Never"
    both = team(gpus=h100(4, 16), priority="low", preemption=rules)
    found = tree_of(stack(fairness=fairness, priorities={"high": 100, "low": 1}, teams={"a": both, "b": both}))
    submit = [
        {
            "name": f"j{number}",
            "team": name,
            "gpus": 4,
            "pods": gpus // 4,
            "priority": priority,
            "cpu": 1,
            "memory": "1Gi",
        }
        for number, (name, gpus, priority) in enumerate(jobs)
    ]
    (moment,) = play_scenario(found, told(tmp_path, found, json.dumps({"steps": [{"submit": submit}]})))
    assert [(each.workload, each.by, each.reason) for each in moment.evicted] == [("j0", "j1", reason)]
    assert words in meaning(reason)
    assert meaning("Another") == "Another"


def test_a_livelock_that_ends_within_a_step_is_named(tmp_path: Path) -> None:
    found = tree_of(
        stack(
            fairness="even",
            priorities={"stop": 100, "high": 10, "low": 1},
            teams={"a": team(gpus=h100(10, 16), priority="low"), "b": team(gpus=h100(6, 16), priority="low")},
        )
    )
    sizes = {"lent": ("a", 13, "low"), "high": ("b", 16, "high"), "own": ("b", 6, "low"), "stop": ("a", 10, "stop")}
    jobs = [
        {"name": name, "team": of, "gpus": gpus, "priority": priority, "cpu": 1, "memory": "1Gi"}
        for name, (of, gpus, priority) in sizes.items()
    ]
    (moment,) = play_scenario(found, told(tmp_path, found, json.dumps({"steps": [{"submit": jobs}]})))
    assert moment.restless == ("a", "b")
    steps = [{"submit": jobs}, {"finish": ["lent", "high"]}]
    (_, calm) = play_scenario(found, told(tmp_path, found, json.dumps({"steps": steps})))
    assert calm.restless == ()
