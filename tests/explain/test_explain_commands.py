"""Common behaviour of the commands about a running cluster."""

import json
import socket
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from repository import ROOT
from typer.testing import CliRunner, Result

from gpu_tenancy.base import terminal
from gpu_tenancy.cli.main import app
from gpu_tenancy.cluster import contexts
from gpu_tenancy.cluster.reading import Kind, read
from gpu_tenancy.explain.usage import KINDS
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import UnreachableError
from gpu_tenancy.kube.request import CONNECTIONS


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, list(arguments))


def nowhere(folder: Path, port: int = 9, namespace: str = "") -> Path:
    """A kubeconfig of a port, by default one without a server."""
    file = folder / "kubeconfig"
    file.write_text(
        "{apiVersion: v1, kind: Config, current-context: c,"
        f" contexts: [{{name: c, context: {{cluster: c, user: u, namespace: '{namespace}'}}}}],"
        f" clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}], users: [{{name: u, user: {{}}}}]}}"
    )
    return file


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands ask a server that is not there only once."""
    monkeypatch.setattr(contexts, "Cluster", partial(Cluster, retry_seconds=0))


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ("usage", "tenancy usage ml-research --watch"),
        ("queue", "tenancy queue ml-research --watch"),
        ("submit", "tenancy submit --image example.com/train:3 --gpus 8"),
        ("fit", "tenancy fit ml-research -f job.yaml"),
        ("why", "tenancy why ml-research/nightly"),
    ],
)
def test_help_shows_an_example(command: str, example: str) -> None:
    assert example in run(command, "--help").stdout


@pytest.mark.usefixtures("hasty")
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
@pytest.mark.usefixtures("impatient")
def test_a_server_that_accepts_and_never_answers_is_asked_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with (
            Cluster(nowhere(tmp_path, silent.getsockname()[1]), retry_seconds=0.1, answer_seconds=0.2) as cluster,
            pytest.raises(
                UnreachableError, match="it accepts connections but does not answer; check that it is running"
            ),
        ):
            read(cluster, KINDS)
        silent.settimeout(0.2)
        silent.accept()[0].close()
        with pytest.raises(TimeoutError):
            silent.accept()


CORE: tuple[Kind, ...] = (
    "ConfigMap", "Event", "LimitRange", "Namespace", "Node", "PersistentVolumeClaim", "Pod", "ResourceQuota", "Secret",
)  # fmt: skip


class Discovering(BaseHTTPRequestHandler):
    """Serves discovery only."""

    asked: ClassVar[list[str]] = []
    over: ClassVar[threading.Event] = threading.Event()

    def do_GET(self) -> None:
        if self.path not in {"/api", "/apis"}:
            self.asked.append(self.path)
            self.over.wait(60)
            return
        served = [{"resource": kind.lower(), "responseKind": {"kind": kind}, "scope": "Cluster"} for kind in CORE]
        group = {"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": served}]}
        body = json.dumps({"kind": "APIGroupDiscoveryList", "items": [group] if self.path == "/api" else []}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.process
def test_silent_server_is_not_asked_by_each_thread(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Discovering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with (
            Cluster(nowhere(tmp_path, server.server_port), retry_seconds=0.1, answer_seconds=0.5) as cluster,
            pytest.raises(UnreachableError, match="it accepts connections but does not answer"),
        ):
            read(cluster, CORE)
        Discovering.over.set()
        server.shutdown()
    assert len(Discovering.asked) <= CONNECTIONS < len(CORE)


@pytest.mark.process
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "words",
    ["usage", "usage team", "why job", "fit -f {job}", "access who-can get pods --live --stack local --project {root}"],
)
def test_commands_give_up_on_a_silent_server(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.yaml").write_text("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: []}}")
    limits: list[float] = []

    def asked_once(file: Path, context: str | None, *, answer_seconds: float) -> Cluster:
        limits.append(answer_seconds)
        return Cluster(file, context, retry_seconds=0.1, answer_seconds=0.2)

    monkeypatch.setattr(contexts, "Cluster", asked_once)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        file = nowhere(tmp_path, port, namespace="team")
        line = [word.format(job=tmp_path / "job.yaml", root=ROOT) for word in words.split()]
        seen = run(*line, "--kubeconfig", str(file))
    assert (seen.exit_code, seen.stdout, limits) == (1, "", [10])
    assert " ".join(seen.stderr.split()) == (
        f"error: the API server at http://127.0.0.1:{port} is not reachable: it accepts connections but does not"
        " answer; check that it is running and that the kubeconfig is correct, then run the same command again"
    )


@pytest.mark.usefixtures("hasty")
def test_team_defaults_to_the_contexts_namespace(tmp_path: Path) -> None:
    bare = nowhere(tmp_path)
    fit = run("fit", "-f", "job.yaml", "--kubeconfig", str(bare))
    assert "no team: the kubeconfig's context has no namespace; specify it: `tenancy fit TEAM`" in " ".join(
        fit.stderr.split()
    )
    assert "train: no namespace; specify NAMESPACE/NAME" in run("why", "train", "--kubeconfig", str(bare)).stderr
    own = nowhere(tmp_path, namespace="research")
    assert "job.yaml" in run("fit", "-f", "job.yaml", "--kubeconfig", str(own)).stderr
    assert "is not reachable" in run("why", "train", "--kubeconfig", str(own)).stderr


@pytest.mark.usefixtures("hasty")
def test_the_team_is_an_argument_or_a_namespace(tmp_path: Path) -> None:
    file = nowhere(tmp_path, namespace="research")
    job = tmp_path / "job.yaml"
    job.write_text("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: []}}")
    for words in (["usage"], ["fit", "-f", str(job)]):
        same = run(*words, "speech", "-n", "speech", "--kubeconfig", str(file))
        assert "is not reachable" in same.stderr
        both = run(*words, "speech", "-n", "vision", "--kubeconfig", str(file))
        assert "error: speech and -n vision are different namespaces; specify one" in both.stderr
    seen = run("usage", "--all", "-n", "vision", "--kubeconfig", str(file))
    assert "vision: --all shows all teams; remove one of them" in seen.stderr


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
    seen = run("usage", "--watch", "--json", "--kubeconfig", str(nowhere(tmp_path)))
    assert seen.exit_code == 2
    assert "error: --watch and -o cannot be combined; remove one of them" in seen.stderr


IMAGE = ("--image", "i:1")
NO_FILE = "job.yaml: cannot read the file: No such file or directory; set --file to a YAML file"


@pytest.mark.parametrize(
    ("namespace", "words", "message"),
    [
        ("a", (*IMAGE, "--env", "LR"), "--env LR: no `=`; write it as --env NAME=VALUE"),
        ("a", (*IMAGE, "--secret", "TOKEN=wandb"),
         "--secret TOKEN=wandb: no Secret and key; write it as --secret TOKEN=SECRET/KEY"),
        ("a", (*IMAGE, "--mount", "=/data"), "--mount =/data: no `=`; write it as --mount NAME=VALUE"),
        ("a", (*IMAGE, "--deadline", "soon"), "--deadline soon: is not a duration; set one such as 30m or 2h"),
        ("", IMAGE, "no team: the kubeconfig's context has no namespace; specify it: `tenancy submit -n TEAM`"),
        ("", ("-n", "a"), "no image; set --image, or --file"),
        ("", ("-n", "a", "-f", "job.yaml", "--gpus", "2"),
         "--file: cannot be combined with options of the job; set them in the file"),
        ("", ("-n", "a", "-f", "job.yaml"), NO_FILE),
    ],
    ids=["a variable", "a Secret", "a mount", "a deadline", "no team", "no image", "a file and options", "no file"],
)  # fmt: skip
def test_submit_refuses(namespace: str, words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    seen = run("submit", *words, "--kubeconfig", str(nowhere(tmp_path, namespace=namespace)))
    usage = "no image" in message or "combined" in message
    assert (seen.exit_code, seen.stdout) == (2 if usage else 1, "")
    assert message in " ".join(seen.stderr.split())
