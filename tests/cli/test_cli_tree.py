"""The tree of commands, the imports of each start, the project of a command, and kubectl's errors."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from subprocess import run
from typing import Any, cast

import pytest
from builders import CREATED, EXISTING
from cli_builders import Project, small, tenancy
from command_lines import GROUPS, TREE

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import at
from gpu_tenancy.base.progress import PATIENCE, patient
from gpu_tenancy.base.terminal import ExitCode
from gpu_tenancy.cli.documentation import command_tree
from gpu_tenancy.cli.stack_reference import head
from gpu_tenancy.engine.project import preview
from gpu_tenancy.jobs.kubectl import Kubectl
from gpu_tenancy.model.project import project_folder, project_name, read_stack, stack_names

ROOT = Path(__file__).parents[2]


def test_the_help_has_the_commands_of_every_day_and_groups() -> None:
    words = re.findall(r"^│ (\S+)  ", tenancy("--help").stdout, re.MULTILINE)
    commands = [word for word in words if not word.startswith("-")]
    of_jobs = ["submit", "queue", "claims", "logs", "top", "cancel", "requeue", "why", "fit", "ui"]
    assert commands == ["preview", "up", "destroy", "usage", *of_jobs, "whatif", "replay", "cost", *GROUPS]


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_group_has_a_sentence_for_each_command(group: str) -> None:
    seen = tenancy(group, "--help")
    assert all(re.search(rf"^│ {name} +[A-Z].{{15,}}\. *│$", seen.stdout, re.MULTILINE) for name in GROUPS[group])


def test_the_version_is_that_of_the_package() -> None:
    assert tenancy("--version").stdout == f"tenancy {version('gpu-tenancy')}\n"


LINES = [name for name, _ in command_tree(TREE)]


def test_commands_and_options_stay_few() -> None:
    helps: dict[str, set[str]] = {}
    for _, command in command_tree(TREE):
        for option in command.params:
            for name in (*option.opts, *option.secondary_opts):
                helps.setdefault(name, set()).add(getattr(option, "help", "") or "")
    long = {name for name in helps if name.startswith("--")}
    assert (len(LINES) <= 45, len(long) <= 60) == (True, True), (len(LINES), len(long))
    assert helps["--all"] == helps["-A"] == {"Show all teams."}


@pytest.mark.parametrize("line", LINES)
def test_every_command_exits_as_click_programs_do(line: str) -> None:
    assert tenancy(*line.split(), "--help").exit_code == ExitCode.OK
    assert tenancy(*line.split(), "--no-such-option").exit_code == ExitCode.USAGE


def test_no_command_has_another_exit_code() -> None:
    """`sys.exit` in other rooms ends modules that are no command."""
    found = [
        (file.name, ast.unparse(call.args[0]))
        for file in (ROOT / "gpu_tenancy").rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and call.args
        if ast.unparse(call.func) == "typer.Exit" or (file.name == "main.py" and ast.unparse(call.func) == "sys.exit")
    ]
    assert len(found) > 10
    known = re.compile(r"(terminal\.)?ExitCode\.[A-Z]+")
    assert {code for _, code in found if not known.match(code)} == {"code"}, found  # that of the worst preview
    described = re.findall(r"^\| (\d+) \|", head("commands"), re.MULTILINE)
    assert [code.value for code in ExitCode] == [*map(int, described)] == [0, 1, 2, 3, 130]


def told() -> Iterator[tuple[str, str]]:
    """The command lines in texts of the repository, with their files; without history and prose about the project."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    for name in listed:
        if name != "CHANGELOG.md" and (ROOT / name).is_file():
            text = (ROOT / name).read_text(encoding="utf-8", errors="ignore")
            for line in re.findall(
                r"(?:`|^\$ |^ *|bin/|RUN\) )tenancy ([a-z][a-z-]*(?: [a-z][a-z-]*)?)", text, re.MULTILINE
            ):
                yield name, line


@pytest.mark.process
def test_every_command_that_a_text_names_exists() -> None:
    lines = set(told())
    assert len(lines) > 100
    wrong: set[tuple[str, str]] = set()
    for name, line in lines:
        first, _, second = line.partition(" ")
        if first not in TREE.commands or (second and second not in GROUPS.get(first, {second})):
            wrong.add((name, line))
    assert wrong == set()


LIGHT = ("gpu_tenancy.base", "gpu_tenancy.cli", "gpu_tenancy.model.names")  # imports of `tenancy --help`


def loaded(modules: str) -> set[str]:
    code = f"import {modules}, sys; print(*sys.modules)"
    return {*run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()}


@pytest.mark.process
def test_help_loads_neither_model_nor_client() -> None:
    found = loaded("gpu_tenancy.cli.main")
    own = {name for name in found if name.startswith("gpu_tenancy.")}
    assert "gpu_tenancy.cli.main" in own
    assert {name for name in own if not name.startswith(LIGHT)} == {"gpu_tenancy.model"}
    assert not {"kubernetes", "pulumi", "pydantic"} & found


@pytest.mark.process
def test_questions_to_a_cluster_load_no_schema_of_stacks() -> None:
    names = ("explain.show", "explain.why", "explain.fit", "jobs.listing", "survey.survey")
    modules = [f"gpu_tenancy.{name}" for name in names]
    found = loaded(", ".join(modules))
    assert found >= {*modules}
    assert not {name for name in found if name.startswith("gpu_tenancy.model.spec")}


LOG = "E1127 05:12:01.123456   12345 websocket.go:296] Unknown stream id 1, discarding message"


@pytest.mark.process
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (f"{LOG}\nerror: pod lab-0 has no container smi", ": error: pod lab-0 has no container smi"),
        (LOG, ""),
        ("E1127 is not a container", ": E1127 is not a container"),
    ],
    ids=["log and reason", "log", "no log"],
)
def test_a_reason_is_what_kubectl_answers_and_not_what_it_logs(tmp_path: Path, said: str, reason: str) -> None:
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    with pytest.raises(ConsoleError) as raised:
        Kubectl(tmp_path / "kubeconfig", (str(program),)).run("exec", "lab-0", fix="see `tenancy logs`")
    assert raised.value.what == f"`{program} exec lab-0` failed{reason}"


def test_who_has_patience_waits_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PATIENCE)
    assert patient(60) == 60
    monkeypatch.setenv(PATIENCE, "2.5")
    assert patient(60) == 150


@pytest.mark.parametrize("given", ["0.5", "-3", "nan", "inf", "long"])
def test_patience_that_is_no_number_from_1_is_named(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(PATIENCE, given)
    with pytest.raises(ConsoleError, match=f"GPU_TENANCY_PATIENCE is '{given}', not a number from 1"):
        patient(60)


@pytest.mark.parametrize("place", [".", "stacks", "stacks/of/a/team"])
def test_finds_project_from_any_of_its_folders(project: Project, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
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
    """Its parents and the working directory are not searched then."""
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


def test_unknown_stack_names_the_nearest_and_its_file(project: Project) -> None:
    with pytest.raises(ConsoleError) as refused:
        read_stack("god", project.folder)
    assert refused.value.what == "stack god does not exist"
    assert "did you mean 'good'?" in refused.value.fix
    assert refused.value.fix.endswith("or add stacks/Pulumi.god.yaml")


def test_embedded_rights_follow_operators_of_stack(project: Project) -> None:
    """Also if no job of the stack needs the operator, as in a worker of MultiKueue."""
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


def test_storage_classes_and_snapshots_run_embedded(project: Project) -> None:
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
