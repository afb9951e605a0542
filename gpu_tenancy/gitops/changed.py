"""The stacks that a change affects: by their own file, or all if the program, catalogue or policies changed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from gpu_tenancy.base.git import git
from gpu_tenancy.base.problems import StackError
from gpu_tenancy.model.project import existing_stacks, read_stack

_PROGRAM: Final = (*(f"gpu_tenancy/{name}" for name in ("base", "engine", "kueue", "model")), "components")
_SHARED: Final = {  # files and folders of a project that affect every stack, the more specific ones first
    "catalogue": ("gpu_tenancy/model/catalogue",),
    "program": (*_PROGRAM, "Pulumi.yaml", "__main__.py"),
    "policy packs": ("policy", "gpu_tenancy/packs"),
    "Python packages": ("pyproject.toml", "requirements.txt", "uv.lock"),
}


@dataclass(frozen=True, slots=True)
class Changed:
    """The stacks that a change affects, with reasons; and `gone` stacks, whose resources must be destroyed."""

    stacks: dict[str, tuple[str, ...]]
    gone: tuple[str, ...]


def changed(project: Path, ref: str) -> Changed:
    """The stacks that differ from the merge base with a ref, including uncommitted files.

    Raises ConsoleError if git is not installed, or the ref or a merge base does not exist.
    """
    common = git(project, ref, "merge-base", ref, "HEAD").strip()
    paths = git(project, ref, "diff", "--name-only", "--no-renames", "--relative", "-z", common).split("\0")
    paths += git(project, ref, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    files: dict[str, Collection[str]] = {}
    for name in existing_stacks(project):
        try:
            files[name] = read_stack(name, project).files.values()
        except StackError as error:
            files[name] = [problem.file for problem in error.problems]
    return concerned(list(files), [path for path in paths if path], files)


def concerned(
    stacks: Sequence[str], paths: Sequence[str], files: Mapping[str, Collection[str]] = MappingProxyType({})
) -> Changed:
    """The stacks that changed files affect."""
    shared: dict[str, None] = {}
    own: dict[str, str] = {}
    for path in sorted(paths):
        file = PurePosixPath(path)
        if why := next((name for name, places in _SHARED.items() if any(map(file.is_relative_to, places))), ""):
            shared[why] = None
        if file.parent == PurePosixPath("stacks") and file.name.startswith("Pulumi.") and file.suffix == ".yaml":
            own[file.stem.removeprefix("Pulumi.")] = path
    affected: dict[str, tuple[str, ...]] = {}
    for name in sorted(stacks):
        parts = [path for path in sorted(paths) if path in files.get(name, ())]
        reasons = dict.fromkeys((*([own[name]] if name in own else ()), *parts, *shared))
        if reasons:
            affected[name] = tuple(f"{why} changed" for why in reasons)
    return Changed(affected, tuple(sorted(own.keys() - set(stacks))))
