"""The same stack as it is at another git ref."""

import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, cast

from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.offline.recording import Registration
from gpu_tenancy.console.offline.render import Rendered
from gpu_tenancy.console.project import read_stack
from gpu_tenancy.model.load import load
from gpu_tenancy.model.problems import StackError
from gpu_tenancy.model.spec import Stack

# Run with the other ref's own program, whatever its age: it needs no more of it than `console.project.preview`.
_DUMP: Final = """
import dataclasses, json, pathlib, sys
try:
    from gpu_tenancy.console.project import preview
except ModuleNotFoundError:  # of a ref before version 0.2
    from console.project import preview
found = preview(sys.argv[1], pathlib.Path.cwd())
json.dump([dataclasses.asdict(each) for each in found.rendered.registrations], sys.stdout)
"""


@dataclass(frozen=True, slots=True)
class Base:
    """A stack at another ref.

    Attributes:
        ref: as it was named.
        commit: what it is, abbreviated.
        stack: what it says; None where it is not there, or cannot be read by today's rules.
        rendered: what it declares; None where there is no such stack.
        notes: what a reader must know about the comparison.
    """

    ref: str
    commit: str
    stack: Stack | None
    rendered: Rendered | None
    notes: tuple[str, ...] = ()


def base(ref: str, stack: str, project: Path, name: str) -> Base:
    """Renders a stack of a project as it is at another git ref, with that ref's own program.

    Args:
        ref: a branch, tag or commit: `origin/main`.
        stack: its name.
        project: folder of `Pulumi.yaml`, in a git repository.
        name: of the project.

    Raises:
        ConsoleError: the folder is in no repository, or there is no such ref, or its program does not run.
    """
    commit = _git(project, "rev-parse", "--short", "--verify", f"{ref}^{{commit}}", about=ref).strip()
    with _checkout(project, ref) as folder:
        if not (folder / "stacks" / f"Pulumi.{stack}.yaml").is_file():
            return Base(ref, commit, None, None, (f"{ref} has no stack {stack}: all of it is new",))
        notes: list[str] = []
        try:
            spec = load(read_stack(stack, folder))
        except StackError as error:
            spec = None
            notes.append(
                f"by today's rules the stack at {ref} is wrong ({error.problems[0]}), so its promises are not compared"
            )
        return Base(ref, commit, spec, Rendered(name, stack, _registrations(folder, stack, ref), {}), tuple(notes))


@contextmanager
def _checkout(project: Path, ref: str) -> Generator[Path]:
    """The project's folder at a ref, in a place of its own that goes afterwards; the working tree is not touched."""
    within = _git(project, "rev-parse", "--show-prefix", about=ref).strip().rstrip("/")
    whole = _git(project, "rev-parse", "--show-toplevel", about=ref).strip()  # in a folder below it, git packs less
    archive = subprocess.run(
        ["git", "-C", whole, "archive", "--format=tar", f"{ref}:{within}" if within else ref],
        check=False,
        capture_output=True,
    )
    if archive.returncode:
        raise ConsoleError(f"{ref} has no folder {within}", "name a ref that has this project")
    with tempfile.TemporaryDirectory(prefix="gpu-tenancy-base-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            # Python 3.11.0 to 3.11.3 have no filters; what git archives of a repository stays within its folder.
            tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            tar.extractall(folder)  # noqa: S202 - filtered by the line above
        yield Path(folder)


def _git(project: Path, *words: str, about: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(project), *words], check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise ConsoleError("there is no git on the PATH", "install it, or leave --base out") from error
    if done.returncode:
        said = (done.stderr.strip() or "git says nothing").splitlines()[-1]
        raise ConsoleError(f"git does not find {about} ({said})", "name a branch, tag or commit that is fetched here")
    return done.stdout


def _registrations(folder: Path, stack: str, ref: str) -> tuple[Registration, ...]:
    # The folder comes first on the path of a `-c` program, before whatever of this project is installed.
    done = subprocess.run([sys.executable, "-c", _DUMP, stack], check=False, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        said = (done.stderr.strip() or "it says nothing").splitlines()[-1]
        raise ConsoleError(
            f"the program at {ref} does not render stack {stack} here ({said})",
            "compare with a ref whose program runs with the packages that are installed, or leave --base out",
        )
    return tuple(_registration(each) for each in json.loads(done.stdout))


def _registration(found: Mapping[str, Any]) -> Registration:
    """A registration out of JSON, of an older or newer program: unknown keys are passed over."""
    known = {field.name for field in fields(Registration)}
    kept = {key: _frozen(key, value) for key, value in found.items() if key in known}
    return Registration(**kept)


def _frozen(key: str, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    items = cast("list[Any]", value)
    return tuple(tuple(each) for each in items) if key in {"secret_paths", "unknown_paths"} else tuple(items)
