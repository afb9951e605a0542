"""Runs git for comparisons of a project with another ref."""

import subprocess
from pathlib import Path
from typing import Final

from gpu_tenancy.base.errors import ConsoleError

_SILENT: Final = {"merge-base": "no common ancestor with HEAD"}


def git(project: Path, ref: str, *arguments: str) -> str:
    """Output of a git command in the folder of a project. Raises ConsoleError if git is not installed or fails."""
    try:
        done = subprocess.run(["git", "-C", str(project), *arguments], check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise ConsoleError(f"{ref}: git not found on PATH", "install git") from error
    if done.returncode:
        reason = done.stderr.strip() or _SILENT.get(arguments[0], "no output")
        raise ConsoleError(
            f"{ref}: git {arguments[0]} failed: {reason.splitlines()[-1]}",
            "specify a branch, tag or commit that is fetched with its history",
        )
    return done.stdout
