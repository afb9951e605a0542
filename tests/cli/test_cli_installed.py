"""The wheel, installed into an empty environment: a project that `tenancy stack init` makes works there."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Final
from urllib.parse import unquote

import pytest
import yaml
from cli_builders import git, tenancy
from object_server import serving
from plugin_process import plugin
from repository import ROOT
from rich.text import Text
from starts import GUARD
from workflow_tools import ACTION, WORKFLOWS, actionlint, run_script, script, steps
from workflow_tools import run as run_tool

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import Report
from gpu_tenancy.cli.starting import requirement, start
from gpu_tenancy.engine.project import preview
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import read_file

pytestmark = pytest.mark.process

UV: Final = (sys.executable, "-m", "uv", "--quiet")


@dataclass(frozen=True)
class Installed:
    wheel: Path
    python: Path
    project: Path
    environment: Mapping[str, str]

    @property
    def version(self) -> str:
        return self.wheel.name.split("-")[1]

    def run(self, *words: str, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
        program, *arguments = words
        return subprocess.run(
            [str(self.python.parent / program), *arguments],
            cwd=folder or self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=GUARD,
        )


def run(*words: object, **variables: str) -> None:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    # The source distribution, and the wheel from that.
    own_python = ("--python", sys.executable, "--no-build-isolation", "--offline")
    run(*UV, "build", *own_python, "--out-dir", folder / "dist")
    (wheel,) = (folder / "dist").glob("*.whl")
    environment = folder / "environment"
    # What the wheel depends on, at the versions of the lock, without anything that only this repository's tests need.
    locked = ("sync", "--frozen", "--no-dev", "--all-extras", "--no-install-project", "--python", sys.executable)
    run(*UV, *locked, UV_PROJECT_ENVIRONMENT=str(environment))
    python = environment / "bin" / "python"
    run(*UV, "--offline", "pip", "install", "--no-deps", "--python", python, wheel)
    own = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    own |= {"PATH": f"{environment / 'bin'}:{own['PATH']}"}
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
    assert f"gpu_tenancy-{installed.version}.dist-info/licenses/LICENSE" in names


@pytest.mark.slow
def test_wheel_of_tree_equals_wheel_of_sdist(installed: Installed, tmp_path: Path) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.read_bytes() == installed.wheel.read_bytes()


@pytest.mark.slow
def test_new_project_has_all_its_files(installed: Installed) -> None:
    files = {str(file.relative_to(installed.project)) for file in installed.project.rglob("*") if file.is_file()}
    assert files >= {
        "Pulumi.yaml",
        "__main__.py",
        "requirements.txt",
        "stacks/Pulumi.dev.yaml",
        "stacks/schema.json",
        "policy/config/workloads-prod.json",
        ".github/workflows/pull-request.yaml",
        ".github/workflows/comment.yaml",
        ".github/actions/tenancy/action.yml",
        "tests/test_stacks.py",
    }
    action = installed.project / ".github/actions/tenancy/action.yml"
    assert action.read_bytes() == ACTION.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("cloud", ["", "aws", "azure", "gcp"])
def test_new_project_passes_its_printed_commands_and_workflow(installed: Installed, tmp_path: Path, cloud: str) -> None:
    options = ("--cloud", cloud) if cloud else ()
    made = installed.run("tenancy", "stack", "init", "my-platform", *options, folder=tmp_path)
    done = run_script(made.stdout.partition("\nnext:\n")[2], tmp_path, dict(installed.environment))
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout.splitlines()[1:]
    if not cloud:
        assert shown.pop(0).startswith("Expected in the cluster, not checked: ")
    assert shown[0] == "OK"
    assert "no mandatory violations" in done.stdout
    project = tmp_path / "my-platform"
    assert len(list((project / "out/dev/objects").rglob("*.yaml"))) > 20
    shutil.rmtree(project / "out")

    # The action of its workflow, in a pull request that adds the project to an empty repository.
    git(project, "commit", "--quiet", "--allow-empty", "--message", "empty")
    git(project, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "project")
    given = {"TENANCY": "tenancy", "BASE": "origin/main", "OUT": "out", "REAL": "", "GITHUB_STEP_SUMMARY": "summary.md"}
    done = run_script(script(ACTION.name, "Preview changed stacks"), project, {**installed.environment, **given})
    assert done.returncode == 0, done.stdout + done.stderr
    comment = (project / "out/comment.md").read_text(encoding="utf-8")
    assert "| ✓ | `dev` | OK |" in comment
    assert "no mandatory violations" in comment
    assert (project / "summary.md").read_text(encoding="utf-8") == comment


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
            timeout=GUARD,
        ).returncode

    assert tested() == 0
    stack = installed.project / "stacks" / "Pulumi.dev.yaml"
    text = stack.read_text(encoding="utf-8")
    stack.write_text(text.replace("guaranteed: 16", "guaranteed: 1600"), encoding="utf-8")
    assert tested() == 1
    stack.write_text(text, encoding="utf-8")


def test_commands_outside_a_project_report_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["stack", "validate"], ["preview", "dev"], ["stack", "changed", "--base", "HEAD"]):
        done = tenancy(*words)
        assert done.exit_code == 1, done.stderr
        assert "no Pulumi.yaml in" in done.stderr
        assert "--project" in done.stderr


COLUMNS: Final = 80
READ_ONLY: Final = ("LocalQueue", "Namespace", "Workload")  # kinds that a researcher may not list in the whole cluster


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Path]]:
    """Kubeconfigs of a foreign cluster: an administrator's, and a researcher's."""
    objects = yaml.safe_load_all((ROOT / "tests/survey/clusters/consistent.yaml").read_text(encoding="utf-8"))
    served: dict[tuple[str, str], list[Mapping[str, object]] | None] = {
        ("v1", "ConfigMap"): [], ("v1", "Pod"): [], ("kueue.x-k8s.io/v1beta2", "Workload"): [],
        ("v1", "LimitRange"): [], ("authentication.k8s.io/v1", "SelfSubjectReview"): [],
        ("storage.k8s.io/v1", "StorageClass"): [],
    }  # fmt: skip
    for one in objects:
        found = served.setdefault((one["apiVersion"], one["kind"]), [])
        assert found is not None
        found.append(one)
    limited = {key: None if key[1] in READ_ONLY else found for key, found in served.items()}
    with (
        serving(tmp_path_factory.mktemp("admin"), served) as admin,
        serving(tmp_path_factory.mktemp("researcher"), limited) as researcher,
    ):
        yield {"admin": admin, "researcher": researcher}


def on_a_terminal(installed: Installed, command: str, kubeconfig: Path) -> tuple[int, str]:
    """Exit code of a command in the project, and its output on a terminal of 80 columns."""
    ours, its = pty.openpty()
    environment = {**installed.environment, "KUBECONFIG": str(kubeconfig), "COLUMNS": str(COLUMNS), "TERM": "xterm"}
    program, *words = command.split()
    with subprocess.Popen(
        [str(installed.python.parent / program), *words],
        cwd=installed.project, env=environment, stdin=subprocess.DEVNULL, stdout=its, stderr=its,
    ) as process:  # fmt: skip
        os.close(its)
        shown = b""
        with suppress(OSError):  # Linux ends a terminal whose programs have ended by an error.
            while part := os.read(ours, 2**16):
                shown += part
        os.close(ours)
    return process.returncode, Text.from_ansi(shown.decode().replace("\r\n", "\n")).plain


ADOPT: Final = "tenancy cluster adopt --out stacks/Pulumi.adopted.yaml"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "command", "answer"),
    [
        ("admin", "tenancy cluster inspect", (0, "nvidia.com/gpu: 16 exist")),
        ("admin", "tenancy cluster snapshot --out snapshot.json", (0, "0 workloads in snapshot.json")),
        ("admin", ADOPT, (0, "same: PriorityClass 1")),
        ("admin", "tenancy cluster hold big --until 4h --dry-run", (0, "ResourceFlavor big: held by ada since")),
        ("admin", "tenancy cluster hold bigger --dry-run", (1, "bigger: no team, flavor or pool has this name")),
        ("admin", "tenancy cluster release", (0, "nothing is held")),
        ("admin", "tenancy usage", (0, "total nvidia.com/gpu: 16 guaranteed")),
        # Without rights they say what is missing and whom to ask.
        ("researcher", "tenancy cluster inspect", (0, "not readable: LocalQueue, Workload")),
        ("researcher", "tenancy cluster snapshot --out snapshot.json", (1, "LocalQueues not readable")),
        ("researcher", "tenancy cluster hold big --dry-run", (1, "use the kubeconfig of an administrator")),
        ("researcher", ADOPT, (1, "the cluster shows no namespaces with a LocalQueue")),
    ],
)
def test_commands_for_a_cluster_of_others_work_at_80_columns(
    installed: Installed, clusters: Mapping[str, Path], who: str, command: str, answer: tuple[int, str]
) -> None:
    code, expected = answer
    done, shown = on_a_terminal(installed, command, clusters[who])
    assert done == code, shown
    assert expected in " ".join(shown.split()), shown
    # Only a path or an address alone may be longer.
    assert [line for line in shown.splitlines() if len(line) > COLUMNS and " " in line.strip()] == []
    for made in ("snapshot.json", "stacks/Pulumi.adopted.yaml"):
        (installed.project / made).unlink(missing_ok=True)


@pytest.mark.slow
def test_the_live_page_is_served_and_ends(installed: Installed, clusters: Mapping[str, Path]) -> None:
    """Its templates, script and style are in the wheel."""
    # As in a terminal: what is started in the background, as CI may be, ignores Ctrl-C.
    words = ["env", "--default-signal=INT", str(installed.python.parent / "tenancy"), "ui", "-A"]
    words += ["--kubeconfig", str(clusters["admin"])]
    with subprocess.Popen(
        words, cwd=installed.project, env=installed.environment, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout
        address = running.stdout.readline().strip()
        with urllib.request.urlopen(address, timeout=GUARD) as answer:  # noqa: S310 - it is http on the loopback
            page = answer.read().decode()
        assert "red-queue" in page
        assert "<script" in page
        assert "<style" in page
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0


@pytest.mark.slow
def test_the_folder_of_a_pack_is_printed_for_pulumi(installed: Installed) -> None:
    folder = Path(installed.run("tenancy", "catalogue", "packs", "clouds").stdout.strip())
    assert (folder / "PulumiPolicy.yaml").is_file()
    assert installed.python.parents[1] in folder.parents


@pytest.mark.slow
def test_documented_plugin_serves_components_of_package(installed: Installed, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "languages.md").read_text(encoding="utf-8")
    files = re.findall(r"^```\w*\n# file: (\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == ["__main__.py", "PulumiPlugin.yaml", "requirements.txt"]
    for name, text in files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    with plugin(tmp_path, str(installed.python), PYTHONPATH="") as started:
        components = json.loads(started.schema())["resources"]
    assert sorted(components) == ["gpu-tenancy:index:Platform", "gpu-tenancy:index:Tenancy"]


@pytest.mark.parametrize(
    ("folder", "options", "problem"),
    [
        ("my platform", (), "'my platform' is not a valid project name; use letters, digits, '_', '.' and '-'"),
        ("other", ("--cloud", "ibm"), "unknown cloud 'ibm'; use one of aws, azure, gcp"),
        ("my-platform", (), "my-platform/Pulumi.yaml already exists; specify a new folder"),
    ],
)
def test_an_impossible_project_is_refused_and_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, options: tuple[str, ...], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    start(tmp_path / "my-platform")
    done = tenancy("stack", "init", folder, *options)
    assert done.exit_code == 1
    assert problem in " ".join(done.stderr.split())
    assert [*tmp_path.rglob("Pulumi.yaml")] == [tmp_path / "my-platform/Pulumi.yaml"]


def test_the_clouds_sdk_is_an_extra_of_the_requirement(tmp_path: Path) -> None:
    start(tmp_path / "two", clouds=("gcp", "aws"))
    needed = (tmp_path / "two/requirements.txt").read_text()
    assert "# A path of this machine: for pipelines, set a git URL" in needed
    (place,) = re.findall(r"^gpu-tenancy\[aws,gcp\] @ file://(.+)$", needed, re.MULTILINE)
    assert Path(unquote(place), "pyproject.toml").is_file()


@pytest.mark.parametrize(
    ("origin", "needed"),
    [
        ({}, f"gpu-tenancy[aws]=={version('gpu-tenancy')}"),
        (
            {"url": "https://git.example.com/p.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "gpu-tenancy[aws] @ git+https://git.example.com/p.git@abc",
        ),
    ],
)
def test_a_new_project_needs_the_package_that_made_it(
    monkeypatch: pytest.MonkeyPatch, origin: object, needed: str
) -> None:
    def read_text(_name: str) -> str:
        return json.dumps(origin)

    def distribution(_name: str) -> object:
        return SimpleNamespace(version=version("gpu-tenancy"), read_text=read_text)

    monkeypatch.setattr("gpu_tenancy.cli.starting.distribution", distribution)
    assert requirement("aws") == needed


def test_workflows_of_new_project_pin_what_ours_pin(tmp_path: Path, report: Report) -> None:
    start(tmp_path / "github")
    workflows = sorted((tmp_path / "github/.github/workflows").glob("*.yaml"))
    done = run_tool(actionlint(report), "-no-color", *workflows, cwd=tmp_path / "github")
    assert (done.returncode, done.stdout) == (0, "")
    used = {step["uses"] for name in WORKFLOWS for _, step in steps(name) if "uses" in step}
    for file in workflows:
        pinned = re.findall(r"uses: (\w\S+)", file.read_text(encoding="utf-8"))
        assert pinned
        assert set(pinned) <= used
    start(tmp_path / "gitlab", ci="gitlab")
    pipeline = tmp_path / "gitlab/.gitlab-ci.yml"
    checker = ("--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci", pipeline)
    done = run_tool(Path(sys.executable).parent / "check-jsonschema", *checker)
    assert done.returncode == 0, done.stdout
    assert not (tmp_path / "gitlab/.github").exists()


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_the_stack_of_a_new_project_is_for_its_cloud(tmp_path: Path, cloud: str) -> None:
    start(tmp_path / cloud, clouds=(cloud, "aws"))
    stack = load(read_file(tmp_path / cloud / "stacks" / "Pulumi.dev.yaml"))
    assert stack.cluster.cloud == cloud


def test_a_program_without_its_packages_reports_them(tmp_path: Path) -> None:
    start(tmp_path / "new")
    with pytest.raises(
        ConsoleError, match=r"__main__\.py imports gpu_tenancy\.components, .* install the requirements"
    ):
        preview("dev", tmp_path / "new")
