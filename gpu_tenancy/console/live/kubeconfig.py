"""Which cluster is meant: the kubeconfig that kubectl would use, another, or the embedded platform's."""

import os
from collections.abc import Mapping
from pathlib import Path

from gpu_tenancy.console.cluster.client import Cluster
from gpu_tenancy.console.errors import ConsoleError


def kubeconfig(given: Path | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """The file, or several joined as KUBECONFIG has them.

    Args:
        given: by the user; must be there.
        environment: where KUBECONFIG and HOME are looked up.

    Raises:
        ConsoleError: there is none.
    """
    if given is not None:
        if not given.is_file():
            raise ConsoleError(f"there is no kubeconfig {given}", "name another by --kubeconfig")
        return given
    named = [each for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    there = [each for each in named if Path(each).expanduser().is_file()]
    if there:
        return Path(os.pathsep.join(there))
    usual = Path(environment.get("HOME") or Path.home()) / ".kube" / "config"
    if named or not usual.is_file():
        where = f"KUBECONFIG names {os.pathsep.join(named)}" if named else f"{usual} is not there"
        raise ConsoleError(
            f"there is no kubeconfig: {where}", "name one by --kubeconfig, or --embedded for the platform here"
        )
    return usual


def connect(given: Path | None, context: str | None, *, embedded: bool) -> Cluster:
    """A client of the cluster that is meant.

    Raises:
        ConsoleError: there is no kubeconfig, or it cannot be used.
    """
    if not embedded:
        return Cluster(kubeconfig(given), context)
    from gpu_tenancy.console.embedded.platform import Platform  # noqa: PLC0415 - only whoever asks for it needs it

    if given is not None or context is not None:
        raise ConsoleError("--embedded names the cluster already", "leave out --kubeconfig and --context")
    found = Platform().kubeconfig
    if not found.is_file():
        raise ConsoleError("the embedded platform does not run", "start it: tenancy up")
    return Cluster(found)
