"""The project of a command: found from the working directory, or specified."""

from pathlib import Path
from typing import Any, cast

import pytest
from builders import EXISTING
from cli_builders import Project, small
from components_builders import CREATED

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import at
from gpu_tenancy.engine.project import preview
from gpu_tenancy.model.project import project_folder, project_name, read_stack, stack_names


@pytest.mark.parametrize("place", [".", "stacks", "stacks/of/a/team"])
def test_a_project_is_found_from_its_folder_and_from_any_subfolder(
    project: Project, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    subfolder = project.folder / place
    subfolder.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(subfolder)
    assert project_folder() == project.folder
    assert stack_names() == ["good"]


def test_the_nearest_of_nested_projects_is_taken(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Project.at(project.folder / "inner")
    monkeypatch.chdir(inner.folder / "stacks")
    assert project_folder() == inner.folder


def test_without_a_project_the_error_names_the_ways_to_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConsoleError) as refused:
        project_folder()
    assert refused.value.what == f"{tmp_path}: no Pulumi.yaml in this folder or its parents"
    assert refused.value.fix.startswith("change to a Pulumi project, specify one with --project")
    assert "`tenancy stack init FOLDER`" in refused.value.fix


def test_a_folder_named_pulumi_yaml_is_not_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Pulumi.yaml").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConsoleError, match=r"no Pulumi\.yaml"):
        project_folder()


def test_a_specified_folder_is_taken_from_anywhere(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert project_folder(project.folder) == project.folder
    assert project_name(project.folder) == "gpu-tenancy"


def test_a_specified_folder_must_be_a_project_itself(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its parents nor the working directory are searched then."""
    monkeypatch.chdir(project.folder)
    stacks = project.folder / "stacks"
    with pytest.raises(ConsoleError) as refused:
        project_folder(stacks)
    assert str(refused.value) == (
        f"{stacks}: no Pulumi.yaml in this folder; specify the folder of a Pulumi project with --project"
    )


def test_a_project_without_stacks_shows_how_to_add_one(tmp_path: Path) -> None:
    folder = Project.at(tmp_path / "project").folder
    with pytest.raises(ConsoleError) as refused:
        stack_names(folder)
    assert str(refused.value) == f"{folder / 'stacks'}: no stack files; add a file stacks/Pulumi.NAME.yaml"
    (folder / "stacks").rmdir()
    with pytest.raises(ConsoleError, match="no stack files"):
        stack_names(folder)


def test_a_stack_that_does_not_exist_names_the_nearest_and_its_file(project: Project) -> None:
    with pytest.raises(ConsoleError) as refused:
        read_stack("god", project.folder)
    assert refused.value.what == "stack god does not exist"
    assert "did you mean 'good'?" in refused.value.fix
    assert refused.value.fix.endswith("or add stacks/Pulumi.god.yaml")


def test_rights_on_the_embedded_platform_are_those_of_the_operators_that_the_stack_has(project: Project) -> None:
    """Also where no job of the stack needs the operator, as in a worker of MultiKueue."""
    only = {"name": "worker", "stack": "worker", "secret": "kubeconfig"}
    project.write("hub", {"cluster": dict(EXISTING), "multikueue": {"workers": [only]}})
    project.write("worker", {**small(), "operators": {"lws": "installed"}, "multikueue": {"manager": "hub"}})
    roles = {
        item.name: {resource for rule in cast("Any", item.manifest)["rules"] for resource in rule["resources"]}
        for item in preview("worker", project.folder, onto=project.folder / "kubeconfig").objects
        if item.kind == "ClusterRole"
    }
    assert "leaderworkersets" in roles["gpu-tenancy-multikueue"]
    assert "trainjobs" not in roles["gpu-tenancy-multikueue"]


def test_a_stack_whose_storage_has_classes_and_snapshots_runs_on_the_embedded_platform(project: Project) -> None:
    sections = small(cluster=CREATED)
    sections["teams"]["vision"]["storage"] = {
        "plain": {"size": "1Gi"},
        "named": {"size": "1Gi", "class": "gp3", "keep": False},
        "taken": {"size": "1Gi", "snapshots": "0 3 * * *"},
    }
    project.write("good", sections)
    found = preview("good", project.folder, onto=project.folder / "kubeconfig").objects
    classes = {
        one.name: at(one.manifest, "spec", "storageClassName") for one in found if one.kind == "PersistentVolumeClaim"
    }
    assert classes == {"plain": None, "named": "gpu-tenancy-gp3-deleted", "taken": "gpu-tenancy-gp3"}
    (cron_job,) = (one for one in found if one.kind == "CronJob")
    assert "gpu-tenancy-gp3" in str(cron_job.manifest)
