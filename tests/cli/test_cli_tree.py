"""The tree of commands: groups, and the names that texts of the repository print."""

import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from cli_builders import tenancy
from command_lines import GROUPS, TREE

ROOT = Path(__file__).parents[2]


def test_the_help_has_the_commands_of_every_day_and_groups() -> None:
    words = re.findall(r"^│ (\S+)  ", tenancy("--help").stdout, re.MULTILINE)
    commands = [word for word in words if not word.startswith("-")]
    of_jobs = ["submit", "queue", "jobs", "claims", "logs", "top", "cancel", "requeue", "why", "fit", "ui"]
    assert commands == ["preview", "up", "usage", *of_jobs, "whatif", "replay", "cost", "size", *GROUPS]


@pytest.mark.parametrize("group", GROUPS)
def test_the_help_of_a_group_has_a_sentence_for_each_command(group: str) -> None:
    seen = tenancy(group, "--help")
    assert all(re.search(rf"^│ {name} +[A-Z].{{15,}}\. *│$", seen.stdout, re.MULTILINE) for name in GROUPS[group])


def test_the_version_is_that_of_the_package() -> None:
    assert tenancy("--version").stdout == f"tenancy {version('gpu-tenancy')}\n"


def told() -> Iterator[tuple[str, str]]:
    """The command lines in texts of the repository, with their files; history and prose about the project aside."""
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
