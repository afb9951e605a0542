"""The tree of commands: groups, old names, and the names that texts of the repository print."""

import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from cli_builders import tenancy
from command_lines import GROUPS, TREE

from gpu_tenancy.cli.main import RENAMED

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_answers_with_the_new_one_and_changes_nothing(old: str) -> None:
    name, *options = old.split()
    seen = tenancy(name, "some", *options, "words")
    assert (seen.stdout, seen.exit_code) == ("", 2)
    assert seen.stderr == f"error: `tenancy {old}` is now `tenancy {RENAMED[old]}`\n"


@pytest.mark.parametrize("new", RENAMED.values())
def test_a_new_name_is_one_of_a_command(new: str) -> None:
    seen = tenancy(*(word for word in new.split() if not word.startswith("-")), "--help")
    assert seen.exit_code == 0
    assert all(option in seen.stdout for option in new.split() if option.startswith("-"))


def test_the_help_has_the_commands_of_every_day_and_groups_without_old_names() -> None:
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
        if name not in {"CHANGELOG.md", "tests/cli/test_cli_tree.py"} and (ROOT / name).is_file():
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
