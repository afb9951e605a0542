"""The Pulumi CLI with its engine and its Kubernetes provider, built from pinned Go modules.

`make engine` builds them for machines without the official CLI. `make up` and the tests marked `pulumi` put the folders
of the programs on the PATH. The CLI comes without language hosts, so `pulumi-language-python` beside it starts
`gpu_tenancy.embedded.language_host`.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import platformdirs

from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.building import build, built, source_folder
from gpu_tenancy.embedded.processes import alone

CLI: Final = "pulumi"
_PROVIDER: Final = "pulumi-resource-kubernetes"
_LANGUAGE_HOST: Final = "pulumi-language-python"
# Folder of the go.mod, Go package and title of each program.
PROGRAMS: Final = {
    CLI: ("pulumi", "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi", "the Pulumi CLI and engine"),
    _PROVIDER: ("pulumi_kubernetes", f"./{_PROVIDER}", "Pulumi's Kubernetes provider"),
}


def engine_path(cache: Path) -> str:
    """The folders of the built programs, as in a PATH; empty if a program is not built."""
    programs = [built(cache, program, source) for program, (source, _, _) in PROGRAMS.items()]
    programs.append(programs[0].with_name(_LANGUAGE_HOST))
    return os.pathsep.join(str(one.parent) for one in programs[:-1]) if all(map(Path.is_file, programs)) else ""


def build_engine(cache: Path, report: Report) -> None:
    """Builds the missing programs into the cache; raises ConsoleError without a Go compiler, or if a build fails."""
    with alone(cache / "programs.lock", report, "downloading or building programs"):
        for program, (source, package, title) in PROGRAMS.items():
            if not built(cache, program, source).is_file():
                build(cache, report, {program: package}, source=source, what=title)
        host = built(cache, CLI, CLI).with_name(_LANGUAGE_HOST)
        shutil.copyfile(source_folder(CLI) / _LANGUAGE_HOST, host)
        host.chmod(0o755)


def main(arguments: Sequence[str]) -> int:
    """Builds the programs with the argument `build`; with `path`, prints their folders as in a PATH."""
    cache = platformdirs.user_cache_path("gpu-tenancy")
    if arguments == ["path"]:
        print(engine_path(cache))
        return 0
    if arguments != ["build"]:
        print(f"error: {' '.join(arguments) or 'no argument'}: unknown; use build or path", file=sys.stderr)
        return 1
    try:
        build_engine(cache, terminal.report)
    except ConsoleError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"engine: {engine_path(cache)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
