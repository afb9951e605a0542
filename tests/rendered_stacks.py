"""The stacks of this repository, each rendered once for all processes of a run: many tests cost little else."""

import fcntl
import pickle
from functools import cache
from pathlib import Path

from console.project import Preview, preview


class Shared:
    """Where the processes of a run share what they rendered; None until the run has said so."""

    folder: Path | None = None


@cache
def stack_of_repository(name: str) -> Preview:
    """A stack of `stacks/`, rendered. It is shared: a test that changes a manifest changes its own copy."""
    if Shared.folder is None:
        return preview(name)
    Shared.folder.mkdir(exist_ok=True)
    file = Shared.folder / f"{name}.pickle"
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.is_file():
            file.write_bytes(pickle.dumps(preview(name)))
    return pickle.loads(file.read_bytes())  # noqa: S301 - written by this run
