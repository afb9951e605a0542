"""Each block of each page has a mark about its test; blocks that need no server are tested here."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from blocks import PAGES, Block, Mark, blocks
from fragments import load_fragment, merged
from repository import ROOT

from gpu_tenancy.base.problems import StackError
from gpu_tenancy.model.catalogue import find_machine

ALL = [block for page in PAGES for block in blocks(page)]


def marked(kind: str) -> list[Any]:
    return [pytest.param(block, id=block.place) for block in ALL if block.mark and block.mark.kind == kind]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_block_has_a_mark_that_says_how_it_is_tested(page: Path) -> None:
    fences = re.findall(r"^\s*```", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(blocks(page)), "a block is not closed, or its fences are not indented alike"
    assert [
        f"{block.place}: {block.mark.problem if block.mark else 'no mark; add one of tests/docs/blocks.py'}"
        for block in blocks(page)
        if block.mark is None or block.mark.problem
    ] == []


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("run", "as=researcher exit=2", ""),
        ("run", "as=somebody", "run: as=somebody"),
        ("run", "", "run: as=None"),
        ("run", "as=user pods=2", "unknown options ['pods']"),
        ("file", "", "file: nothing named"),
        ("not run", "it is hard", "unknown reason 'it is hard'"),
        ("skip", "as=user", "unknown mark 'skip'"),
    ],
)
def test_a_mark_is_one_of_the_list(kind: str, text: str, problem: str) -> None:
    found = Mark(kind, text).problem
    assert problem in found
    assert bool(problem) == bool(found)


@pytest.mark.slow
@pytest.mark.parametrize("block", marked("stack"))
def test_each_stack_and_each_part_of_one_is_valid(block: Block, tmp_path: Path) -> None:
    load_fragment(block, tmp_path)


def test_a_part_with_a_misspelt_key_is_refused_at_its_place(tmp_path: Path) -> None:
    mark = Mark("stack", "into=local at=teams.ml-research.gpus")
    page = ROOT / "docs" / "submitting.md"
    block = Block(page, 1, "yaml", "a100: {garanteed: 8}\n", mark, 0, 0, "")
    with pytest.raises(StackError, match=r"teams\.ml-research\.gpus\.a100"):
        load_fragment(block, tmp_path)


def pools_in(node: Any) -> Iterator[tuple[str, str]]:
    """Machine type and kind of capacity of each pool, anywhere in a document."""
    if isinstance(node, list):
        for part in cast("list[Any]", node):
            yield from pools_in(part)
    if not isinstance(node, dict):
        return
    sections = cast("dict[str, Any]", node)
    if isinstance(sections.get("machine"), str) and "nodes" in sections:
        capacity: Any = sections.get("capacity", "on-demand")
        yield sections["machine"], capacity["kind"] if isinstance(capacity, dict) else capacity
    for part in sections.values():
        yield from pools_in(part)


def shown() -> Iterator[tuple[str, str]]:
    """Name and text of each block of a page, stack, and file of examples, in YAML."""
    yield from ((block.place, block.text) for block in ALL if block.language == "yaml")
    for folder, pattern in (("stacks", "**/*.yaml"), ("tests/docs/stacks", "**/*.yaml"), ("gpu_tenancy/cli", "*.yaml")):
        for file in sorted((ROOT / folder).glob(pattern)):
            yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")


def test_every_pool_that_is_shown_can_be_bought() -> None:
    """Also parts of stacks on existing clusters, which no check of a stack refuses."""
    found = [
        (place, *pool)
        for place, text in shown()
        for part in yaml.load_all(text, Loader=yaml.CSafeLoader)
        for pool in pools_in(part)
    ]
    assert len(found) > 60
    refused = [
        f"{place}: {machine} {kind}"
        for place, machine, kind in found
        if (row := find_machine(machine)) and row.purchase and kind in row.purchase.lacks
    ]
    assert refused == []


def test_parts_are_merged_key_by_key() -> None:
    assert merged({"a": {"b": 1, "c": [1]}, "d": 2}, {"a": {"c": [2]}}) == {"a": {"b": 1, "c": [2]}, "d": 2}


def test_page_on_submitting_has_each_kind_in_both_ways() -> None:
    shown = [block for block in blocks(ROOT / "docs" / "submitting.md") if block.mark and block.language == "yaml"]
    jobs = [job for block in shown for job in yaml.safe_load(block.text).get("training", {}).values()]
    submitted = [yaml.safe_load(block.text) for block in shown if block.mark and block.mark.kind == "submit"]
    assert {job.get("framework", "job") for job in jobs} == {
        "job", "pytorch", "jax", "mpi", "jobset", "ray", "leader-worker"
    }  # fmt: skip
    assert {manifest["kind"] for manifest in submitted} == {"Job", "TrainJob", "JobSet", "RayJob", "LeaderWorkerSet"}
    assert "tolerations" not in yaml.safe_dump(submitted), "nobody needs to write one"


@pytest.mark.parametrize("block", marked("tested"))
def test_the_test_of_a_block_exists(block: Block) -> None:
    assert block.mark is not None
    texts = (file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    assert any(f"def {block.mark.text}(" in text for text in texts), block.mark.text
