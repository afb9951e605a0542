"""The commands about a running cluster, apart from what they say of it."""

import socket
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gpu_tenancy.base import terminal
from gpu_tenancy.cli.main import app
from gpu_tenancy.inspect.reading import read
from gpu_tenancy.inspect.usage import KINDS
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import UnreachableError


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, list(arguments))


def nowhere(folder: Path, port: int = 9, namespace: str = "") -> Path:
    """A kubeconfig of a port, by default one at which nobody listens."""
    file = folder / "kubeconfig"
    file.write_text(
        "{apiVersion: v1, kind: Config, current-context: c,"
        f" contexts: [{{name: c, context: {{cluster: c, user: u, namespace: '{namespace}'}}}}],"
        f" clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}], users: [{{name: u, user: {{}}}}]}}"
    )
    return file


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ("usage", "tenancy usage ml-research --watch"),
        ("fit", "tenancy fit ml-research -f job.yaml"),
        ("why", "tenancy why ml-research/nightly"),
    ],
)
def test_help_shows_an_example(command: str, example: str) -> None:
    assert example in run(command, "--help").stdout


def test_a_cluster_that_does_not_answer_is_a_sentence(tmp_path: Path) -> None:
    file = nowhere(tmp_path)
    seen = run("usage", "--kubeconfig", str(file))
    assert (seen.exit_code, seen.stdout) == (1, "")
    words = " ".join(seen.stderr.split())
    assert "error: the API server at http://127.0.0.1:9 is not reachable: Failed to establish a new connection" in words
    assert words.endswith("then run the same command again")
    assert "HTTPConnection" not in words
    other = run("usage", "--kubeconfig", str(file), "--context", "other")
    assert "context other not found; specify --context c" in other.stderr


@pytest.mark.process
def test_a_server_that_accepts_and_never_answers_is_asked_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = nowhere(tmp_path, silent.getsockname()[1])
        with (
            Cluster(file, retry_seconds=0.1, answer_seconds=0.2) as cluster,
            pytest.raises(
                UnreachableError, match="it accepts connections but does not answer; check that it is running"
            ),
        ):
            read(cluster, KINDS)
        silent.settimeout(0.2)
        silent.accept()[0].close()
        with pytest.raises(TimeoutError):
            silent.accept()


def test_a_command_without_a_team_needs_a_namespace_of_the_context(tmp_path: Path) -> None:
    bare = nowhere(tmp_path)
    fit = run("fit", "-f", "job.yaml", "--kubeconfig", str(bare))
    assert "no team: the kubeconfig's context has no namespace; specify it: `tenancy fit TEAM`" in " ".join(
        fit.stderr.split()
    )
    assert "train: no namespace; specify NAMESPACE/NAME" in run("why", "train", "--kubeconfig", str(bare)).stderr
    own = nowhere(tmp_path, namespace="research")
    assert "job.yaml" in run("fit", "-f", "job.yaml", "--kubeconfig", str(own)).stderr
    assert "is not reachable" in run("why", "train", "--kubeconfig", str(own)).stderr


def test_long_operations_report_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    said, told = threading.Event(), list[str]()

    def report(line: str) -> None:
        told.append(line)
        said.set()

    monkeypatch.setattr(terminal, "report", report)
    monkeypatch.setattr(terminal, "SLOW_AFTER", 0.0)
    with terminal.reported_if_slow("reading the cluster"):
        assert said.wait(60)
    assert told == ["reading the cluster"]
    monkeypatch.setattr(terminal, "SLOW_AFTER", 3600.0)
    with terminal.reported_if_slow("reading the cluster"):
        pass
    assert told == ["reading the cluster"]


def test_watching_gives_no_data_for_programs(tmp_path: Path) -> None:
    file = nowhere(tmp_path)
    seen = run("usage", "--watch", "--json", "--kubeconfig", str(file))
    assert seen.exit_code == 1
    assert "error: --watch and -o cannot be combined; remove one of them" in seen.stderr
