"""Which stacks a change concerns: whose file it is, or all of them where the program or its facts change."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, cast

from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.project import stack_names

_SHARED: Final = {
    "gpu_tenancy/model/catalogue": "the catalogue",
    "gpu_tenancy/model": "the program",
    "components": "the program",
    "Pulumi.yaml": "the program",
    "__main__.py": "the program",
    "policy": "the policy packs",
    "pyproject.toml": "its packages",
    "requirements.txt": "its packages",
    "uv.lock": "its packages",
}
"""What every stack is made of: files and folders of a project, the narrower first."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change concerns.

    Attributes:
        stacks: names, in their order, each with the reasons.
        gone: stacks that have no file any more, whose resources somebody must destroy.
    """

    stacks: dict[str, tuple[str, ...]]
    gone: tuple[str, ...]


def changed(project: Path, ref: str) -> Changed:
    """The stacks that differ from where this branch left a ref; files that are not committed count too.

    Args:
        project: folder of `Pulumi.yaml`, in a git repository.
        ref: a branch, tag or commit.

    Raises:
        ConsoleError: there is no git, no such ref, or nothing that both have in common.
    """
    common = _git(project, ref, "merge-base", ref, "HEAD").strip()
    paths = _git(project, ref, "diff", "--name-only", "--no-renames", "--relative", "-z", common).split("\0")
    paths += _git(project, ref, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return concerned(stack_names(project), [path for path in paths if path])


def concerned(stacks: Sequence[str], paths: Sequence[str]) -> Changed:
    """The stacks that changed files concern.

    Args:
        stacks: names of those that have a file.
        paths: of the files that changed, within the project.
    """
    everyone = dict.fromkeys(why for path in sorted(paths) if (why := _shared(path)))
    own = {name: path for path in sorted(paths) if (name := _stack(path))}
    reasons = {
        name: ((f"{own[name]} changed",) if name in own else ()) + tuple(f"{why} changed" for why in everyone)
        for name in sorted(stacks)
    }
    found = {name: why for name, why in reasons.items() if why}
    return Changed(found, tuple(sorted(own.keys() - set(stacks))))


def listed(text: str) -> tuple[str, ...]:
    """Names out of a variable of a pipeline: a list of JSON, or words between commas or spaces.

    Raises:
        ConsoleError: it is neither.
    """
    if not text.lstrip().startswith("["):
        return tuple(text.replace(",", " ").split())
    try:
        found: object = json.loads(text)
    except ValueError as error:
        raise ConsoleError(f"{text} is no list of JSON", 'write names, such as ["dev-aws", "prod-aws"]') from error
    names = cast("list[object]", found)
    if not all(isinstance(each, str) for each in names):
        raise ConsoleError(f"{text} has more than names", 'write names, such as ["dev-aws", "prod-aws"]')
    return tuple(str(each) for each in names)


def _shared(path: str) -> str:
    """Why a file concerns all stacks; empty where it does not."""
    file = PurePosixPath(path)
    return next((name for place, name in _SHARED.items() if file.is_relative_to(place)), "")


def _stack(path: str) -> str:
    """The stack whose file it is; empty for any other file."""
    file = PurePosixPath(path)
    named = file.parent == PurePosixPath("stacks") and file.name.startswith("Pulumi.") and file.suffix == ".yaml"
    return file.stem.removeprefix("Pulumi.") if named else ""


def _git(project: Path, ref: str, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(project), *words], check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise ConsoleError("there is no git on the PATH", "install it") from error
    if done.returncode:
        said = (done.stderr.strip() or "nothing in common with HEAD").splitlines()[-1]
        raise ConsoleError(
            f"git does not find what changed since {ref} ({said})",
            "name a branch, tag or commit that is fetched here with its history",
        )
    return done.stdout
