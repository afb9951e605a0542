"""Stacks that a change affects."""

from pathlib import Path

import pytest
from cli_builders import git, tenancy

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.gitops.changed import Changed, changed, concerned

pytestmark = pytest.mark.process

STACKS = ("dev", "prod")


@pytest.mark.parametrize(
    ("path", "stacks"),
    [
        ("stacks/Pulumi.dev.yaml", {"dev": ("stacks/Pulumi.dev.yaml changed",)}),
        ("gpu_tenancy/model/catalogue/machines/aws.yaml", dict.fromkeys(STACKS, ("catalogue changed",))),
        ("gpu_tenancy/base/quantity.py", dict.fromkeys(STACKS, ("program changed",))),
        ("components/clouds/aws/__init__.py", dict.fromkeys(STACKS, ("program changed",))),
        ("__main__.py", dict.fromkeys(STACKS, ("program changed",))),
        ("policy/config/workloads-prod.json", dict.fromkeys(STACKS, ("policy packs changed",))),
        ("uv.lock", dict.fromkeys(STACKS, ("Python packages changed",))),
        ("README.md", {}),
        ("gpu_tenancy/cli/main.py", {}),
        ("stacks/schema.json", {}),
        ("docs/Pulumi.dev.yaml", {}),
        ("tests/model/test_model_source.py", {}),
    ],
)
def test_a_file_concerns_its_stack_all_or_none(path: str, stacks: dict[str, tuple[str, ...]]) -> None:
    assert concerned(STACKS, [path]) == Changed(stacks, ())


def test_reasons_are_listed_once_with_the_stack_file_first() -> None:
    paths = ["gpu_tenancy/model/plan/shares.py", "components/pods.py", "stacks/Pulumi.prod.yaml", "uv.lock"]
    assert concerned(STACKS, paths).stacks == {
        "dev": ("program changed", "Python packages changed"),
        "prod": ("stacks/Pulumi.prod.yaml changed", "program changed", "Python packages changed"),
    }


def test_a_deleted_stack_is_listed_separately() -> None:
    assert concerned(STACKS, ["stacks/Pulumi.old.yaml"]) == Changed({}, ("old",))


def test_a_file_that_stacks_share_concerns_those_that_read_it() -> None:
    paths = ["stacks/people.yaml", "stacks/unused.yaml"]
    assert concerned(STACKS, paths, {"dev": ["stacks/people.yaml"], "prod": []}).stacks == {
        "dev": ("stacks/people.yaml changed",)
    }


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        file = folder / "stacks" / f"Pulumi.{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (folder / "Pulumi.yaml").touch()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project below the top of its repository, on a branch behind main."""
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    folder = tmp_path / "platform"
    write(folder, dev="1", prod="1", old="1", later="1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "begin")
    git(tmp_path, "switch", "--quiet", "--create", "branch")
    git(tmp_path, "switch", "--quiet", "main")
    write(folder, later="2")
    git(tmp_path, "commit", "--quiet", "--all", "--message", "main goes on")
    git(tmp_path, "switch", "--quiet", "branch")
    return folder


def test_changes_of_main_are_not_changes_of_the_branch(project: Path) -> None:
    assert changed(project, "main") == Changed({}, ())


def test_commits_edits_and_new_files_of_a_branch_all_count(project: Path) -> None:
    write(project, dev="2")
    git(project, "commit", "--quiet", "--all", "--message", "dev")
    write(project, prod="2", new="1")
    (project / "stacks/Pulumi.old.yaml").unlink()
    (project.parent / "gpu_tenancy/model").mkdir(parents=True)
    (project.parent / "gpu_tenancy/model/of-another-project.py").write_text("", encoding="utf-8")
    found = changed(project, "main")
    assert list(found.stacks) == ["dev", "new", "prod"]
    assert found.gone == ("old",)


def test_a_branch_that_removes_the_last_stacks_names_them(project: Path) -> None:
    for file in (project / "stacks").iterdir():
        file.unlink()
    found = changed(project, "main")
    assert found.stacks == {}
    assert found.gone == ("dev", "later", "old", "prod")


def test_a_renamed_stack_is_a_deleted_and_a_new_one(project: Path) -> None:
    git(project, "mv", "stacks/Pulumi.dev.yaml", "stacks/Pulumi.dev2.yaml")
    found = changed(project, "main")
    assert (list(found.stacks), found.gone) == (["dev2"], ("dev",))


def test_a_ref_that_is_not_here_is_refused(project: Path) -> None:
    with pytest.raises(ConsoleError) as refused:
        changed(project, "origin/nowhere")
    assert str(refused.value) == (
        "origin/nowhere: git merge-base failed: fatal: Not a valid object name origin/nowhere; "
        "specify a branch, tag or commit that is fetched with its history"
    )


def test_names_go_to_the_output_and_reasons_beside_it(project: Path) -> None:
    write(project, dev="2", prod="2")
    (project / "stacks/Pulumi.old.yaml").unlink()
    seen = tenancy("stack", "changed", "--base", "main", project=project)
    assert (seen.exit_code, seen.stdout) == (0, "dev\nprod\n")
    assert seen.stderr.splitlines() == [
        "· dev: stacks/Pulumi.dev.yaml changed",
        "· prod: stacks/Pulumi.prod.yaml changed",
        "· old: stack file removed; delete its resources with `pulumi destroy -s old`",
    ]
