"""`tenancy stack render` as it is called."""

from pathlib import Path

import pytest
from cli_builders import Project, small
from gitops_builders import WITH_RELEASES, rendered, tree
from repository import ROOT
from typer.testing import CliRunner

from gpu_tenancy.cli.main import app
from gpu_tenancy.gitops.manifests import stays


def run(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["stack", "render", *words])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    found = Project.at(tmp_path / "project")
    found.write("small", small())
    return found


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_output_lists_written_files_and_resources_left_to_pulumi(tmp_path: Path) -> None:
    code, said, _ = run(WITH_RELEASES, "--out", str(tmp_path))
    assert code == 0
    first, second, *rest = said.splitlines()
    assert first.startswith("177 objects and 7 Helm releases in 23 waves: ")
    stay = stays(rendered(WITH_RELEASES))
    assert second == f"{len(stay)} cloud resources stay with Pulumi:"
    assert rest == [f"  {kind} {name}" for kind, name in stay]
    expected = {path.as_posix(): text for path, text in tree(WITH_RELEASES).items()}
    assert files(tmp_path) == expected.keys()
    for name, text in expected.items():
        assert (tmp_path / name).read_text(encoding="utf-8").partition("\n")[2] == text


def test_stale_generated_files_are_deleted_and_other_files_stay(project: Project, tmp_path: Path) -> None:
    out = tmp_path / "tree"
    words = ("small", "--project", str(project.folder), "--out", str(out))
    assert run(*words)[0] == 0
    before = files(out)
    (out / "README.md").write_text("mine", encoding="utf-8")
    (out / "mine.yaml").write_text("a: 1\n", encoding="utf-8")
    sections = small()
    del sections["teams"]["speech"]
    project.write("small", sections)
    assert run(*words)[0] == 0
    assert {name for name in before if "speech" in name}
    assert files(out) - {"README.md", "mine.yaml"} == {name for name in before if "speech" not in name}


def test_a_second_run_writes_no_file(project: Project, tmp_path: Path) -> None:
    words = ("small", "--project", str(project.folder), "--out", str(tmp_path / "tree"))
    run(*words)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "tree").rglob("*.yaml")}
    run(*words)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "tree").rglob("*.yaml")} == times


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


def test_pulumi_is_told_apart_from_the_tree_by_the_pattern_of_the_page() -> None:
    """`--exclude '**$kubernetes:**'`: two stars stand for anything (pkg/resource/deploy of Pulumi: getMatcher)."""
    page = (ROOT / "docs/gitops.md").read_text(encoding="utf-8")
    assert "--exclude '**$kubernetes:**'" in page
    found = [one for one in rendered(WITH_RELEASES).registrations if one.custom and not one.external_id]
    excluded = {one.urn for one in found if "$kubernetes:" in one.urn}
    assert excluded == {one.urn for one in found if one.type.startswith("kubernetes:")}
