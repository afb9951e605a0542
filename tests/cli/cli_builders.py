"""A project for one test, with stacks that the test writes."""

import io
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
import psutil
import yaml
from builders import EXISTING, Data, job, pool, server, team
from repository import ROOT
from rich.console import RenderableType
from rich.text import Text
from starts import GUARD
from typer.testing import CliRunner, Result

from gpu_tenancy.base.output import Output
from gpu_tenancy.cli.main import app

TENANCY = Path(sys.executable).with_name("tenancy")
FIRST_LINE = "# yaml-language-server: $schema=schema.json\n"


def small(**sections: Any) -> Data:
    """Two teams on a node of H100s and one of L4s: the smallest stack with every kind of guarantee."""
    return {
        "cluster": dict(EXISTING),
        "pools": {"cpu": pool("m7i.8xlarge", 1), "h100": pool(nodes=1), "l4": pool("g6.12xlarge", 1)},
        "priorities": {"high": 1000, "low": 10},
        "teams": {
            "vision": team(
                priority="high",
                gpus={"h100": {"guaranteed": 4}},
                serving={"api": server()},
                training={"nightly": job(gpus=2)},
            ),
            "speech": team(priority="low", gpus={"l4": {"guaranteed": 2}}),
        },
        **sections,
    }


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *identity, *words], check=True, cwd=folder, capture_output=True, text=True).stdout


@dataclass(frozen=True)
class Project:
    folder: Path

    @classmethod
    def at(cls, folder: Path) -> "Project":
        (folder / "stacks").mkdir(parents=True)
        for name in ("Pulumi.yaml", "__main__.py"):
            shutil.copy(ROOT / name, folder / name)
        return cls(folder)

    def write(self, stack: str, sections: Data) -> Path:
        config = {f"gpu-tenancy:{key}": value for key, value in sections.items()}
        file = self.folder / "stacks" / f"Pulumi.{stack}.yaml"
        file.write_text(FIRST_LINE + yaml.safe_dump({"config": config}, sort_keys=False), encoding="utf-8")
        return file


def tenancy(*arguments: object, project: Path | None = None) -> Result:
    """Runs a command of `tenancy` within this process, on a wide screen; by default in the working directory."""
    words = [*map(str, arguments), *(["--project", str(project)] if project else [])]
    return CliRunner(env={"COLUMNS": "240"}).invoke(app, words)


@dataclass(frozen=True)
class Home:
    """A home in which `tenancy` finds nothing but the cache of built and downloaded programs."""

    project: Project
    folder: Path
    path: str

    @classmethod
    def at(cls, folder: Path) -> "Home":
        """A home with a project of one stack, `good`, and no Pulumi CLI, which test_cli_pulumi.py tests."""
        project = Project.at(folder / "project")
        project.write("good", small())
        path = [each for each in os.environ["PATH"].split(os.pathsep) if not (Path(each) / "pulumi").exists()]
        return cls(project, folder, os.pathsep.join(path))

    @property
    def environment(self) -> dict[str, str]:
        """The environment of commands."""
        own = {"XDG_STATE_HOME": str(self.folder / "state"), "KUBECONFIG": str(self.folder / "nobodys")}
        cache = {"XDG_CACHE_HOME": str(platformdirs.user_cache_path())}
        return {**os.environ, **cache, **own, "PATH": self.path, "COLUMNS": "200"}

    def command(self, *arguments: object) -> list[str]:
        return [str(TENANCY), *(str(each) for each in arguments)]

    def upping(self, stack: str = "good", *options: str, controllers: str = "none") -> list[str]:
        place = ("--project", self.project.folder, "--out", self.folder / "out")
        return self.command("local", "up", stack, *place, "--controllers", controllers, *options)

    def begin(self, command: list[str]) -> subprocess.Popen[str]:
        """Starts a command in a session of its own; its progress can be read while it runs."""
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return self.finish(self.command(*arguments))

    def finish(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=GUARD
        )

    def up(self, stack: str = "good", *options: str, controllers: str = "none") -> subprocess.CompletedProcess[str]:
        return self.finish(self.upping(stack, *options, controllers=controllers))

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "state" / "gpu-tenancy" / "embedded" / "kubeconfig"

    def processes(self) -> list[int]:
        """Pids of processes with files of this home."""
        found = psutil.process_iter(["cmdline"])
        return [
            one.pid for one in found if any(str(self.folder / "state") in each for each in one.info["cmdline"] or ())
        ]


@dataclass(frozen=True)
class Screen:
    """A terminal of some columns."""

    output: Output

    @classmethod
    def of(cls, width: int, *parts: RenderableType) -> "Screen":
        output = Output(width=width, terminal=True)
        output.file = io.StringIO()
        for part in parts:
            output.print(part, highlight=False)
        return cls(output)

    @property
    def lines(self) -> list[str]:
        assert isinstance(self.output.file, io.StringIO)
        return Text.from_ansi(self.output.file.getvalue()).plain.split("\n")

    @property
    def words(self) -> set[str]:
        """Words, without the note about hidden columns, and names that are shortened."""
        lines = (line for line in self.lines if "not shown" not in line)
        return {word for line in lines for word in re.findall(r"[\w./:@…-]+", line) if "…" not in word}

    @property
    def too_long(self) -> list[str]:
        """Lines that do not fit; commands, and texts without spaces, can be longer."""
        found = [line.strip() for line in self.lines if len(line.rstrip()) > self.output.width]
        return [line for line in found if " " in line and not re.fullmatch("`[^`]*`[.,;]?", line)]
