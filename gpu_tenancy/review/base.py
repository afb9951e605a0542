"""The stack at another git ref, rendered with that ref's program."""

import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, cast

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.git import git
from gpu_tenancy.base.problems import StackError
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.model.load import load
from gpu_tenancy.model.project import read_stack, stack_file
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.review.review import UNCOMPARED

# Runs the other ref's program, so it uses only `preview`.
_DUMP: Final = """
import dataclasses, json, pathlib, sys
from gpu_tenancy.engine.project import preview
rendered = preview(sys.argv[1], pathlib.Path.cwd()).rendered
json.dump([dataclasses.asdict(registration) for registration in rendered.registrations], sys.stdout)
"""


@dataclass(frozen=True, slots=True)
class Base:
    """A stack at another ref."""

    ref: str
    commit: str  # abbreviated hash
    stack: Stack | None  # None if the ref does not have the stack, or the current schema rejects it
    rendered: Rendered  # without resources if the ref does not have the stack
    notes: tuple[str, ...] = ()  # limits of the comparison


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the project's folder at a ref, with the ref's abbreviated commit hash."""

    folder: Path
    commit: str


def base_in(copy: Copy, ref: str, stack: str, name: str) -> Base:
    """Renders a stack with the program of the copy at a git ref; raises ConsoleError if that program fails."""
    if not stack_file(copy.folder, stack).is_file():
        missing = f"stack {stack} does not exist at {ref}; all resources are new"
        return Base(ref, copy.commit, None, Rendered(name, stack, (), {}), (missing,))
    spec, invalid = None, ""
    try:
        spec = load(read_stack(stack, copy.folder))
    except StackError as error:
        invalid = f"stack {stack} at {ref} is invalid under the current rules ({error.problems[0]})"
    try:
        rendered = Rendered(name, stack, _registrations(copy.folder, stack, ref), {})
    except ConsoleError:
        if not invalid:
            raise
        note = f"{UNCOMPARED}, all resources are shown as new: {invalid}"
        return Base(ref, copy.commit, None, Rendered(name, stack, (), {}), (note,))
    notes = (f"{invalid}; guarantees are not compared",) if invalid else ()
    return Base(ref, copy.commit, spec, rendered, notes)


@contextmanager
def checkout(project: Path, ref: str) -> Generator[Copy]:
    """Temporary copy of the project's folder at a ref. Raises ConsoleError without a git repository or such a ref."""
    commit = git(project, ref, "rev-parse", "--short", "--verify", f"{ref}^{{commit}}").strip()
    within = git(project, ref, "rev-parse", "--show-prefix").strip().rstrip("/")
    # In a subfolder, `git archive` would pack only files below it.
    whole = git(project, ref, "rev-parse", "--show-toplevel").strip()
    archive = subprocess.run(
        ["git", "-C", whole, "archive", "--format=tar", f"{ref}^{{tree}}:{within}" if within else f"{ref}^{{tree}}"],
        check=False,
        capture_output=True,
    )
    # A ref before the project was added has no such folder: the copy is empty.
    with tempfile.TemporaryDirectory(prefix="gpu-tenancy-base-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout or bytes(tarfile.RECORDSIZE)), mode="r:") as tar:
            # Python 3.11.0 to 3.11.3 have no filters; paths in an archive made by git stay inside the folder.
            tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            tar.extractall(folder)  # noqa: S202 - filtered by the line above
        yield Copy(Path(folder), commit)


def _registrations(folder: Path, stack: str, ref: str) -> tuple[Registration, ...]:
    # A `-c` program has its folder first on the path, before an installed version of this project.
    done = subprocess.run([sys.executable, "-c", _DUMP, stack], check=False, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        reason = (done.stderr.strip() or "no output").splitlines()[-1]
        fix = "specify a ref whose program runs with the installed packages, or omit --base"
        raise ConsoleError(f"{ref}: cannot render stack {stack} with the program at this ref ({reason})", fix)
    # An older or newer program may have other attributes.
    known = {field.name for field in fields(Registration)}
    return tuple(
        Registration(**{key: _frozen(value) for key, value in data.items() if key in known})
        for data in json.loads(done.stdout)
    )


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, cast("list[Any]", value))) if isinstance(value, list) else value
