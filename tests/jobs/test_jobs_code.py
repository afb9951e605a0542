"""A folder of code in the object of a job: packed files, refused files, and the pod's command that unpacks it."""

import os
import subprocess
from pathlib import Path

import pytest
from live_builders import state

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.jobs.job_files import LARGEST, packed
from gpu_tenancy.jobs.submitting import Wish, job_of
from gpu_tenancy.model.manifests.pods import ANNOTATION, STAYS, unpacking

IMAGE = "registry.example.com/ml/train:3.0.1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "project"
    (found / "pkg" / "__pycache__").mkdir(parents=True)
    (found / ".venv").mkdir()
    for name in ("train.py", "pkg/model.py", "pkg/__pycache__/model.pyc", ".venv/lib.py", "data.bin"):
        (found / name).write_text(f"print('{name}')\n", encoding="utf-8")
    (found / "run.sh").write_text('#!/bin/sh\necho "$PWD:$*"\n', encoding="utf-8")
    (found / "run.sh").chmod(0o755)
    (found / "link.py").symlink_to("train.py")
    return found


def unpacked(code: str, tmp_path: Path, *command: str) -> tuple[str, set[str]]:
    """Runs a command as the container of a pod would, with folders of this machine."""
    there = tmp_path / "container"
    there.mkdir()
    (tmp_path / "archive").write_text(code, encoding="utf-8")
    shell, option, script, *rest = unpacking(command)
    script = script.replace("/gpu-tenancy/code", str(tmp_path / "archive")).replace("cd /code", f"cd {there}")
    done = subprocess.run([shell, option, script, *rest], capture_output=True, text=True, check=True)
    files = {str(Path(above, name).relative_to(there)) for above, _, names in os.walk(there) for name in names}
    return done.stdout.replace(str(there), "THERE"), files


@pytest.mark.process
def test_the_command_runs_where_the_code_is_unpacked(folder: Path, tmp_path: Path) -> None:
    output, files = unpacked(packed(folder), tmp_path, "./run.sh", "--lr", "0.1 x")
    assert output == "THERE:--lr 0.1 x\n"
    assert files == {"train.py", "pkg/model.py", "data.bin", "run.sh", "link.py"}


@pytest.mark.process
def test_a_work_tree_of_git_leaves_out_what_git_ignores(folder: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / ".gitignore").write_text("*.bin\n.venv/\n__pycache__/\n", encoding="utf-8")
    _, files = unpacked(packed(folder), tmp_path, "true")
    assert files == {"train.py", "pkg/model.py", "run.sh", "link.py", ".gitignore"}


@pytest.mark.process
def test_the_same_files_are_the_same_text(folder: Path) -> None:
    first = packed(folder)
    os.utime(folder / "train.py", (1, 1))
    assert packed(folder) == first


@pytest.mark.process
def test_what_is_too_large_or_no_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "weights").write_bytes(os.urandom(LARGEST + 1))
    with pytest.raises(ConsoleError) as error:
        packed(folder)
    assert "exceed 180 KiB; largest files: weights, " in error.value.what
    assert "--mount" in error.value.fix
    with pytest.raises(ConsoleError, match="is not a folder"):
        packed(folder / "train.py")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConsoleError, match="has no files"):
        packed(tmp_path / "empty")


def test_pods_get_the_archive_as_a_file() -> None:
    wish = Wish(IMAGE, ("python", "train.py"), "x", code="Y29kZQ==")
    template = job_of(wish, "research", state())["spec"]["template"]
    assert template["metadata"]["annotations"] == {**STAYS, ANNOTATION: "Y29kZQ=="}
    (container,) = template["spec"]["containers"]
    assert container["command"][-2:] == ["python", "train.py"]
    assert {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]} == {
        "code": "/code",
        "code-archive": "/gpu-tenancy",
    }
    assert template["spec"]["volumes"][1]["downwardAPI"]["items"] == [
        {"path": "code", "fieldRef": {"fieldPath": f"metadata.annotations['{ANNOTATION}']"}}
    ]


def test_code_needs_a_command_of_each_pod() -> None:
    with pytest.raises(ConsoleError, match="no command"):
        job_of(Wish(IMAGE, code="x"), "research", state())
    with pytest.raises(ConsoleError, match="--framework ray"):
        job_of(Wish(IMAGE, ("python",), code="x", framework="ray"), "research", state())
