"""One pull request comment for all stacks."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cli.main import app
from gpu_tenancy.gitops.comment import LIMIT, MARK, StackPreview, comment, read, worst

HEAD = "## ✓ dev: OK\n\nAll guarantees fit.\n"
REPORT = HEAD + "\n### Rules and exemptions\n\n- 12 passed.\n"


def a_preview(stack: str = "dev", code: int = 0, report: str = REPORT, errors: str = "") -> StackPreview:
    return StackPreview(stack, code, report, errors)


def test_a_comment_begins_with_its_mark_and_has_the_report_whole() -> None:
    assert comment([a_preview()]) == f"{MARK}\n\n| | stack | |\n|---|---|---|\n| ✓ | `dev` | OK |\n\n{REPORT}"


def test_the_worst_verdict_comes_first() -> None:
    found = comment(
        [
            a_preview("a", 0),
            a_preview("b", 2),
            a_preview("c", 1, "", "wrong"),
            a_preview("d", 3, "", "trace"),
            a_preview("e", 9),
        ]
    )
    assert [line for line in found.splitlines() if line.startswith(("| ✓", "| ✗"))] == [
        "| ✗ | `e` | preview exited with code 9 |",
        "| ✗ | `d` | internal error in the preview |",
        "| ✗ | `c` | invalid stack |",
        "| ✗ | `b` | mandatory policy violation |",
        "| ✓ | `a` | OK |",
    ]


@pytest.mark.parametrize(
    ("codes", "code"), [((), 0), ((0, 0), 0), ((0, 2), 2), ((2, 1), 1), ((1, 3, 2), 3), ((3, 137), 137)]
)
def test_the_gravest_exit_code_is_that_of_all(codes: tuple[int, ...], code: int) -> None:
    assert worst([a_preview(code=item) for item in codes]) == code


def test_errors_are_shown_verbatim() -> None:
    errors = "error: stacks/Pulumi.dev.yaml:41: 24 is more than 16 <script>\n```\nnot the end"
    assert comment([a_preview(code=1, report="", errors=errors)]).endswith(
        f"## ✗ dev: invalid stack\n\n````text\n{errors}\n````\n"
    )


def test_a_change_without_affected_stacks_is_reported() -> None:
    why = "no stack file, program, catalogue or policy pack changed"
    assert comment([]) == f"{MARK}\n\nNo stacks affected: {why}.\n"


def test_reports_are_shortened_whole_so_that_the_comment_is_taken() -> None:
    long = HEAD + "\n### Rules and exemptions\n\n" + "- a rule passed\n" * 2_500
    found = comment([a_preview("a", report=long), a_preview("b", 2, report=long), a_preview("c", report=long)])
    assert len(found) <= LIMIT
    assert found.count("### Rules and exemptions") == 1
    assert found.index("### Rules and exemptions") < found.index("*Shortened.")
    assert found.count(HEAD.strip()) == 3
    assert found.count("*Shortened. The full report is an artifact of this run.*") == 2


@pytest.mark.slow
def test_however_many_stacks_there_are_the_comment_is_taken() -> None:
    few, many, most = (comment([a_preview(f"stack-{i}") for i in range(n)]) for n in (10, 300, 5_000))
    assert all(len(found) <= LIMIT for found in (few, many, most))
    assert few.count("| ✓ |") == 10
    assert many.count("| ✓ |") == 300
    assert most.endswith("5000 stacks previewed, 0 not OK. The reports are artifacts of this run.\n")


def test_an_invalid_limit_is_refused() -> None:
    with pytest.raises(ConsoleError) as refused:
        comment([a_preview()], 100)
    assert str(refused.value) == "--limit: 100 characters are too few for a comment; set at least 4000"


def leave(folder: Path, stack: str, **texts: str) -> None:
    (folder / stack).mkdir(parents=True)
    for name, text in texts.items():
        (folder / stack / {"code": "exit-code", "report": "report.md", "errors": "errors.txt"}[name]).write_text(text)


def test_outputs_of_previews_are_read_by_stack(tmp_path: Path) -> None:
    leave(tmp_path, "dev", code="0\n", report=REPORT, errors="")
    leave(tmp_path, "prod", code="1\n", errors="wrong\n")
    leave(tmp_path, "objects", report="of no stack")
    assert read(tmp_path) == (a_preview(), a_preview("prod", 1, "", "wrong\n"))


def test_an_exit_code_that_is_none_is_refused(tmp_path: Path) -> None:
    leave(tmp_path, "dev", code="oops\n")
    with pytest.raises(ConsoleError) as refused:
        read(tmp_path)
    assert (
        str(refused.value)
        == f"{tmp_path}/dev/exit-code: 'oops' is not an exit code; write the exit code of the preview to this file"
    )


def test_the_command_writes_the_comment_and_ends_as_the_gravest_preview(tmp_path: Path) -> None:
    leave(tmp_path / "out", "dev", code="0", report=REPORT)
    leave(tmp_path / "out", "prod", code="2", report=REPORT)
    file = tmp_path / "new/comment.md"
    done = CliRunner().invoke(app, ["stack", "comment", str(tmp_path / "out"), "--out", str(file)])
    assert done.exit_code == 2
    assert file.read_text(encoding="utf-8") == comment(read(tmp_path / "out"))
