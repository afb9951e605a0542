"""The platform's programs: from `KUBEBUILDER_ASSETS`, else official downloads, else our own build."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.building import build, built
from gpu_tenancy.embedded.official import REGISTRY, UnavailableError, download, folder_of, read_official
from gpu_tenancy.embedded.parts import PARTS
from gpu_tenancy.embedded.processes import alone

ASSETS: Final = "KUBEBUILDER_ASSETS"
"""Environment variable: a folder with programs, as from `setup-envtest`; they are used first."""


@dataclass(frozen=True)
class Programs:
    """The paths of the platform's programs.

    Attributes:
        folders: with programs by the names of the parts; the first folder that has a part is used.
        built: our own program, which has every part; None if it was not built.
    """

    folders: tuple[Path, ...] = ()
    built: Path | None = None

    def command(self, part: str) -> list[str] | None:
        """The command for a part, such as `kube-apiserver`; None if it has no program."""
        for folder in self.folders:
            if (folder / part).is_file():
                return [str(folder / part)]
        return [str(self.built), part] if self.built else None

    @property
    def complete(self) -> bool:
        """Whether every part has a program."""
        return all(self.command(part) for part in PARTS)


def present_programs(cache: Path) -> Programs:
    """The programs that are already on this machine; some can be missing.

    Raises:
        ConsoleError: `KUBEBUILDER_ASSETS` is not a folder.
    """
    assets = os.environ.get(ASSETS)
    if assets and not Path(assets).is_dir():
        raise ConsoleError(f"{ASSETS}: {assets} is not a folder", "set it to a folder from setup-envtest, or unset it")
    folders = (Path(assets),) if assets else ()
    if (program := built(cache)).is_file():
        return Programs(folders, program)
    if os.environ.get(REGISTRY) != "off":
        folders += (folder_of(read_official(), cache),)
    return Programs(folders)


def find_programs(cache: Path, report: Report) -> Programs:
    """The programs; missing programs are downloaded or built into the cache.

    Raises:
        ConsoleError: `KUBEBUILDER_ASSETS` is not a folder, there is no compiler, or the build failed.
    """
    if (present := present_programs(cache)).complete:
        return present
    with alone(cache / "programs.lock", report, "downloading or building the control plane"):
        if (present := present_programs(cache)).complete:
            return present
        try:
            download(read_official(), cache, report)
        except UnavailableError as reason:
            report(f"official programs are not available ({reason}); building from source")
            build(cache, report)
        return present_programs(cache)
