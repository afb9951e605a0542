"""The command of `tenancy` in a command line."""

from collections.abc import Sequence
from typing import Any, Final

import typer
from typer.core import TyperGroup

from gpu_tenancy.cli.main import app


def _tree() -> TyperGroup:
    tree = typer.main.get_command(app)
    assert isinstance(tree, TyperGroup)
    return tree


TREE: Final = _tree()
GROUPS: Final = {name: group.commands for name, group in TREE.commands.items() if isinstance(group, TyperGroup)}


def command_of(words: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """The command or group that the first words after `tenancy` name, and the remaining words."""
    command: Any = TREE
    left = list(words)
    while isinstance(command, TyperGroup) and left and not left[0].startswith("-"):
        assert left[0] in command.commands, f"no command: {words}"
        command = command.commands[left.pop(0)]
    return command, left
