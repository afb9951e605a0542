"""Canaries: the credentials of a kubeconfig are in no output, error, debug log or file of the commands that use it."""

import base64
import json
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml
from builders import EXISTING
from cli_builders import Project, small
from cluster_builders import a_kubeconfig
from typer.testing import CliRunner

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.cli.main import app
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference

FALSE: Final = "hunter2-canary"


@dataclass(frozen=True)
class Place:
    """Folders of a user, whose kubeconfig is the only file that may have the token."""

    folder: Path
    cluster: Json

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def files_with(self, text: str) -> list[Path]:
        return [one for one in self.folder.rglob("*") if one.is_file() and text.encode() in one.read_bytes()]


@pytest.fixture
def place(tmp_path: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "TMPDIR"))
    config = yaml.safe_load(platform.kubeconfig.read_text())
    return Place(tmp_path, config["clusters"][0]["cluster"])


@pytest.fixture
def token(cluster: Cluster, namespace: str) -> Iterator[str]:
    right = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    made: list[Manifest] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "admin", "namespace": namespace}},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": "admin",
                "namespace": namespace,
                "annotations": {"kubernetes.io/service-account.name": "admin"},
            },
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": namespace},
            "roleRef": dict(right),
            "subjects": [{"kind": "ServiceAccount", "name": "admin", "namespace": namespace}],
        },
    ]
    for one in made:
        cluster.apply(one)
    encoded = cluster.wait_for(
        lambda: text_at(cluster.get("v1", "Secret", "admin", namespace) or {}, "data", "token") or None,
        what="the token",
    )
    yield base64.b64decode(encoded).decode()
    cluster.delete(Reference.of(made[-1]))


def said(caplog: pytest.LogCaptureFixture, *arguments: object) -> str:
    """All output and logs of a command."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        seen = CliRunner(env={"COLUMNS": "400"}).invoke(app, [str(each) for each in arguments])
    assert "Traceback" not in seen.output
    return seen.output + caplog.text


def test_tokens_are_never_written(
    place: Place, token: str, namespace: str, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    pod: Json = {"containers": [{"name": "c", "image": "registry.example.com/x:1"}]}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace}, "spec": pod})
    a_kubeconfig(place.kubeconfig, place.cluster, {"token": token})
    project = Project.at(place.folder / "project")
    project.write("good", small(cluster={**EXISTING, "kubeconfig": str(place.kubeconfig)}))
    own = ("--kubeconfig", place.kubeconfig)
    texts = {
        "why": said(caplog, "why", f"{namespace}/p", *own),
        "usage": said(caplog, "usage", *own),
        "no team": said(caplog, "usage", namespace, "--json", *own),
        "doctor": said(caplog, "cluster", "doctor", "good", "--project", project.folder),
        "preview": said(caplog, "preview", "good", "--project", project.folder, "--out", place.folder / "out"),
    }
    assert "registry.example.com" in texts["why"] or f"{namespace}/p" in texts["why"]
    assert "/api" in texts["why"]  # the log of requests
    assert [name for name, text in texts.items() if token in text or "credentials" in text] == []
    assert place.files_with(token) == [place.kubeconfig]


def exec_plugin(place: Place, lines: str) -> Json:
    program = place.folder / "login"
    program.write_text(f"#!/bin/sh\n{lines}\n")
    program.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": str(program), "interactiveMode": "Never"}}


_OF_PLUGIN: Final = json.dumps(
    {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": FALSE}}
)


@pytest.mark.parametrize(
    "lines",
    [f"echo '{_OF_PLUGIN}'", f"echo {FALSE}", f"echo '{_OF_PLUGIN[:-1]}'", f"echo '{_OF_PLUGIN}'; exit 3"],
    ids=["refused", "no JSON", "half of it", "failed"],
)
def test_the_token_of_a_login_program_is_in_no_error(
    place: Place, caplog: pytest.LogCaptureFixture, lines: str
) -> None:
    a_kubeconfig(place.kubeconfig, place.cluster, exec_plugin(place, lines))
    text = said(caplog, "usage", "--kubeconfig", place.kubeconfig)
    assert str(place.kubeconfig) in text
    assert FALSE not in text
    assert place.files_with(FALSE) == [place.folder / "login"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"token: {FALSE}", f"token: {FALSE}"),
        (f"token: {FALSE}", f'token: "{FALSE}'),
        (f"token: {FALSE}", f"token: [{FALSE}]"),
        (f"token: {FALSE}", f"password: {FALSE}\n    username: me"),
        (f"token: {FALSE}", f"client-key-data: {FALSE}!\n    client-certificate-data: {FALSE}!"),
        ("https://127.0.0.1:", "https://127.0.0.1:1/"),
    ],
    ids=["refused", "no YAML", "a list", "password", "certificate", "unreachable"],
)
def test_credentials_are_in_no_error(place: Place, caplog: pytest.LogCaptureFixture, before: str, after: str) -> None:
    a_kubeconfig(place.kubeconfig, place.cluster, {"token": FALSE})
    place.kubeconfig.write_text(place.kubeconfig.read_text().replace(before, after))
    text = said(caplog, "usage", "--kubeconfig", place.kubeconfig)
    assert str(place.kubeconfig) in text or "is not reachable" in text
    assert FALSE not in text
    assert base64.b64encode(FALSE.encode()).decode() not in text
    assert place.files_with(FALSE) == [place.kubeconfig]
