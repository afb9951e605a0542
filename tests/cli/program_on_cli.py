"""The whole program, deployed by the Pulumi CLI, with charts that a test serves in place of the operators' own."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from builders import EXISTING, Data
from repository import ROOT
from stand_ins import StandIn
from starts import GUARD

from gpu_tenancy.model.project import project_name

# The unchanged program, with other addresses of the charts.
_PROGRAM = """
import runpy
from gpu_tenancy.model.catalogue.operators import operators
for operator in operators().values():
    for name in operator.charts.keys() & {names!r}:
        row = operator.charts[name].model_copy(update={{"chart": name, "repository": {address!r}}})
        operator.charts[name] = row
runpy.run_path({program!r}, run_name="__main__")
"""


@dataclass(frozen=True, slots=True)
class Step:
    """An event of the engine about one resource; `ended` is False at the start of its operation."""

    ended: bool
    operation: str
    type: str
    name: str


@dataclass(frozen=True, slots=True)
class OnCli:
    """The program as a project for one test, with its state beside it."""

    folder: Path
    kubeconfig: Path

    def write(self, sections: Data, address: str, charts: Sequence[StandIn]) -> None:
        (self.folder / "state").mkdir(parents=True, exist_ok=True)
        runtime = {"name": "python", "options": {"toolchain": "pip", "virtualenv": sys.prefix}}
        self._write("Pulumi.yaml", {"name": project_name(ROOT), "runtime": runtime})
        names = [chart.name for chart in charts]
        program = _PROGRAM.format(names=names, address=address, program=str(ROOT / "__main__.py"))
        (self.folder / "__main__.py").write_text(program)
        cluster = {**EXISTING, "kubeconfig": str(self.kubeconfig)}
        config = {f"gpu-tenancy:{key}": value for key, value in {**sections, "cluster": cluster}.items()}
        self._write("Pulumi.operators-here.yaml", {"config": config})

    def up(self) -> list[Step]:
        self._run("stack", "select", "--create", "--stack", "operators-here")
        return self._steps("up", "--skip-preview")

    def destroy(self) -> list[Step]:
        return self._steps("destroy", "--skip-preview")

    def _steps(self, *command: str) -> list[Step]:
        output = self._run(*command, "--yes", "--json", "--stack", "operators-here")
        return [step for line in output.splitlines() for step in _read(line)]

    def _run(self, *arguments: str) -> str:
        own = {
            "PULUMI_BACKEND_URL": (self.folder / "state").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            # Helm's own folders: what it keeps of a repository is no business of the user's.
            **{f"HELM_{place}_HOME": str(self.folder / "helm" / place) for place in ("CACHE", "CONFIG", "DATA")},
        }
        done = subprocess.run(
            ["pulumi", *arguments, "--non-interactive", "--color", "never"],
            cwd=self.folder,
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=GUARD,
        )
        assert done.returncode == 0, f"pulumi {arguments[0]}: {_diagnostics(done.stdout)}\n{done.stderr}"
        return done.stdout

    def _write(self, name: str, content: Data) -> None:
        (self.folder / name).write_text(yaml.safe_dump(content, sort_keys=False))


def _events(output: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in output.splitlines():
        with suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


def _diagnostics(output: str) -> str:
    said = [each["diagnosticEvent"] for each in _events(output) if "diagnosticEvent" in each]
    return "".join(each["message"] for each in said if each["severity"] in {"error", "info#err"})


def _read(line: str) -> list[Step]:
    found: list[Step] = []
    for event in _events(line):
        for key, ended in (("resourcePreEvent", False), ("resOutputsEvent", True)):
            if key in event:
                said = event[key]["metadata"]
                found.append(Step(ended, said["op"], said["type"], said["urn"].rpartition("::")[2]))
    return found
