"""Changes numbers in the text of a YAML file; comments, order and layout stay as they are."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import cast

import yaml

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import Path
from gpu_tenancy.model.yaml import compose


def with_numbers(text: str, changes: Mapping[Path, int], file: str) -> str:
    """The text with other numbers.

    Args:
        text: of a file that is valid YAML.
        changes: by the place of each number, which must be there.
        file: its name in messages.

    Raises:
        ConsoleError: a place is not a number of its own: it is missing, or shared by an anchor, an alias or `<<`.
    """
    text = text.removeprefix("\ufeff")  # the parsers count it differently
    root = compose(text)
    if root is None:
        raise ConsoleError(f"{file}: is empty", "add the keys")
    shared = Counter(id(node) for node in _nodes(root))
    found: list[tuple[int, int, int]] = []
    for path, number in changes.items():
        node: yaml.Node = root
        for key in path:
            below = next((value for name, value in _pairs(node) if name.value == key), None)
            if below is None or shared[id(below)] > 1:
                why = "is not written there" if below is None else "is shared by an anchor and its aliases"
                raise ConsoleError(f"{file}: {'.'.join(map(str, path))} {why}", f"set it to {number} by hand")
            node = below
        found.append((node.start_mark.index, node.end_mark.index, number))
    for start, end, number in sorted(found, reverse=True):
        text = f"{text[:start]}{number}{text[end:]}"
    return text


def _pairs(node: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
    return cast("list[tuple[yaml.Node, yaml.Node]]", node.value) if isinstance(node, yaml.MappingNode) else []


def _nodes(node: yaml.Node, above: frozenset[int] = frozenset()) -> Iterator[yaml.Node]:
    """A node and those in it; one with aliases comes once for each."""
    yield node
    if id(node) in above:
        return
    entries = cast("list[yaml.Node]", node.value) if isinstance(node, yaml.SequenceNode) else []
    for below in (*entries, *(value for _, value in _pairs(node))):
        yield from _nodes(below, above | {id(node)})
