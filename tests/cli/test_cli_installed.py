"""The wheel, installed into an empty environment: a project that `tenancy stack init` makes works there."""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from plugin_process import plugin
from repository import ROOT

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cli.starting import start
from gpu_tenancy.engine.project import preview
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import read_file

pytestmark = pytest.mark.process


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel and what it depends on, and a project made there."""

    wheel: Path
    python: Path
    project: Path
    environment: Mapping[str, str]

    def run(self, *words: str, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Runs a program of the environment in a folder; left out, in the project."""
        program, *arguments = words
        return subprocess.run(
            [str(self.python.parent / program), *arguments],
            cwd=folder or self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


def run(*words: object, **variables: str) -> None:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist")
    (wheel,) = (folder / "dist").glob("*.whl")
    environment = folder / "environment"
    # What the wheel depends on, at the versions of the lock, without anything that only this repository's tests need.
    run(
        *(sys.executable, "-m", "uv", "--quiet", "sync", "--frozen", "--no-dev", "--no-install-project"),
        *("--extra", "deploy"),
        *("--python", sys.executable),
        UV_PROJECT_ENVIRONMENT=str(environment),
    )
    python = environment / "bin" / "python"
    run(sys.executable, "-m", "uv", "--quiet", "--offline", "pip", "install", "--no-deps", "--python", python, wheel)
    own = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    found = Installed(wheel, python, folder / "my-platform", own)
    done = found.run("tenancy", "stack", "init", str(found.project), folder=folder)
    assert done.returncode == 0, done.stderr
    return found


@pytest.mark.slow
def test_the_wheel_has_one_name_and_no_links(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = wheel.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"gpu_tenancy"}
    assert "gpu_tenancy/policy/workloads/rule_engine/server.py" in names
    assert not [name for name in names if name.endswith(".pyc")]


def test_a_new_project_has_a_program_a_stack_policy_settings_a_workflow_and_a_test(installed: Installed) -> None:
    files = {str(file.relative_to(installed.project)) for file in installed.project.rglob("*") if file.is_file()}
    assert files >= {
        "Pulumi.yaml",
        "__main__.py",
        "requirements.txt",
        "stacks/Pulumi.dev.yaml",
        "stacks/schema.json",
        "policy/config/workloads-prod.json",
        ".github/workflows/pull-request.yaml",
        "tests/test_stacks.py",
    }


@pytest.mark.slow
def test_the_new_projects_preview_evaluates_the_shipped_packs(installed: Installed) -> None:
    assert installed.run("tenancy", "stack", "validate").returncode == 0
    done = installed.run(
        *("tenancy", "preview", "dev", "--policy", "workloads", "--policy", "clouds", "--out", "out"),
    )
    assert done.returncode == 0, done.stderr
    assert "gpu-workloads" in done.stdout
    assert (installed.project / "out" / "report.html").is_file()
    assert len(list((installed.project / "out" / "objects").rglob("*.yaml"))) > 20


@pytest.mark.slow
def test_its_test_passes_and_fails_with_a_mistake(installed: Installed) -> None:
    # Its own pytest would come with requirements.txt; ours runs it, on the installed package.
    (packages,) = (installed.python.parents[1] / "lib").glob("python3.*/site-packages")

    def tested() -> int:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
            cwd=installed.project,
            env={**installed.environment, "PYTHONPATH": str(packages)},
            capture_output=True,
            check=False,
            timeout=300,
        ).returncode

    assert tested() == 0
    stack = installed.project / "stacks" / "Pulumi.dev.yaml"
    text = stack.read_text(encoding="utf-8")
    stack.write_text(text.replace("guaranteed: 16", "guaranteed: 1600"), encoding="utf-8")
    assert tested() == 1
    stack.write_text(text, encoding="utf-8")


@pytest.mark.slow
def test_commands_outside_a_project_report_it(installed: Installed) -> None:
    nowhere = installed.project.parent
    for words in (["stack", "validate"], ["preview", "dev"], ["stack", "changed", "--base", "HEAD"]):
        done = installed.run("tenancy", *words, folder=nowhere)
        assert done.returncode == 1, done.stderr
        assert "no Pulumi.yaml in" in done.stderr
        assert "--project" in done.stderr


def test_the_folder_of_a_pack_is_printed_for_pulumi(installed: Installed) -> None:
    done = installed.run("tenancy", "catalogue", "packs", "clouds")
    folder = Path(done.stdout.strip())
    assert (folder / "PulumiPolicy.yaml").is_file()
    assert installed.python.parents[1] in folder.parents


@pytest.mark.slow
def test_the_plugin_of_the_page_on_other_languages_serves_the_components_of_the_package(
    installed: Installed, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "languages.md").read_text(encoding="utf-8")
    files = re.findall(r"^```\w*\n# file: (\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == ["__main__.py", "PulumiPlugin.yaml", "requirements.txt"]
    for name, text in files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    with plugin(tmp_path, str(installed.python), PYTHONPATH="") as started:
        components = json.loads(started.schema())["resources"]
    assert sorted(components) == ["gpu-tenancy:index:Platform", "gpu-tenancy:index:Tenancy"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "options", "problem"),
    [
        ("my platform", (), "'my platform' is not a valid project name; use letters, digits, '_', '.' and '-'"),
        ("other", ("--cloud", "ibm"), "unknown cloud 'ibm'; use one of aws, azure, gcp"),
        ("my-platform", (), "my-platform/Pulumi.yaml already exists; specify a new folder"),
    ],
)
def test_an_impossible_project_is_refused_and_not_written(
    installed: Installed, folder: str, options: tuple[str, ...], problem: str
) -> None:
    parent = installed.project.parent
    before = sorted(parent.rglob("Pulumi.yaml"))
    done = installed.run("tenancy", "stack", "init", folder, *options, folder=parent)
    assert done.returncode == 1
    assert problem in " ".join(done.stderr.split())
    assert sorted(parent.rglob("Pulumi.yaml")) == before


@pytest.mark.slow
def test_the_clouds_sdk_is_an_extra_of_the_requirement(installed: Installed) -> None:
    parent = installed.project.parent
    assert (
        installed.run(
            "tenancy", "stack", "init", "two-clouds", "--cloud", "gcp", "--cloud", "aws", folder=parent
        ).returncode
        == 0
    )
    version = installed.run("python", "-c", "import importlib.metadata as m; print(m.version('gpu-tenancy'))")
    assert f"gpu-tenancy[aws,gcp]=={version.stdout.strip()}\n" in (parent / "two-clouds/requirements.txt").read_text()


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_the_stack_of_a_new_project_is_for_its_cloud(tmp_path: Path, cloud: str) -> None:
    start(tmp_path / cloud, (cloud, "aws"))
    stack = load(read_file(tmp_path / cloud / "stacks" / "Pulumi.dev.yaml"))
    assert stack.cluster.cloud == cloud


def test_a_program_without_its_packages_reports_them(tmp_path: Path) -> None:
    start(tmp_path / "new")
    with pytest.raises(
        ConsoleError, match=r"__main__\.py imports gpu_tenancy\.components, .* install the requirements"
    ):
        preview("dev", tmp_path / "new")
