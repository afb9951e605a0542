"""Values in files of users other than stacks, such as policy configurations and manifests."""

from pathlib import Path
from typing import Any

from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.model.bounds import value_problems
from gpu_tenancy.model.problems import dotted


def check_values(file: Path, data: Any) -> None:
    """Checks the plain data of a file against the bounds of a stack's values.

    Raises:
        ConsoleError: the first value that is out of bounds, with its place.
    """
    if problem := next(value_problems(data), None):
        raise ConsoleError(f"{file}: {dotted(problem.path)}: {problem.rule}", problem.fix)
