"""`tenancy whatif` and `tenancy local demo`."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import GPU, stack, team, tree_of
from cli_builders import Project, small, tenancy
from repository import ROOT
from rich.console import Console
from typer.testing import Result

from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import read_file
from gpu_tenancy.simulation import live
from gpu_tenancy.simulation.player import Event, SimulatedPlayer, Tell
from gpu_tenancy.simulation.scenario import read_scenario, scenario_of
from gpu_tenancy.simulation.stage import JobStep, Moment, Running
from gpu_tenancy.whatif.show import Display
from gpu_tenancy.whatif.timeline import play


@pytest.fixture
def project(project: Project) -> Project:
    sections = small()
    sections["teams"]["speech"]["gpus"] = {"l4": {"guaranteed": 2, "limit": 4}}
    sections["teams"]["third"] = {"owner": "x", "costCenter": "y", "gpus": {"l4": {"guaranteed": 0, "limit": 4}}}
    project.write("s", sections)
    return project


def whatif(project: Project, *arguments: object) -> Result:
    return tenancy("whatif", "s", *arguments, project=project.folder)


def row(seen: Result, team: str) -> list[str]:
    (found,) = [line.split() for line in seen.stdout.splitlines() if line.startswith(f"{team} ") and " l4 " in line]
    return found


def test_everyone_busy_shows_usage_with_bars(project: Project) -> None:
    seen = whatif(project, "--last", "speech")
    assert (seen.exit_code, seen.stderr) == (0, "")
    assert seen.stdout.startswith("everyone busy, speech last\njobs of speech on l4: 1 GPU, ")
    assert row(seen, "speech")[:7] == ["speech", "l4", "2", "4", "2", "0", "2"]
    assert row(seen, "third")[:7] == ["third", "l4", "0", "4", "2", "2", "2"]
    assert set(row(seen, "speech")[7]) == {"█", "·"}
    assert set(row(seen, "third")[7]) == {"▒", "·"}
    assert " ".join(row(seen, "third")[8:]) == "2 jobs by speech (InCohortReclamation)"
    assert "InCohortReclamation: its quota was borrowed, and the team or group" in seen.stdout


def test_team_alone_gets_its_limit(project: Project) -> None:
    assert row(whatif(project, "--team", "speech"), "speech")[:7] == ["speech", "l4", "2", "4", "4", "2", "0"]


def test_scenario_prints_events_and_usage_of_each_step(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    many = ", ".join(f"{{name: j{number}, team: third, cpu: 1, memory: 1Gi}}" for number in range(12))
    file.write_text(
        f"steps: [{{label: all at once, submit: [{many}]}},"
        " {submit: [{name: own, team: speech, cpu: 1, memory: 1Gi}]}]",
        encoding="utf-8",
    )
    seen = whatif(project, "--workloads", file).stdout.splitlines()
    assert seen[0] == "s, jobs of jobs.yaml, in the simulation of Kueue"
    assert seen[2] == "1. all at once"
    assert seen[3:7] == [
        "● j0 admitted: third uses 1 l4 GPU, 1 borrowed",
        "● j1 admitted: third uses 2 l4 GPUs, 2 borrowed",
        "● j2 admitted: third uses 3 l4 GPUs, 3 borrowed",
        "● j3 admitted: third uses 4 l4 GPUs, 4 borrowed",
    ]
    assert seen[7].startswith(
        "○ j4 (third) pending: insufficient unused quota for nvidia.com/gpu in flavor l4, 1 more needed"
    )
    second = seen.index("2. submit own")
    assert [line.split()[:2] for line in seen[second + 1 :][:2]] == [["↩", "j3"], ["●", "own"]]
    assert sum(line.startswith("team ") for line in seen) == 3
    assert seen[-1].startswith("InCohortReclamation: its quota was borrowed")


def test_other_programs_read_the_same(project: Project) -> None:
    seen = json.loads(whatif(project, "--last", "speech", "--json").stdout)
    (step,) = seen["steps"]
    moment = step["foreseen"]
    assert (step["label"], step["events"], step["live"]) == ("everyone busy, speech last", [], None)
    assert sum(each["gpus"] for each in moment["running"] if each["flavor"] == "l4") == 4
    assert seen["notModelled"] == []
    assert {(each["by_team"], each["team"], each["reason"]) for each in moment["evicted"]} == {
        ("speech", "third", "InCohortReclamation")
    }
    assert moment["evicted"][0]["means"].startswith("its quota was borrowed")
    assert [each for each in moment["teams"] if each["flavor"] == "l4"] == [
        {"team": "speech", "flavor": "l4", "guaranteed": 2, "limit": 4, "runs": 2, "waits": 2, "resource": GPU},
        {"team": "third", "flavor": "l4", "guaranteed": 0, "limit": 4, "runs": 2, "waits": 2, "resource": GPU},
    ]


def test_page_is_written_and_its_path_is_printed_last(project: Project, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    seen = whatif(project, "--out", out)
    assert (seen.exit_code, seen.stdout.splitlines()[-1]) == (0, f"page {out / 'whatif.html'}")
    text = (out / "whatif.html").read_text(encoding="utf-8")
    assert "<h1>s: everyone busy</h1>" in text
    quiet = whatif(project, "--out", tmp_path / "other", "--json")
    assert json.loads(quiet.stdout)["notModelled"] == []
    assert (tmp_path / "other" / "whatif.html").read_text(encoding="utf-8") == text


def test_reports_all_scenario_problems_and_writes_no_page(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("steps:\n- finish: [x]\n- submit: [{name: j, team: spech}]\n", encoding="utf-8")
    seen = whatif(project, "--workloads", file, "--out", tmp_path / "out")
    assert (seen.exit_code, seen.stdout) == (1, "")
    assert seen.stderr.splitlines() == [
        f"{file}:2: steps[0].finish[0]: x is not a running or pending job; none exist",
        (
            f"{file}:3: steps[1].submit[0].team: spech is not a known team; did you mean 'speech'?"
            " Known: speech, third, vision"
        ),
        f"2 problems in {file}; nothing was changed",
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--team", "speach"), "unknown team 'speach' (did you mean 'speech'?)"),
        (("--team", "speech", "--last", "third"), "--team and --last cannot be combined; use one of them"),
        (("--workloads", "nowhere.yaml"), "nowhere.yaml: cannot read the file: No such file or directory"),
    ],
)
def test_whatif_refuses_invalid_options(project: Project, arguments: tuple[str, str], words: str) -> None:
    seen = whatif(project, *arguments)
    assert (seen.exit_code, seen.stdout) == (2 if "combined" in words else 1, "")
    assert words in seen.stderr


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


def test_without_scenario_each_team_plays_to_its_limits(project: Project) -> None:
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
    steps = json.loads(demo("--json").stdout)["steps"]
    third = steps[2]
    assert (third["agrees"], third["live"]) == (None, None)
    assert [event["kind"] for event in third["events"]] == ["preempted", "admitted"] * 2 + ["pending"] * 3
    used = {row["team"]: row["runs"] for row in third["foreseen"]["teams"] if row["resource"] == "cpu"}
    assert used == {"namespace1": 15_000, "namespace2": 15_000, "namespace3": 10_000, "namespace4": 0}


# Beside a cluster.


class Recorded:
    """A cluster that does the same as the simulation, except for a test's change of a state."""

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
        more = Running("n3-3", "namespace3", "cpu", 0, amounts=moment.running[0].amounts)
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
    tree = tree_of(stack(teams={"a": team(gpus={"h100": {"guaranteed": 10}})}))
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
        ([], live.QUIET),
        (["8 more needed"], live.QUIET),
        (["8 more needed", ""], live.UNCONSIDERED),
        (["", PREEMPTING_ONE], live.PREEMPTING),
    ],
)
def test_kueue_is_unsettled_while_preempting_or_considering(messages: list[str], seconds: float) -> None:
    assert live.quiet(messages) == seconds
