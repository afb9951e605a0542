"""The Pulumi CLI and `tenancy` in a user's own project, with a backend of files in it."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import yaml
from cli_builders import Project
from rich.text import Text
from starts import GUARD

from gpu_tenancy.kube.request import Request
from gpu_tenancy.kube.transport import Transport

_SCHEMA: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


def run_here(project: Project) -> None:
    """Has the CLI run the program in the environment of these tests, as `pulumi install` would."""
    definition = project.folder / "Pulumi.yaml"
    runtime = {"name": "python", "options": {"toolchain": "pip", "virtualenv": sys.prefix}}
    definition.write_text(yaml.safe_dump({**yaml.safe_load(definition.read_text()), "runtime": runtime}))


def environment(project: Project, **own: str) -> dict[str, str]:
    backend = project.folder / "backend"
    backend.mkdir(exist_ok=True)
    common = {"PULUMI_BACKEND_URL": backend.as_uri(), "PULUMI_CONFIG_PASSPHRASE": "canary-passphrase"}
    return {**os.environ, **common, "PULUMI_SKIP_UPDATE_CHECK": "true", **own}


def tenancy(project: Project, *arguments: str, **own: str) -> "subprocess.CompletedProcess[str]":
    """Runs `tenancy`, without a terminal."""
    return _run([sys.executable, "-m", "gpu_tenancy", *arguments], project, own)


def at_80_columns(project: Project, answer: str, *arguments: str) -> tuple[int, str]:
    """Exit code and output of `tenancy` on a terminal, with an answer to its prompt."""
    ours, its = pty.openpty()
    own = environment(project, COLUMNS="80", TERM="xterm")
    command = [sys.executable, "-m", "gpu_tenancy", *arguments]
    with subprocess.Popen(command, cwd=project.folder, env=own, stdin=its, stdout=its, stderr=its) as process:
        os.close(its)
        shown, asked = b"", False
        with suppress(OSError):  # Linux ends a terminal whose programs have ended by an error.
            while part := os.read(ours, 2**16):
                shown += part
                if not asked and (asked := b"[y/N]" in shown):
                    os.write(ours, f"{answer}\n".encode())
        os.close(ours)
    return process.returncode, Text.from_ansi(shown.decode().replace("\r\n", "\n")).plain


def pulumi(project: Project, *arguments: str, stack: str = "good", **own: str) -> "subprocess.CompletedProcess[str]":
    return _run(["pulumi", *arguments, "--stack", stack, "--non-interactive", "--color", "never"], project, own)


def succeeded(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _run(command: list[str], project: Project, own: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=project.folder,
        env=environment(project, **own),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD,
    )


def read_schema(kubeconfig: Path) -> None:
    """Waits until the API server has built its schema: Pulumi's provider waits 32 seconds for it."""
    transport = Transport(kubeconfig, None, 60, GUARD)
    transport.send(Request("GET", "/openapi/v2", accept=_SCHEMA))
    transport.close()
