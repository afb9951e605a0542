"""`tenancy whatif`, as a person asks it."""

import json
from pathlib import Path

import pytest
from console_builders import Project, small
from typer.testing import CliRunner, Result

from console.cli import app


@pytest.fixture
def project(tmp_path: Path) -> Project:
    found = Project.at(tmp_path / "project")
    sections = small()
    sections["teams"]["speech"]["gpus"] = {"l4": {"guaranteed": 2, "limit": 4}}
    sections["teams"]["third"] = {"owner": "x", "costCenter": "y", "gpus": {"l4": {"guaranteed": 0, "limit": 4}}}
    found.write("s", sections)
    return found


def whatif(project: Project, *arguments: object) -> Result:
    words = [str(each) for each in arguments]
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["whatif", "s", *words, "--project", str(project.folder)])


def row(seen: Result, team: str) -> list[str]:
    (found,) = [line.split() for line in seen.stdout.splitlines() if line.startswith(f"{team} ") and " l4 " in line]
    return found


def test_everyone_busy_shows_who_runs_who_waits_and_a_bar(project: Project) -> None:
    seen = whatif(project, "--first", "third")
    assert (seen.exit_code, seen.stderr) == (0, "")
    assert seen.stdout.startswith("everyone busy, third came first\n")
    assert row(seen, "speech")[:6] == ["speech", "l4", "2", "4", "2", "2"]
    assert row(seen, "third")[:6] == ["third", "l4", "0", "4", "2", "2"]
    assert set(row(seen, "speech")[6]) == {"█", "·"}
    assert set(row(seen, "third")[6]) == {"▒", "·"}
    assert "third-l4-4 gave way to speech-l4-1" in seen.stdout


def test_a_team_alone_has_all_that_it_may(project: Project) -> None:
    assert row(whatif(project, "--team", "speech"), "speech")[:6] == ["speech", "l4", "2", "4", "4", "0"]


def test_jobs_over_time_are_named_with_the_reason_why_they_wait(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "steps: [{submit: [{name: big, team: speech, gpus: 4}]}, {submit: [{name: late, team: third, gpus: 2}]}]",
        encoding="utf-8",
    )
    seen = whatif(project, "--workloads", file)
    assert seen.exit_code == 0
    assert "1. big comes" in seen.stdout
    assert "● big runs with 4 l4 (speech)" in seen.stdout
    assert "○ late waits for 2 (third): " in seen.stdout


def test_other_programs_read_the_same(project: Project) -> None:
    seen = json.loads(whatif(project, "--team", "speech", "--json").stdout)
    (moment,) = seen["moments"]
    assert sum(each["gpus"] for each in moment["running"]) == 4
    assert seen["notModelled"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--team", "speach"), "there is no team speach; did you mean 'speech'?"),
        (("--team", "speech", "--first", "third"), "--team and --first or --last are two questions; ask one at a time"),
        (("--workloads", "nowhere.yaml"), "nowhere.yaml: cannot be read: No such file or directory"),
    ],
)
def test_a_question_that_cannot_be_answered_is_an_error(
    project: Project, arguments: tuple[str, str], words: str
) -> None:
    seen = whatif(project, *arguments)
    assert (seen.exit_code, seen.stdout) == (1, "")
    assert words in seen.stderr
