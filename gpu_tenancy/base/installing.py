"""Commands to install the optional packages: those of the package's extras."""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from importlib.util import find_spec
from shutil import which
from typing import Final

from gpu_tenancy.base.errors import ConsoleError

_PACKAGE: Final = "gpu-tenancy"
_DEPLOY: Final = "deploy"  # the other extras include it
_REQUIREMENT: Final = re.compile(r"""(([\w.-]+)[^;]*?) *;.*extra == ['"]([\w-]+)""")


def install_command(package: str) -> str:
    """The command that installs a package of an extra into this environment, by the installer of this environment."""
    own = distribution(_PACKAGE)
    if json.loads(own.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"):
        return "make ready-clouds"  # a clone
    python = shlex.quote(sys.executable)
    with_uv = (own.read_text("INSTALLER") or "").strip() == "uv" and which("uv")
    install = f"uv pip install --python {python}" if with_uv else f"{python} -m pip install"
    # The whole extra for one of its packages, which need one another; else the package with its versions.
    listed = {extra: requirement for name, requirement, extra in _of_extras(own) if name == package}
    wanted = f"{_PACKAGE}[{_DEPLOY}]" if _DEPLOY in listed else next(iter(listed.values()), package)
    return f"{install} {shlex.quote(wanted)}"


def _of_extras(own: Distribution) -> Iterator[tuple[str, str, str]]:
    for entry in own.requires or ():
        if found := _REQUIREMENT.match(entry):
            yield found[2], found[1], found[3]


def missing(error: ModuleNotFoundError, what: str) -> ConsoleError | None:
    """The error for a package of an extra that `what`, such as a command, needs; None for any other module."""
    name = (error.name or "").partition(".")[0].replace("_", "-")
    if name not in {package for package, _, _ in _of_extras(distribution(_PACKAGE))}:
        if name == _PACKAGE or find_spec("pulumi"):
            return None
        name = "pulumi"  # what is missing comes with it
    return ConsoleError(f"{what} needs the package {name}, which is not installed", f"run `{install_command(name)}`")
