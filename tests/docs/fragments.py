"""Stacks on pages, and parts of stacks, inserted at the place in their mark."""

import re
from pathlib import Path
from typing import Any, Final, cast

import yaml
from blocks import Block, Mark, blocks
from repository import ROOT

from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import read_file
from gpu_tenancy.model.spec import NAMESPACE, Stack

STACKS: Final = ROOT / "stacks"
OWN: Final = Path(__file__).parent / "stacks"  # stacks for parts that fit into none of the project's
_NAMED: Final = re.compile(r"# file: (?:stacks/)?(?P<name>Pulumi\.[\w-]+\.yaml)\n")


def load_fragment(block: Block, folder: Path) -> Stack:
    """The stack of a block with a mark `stack`, or of which the block is a part. Raises StackError if it is not valid.

    `folder` gets the stacks of the project, and the page's files.
    """
    assert block.mark is not None
    for file in (*STACKS.glob("*.yaml"), *OWN.glob("*.yaml")):
        (folder / file.name).write_bytes(file.read_bytes())
    for other in blocks(block.page):
        if (named := _NAMED.match(other.text)) and _is_whole(other.mark):
            (folder / named["name"]).write_text(other.text, encoding="utf-8")
    if _is_whole(block.mark):
        named = _NAMED.match(block.text)
        file = folder / (named["name"] if named else "Pulumi.page.yaml")
        file.write_text(_whole(block.text), encoding="utf-8")
        return load(read_file(file))
    file = folder / "Pulumi.page.yaml"
    name = block.mark.options.get("over") or block.mark.options["into"]
    base = yaml.safe_load((folder / f"Pulumi.{name}.yaml").read_text(encoding="utf-8"))["config"]
    part = yaml.safe_load(block.text)
    if "into" in block.mark.options:
        content = part_of(base, block)
    else:
        content = {**base, **part.get("config", part)}
        if f"{NAMESPACE}:teams" in part:  # the others of the base name its teams
            content = {key: value for key, value in content.items() if key in part or key != f"{NAMESPACE}:datasets"}
    file.write_text(yaml.safe_dump({"config": content}), encoding="utf-8")
    return load(read_file(file))


def part_of(base: Any, block: Block) -> Any:
    """The config of a stack with a block as a part of it; a part of a server or a job is put into it."""
    assert block.mark is not None
    part = _placed(yaml.safe_load(block.text), block.mark)
    return merged(base, part, max(4, 1 + len(block.mark.options.get("at", "").split("."))))


def _is_whole(mark: Mark | None) -> bool:
    return mark is not None and mark.kind == "stack" and not {"over", "into"} & set(mark.options)


def _whole(text: str) -> str:
    """The file of a stack, whose first key the block may have left out."""
    return text if "config:" in text else f"config:\n{text}"


def _placed(part: Any, mark: Mark) -> Any:
    """The config of a stack that has nothing but a part, at its place."""
    if "config" in part:
        return part["config"]
    section, *inner = mark.options.get("at", "").split(".")
    for key in reversed(inner):
        part = {key: part}
    return {f"{NAMESPACE}:{section}": part} if section else part


def merged(base: Any, over: Any, levels: int = 4) -> Any:
    """Data with other data merged into it: sections, teams and their keys are merged, a job or a server is replaced."""
    if not levels or not isinstance(base, dict) or not isinstance(over, dict):
        return over
    inner, outer = cast("dict[str, Any]", over), cast("dict[str, Any]", base)
    return {**outer, **{key: merged(outer.get(key), value, levels - 1) for key, value in inner.items()}}
