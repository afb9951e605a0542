"""The official Pulumi CLI, run on the embedded platform with a separate state backend."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, cast
from urllib.parse import unquote, urlsplit

import psutil
import yaml

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.output import write_text
from gpu_tenancy.deploy.states import exported_keys, leftovers
from gpu_tenancy.engine.project import for_embedded
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.load import load
from gpu_tenancy.model.names import deployed_by
from gpu_tenancy.model.project import project_name, read_stack
from gpu_tenancy.model.source import to_config

CONTINUE: Final = "fix the error and run the same command again to continue"  # fix for a failed deployment by Pulumi
_TOO_LONG: Final = (  # MAX_ARG_STRLEN in https://man7.org/linux/man-pages/man2/execve.2.html.
    "write the teams to a file of their own, with `gpu-tenancy:teams: teams.yaml` in the stack's file, and run the same"
    " command again: Pulumi passes the config in an environment variable, which can have 128 KiB on Linux"
)

_DONE: Final = {  # words for the engine's operations, the same as for server-side apply
    "create": "created",
    "update": "changed",
    "replace": "replaced",
    "delete": "pruned",
    "same": "unchanged",
}

UNATTENDED: Final = ("--non-interactive", "--color", "never")
_ERRORS: Final = frozenset({"error", "info#err"})  # severities of diagnostics that explain a failure


def find_pulumi() -> str | None:
    """The path of the CLI; None if it is not on the PATH."""
    return shutil.which("pulumi")


def generated_project(source: Path) -> dict[str, Any]:
    """A project in another folder that runs the same program; raises ConsoleError if the project does not exist."""
    # The environment that runs this command has the program's packages.
    runtime = {"name": "python", "options": {"toolchain": "pip", "virtualenv": sys.prefix}}
    return {"name": project_name(source), "main": str(source.resolve()), "runtime": runtime}


def fix_for(why: str) -> str:
    """The fix for a deployment by Pulumi that failed with this message."""
    return _TOO_LONG if "argument list too long" in why else CONTINUE


def run_pulumi(
    words: Sequence[str], folder: Path, variables: Mapping[str, str], given: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Runs a command of the CLI in a folder, with these variables besides this process's own."""
    return subprocess.run(
        [*words, *UNATTENDED],
        cwd=folder,
        env={**os.environ, **variables},
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


@dataclass(frozen=True)
class PulumiCli:
    """The CLI with a file backend in its own folder, separate from the user's state and login.

    `folder` has its state and a generated project, which runs the program of the project in `source`.
    """

    program: str
    folder: Path
    source: Path

    def up(self, stack: str, kubeconfig: Path, objects: Sequence[Reference] = ()) -> dict[str, int]:
        """Deploys a stack to a kubeconfig's cluster, not its own; returns numbers of Kubernetes objects by result.

        A killed run leaves a lock, and objects that its state lacks. The next run removes the lock and adopts objects
        with the stack's mark; if others exist that the stack does not adopt, it changes nothing and raises ApplyError.
        Raises ConsoleError with Pulumi's diagnostics. Results are created, changed, replaced, pruned and unchanged.
        """
        adopt = self._project(stack, kubeconfig)
        (self.folder / "state").mkdir(exist_ok=True)
        backend = FileBackend(self.folder / "state")
        abandoned = backend.abandoned()
        if abandoned:
            backend.remove_torn()
        self._run("stack", "select", "--create", "--stack", stack)
        if abandoned:
            self._succeed("cancel", "--yes", "--stack", stack)
        if objects:
            known = exported_keys(self._succeed("stack", "export", "--stack", stack))
            mark = deployed_by(project_name(self.source), stack)
            with Cluster(kubeconfig) as cluster:
                left = leftovers(cluster, objects, known, adopt, mark)
            if left:
                self._project(stack, kubeconfig, [reference.adoptable for reference in left])
        counts = dict.fromkeys(_DONE.values(), 0)
        for event in _events(self._succeed("up", "--yes", "--skip-preview", "--json", "--stack", stack)):
            step: dict[str, str] = event.get("resOutputsEvent", {}).get("metadata") or {}
            # A replacement has three steps; only one of them has the operation "replace".
            if step.get("type", "").startswith("kubernetes:") and step["op"] in _DONE:
                counts[_DONE[step["op"]]] += 1
        return counts

    def _project(self, stack: str, kubeconfig: Path, adopt: Sequence[str] = ()) -> list[str]:
        """Writes a project with the stack's config for the embedded cluster; returns all objects to adopt."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write("Pulumi.yaml", generated_project(self.source))
        original = read_stack(stack, self.source)
        declared = load(original)
        adopted = list(dict.fromkeys([*declared.cluster.adopt, *adopt]))
        config: dict[str, Any] = to_config(for_embedded(original, declared, kubeconfig, adopted))
        for key, text in config.items():
            with suppress(json.JSONDecodeError):  # structured if it is JSON, as in a config file
                config[key] = json.loads(text)
        self._write(f"Pulumi.{stack}.yaml", {"config": config})
        return adopted

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        write_text(self.folder / name, yaml.safe_dump(content, sort_keys=False))

    def _succeed(self, *arguments: str) -> str:
        done = self._run(*arguments)
        if done.returncode:
            diagnostics = [event["diagnosticEvent"] for event in _events(done.stdout) if "diagnosticEvent" in event]
            messages = [one["message"].strip() for one in diagnostics if one["severity"] in _ERRORS]
            why = "\n".join(filter(None, messages)) or f"{done.stdout}\n{done.stderr}".strip()
            raise ConsoleError(f"pulumi {arguments[0]} failed:\n{why}", fix_for(why))
        return done.stdout

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        own = {
            "PULUMI_BACKEND_URL": (self.folder / "state").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }
        return run_pulumi([self.program, *arguments], self.folder, own)


def _events(output: str) -> Iterator[dict[str, Any]]:
    for line in output.splitlines():
        with suppress(json.JSONDecodeError):
            event: Any = json.loads(line)
            if isinstance(event, dict):
                yield cast("dict[str, Any]", event)


@dataclass(frozen=True, slots=True)
class FileBackend:
    """A backend of files in `FOLDER/.pulumi`, as `pulumi login file://FOLDER` selects it."""

    folder: Path

    @classmethod
    def of(cls, url: str) -> Self | None:
        """The backend of an address; None if it is not a file backend."""
        parts = urlsplit(url)
        if parts.scheme != "file":
            return None
        return cls(Path(unquote(parts.netloc + parts.path)).expanduser())

    def abandoned(self, stack: str = "") -> bool:
        """Whether an ended process of this machine has locked a stack, or any stack."""
        for lock in (self.folder / ".pulumi" / "locks").rglob("*.json"):
            if not stack or lock.parent.name == stack:
                holder = json.loads(lock.read_text(encoding="utf-8"))
                here = holder.get("hostname", socket.gethostname()) == socket.gethostname()
                if here and not psutil.pid_exists(int(holder["pid"])):
                    return True
        return False

    def remove_torn(self) -> None:
        """Removes attributes of state files that a killed run left incomplete."""
        # Only the state itself is written atomically. Pulumi needs no attributes, but fails at torn ones: "failed to
        # load checkpoint: EOF".
        for attributes in self._torn("*.attrs"):
            attributes.unlink()

    def torn(self) -> Path | None:
        """The first state that is not JSON, and has a backup beside it."""
        return next((file for file in self._torn("stacks/**/*.json") if Path(f"{file}.bak").is_file()), None)

    def _torn(self, pattern: str) -> Iterator[Path]:
        for file in sorted((self.folder / ".pulumi").rglob(pattern)):
            try:
                json.loads(file.read_text(encoding="utf-8"))
            except ValueError:
                yield file
