"""The stacks that a change affects: by their own file, or all if the program, catalogue or policies changed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final, cast

from gpu_tenancy.base.bounds import read_json
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.git import git
from gpu_tenancy.base.problems import StackError
from gpu_tenancy.model.project import existing_stacks, read_stack

_SHARED: Final = {
    "gpu_tenancy/model/catalogue": "catalogue",
    "gpu_tenancy/model": "program",
    "components": "program",
    "Pulumi.yaml": "program",
    "__main__.py": "program",
    "policy": "policy packs",
    "pyproject.toml": "Python packages",
    "requirements.txt": "Python packages",
    "uv.lock": "Python packages",
}
"""Files and folders of a project that affect every stack, the more specific ones first."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The stacks that a change affects.

    Attributes:
        gone: stacks whose file was removed, and whose resources must be destroyed.
    """

    stacks: dict[str, tuple[str, ...]]
    gone: tuple[str, ...]


def changed(project: Path, ref: str) -> Changed:
    """The stacks that differ from the merge base with a ref, including uncommitted files.

    Raises:
        ConsoleError: git is not installed, or the ref or a merge base does not exist.
    """
    common = git(project, ref, "merge-base", ref, "HEAD").strip()
    paths = git(project, ref, "diff", "--name-only", "--no-renames", "--relative", "-z", common).split("\0")
    paths += git(project, ref, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    stacks = existing_stacks(project)
    return concerned(stacks, [path for path in paths if path], {name: _read(name, project) for name in stacks})


def concerned(
    stacks: Sequence[str], paths: Sequence[str], files: Mapping[str, Collection[str]] = MappingProxyType({})
) -> Changed:
    """The stacks that changed files affect."""
    shared = dict.fromkeys(why for path in sorted(paths) if (why := _shared(path)))
    own = {name: path for path in sorted(paths) if (name := _stack(path))}
    reasons = {
        name: tuple(
            f"{why} changed"
            for why in dict.fromkeys(
                (
                    *([own[name]] if name in own else ()),
                    *(path for path in sorted(paths) if path in files.get(name, ())),
                    *shared,
                )
            )
        )
        for name in sorted(stacks)
    }
    affected = {name: why for name, why in reasons.items() if why}
    return Changed(affected, tuple(sorted(own.keys() - set(stacks))))


def _read(stack: str, project: Path) -> Collection[str]:
    try:
        return read_stack(stack, project).files.values()
    except StackError as error:
        return [problem.file for problem in error.problems]


def listed(text: str) -> tuple[str, ...]:
    """Names in a variable of a pipeline: a JSON list, or names separated by commas or spaces.

    Raises:
        ConsoleError: the text is not valid.
    """
    if not text.lstrip().startswith("["):
        return tuple(text.replace(",", " ").split())
    try:
        content: object = read_json(text)
    except ValueError as error:
        raise ConsoleError(
            f"--among: {text} is not a JSON list", 'use a list such as ["dev-aws", "prod-aws"]'
        ) from error
    names = cast("list[object]", content)
    if not all(isinstance(name, str) for name in names):
        raise ConsoleError(f"--among: {text} is not a list of strings", 'use a list such as ["dev-aws", "prod-aws"]')
    return tuple(str(name) for name in names)


def _shared(path: str) -> str:
    """Why a file affects all stacks; empty if it does not."""
    file = PurePosixPath(path)
    return next((name for place, name in _SHARED.items() if file.is_relative_to(place)), "")


def _stack(path: str) -> str:
    file = PurePosixPath(path)
    named = file.parent == PurePosixPath("stacks") and file.name.startswith("Pulumi.") and file.suffix == ".yaml"
    return file.stem.removeprefix("Pulumi.") if named else ""
