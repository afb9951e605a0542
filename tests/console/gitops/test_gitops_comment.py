"""One comment for all stacks of a pull request."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from gpu_tenancy.console.commands.render import register
from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.gitops.joined import LIMIT, MARK, Said, joined, read, worst

HEAD = "## ✓ dev: Fine\n\nAll promises kept.\n"
REPORT = HEAD + "\n### Rules and exemptions\n\n- 12 rules hold.\n"


def said(stack: str = "dev", code: int = 0, report: str = REPORT, errors: str = "") -> Said:
    return Said(stack, code, report, errors)


def test_a_comment_begins_with_its_mark_and_has_the_report_whole() -> None:
    assert joined([said()]) == f"{MARK}\n\n| | stack | |\n|---|---|---|\n| ✓ | `dev` | fine |\n\n{REPORT}"


def test_the_worst_comes_first_and_each_exit_code_has_its_words() -> None:
    found = joined([said("a", 0), said("b", 2), said("c", 1, "", "wrong"), said("d", 3, "", "trace"), said("e", 9)])
    assert [line for line in found.splitlines() if line.startswith(("| ✓", "| ✗"))] == [
        "| ✗ | `e` | the preview ended with 9 |",
        "| ✗ | `d` | a mistake in the program of the preview |",
        "| ✗ | `c` | the stack is wrong |",
        "| ✗ | `b` | a mandatory rule is broken |",
        "| ✓ | `a` | fine |",
    ]


@pytest.mark.parametrize(
    ("codes", "code"), [((), 0), ((0, 0), 0), ((0, 2), 2), ((2, 1), 1), ((1, 3, 2), 3), ((3, 137), 137)]
)
def test_the_gravest_exit_code_is_that_of_all(codes: tuple[int, ...], code: int) -> None:
    assert worst([said(code=each) for each in codes]) == code


def test_mistakes_are_shown_as_they_were_said() -> None:
    errors = "error stacks/Pulumi.dev.yaml:41: 24 is more than 16 <script>\n```\nnot the end"
    assert joined([said(code=1, report="", errors=errors)]).endswith(
        f"## ✗ dev: the stack is wrong\n\n````text\n{errors}\n````\n"
    )


def test_where_no_stack_is_concerned_it_says_so() -> None:
    why = "neither a stack's file nor the program, the catalogue or a policy pack changed"
    assert joined([]) == f"{MARK}\n\nNo stack is concerned: {why}.\n"


def test_reports_are_shortened_whole_so_that_the_comment_is_taken() -> None:
    long = HEAD + "\n### Rules and exemptions\n\n" + "- a rule holds\n" * 2_500
    found = joined([said("a", report=long), said("b", 2, report=long), said("c", report=long)])
    assert len(found) <= LIMIT
    assert found.count("### Rules and exemptions") == 1
    assert found.index("### Rules and exemptions") < found.index("*The rest is on the page")
    assert found.count(HEAD.strip()) == 3
    assert found.count("*The rest is on the page, an artifact of this run.*") == 2


def test_however_many_stacks_there_are_the_comment_is_taken() -> None:
    few, many, most = (joined([said(f"stack-{i}") for i in range(n)]) for n in (10, 300, 5_000))
    assert all(len(found) <= LIMIT for found in (few, many, most))
    assert few.count("| ✓ |") == 10
    assert many.count("| ✓ |") == 300
    assert most.endswith("5000 stacks were previewed, 0 of them not fine; the pages are artifacts of this run.\n")


def test_a_limit_that_says_nothing_is_refused() -> None:
    with pytest.raises(ConsoleError) as refused:
        joined([said()], 100)
    assert str(refused.value) == "a comment of 100 characters says nothing; allow 4000 at least"


def leave(folder: Path, stack: str, **texts: str) -> None:
    (folder / stack).mkdir(parents=True)
    for name, text in texts.items():
        (folder / stack / {"code": "exit-code", "report": "report.md", "errors": "errors.txt"}[name]).write_text(text)


def test_what_previews_left_is_read_by_stack(tmp_path: Path) -> None:
    leave(tmp_path, "dev", code="0\n", report=REPORT, errors="")
    leave(tmp_path, "prod", code="1\n", errors="wrong\n")
    leave(tmp_path, "objects", report="of no stack")
    assert read(tmp_path) == (said(), said("prod", 1, "", "wrong\n"))


def test_an_exit_code_that_is_none_is_refused(tmp_path: Path) -> None:
    leave(tmp_path, "dev", code="oops\n")
    with pytest.raises(ConsoleError) as refused:
        read(tmp_path)
    assert (
        str(refused.value) == f"{tmp_path}/dev/exit-code has no exit code but 'oops'; write what the preview ended with"
    )


def test_the_command_writes_the_comment_and_ends_as_the_gravest_preview(tmp_path: Path) -> None:
    leave(tmp_path / "out", "dev", code="0", report=REPORT)
    leave(tmp_path / "out", "prod", code="2", report=REPORT)
    app = typer.Typer()
    register(app)
    file = tmp_path / "new/comment.md"
    done = CliRunner().invoke(app, ["comment", str(tmp_path / "out"), "--out", str(file)])
    assert done.exit_code == 2
    assert file.read_text(encoding="utf-8") == joined(read(tmp_path / "out"))
