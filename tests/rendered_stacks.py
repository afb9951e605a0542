"""The stacks of this repository, each rendered once for all processes of a run."""

import fcntl
import os
import pickle
from functools import cache
from pathlib import Path
from typing import Final

from gpu_tenancy.engine.project import Preview, preview

# Environment variable: the folder in which the processes of one run share rendered stacks.
SHARED: Final = "GPU_TENANCY_TESTS_RENDERED"


@cache
def stack_of_repository(name: str) -> Preview:
    """A stack of `stacks/`, rendered and shared: a test that changes a manifest changes its own copy."""
    file = Path(os.environ[SHARED]) / f"{name}.pickle"
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.is_file():
            file.write_bytes(pickle.dumps(preview(name)))
    return pickle.loads(file.read_bytes())  # noqa: S301 - written by this run
