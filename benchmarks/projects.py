"""Projects and platforms that benchmarks create, each in a folder of its own."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from benchmarks.leftovers import kill_at_end
from benchmarks.preview import stack
from gpu_tenancy.embedded.definitions import fetch
from gpu_tenancy.embedded.definitions.pins import needed, read_pins
from gpu_tenancy.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.engine.project import Preview
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.local.up import api_groups
from gpu_tenancy.model.project import project_folder

NAME: Final = "benchmark"
"""Name of the only stack of each project."""


def project_of(folder: Path, teams: int, program: str | None = None) -> Path:
    """A project with a stack of that many teams."""
    here = project_folder()
    (folder / "stacks").mkdir(parents=True)
    for name in ("components", "gpu_tenancy"):
        (folder / name).symlink_to(here / name)
    shutil.copy(here / "Pulumi.yaml", folder)
    text = program or (here / "__main__.py").read_text(encoding="utf-8")
    (folder / "__main__.py").write_text(text, encoding="utf-8")
    sections = stack(teams)
    # In a file of their own: Pulumi does not start a program with a longer config.
    (folder / "stacks" / "teams.yaml").write_text(yaml.safe_dump(sections["teams"]), encoding="utf-8")
    config = {f"gpu-tenancy:{key}": value for key, value in {**sections, "teams": "teams.yaml"}.items()}
    file = folder / "stacks" / f"Pulumi.{NAME}.yaml"
    file.write_text(yaml.safe_dump({"config": config}), encoding="utf-8")
    return folder


@contextmanager
def platform_in(home: Path) -> Generator[Platform]:
    """An embedded platform with this home, which is stopped and deleted at the end."""
    kill_at_end()
    platform = Platform(home)
    try:
        yield platform
    finally:
        platform.down()


@contextmanager
def prepared(platform: Platform, declared: Preview) -> Generator[Cluster]:
    """Starts a platform, installs the definitions of a stack's objects, and creates its nodes."""
    platform.up(quiet, files=fetch(needed(read_pins(), api_groups(declared.objects)), platform.cache, quiet))
    with platform.cluster() as cluster:
        bring_nodes(cluster, node_shapes(declared.stack))
        yield cluster


def quiet(_: str) -> None:
    """Reports nothing: what is prepared is not measured."""
