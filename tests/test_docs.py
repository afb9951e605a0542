"""The pages under docs/ do what they say."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from sys import executable

import pytest
import yaml
from repository import ROOT

PARTS = ("gpu_tenancy", "components", "stacks", "__main__.py", "Pulumi.yaml")
BLOCK = re.compile(r"^```(yaml|python|diff)\n# (file|add to|in): (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the project, to follow a page in."""
    for part in PARTS:
        place = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        place(ROOT / part, tmp_path / part)
    return tmp_path


def blocks(page: str) -> Iterator[tuple[str, str, str]]:
    """How, where and what: each block of a page that goes into the project."""
    for _, how, where, what in BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
        yield how, where, what


def follow(project: Path, how: str, where: str, what: str) -> None:
    file = project / where
    if how == "file":
        assert not file.exists(), where
        file.write_text(what, encoding="utf-8")
    elif how == "add to":
        with file.open("a", encoding="utf-8") as existing:
            existing.write(what)
    else:
        before = file.read_text(encoding="utf-8")
        file.write_text(patched(before.splitlines(), what.splitlines()), encoding="utf-8")


def patched(lines: list[str], diff: list[str]) -> str:
    """Lines after a diff without line numbers: ' ' is looked up, '-' goes, '+' comes after what was looked at last."""
    at = 0
    for line in diff:
        if line.startswith("+"):
            lines.insert(at, line[1:])
            at += 1
        else:
            at = lines.index(line[1:])
            if line.startswith("-"):
                del lines[at]
            else:
                at += 1
    return "\n".join(lines) + "\n"


def preview(project: Path, stack: str) -> tuple[int, str, Path]:
    out = project / "out"
    # `-m` puts the working folder first, so the copy's modules run and not this project's.
    done = run(
        [executable, "-c", "from gpu_tenancy.console.cli import main; main()", "preview", stack, "--out", str(out)],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr, out / "objects"


def test_a_cloud_is_added_as_the_page_says(copy: Path) -> None:
    steps = list(blocks("another-cloud.md"))
    assert [how for how, _, _ in steps] == ["add to", "file", "file", "in", "file", "in", "file"]
    for step in steps:
        follow(copy, *step)
    code, words, objects = preview(copy, "coreweave")
    assert code == 0, words
    (pool,) = (
        found
        for file in objects.rglob("*.yaml")
        for found in yaml.safe_load_all(file.read_text(encoding="utf-8"))
        if found["kind"] == "NodePool"
    )
    assert pool["spec"]["instanceType"] == "gd-8xh100ib-i128"
    assert (pool["spec"]["minNodes"], pool["spec"]["maxNodes"]) == (0, 4)
    assert pool["spec"]["nodeTaints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]


def test_the_added_cloud_refuses_what_its_row_refuses(copy: Path) -> None:
    for step in blocks("another-cloud.md"):
        follow(copy, *step)
    stack = copy / "stacks" / "Pulumi.coreweave.yaml"
    stack.write_text(stack.read_text(encoding="utf-8").replace("fabric: true", "capacity: spot"), encoding="utf-8")
    code, words, _ = preview(copy, "coreweave")
    assert code == 1
    assert "pools.h100.capacity: spot is not there: node pools of CKS have no spot nodes here; use on-demand" in words


def test_without_its_module_the_added_cloud_is_unknown_to_the_project(copy: Path) -> None:
    for how, where, what in blocks("another-cloud.md"):
        if not where.startswith("components/"):
            follow(copy, how, where, what)
    code, words, _ = preview(copy, "coreweave")
    assert code == 3
    assert "components.clouds.coreweave" in words


def test_a_service_that_is_only_described_needs_rows_alone(copy: Path) -> None:
    for how, where, what in list(blocks("another-cloud.md"))[:2]:
        follow(copy, how, where, what)
    (copy / "stacks" / "Pulumi.described.yaml").write_text(
        "config:\n"
        "  gpu-tenancy:cluster: {cloud: existing, provider: coreweave}\n"
        "  gpu-tenancy:pools: {h100: {machine: gd-8xh100ib-i128, nodes: 2}}\n"
        "  gpu-tenancy:teams: {a: {owner: o, costCenter: c, gpus: {h100: {guaranteed: 8}}}}\n",
        encoding="utf-8",
    )
    code, words, _ = preview(copy, "described")
    assert code == 0, words
