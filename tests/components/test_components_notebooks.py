"""Notebooks: their objects, and the program in their containers, with a server that has Jupyter's API."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from builders import Data, stack, team
from components_builders import Program, tenancy
from loopback import Handler, serving
from starts import GUARD

from components import notebook_server
from gpu_tenancy.model.names import NOTEBOOKS

TOKEN = "a-token-of-the-notebook"  # noqa: S105 - of the test
IDLE = 3600


def manifest(program: Program, kind: str, name: str, namespace: str = "") -> Any:
    return cast("Any", program.only(kind, name, namespace).manifest)


def test_teams_get_the_program_of_the_server() -> None:
    notebooks: Data = {
        "images": ["registry.example.com/notebook:1.0"],
        "sizes": {"small": {}},
        "home": {"size": "20Gi"},
    }
    made = tenancy(stack(teams={"a": team(notebooks=notebooks)})).only("ConfigMap", NOTEBOOKS, "a")
    assert cast("Any", made.manifest)["data"]["notebook.py"] == Path(notebook_server.__file__).read_text(
        encoding="utf-8"
    )


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass
class Jupyter:
    """A server's answers (https://jupyter-server.readthedocs.io/en/latest/developers/rest-api.html).

    `kernels` has the seconds since the last activity of each, and its state.
    """

    folder: Path
    started: float = 3 * IDLE
    kernels: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    terminals: list[float] | None = None  # seconds since the last output; None without terminals
    token: str = TOKEN
    asked: list[str] = field(default_factory=list[str])

    def content(self, path: str) -> Any:
        if path == "/api/status":
            # The last activity of the server is that of an open browser.
            return {
                "started": ago(self.started),
                "last_activity": ago(0),
                "connections": 1,
                "kernels": len(self.kernels),
            }
        if path == "/api/kernels":
            return [
                {
                    "id": "k",
                    "name": "python3",
                    "connections": 1,
                    "last_activity": ago(seconds),
                    "execution_state": state,
                }
                for seconds, state in self.kernels
            ]
        assert path == "/api/terminals"
        return None if self.terminals is None else [{"name": "1", "last_activity": ago(one)} for one in self.terminals]

    def probe(self) -> "subprocess.CompletedProcess[str]":
        jupyter = self

        class Answers(Handler):
            def do_GET(self) -> None:  # noqa: N802 - the base class gives the name
                jupyter.asked.append(self.path)
                if self.headers["Authorization"] != f"token {jupyter.token}":
                    self.answer(403, b'{"message": "Forbidden"}')
                    return
                content = jupyter.content(self.path)
                self.answer(404 if content is None else 200, json.dumps(content).encode())

        with serving(Answers) as address:
            return self.run(address.rpartition(":")[2], "idle")

    def run(self, port: str, *words: str, path: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
        program = self.folder / "notebook.py"
        program.write_bytes(Path(notebook_server.__file__).read_bytes())
        (self.folder / "notebooks.json").write_text(json.dumps({"idle": IDLE}), encoding="utf-8")
        token = self.folder / "token"
        if "idle" in words:
            token.write_text(TOKEN, encoding="ascii")
        own = {"NOTEBOOK_PORT": port, "JUPYTER_TOKEN_FILE": str(token), "HOME": str(self.folder / "home")}
        return subprocess.run(
            [sys.executable, "-I", str(program), *words],
            env={**own, **variables, "PATH": path or os.environ["PATH"], "HTTP_PROXY": "http://127.0.0.1:9"},
            capture_output=True,
            text=True,
            check=False,
            timeout=GUARD,
        )


@pytest.fixture
def jupyter(tmp_path: Path) -> Jupyter:
    return Jupyter(tmp_path)


@pytest.mark.process
@pytest.mark.parametrize(
    ("active", "idle"),
    [
        ({"kernels": [(2 * IDLE, "idle")]}, "idle for 120 min, of at most 60 min"),
        ({"kernels": []}, "idle for 180 min, of at most 60 min"),
        ({"kernels": [(2 * IDLE, "idle"), (600, "idle")]}, ""),
        ({"kernels": [(2 * IDLE, "busy")]}, ""),
        ({"kernels": [(2 * IDLE, "idle")], "terminals": [60]}, ""),
        ({"kernels": [(2 * IDLE, "idle")], "terminals": [1.5 * IDLE]}, "idle for 90 min, of at most 60 min"),
        ({"kernels": [], "started": 600}, ""),
        # What it cannot learn is not idle.
        ({"kernels": [(2 * IDLE, "idle")], "token": "another"}, ""),
    ],
)
def test_a_pod_is_not_ready_if_no_cell_and_no_terminal_is_active(
    jupyter: Jupyter, active: dict[str, Any], idle: str
) -> None:
    for name, value in active.items():
        setattr(jupyter, name, value)
    done = jupyter.probe()
    said = done.stderr.strip() if idle or "token" not in active else ""
    assert (done.returncode, said) == (1 if idle else 0, idle)
    assert "/api/status" in jupyter.asked


@pytest.mark.process
def test_a_server_that_does_not_answer_is_not_idle(jupyter: Jupyter) -> None:
    with serving(Handler) as address:
        port = address.rpartition(":")[2]
    done = jupyter.run(port, "idle")  # nobody listens there any more
    assert (done.returncode, done.stderr.startswith("no answer of Jupyter: ")) == (0, True)


@pytest.mark.process
def test_jupyterlab_listens_on_the_loopback_with_a_private_token(jupyter: Jupyter, tmp_path: Path) -> None:
    """A program `jupyter` prints its arguments."""
    programs = tmp_path / "bin"
    programs.mkdir()
    command = programs / "jupyter"
    command.write_text('#!/bin/sh\necho "$@"\nstat -c %a "$JUPYTER_TOKEN_FILE"\n', encoding="utf-8")
    command.chmod(0o755)
    tokens: set[str] = set()
    of_host = ["--ip=*", "--ServerApp.trust_xheaders=True", "--port=8888"]
    for variables, where in (({}, ["--ip=127.0.0.1", "--port=8888"]), ({"NOTEBOOK_HOST": "ann.example.com"}, of_host)):
        done = jupyter.run("8888", path=f"{programs}:{os.environ['PATH']}", **variables)
        assert (done.returncode, done.stderr) == (0, "")
        arguments, mode = done.stdout.splitlines()
        assert mode == "600"
        assert arguments.split()[: 2 + len(where)] == ["lab", "--no-browser", *where]
        token = (tmp_path / "token").read_text(encoding="ascii")
        assert len(token) > 40
        assert token not in arguments
        tokens.add(token)
        (tmp_path / "token").unlink()
    assert len(tokens) == 2
