"""`tenancy local demo`, as a person runs it, and its display beside a cluster."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import stack, team
from cli_builders import Project, small, tenancy
from repository import ROOT
from rich.console import Console
from typer.testing import Result

from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source, read_file
from gpu_tenancy.simulation.live import player
from gpu_tenancy.simulation.scenarios import (
    Event,
    JobStep,
    Moment,
    Running,
    SimulatedPlayer,
    Tell,
    read_scenario,
    scenario_of,
)
from gpu_tenancy.whatif.show import Display
from gpu_tenancy.whatif.timeline import play


def demo(*arguments: object, project: Path = ROOT) -> Result:
    return tenancy("local", "demo", *arguments, project=project)


def lines(seen: Result) -> list[str]:
    assert seen.exit_code == 0, seen.output
    return [line.rstrip() for line in seen.stdout.splitlines()]


def test_demo_prints_the_elastic_table_event_by_event() -> None:
    found = lines(demo())
    assert found[0] == "example-elastic, scenario stacks/scenarios/example-elastic.yaml, in the simulation of Kueue"
    assert found[2:7] == [
        "1. namespace1 submits jobs: it borrows up to its limit",
        "● n1-1 admitted: namespace1 uses 5 CPUs",
        "● n1-2 admitted: namespace1 uses 10 CPUs",
        "● n1-3 admitted: namespace1 uses 15 CPUs, 5 borrowed",
        "● n1-4 admitted: namespace1 uses 20 CPUs, 10 borrowed",
    ]
    assert found[7].startswith("○ n1-5 (namespace1) pending: insufficient unused quota for cpu in flavor cpu, 5 more")
    third = found.index("3. namespace3 submits jobs: it reclaims its guarantee from both")
    assert found[third + 1 : third + 5] == [
        "↩ n2-4 (namespace2) preempted by n3-1 (namespace3), InCohortReclamation: reclamation within the cohort",
        "● n3-1 admitted: namespace3 uses 5 CPUs",
        "↩ n1-4 (namespace1) preempted by n3-2 (namespace3), InCohortReclamation: reclamation within the cohort",
        "● n3-2 admitted: namespace3 uses 10 CPUs",
    ]
    assert found[third + 6] == "○ n3-4 (namespace3) pending, as n3-3"
    table = [" ".join(line.split()) for line in found[third + 9 : third + 14]]
    assert table[1:] == [
        "namespace1 CPUs 10 20 15 5 10 3 █████▒▒▒·· 1 job by namespace3 (InCohortReclamation)",
        "namespace2 CPUs 10 20 15 5 10 3 █████▒▒▒·· 1 job by namespace3 (InCohortReclamation)",
        "namespace3 CPUs 10 20 10 0 15 2 █████·····",
        "namespace4 CPUs 10 20 0 0 0 0 ··········",
    ]
    last = found.index("Running jobs after each step")
    assert [" ".join(line.split()) for line in found[last + 1 : last + 6]] == [
        "team step 1 step 2 step 3 step 4",
        "namespace1 4 4 3 2",
        "namespace2 0 4 3 2",
        "namespace3 0 0 2 2",
        "namespace4 0 0 0 2",
    ]
    assert found[-1].startswith("InCohortReclamation: its quota was borrowed, and the team or group")


def test_demo_without_scenario_plays_teams_to_their_limits(project: Project) -> None:
    found = lines(demo("good", project=project.folder))
    assert found[0] == "good, each team up to its limits, in the simulation of Kueue"
    assert "● vision-h100-4 admitted: vision uses 4 h100 GPUs" in found
    last = found.index("Running jobs after each step")
    assert [" ".join(line.split()) for line in found[last + 1 : last + 4]] == [
        "team step 1 step 2",
        "speech 2 2",
        "vision 0 4",
    ]


def test_a_given_scenario_file_is_played(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("steps: [{label: a try, submit: [{name: t, team: team-a, gpus: 8}]}]", encoding="utf-8")
    found = lines(demo("example-three-teams", "--workloads", file))
    assert found[0] == f"example-three-teams, scenario {file}, in the simulation of Kueue"
    assert found[2:4] == ["1. a try", "● t admitted: team-a uses 8 h100 GPUs"]


def test_an_invalid_scenario_is_reported_and_not_played(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("steps: [{submit: [{name: t, team: team-x}]}]", encoding="utf-8")
    seen = demo("example-three-teams", "--workloads", file)
    assert (seen.exit_code, seen.stdout) == (1, "")
    assert "steps[0].submit[0].team: team-x is not a known team; did you mean 'team-" in seen.stderr


def test_a_stack_whose_teams_have_no_quota_cannot_be_played(project: Project) -> None:
    project.write("good", {**small(), "pools": {}, "teams": {}})
    seen = demo("good", project=project.folder)
    assert (seen.exit_code, seen.stdout) == (1, "")
    assert "error: stack good: no team has quota for jobs; set gpus or quota of a team" in seen.stderr


def test_other_programs_read_steps_with_events_and_states() -> None:
    seen = demo("--json")
    steps = json.loads(seen.stdout)["steps"]
    third = steps[2]
    assert (third["agrees"], third["live"]) == (None, None)
    assert [event["kind"] for event in third["events"]] == ["preempted", "admitted"] * 2 + ["pending"] * 3
    used = {row["team"]: row["runs"] for row in third["foreseen"]["teams"] if row["resource"] == "cpu"}
    assert used == {"namespace1": 15_000, "namespace2": 15_000, "namespace3": 10_000, "namespace4": 0}


# Beside a cluster.


class Recorded:
    """A cluster that does what the simulation does, but for what a test changes in a state."""

    def __init__(self, tree: Tree, change: Callable[[int, Moment], Moment]) -> None:
        self._player = SimulatedPlayer(tree)
        self._change = change
        self._step = 0

    def play(self, step: JobStep, tell: Tell) -> Moment:
        self._step += 1
        if self._step == 1:
            tell(Event("evicted", "unknown", "namespace1", message="The workload is deactivated"))
        return self._change(self._step, self._player.play(step, tell))


def beside(change: Callable[[int, Moment], Moment]) -> list[str]:
    tree = Tree(load(read_file(ROOT / "stacks" / "Pulumi.example-elastic.yaml")))
    scenario = read_scenario(ROOT / "stacks" / "scenarios" / "example-elastic.yaml", tree)
    told = io.StringIO()
    display = Display(Console(file=told, width=240), tree, scenario)
    display.summary(play(tree, scenario, display, Recorded(tree, change)), ())
    return [line.rstrip() for line in told.getvalue().splitlines()]


def test_agreeing_cluster_agrees_in_every_step() -> None:
    found = beside(lambda _, moment: moment)
    assert found.count("● n1-1 admitted: namespace1 uses 5 CPUs") == 1
    assert "↩ unknown (namespace1) evicted: The workload is deactivated" in found
    heading = next(line for line in found if line.startswith("team "))
    assert heading.split()[-3:] == ["running", "jobs", "foreseen"]
    last = found.index("Running jobs after each step")
    assert " ".join(found[last + 6].split()) == "as foreseen yes yes yes yes"
    assert found[last + 7] == "✓ as foreseen in 4 steps"


def test_disagreeing_cluster_shows_both_numbers() -> None:
    def greedy(step: int, moment: Moment) -> Moment:
        if step != 3:
            return moment
        more = Running("n3-3", "namespace3", "cpu", 0, moment.running[0].amounts)
        fewer = [job for job in moment.running if job.workload != "n1-3"]
        return Moment(moment.label, (*fewer, more), moment.waiting, moment.evicted, ())

    found = beside(greedy)
    last = found.index("Running jobs after each step")
    assert " ".join(found[last + 2].split()) == "namespace1 4 4 2, foreseen 3 2"
    assert " ".join(found[last + 6].split()) == "as foreseen yes yes no yes"
    assert found[last + 7] == "✗ as foreseen in 3 of 4 steps"
    third = found.index("3. namespace3 submits jobs: it reclaims its guarantee from both")
    row = next(line for line in found[third:] if line.startswith("namespace3 "))
    assert row.split()[-3:-1] == ["3", "2"]


def test_many_events_of_a_kind_are_counted() -> None:
    tree = Tree(load(Source(stack(teams={"a": team(gpus={"h100": {"guaranteed": 10}})}))))
    scenario = scenario_of({"steps": [{"submit": [{"name": "j", "team": "a", "jobs": 12}]}]}, tree)
    told = io.StringIO()
    play(tree, scenario, Display(Console(file=told, width=240), tree, scenario))
    found = told.getvalue().splitlines()
    assert found[1] == "● j-1 admitted: a uses 1 h100 GPU"
    assert found[8] == "● j-8 admitted: a uses 8 h100 GPUs"
    assert found[9].startswith("○ j-11 (a) pending: ")
    assert found[11] == "and 2 more admitted"


PREEMPTING_ONE = "couldn't assign flavors to pod set main: 8 more needed. Pending the preemption of 1 workload(s)"


@pytest.mark.parametrize(
    ("messages", "seconds"),
    [
        ([], player.QUIET),
        (["8 more needed"], player.QUIET),
        (["8 more needed", ""], player.UNCONSIDERED),
        (["", PREEMPTING_ONE], player.PREEMPTING),
    ],
)
def test_kueue_settles_after_preemptions_and_messages(messages: list[str], seconds: float) -> None:
    assert player.quiet(messages) == seconds
