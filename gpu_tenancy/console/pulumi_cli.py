"""The official Pulumi CLI, run on the embedded platform with a state of the platform's own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import yaml

from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.project import elsewhere, project_name, read_stack
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import to_config

_DONE: Final = {
    "create": "created",
    "update": "changed",
    "replace": "replaced",
    "delete": "pruned",
    "same": "unchanged",
}


def find_pulumi() -> str | None:
    """The CLI on the PATH; None where there is none."""
    return shutil.which("pulumi")


@dataclass(frozen=True)
class PulumiCli:
    """The CLI with a file backend in a folder, which keeps it apart from every state and login of the user's.

    Attributes:
        program: the CLI.
        folder: where its state is, and a project of its own around the program of `source`.
        source: folder of the project whose stacks it deploys.
    """

    program: str
    folder: Path
    source: Path

    def up(self, stack: str, kubeconfig: Path) -> dict[str, int]:
        """Deploys a stack to the cluster of a kubeconfig, wherever the stack itself is meant for.

        Returns:
            How many resources were created, changed, replaced, pruned and unchanged.

        Raises:
            ConsoleError: Pulumi refuses; its own words are in the message.
        """
        self._project(stack, kubeconfig)
        (self.folder / "state").mkdir(exist_ok=True)
        self._run("stack", "select", "--create", "--stack", stack)
        done = self._run("up", "--yes", "--skip-preview", "--json", "--stack", stack)
        if not done.ok:
            raise ConsoleError(
                f"pulumi up failed:\n{done.words}", "mend this and run again: it goes on where it stopped"
            )
        return _counts(done.output)

    def _project(self, stack: str, kubeconfig: Path) -> None:
        """A project of its own around the same program, so that nothing is written beside the stack's own file.

        Its config is the stack's, but names the embedded cluster.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        # The environment that runs this command has what the program needs.
        runtime = {"name": "python", "options": {"toolchain": "pip", "virtualenv": sys.prefix}}
        project = {"name": project_name(self.source), "main": str(self.source.resolve()), "runtime": runtime}
        self._write("Pulumi.yaml", project)
        read = read_stack(stack, self.source)
        source = elsewhere(read, load(read), kubeconfig)
        self._write(f"Pulumi.{stack}.yaml", {"config": {key: _plain(text) for key, text in to_config(source).items()}})

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        (self.folder / name).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")

    def _run(self, *arguments: str) -> "_Done":
        done = subprocess.run(
            [self.program, *arguments, "--non-interactive", "--color", "never"],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return _Done(done.returncode == 0, done.stdout, done.stderr)

    def _environment(self) -> Mapping[str, str]:
        own = {
            "PULUMI_BACKEND_URL": (self.folder / "state").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }
        return {**os.environ, **own}


@dataclass(frozen=True, slots=True)
class _Done:
    ok: bool
    output: str
    errors: str

    @property
    def words(self) -> str:
        """What Pulumi said of its failure: its diagnostics, else all of its words."""
        found = [event["diagnosticEvent"] for event in _events(self.output) if "diagnosticEvent" in event]
        said = [each["message"] for each in found if each["severity"] in {"error", "info#err"}]
        return "\n".join(line.strip() for line in said if line.strip()) or f"{self.output}\n{self.errors}".strip()


def _plain(text: str) -> Any:
    """A value as a config file holds it: structured where the program gets JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _events(output: str) -> Iterator[dict[str, Any]]:
    """The engine's events, one a line; other lines are passed over."""
    for line in output.splitlines():
        with suppress(json.JSONDecodeError):
            event: Any = json.loads(line)
            if isinstance(event, dict):
                yield cast("dict[str, Any]", event)


def _counts(output: str) -> dict[str, int]:
    """What the engine did to Kubernetes objects, in the words of our own way."""
    counts = dict.fromkeys(_DONE.values(), 0)
    for event in _events(output):
        step: dict[str, str] = event.get("resOutputsEvent", {}).get("metadata") or {}
        # A replacement is three steps, of which one is called so.
        if step.get("type", "").startswith("kubernetes:") and step["op"] in _DONE:
            counts[_DONE[step["op"]]] += 1
    return counts
