"""What the README says must be so."""

import re
from pathlib import Path

import pytest
from repository import ROOT

from gpu_tenancy.console.catalogue import abilities
from gpu_tenancy.console.project import stack_names
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import read_file
from gpu_tenancy.model.whatif import play, read_story

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_stack_file_of_the_readme_is_one(tmp_path: Path) -> None:
    example = blocks("yaml")[0]
    file = tmp_path / "Pulumi.readme.yaml"
    file.write_text(example, encoding="utf-8")
    assert load(read_file(file)).teams["ml-research"].gpus["a100"].limit == 32


def test_the_cloud_of_the_readme_is_one(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.readme.yaml"
    file.write_text("config:\n" + blocks("yaml")[2], encoding="utf-8")
    assert load(read_file(file)).pools["h100"].capacity.kind == "spot"


def test_the_jobs_of_the_readme_are_played_on_the_stack_local(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(blocks("yaml")[1], encoding="utf-8")
    tree = Tree(load(read_file(ROOT / "stacks" / "Pulumi.local.yaml")))
    *_, last = play(tree, read_story(file, tree))
    assert [(each.workload, each.gpus) for each in last.running] == [("try", 8)]


def test_what_each_cloud_can_is_what_its_row_says() -> None:
    headings, rows = abilities()
    lines = [headings, *rows]
    table = [f"| {' | '.join(line)} |" for line in lines]
    assert "\n".join([table[0], "|" + "---|" * len(headings), *table[1:]]) in README


@pytest.mark.parametrize("stack", stack_names())
def test_every_stack_is_named_in_the_readme(stack: str) -> None:
    assert f"`{stack}`" in README


def test_every_make_target_of_the_readme_is_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE))
    assert {"up", "test", "preview"} <= named <= targets
