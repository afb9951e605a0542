"""The commands `tenancy stack comment` and `tenancy stack render`."""

from pathlib import Path

import pytest
from cli_builders import Project, small, tenancy
from gitops_builders import WITH_RELEASES, rendered, tree
from repository import ROOT

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.gitops.comment import LIMIT, MARK, StackPreview, comment, read, worst
from gpu_tenancy.gitops.manifests import stays

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
            a_preview("b", 3),
            a_preview("c", 1, "", "wrong"),
            a_preview("d", 2, "", "no such option"),
            a_preview("e", 9),
        ]
    )
    assert [line for line in found.splitlines() if line.startswith(("| ✓", "| ✗"))] == [
        "| ✗ | `e` | preview exited with code 9 |",
        "| ✗ | `d` | wrong usage of the preview |",
        "| ✗ | `c` | error, not evaluated |",
        "| ✗ | `b` | Blocked |",
        "| ✓ | `a` | OK |",
    ]


@pytest.mark.parametrize(
    ("codes", "code"), [((), 0), ((0, 0), 0), ((0, 3), 3), ((3, 1), 1), ((1, 3, 2), 2), ((3, 137), 1)]
)
def test_the_gravest_exit_code_is_that_of_all(codes: tuple[int, ...], code: int) -> None:
    assert worst([a_preview(code=item) for item in codes]) == code


def test_errors_are_shown_verbatim() -> None:
    errors = "error: stacks/Pulumi.dev.yaml:41: 24 is more than 16 <script>\n```\nnot the end"
    assert comment([a_preview(code=1, report="", errors=errors)]).endswith(
        f"## ✗ dev: error, not evaluated\n\n````text\n{errors}\n````\n"
    )


def test_a_change_without_affected_stacks_is_reported() -> None:
    why = "no stack file, program, catalogue or policy pack changed"
    assert comment([]) == f"{MARK}\n\nNo stacks affected: {why}.\n"


def test_shortens_reports_to_the_comment_limit() -> None:
    long = HEAD + "\n### Rules and exemptions\n\n" + "- a rule passed\n" * 2_500
    found = comment([a_preview("a", report=long), a_preview("b", 3, report=long), a_preview("c", report=long)])
    assert len(found) <= LIMIT
    assert found.count("### Rules and exemptions") == 1
    assert found.index("### Rules and exemptions") < found.index("*Shortened.")
    assert found.count(HEAD.strip()) == 3
    assert found.count("*Shortened. The full report is an artifact of this run.*") == 2


@pytest.mark.slow
def test_comment_of_many_stacks_fits() -> None:
    few, many = (comment([a_preview(f"stack-{i}") for i in range(n)]) for n in (10, 300))
    assert all(len(found) <= LIMIT for found in (few, many))
    assert few.count("| ✓ |") == 10
    assert many.count("| ✓ |") == 300


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


def test_a_folder_of_reports_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    done = tenancy("stack", "comment", tmp_path / "nope", "--out", tmp_path / "comment.md")
    assert (done.exit_code, f"{tmp_path}/nope not found" in done.output) == (1, True)


def test_writes_the_comment_with_the_gravest_exit_code(tmp_path: Path) -> None:
    leave(tmp_path / "out", "dev", code="0", report=REPORT)
    leave(tmp_path / "out", "prod", code="3", report=REPORT)
    file = tmp_path / "new/comment.md"
    assert tenancy("stack", "comment", tmp_path / "out", "--out", file).exit_code == 3
    assert file.read_text(encoding="utf-8") == comment(read(tmp_path / "out"))


# `tenancy stack render` as it is called.


def run(*words: str) -> tuple[int, str, str]:
    done = tenancy("stack", "render", *words)
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    found = Project.at(tmp_path / "project")
    found.write("small", small())
    return found


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_lists_written_files_and_resources_left_to_pulumi(tmp_path: Path) -> None:
    code, said, _ = run(WITH_RELEASES, "--out", str(tmp_path))
    assert code == 0
    first, second, *rest = said.splitlines()
    assert first.startswith("181 objects and 7 Helm releases in 23 waves: ")
    stay = stays(rendered(WITH_RELEASES))
    assert second == f"{len(stay)} cloud resources stay with Pulumi:"
    assert rest == [f"  {kind} {name}" for kind, name in stay]
    expected = {path.as_posix(): text for path, text in tree(WITH_RELEASES).items()}
    assert files(tmp_path) == expected.keys()
    for name, text in expected.items():
        assert (tmp_path / name).read_text(encoding="utf-8").partition("\n")[2] == text


def test_a_second_run_writes_and_deletes_only_what_changed(project: Project, tmp_path: Path) -> None:
    out = tmp_path / "tree"
    words = ("small", "--project", str(project.folder), "--out", str(out))
    assert run(*words)[0] == 0
    before, times = files(out), {path: path.stat().st_mtime_ns for path in out.rglob("*.yaml")}
    run(*words)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.yaml")} == times
    (out / "README.md").write_text("mine", encoding="utf-8")
    (out / "mine.yaml").write_text("a: 1\n", encoding="utf-8")
    sections = small()
    del sections["teams"]["speech"]
    project.write("small", sections)
    assert run(*words)[0] == 0
    assert {name for name in before if "speech" in name}
    assert files(out) - {"README.md", "mine.yaml"} == {name for name in before if "speech" not in name}


def test_an_existing_file_of_others_stops_the_command(project: Project, tmp_path: Path) -> None:
    words = ("small", "--project", str(project.folder), "--out", str(tmp_path))
    (tmp_path / "tenancy").mkdir()
    (tmp_path / "tenancy/kustomization.yaml").write_text("mine: true\n", encoding="utf-8")
    code, _, said = run(*words)
    assert code == 1
    assert "tenancy/kustomization.yaml: file exists and was not written by tenancy" in said
    assert files(tmp_path) - {f"project/{name}" for name in files(project.folder)} == {"tenancy/kustomization.yaml"}


def test_a_refused_render_writes_no_file(project: Project, tmp_path: Path) -> None:
    main = project.folder / "__main__.py"
    added = (
        "import pulumi_kubernetes as k8s\n"
        "named = {'name': 'token', 'namespace': 'vision'}\n"
        "k8s.core.v1.Secret('token', metadata=named, string_data={'token': 'S3cret'})\n"
    )
    main.write_text(main.read_text(encoding="utf-8") + added, encoding="utf-8")
    code, said, beside = run("small", "--project", str(project.folder), "--out", str(tmp_path / "tree"))
    assert (code, said) == (1, "")
    assert "Secret vision/token: stringData is secret and would be readable in git; remove it" in beside
    assert "S3cret" not in beside
    assert not (tmp_path / "tree").exists()


def test_documented_pattern_excludes_kubernetes_resources() -> None:
    """`--exclude '**$kubernetes:**'`: two stars stand for anything (pkg/resource/deploy of Pulumi: getMatcher)."""
    page = (ROOT / "docs/gitops.md").read_text(encoding="utf-8")
    assert "--exclude '**$kubernetes:**'" in page
    found = [one for one in rendered(WITH_RELEASES).registrations if one.custom and not one.external_id]
    excluded = {one.urn for one in found if "$kubernetes:" in one.urn}
    assert excluded == {one.urn for one in found if one.type.startswith("kubernetes:")}
