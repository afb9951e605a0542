"""Registries of images: which ones are allowed."""

import re
from collections.abc import Iterable
from typing import Final

from gpu_tenancy.model.catalogue.fabrics import fabrics
from gpu_tenancy.model.spec import Stack

_HUB: Final = "docker.io"


def full_path(image: str) -> str:
    """An image's registry and path without tag and digest, as container runtimes complete it.

    https://github.com/distribution/reference/blob/main/normalize.go
    """
    name = image.partition("@")[0]
    first, slash, rest = name.partition("/")
    if not slash or not ({".", ":"} & set(first) or first == "localhost"):
        first, rest = _HUB, name if slash else f"library/{name}"
    path = rest.partition(":")[0]
    if first in {_HUB, "index.docker.io"}:
        first, path = _HUB, path if "/" in path else f"library/{path}"
    return f"{first}/{path}"


def prefix_expression(prefix: str) -> str:
    """The regular expression (RE2) of the images, by full path, that start with a prefix, by whole segments."""
    host, *path = (
        "[^/]*".join(map(re.escape, segment.split("*"))).replace("\\-", "-") for segment in prefix.split("/")
    )
    # After a host, a colon would begin its port; after a path, a tag.
    return f"^{'/'.join((host, *path))}([/:]|$)" if path else f"^{host}/"


def is_allowed(image: str, prefixes: Iterable[str]) -> bool:
    """Whether an image comes from one of some registries."""
    path = full_path(image)
    return any(re.search(prefix_expression(prefix), path) for prefix in prefixes)


def own_images() -> tuple[str, ...]:
    """Images that this program adds to pods of teams: daemons of fabrics. They are allowed besides the stack's list."""
    return tuple(sorted({full_path(row.daemon.image) for row in fabrics().values() if row.daemon}))


def pull_rights(stack: Stack) -> tuple[str, ...]:
    """What lets the nodes pull images of the allowed registries, and what somebody else must give; for reports.

    Empty for a stack without `images`.
    """
    if not (stack.images.allowed or stack.images.registries):
        return ()
    return tuple(stack.cluster.pull_rights(stack.images.registries))
