"""`tenancy whatif`, as a person asks it."""

import json
from pathlib import Path

import pytest
from builders import GPU
from cli_builders import Project, small, tenancy
from typer.testing import Result


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
    seen = whatif(project, "--first", "third")
    assert (seen.exit_code, seen.stderr) == (0, "")
    assert seen.stdout.startswith("everyone busy, third first\n")
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
    seen = json.loads(whatif(project, "--first", "third", "--json").stdout)
    (step,) = seen["steps"]
    moment = step["foreseen"]
    assert (step["label"], step["events"], step["live"]) == ("everyone busy, third first", [], None)
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


def test_invalid_scenario_reports_all_problems_without_page(project: Project, tmp_path: Path) -> None:
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
        (("--team", "speach"), "team speach not found; did you mean 'speech'?"),
        (("--team", "speech", "--first", "third"), "--team and --first or --last cannot be combined; use one of them"),
        (("--workloads", "nowhere.yaml"), "nowhere.yaml: cannot read the file: No such file or directory"),
    ],
)
def test_whatif_refuses_invalid_options(project: Project, arguments: tuple[str, str], words: str) -> None:
    seen = whatif(project, *arguments)
    assert (seen.exit_code, seen.stdout) == (1, "")
    assert words in seen.stderr
