"""Commands for a project of one's own."""

import shlex
import sys
from collections.abc import Iterator
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Annotated

import typer
from rich.markup import escape

from gpu_tenancy.base import terminal
from gpu_tenancy.base.output import command


class Pipelines(StrEnum):
    """The service that runs the pipelines of a project."""

    GITHUB = "github"
    GITLAB = "gitlab"


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the new project, named as the project is to be called.")],
    cloud: Annotated[
        list[str] | None,
        typer.Option(help="Cloud of the stack, with its SDK: aws, azure or gcp. Repeat it for more SDKs."),
    ] = None,
    registry: Annotated[
        str, typer.Option(help="Registry of your images: its host, with the first part of the path if any.")
    ] = "registry.example.com",
    ci: Annotated[Pipelines, typer.Option(help="Service that runs the pipelines.")] = Pipelines.GITHUB,
) -> None:
    """Create a project: program, one commented stack, policy settings, workflows and a test.

    [dim]tenancy stack init my-platform --cloud aws --registry ghcr.io/example[/dim]
    """
    with terminal.errors():
        from gpu_tenancy.cli.starting import Choices, start

        clouds = tuple(cloud or ())
        for file in start(folder, Choices(clouds, registry, ci.value)):
            terminal.out.print(f"  {escape(str(file))}", highlight=False)
        terminal.out.print("\nnext:", highlight=False)
        for line in _next(folder, clouds):
            terminal.out.print(command(f"  {line}"), highlight=False)


def _next(folder: Path, clouds: tuple[str, ...]) -> Iterator[str]:
    """Commands that work as they stand, in this order."""
    from gpu_tenancy.base.installing import install_command
    from gpu_tenancy.model.catalogue.clouds import clouds as known_clouds

    for package in ("pulumi", *(known_clouds()[cloud].package or "" for cloud in dict.fromkeys(clouds))):
        if find_spec(package.replace("-", "_")) is None:
            yield install_command(package)
    tenancy = "tenancy" if which("tenancy") else shlex.quote(str(Path(sys.argv[0]).absolute()))
    yield f"cd {shlex.quote(str(folder))} && git init --quiet"
    yield f"{tenancy} preview dev --policy workloads --policy clouds --out out/dev"
