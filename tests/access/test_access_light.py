"""The wheel without extras, in an empty environment: small, and sufficient for a researcher's commands."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml
from people_builders import OWN, Desk
from repository import ROOT
from starts import GUARD

from gpu_tenancy.embedded.certificates import issue_client
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster

pytestmark = [pytest.mark.process, pytest.mark.slow]
LIMIT: Final = 60_000_000  # bytes of the environment with bytecode, as pip compiles it
JOB: Final = """
apiVersion: batch/v1
kind: Job
metadata: {name: small}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - {name: main, image: registry.example.com/small:1, resources: {requests: {cpu: 1, memory: 1Gi}}}
"""


@dataclass(frozen=True)
class Light:
    """An environment with the package and its dependencies, and a researcher's kubeconfig if any."""

    environment: Path
    kubeconfig: Path | None = None

    def run(self, program: str, *words: object) -> "subprocess.CompletedProcess[str]":
        own = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        path = f"{self.environment / 'bin'}{os.pathsep}{own['PATH']}"
        return subprocess.run(
            [str(self.environment / "bin" / program), *map(str, words)],
            cwd=self.environment,
            env={**own, "KUBECONFIG": str(self.kubeconfig), "PATH": path, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
            timeout=GUARD,
        )


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Light:
    folder = tmp_path_factory.mktemp("light")
    uv = (sys.executable, "-m", "uv", "--quiet", "--offline")
    for words in (
        (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)),
        (*uv, "sync", "--frozen", "--no-dev", "--no-install-project", "--compile-bytecode", "--python", sys.executable),
    ):
        environment = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(folder / "environment")}
        subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, check=True, timeout=GUARD)
    (wheel,) = folder.glob("*.whl")
    install = (*uv, "pip", "install", "--no-deps", "--compile-bytecode", "--python", folder / "environment/bin/python")
    subprocess.run([*install, wheel], capture_output=True, check=True, timeout=GUARD)
    return Light(folder / "environment")


@pytest.fixture(scope="module")
def researcher(
    light: Light, cluster: Cluster, platform: Platform, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Light]:
    folder = tmp_path_factory.mktemp("researcher")
    config = yaml.safe_load(platform.kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] = issue_client(platform.places, "ann@example.com", None, 3600)
    config["contexts"][0]["context"]["namespace"] = OWN
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    with Desk.deployed(cluster, folder / "project", platform.kubeconfig):
        yield Light(light.environment, file)


def test_it_is_small_and_has_no_pulumi(light: Light) -> None:
    files = [file for file in (light.environment / "lib").rglob("*") if file.is_file()]
    assert not list((light.environment / "lib").glob("*/site-packages/pulumi*"))
    assert sum(file.stat().st_size for file in files) < LIMIT


def test_it_answers_without_a_cluster(light: Light) -> None:
    assert light.run("tenancy", "--version").stdout.startswith("tenancy ")
    stacks = light.run("tenancy", "stack", "validate", "--project", ROOT)
    assert (stacks.returncode, "✓ local" in stacks.stdout) == (0, True), stacks.stderr
    who = light.run(
        "tenancy", "access", "who-can", "get", "pods", "-n", "ml-research", "--stack", "local", "--project", ROOT
    )
    assert "gpu-tenancy-researcher" in who.stdout, who.stderr


@pytest.mark.parametrize(
    "words", [("preview", "local", "--project", ROOT), ("local", "status"), ("usage", "--embedded")]
)
def test_a_command_that_needs_more_names_what_installs_it(light: Light, words: tuple[object, ...]) -> None:
    done = light.run("tenancy", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: this command needs the package " in done.stderr
    assert "'gpu-tenancy[deploy]'`" in done.stderr


@pytest.mark.parametrize("program", ["tenancy", "kubectl-tenancy"])
def test_a_researcher_asks_the_embedded_platform(researcher: Light, tmp_path: Path, program: str) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB, encoding="utf-8")
    answers = {
        "usage": researcher.run(program, "usage", OWN),
        "queue": researcher.run(program, "queue"),
        "claims": researcher.run(program, "claims"),
        "why": researcher.run(program, "why", "missing"),
        "fit": researcher.run(program, "fit", OWN, "-f", job),
    }
    seen = {name: done.stdout + done.stderr for name, done in answers.items()}
    assert OWN in seen["usage"], seen
    assert "no jobs" in seen["queue"], seen
    assert f"{OWN}/missing" in seen["why"], seen
    assert "Job small" in seen["fit"], seen
    assert not [text for text in seen.values() if "Traceback" in text or "needs the package" in text]
