"""The command `doctor`: rows, fixes and exit codes."""

import json
from pathlib import Path

import pytest
from builders import team
from cli_builders import Project, small
from typer.testing import CliRunner

from gpu_tenancy.cli.main import app
from gpu_tenancy.clouds.programs import DeniedError, NoAnswerError
from gpu_tenancy.doctor import checks
from gpu_tenancy.doctor.results import Question, Row, answers


@pytest.fixture
def project(tmp_path: Path) -> Project:
    found = Project.at(tmp_path / "project")
    found.write("s", small())
    found.write("wrong", {"teams": {"a": team(gpus={"h100": {"guaranteed": 8}})}})
    return found


def doctor(project: Project, *arguments: str) -> tuple[int, str]:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(
        app, ["cluster", "doctor", *arguments, "--project", str(project.folder)]
    )
    return done.exit_code, done.output


def missing_program(_: str) -> None:
    return None


def present_program(name: str) -> str:
    return f"/bin/{name}"


def ask(monkeypatch: pytest.MonkeyPatch, row: Row) -> None:
    """Has the cloud answer with one row."""

    def questions(*_: object) -> list[Question]:
        return [Question(row.check, row.subject, row.needed, lambda: [row])]

    monkeypatch.setattr(checks, "_questions", questions)


def test_a_missing_program_is_reported_with_its_fix(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.shutil, "which", missing_program)
    code, words = doctor(project, "s")
    assert code == 2
    assert "program pulumi: not found; install it: https://www.pulumi.com/docs/install/" in words
    assert words.rstrip().endswith("1 OK, 1 missing, 0 unknown")


def test_unknown_rows_do_not_fail_and_missing_ones_do(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.shutil, "which", present_program)
    unknown = Row("quota", "P", "8", "no permission to ask", "unknown", "grant x")
    ask(monkeypatch, unknown)
    code, words = doctor(project, "s", "--cloud", "--json")
    assert (code, [row["verdict"] for row in json.loads(words)]) == (0, ["OK", "OK", "unknown"])
    missing = Row("quota", "P", "8", "0", "missing", "raise it")
    ask(monkeypatch, missing)
    assert doctor(project, "s", "--cloud")[0] == 2


def test_a_stack_without_a_cloud_and_an_invalid_one_are_errors(project: Project) -> None:
    code, words = doctor(project, "s", "--cloud")
    assert (code, "cluster.cloud: existing has no cloud to ask" in words) == (1, True)
    assert doctor(project, "wrong")[0] == 1


def test_a_question_that_fails_does_not_hide_the_others() -> None:
    def denied() -> list[Row]:
        raise DeniedError("ec2:DescribeSubnets")

    def rejected() -> list[Row]:
        raise NoAnswerError("HTTP 500: busy")

    fine = Row("zones", "p5", "a", "a", "OK")
    questions = [
        Question("subnets", "s", "8", denied),
        Question("quota", "q", "8", rejected),
        Question("zones", "p5", "a", lambda: [fine]),
    ]
    rows = list(answers(questions))
    assert [(row.check, row.verdict, row.fix) for row in rows] == [
        ("subnets", "unknown", "grant ec2:DescribeSubnets"),
        ("quota", "unknown", "HTTP 500: busy"),
        ("zones", "OK", ""),
    ]
