"""The cluster to read: the kubeconfig that kubectl would use, another one, or the embedded platform."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.kube.client import Cluster

_ANSWER: Final = 10.0
"""Seconds after which a user who waits for an answer is told that there is none."""


def kubeconfig(given: Path | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """The path, or several joined as in KUBECONFIG.

    Args:
        given: by the user; must exist.
        environment: with KUBECONFIG and HOME.

    Raises:
        ConsoleError: no kubeconfig exists.
    """
    if given is not None:
        if not given.is_file():
            raise ConsoleError(f"kubeconfig {given} not found", "set --kubeconfig to an existing file")
        return given
    named = [path for path in environment.get("KUBECONFIG", "").split(os.pathsep) if path]
    there = [path for path in named if Path(path).expanduser().is_file()]
    if there:
        return Path(os.pathsep.join(there))
    usual = _usual(environment)
    if named or not usual.is_file():
        where = f"KUBECONFIG is {os.pathsep.join(named)}" if named else f"{usual} does not exist"
        raise ConsoleError(
            f"no kubeconfig found: {where}",
            "set --kubeconfig, or use --embedded for the platform of `tenancy local up`",
        )
    return usual


def uses_embedded(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether kubectl would find no kubeconfig, and there is an embedded platform.

    Args:
        environment: with KUBECONFIG and HOME.
    """
    if environment.get("KUBECONFIG") or _usual(environment).is_file():
        return False
    try:
        from gpu_tenancy.embedded.platform import Platform  # noqa: PLC0415 - as below
    except ImportError:  # a client that only asks is installed without the platform
        return False
    return Platform().kubeconfig.is_file()


def _usual(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME") or Path.home()) / ".kube" / "config"


def connect(given: Path | None, context: str | None, *, embedded: bool) -> Cluster:
    """A client of the cluster.

    Raises:
        ConsoleError: no kubeconfig exists, or it cannot be used.
    """
    return Cluster(*chosen(given, context, embedded=embedded), answer_seconds=_ANSWER)


def chosen(given: Path | None, context: str | None, *, embedded: bool) -> tuple[Path, str | None]:
    """The kubeconfig of a cluster, and its context; None for the current one.

    Raises:
        ConsoleError: no kubeconfig exists.
    """
    if not embedded:
        return kubeconfig(given), context
    from gpu_tenancy.embedded.platform import Platform  # noqa: PLC0415 - only --embedded needs it
    from gpu_tenancy.engine.embedded import CONTEXT  # noqa: PLC0415 - as below

    if given is not None or context is not None:
        raise ConsoleError("--embedded cannot be combined with --kubeconfig or --context", "remove one of them")
    found = Platform().kubeconfig
    if not found.is_file():
        raise ConsoleError("the embedded platform is not running", "start it with `tenancy local up`")
    return found, CONTEXT
