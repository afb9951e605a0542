"""The stacks of this repository, each rendered once for all tests of a process: rendering is most of what many cost."""

from functools import cache

from console.project import Preview, preview


@cache
def stack_of_repository(name: str) -> Preview:
    """A stack of `stacks/`, rendered. It is shared: a test that changes a manifest changes its own copy."""
    return preview(name)
