"""Canaries of secrets under Pulumi's engine: values of the config are in the cluster, and in no file or output."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from builders import EXISTING, Data, server
from cli_builders import Project, small, tenancy
from test_cli_pulumi import deployable, having, secretly

from gpu_tenancy.base.json import text_at
from gpu_tenancy.deploy.pulumi_cli import PulumiCli, find_pulumi
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster

FIRST, SECOND, REFUSED, KEY = (f"hunter2-canary-{name}" for name in ("first", "second", "refused", "key"))
CANARIES: Final = (FIRST, SECOND, REFUSED, KEY)
TOKEN: Final = {"secret": "wandb", "key": "TOKEN"}


def sections(platform: Platform) -> Data:
    """A team with a Secret of the config, which a server, a job and a file of it refer to."""
    made = small(cluster={**EXISTING, "kubeconfig": str(platform.kubeconfig)})
    vision = made["teams"]["vision"]
    vision["secrets"] = {"wandb": {"config": {"TOKEN": "wandb-vision"}}}
    vision["serving"]["api"] = server(env={"TOKEN": TOKEN}, files={"/etc/wandb": {"secret": "wandb"}})
    vision["training"]["nightly"]["envFrom"] = [{"secret": "wandb"}]
    return made


@dataclass
class Author:
    """A user of the CLI in a project; `printed` is the output of all commands."""

    project: Project
    platform: Platform
    printed: list[str] = field(default_factory=list[str])

    def pulumi(self, *arguments: str, fails: bool = False) -> str:
        code, text = secretly(self.project, *arguments, cluster=self.platform.kubeconfig)
        assert (code != 0) == fails, text
        self.printed.append(text)
        return text

    def set(self, value: str) -> None:
        self.pulumi("config", "set", "--secret", "secrets:wandb-vision", value)

    def set_key(self, place: str) -> None:
        """Encrypts a value of the stack."""
        self.pulumi("config", "set", "--secret", "--path", f"gpu-tenancy:teams.vision.{place}", KEY)

    def shows_none(self) -> None:
        """No output has a canary, nor a file: state, backups, history, the stack's own, reports."""
        encoded = [base64.b64encode(canary.encode()).decode() for canary in CANARIES]
        assert not [text for text in self.printed if any(canary in text for canary in (*CANARIES, *encoded))]
        assert [file for canary in CANARIES for file in having(self.project.folder, canary)] == []


@pytest.fixture
def author(tmp_path: Path, platform: Platform, cluster: Cluster) -> Iterator[Author]:
    with deployable(tmp_path / "project", cluster) as project:
        project.write("good", sections(platform))
        yield Author(project, platform)


def value(cluster: Cluster) -> str:
    live = cluster.get("v1", "Secret", "wandb", "vision") or {}
    return base64.b64decode(text_at(live, "data", "TOKEN")).decode()


def checksum(cluster: Cluster) -> str:
    server: Any = cluster.get("apps/v1", "Deployment", "api", "vision")
    return server["spec"]["template"]["metadata"]["annotations"]["gpu-tenancy.dev/secrets"]


@pytest.mark.pulumi
def test_config_values_reach_secret_but_no_file_or_output(author: Author, cluster: Cluster) -> None:
    author.pulumi("stack", "init")
    author.set(FIRST)
    author.set_key("serving.api.env.PLAIN")
    author.pulumi("preview", "--diff")
    author.pulumi("up", "--yes", "--diff")
    assert value(cluster) == FIRST
    live: Any = cluster.get("apps/v1", "Deployment", "api", "vision")
    assert KEY in [one.get("value") for one in live["spec"]["template"]["spec"]["containers"][0]["env"]]
    before = checksum(cluster)

    author.set(SECOND)
    is_reported_without_its_value(author, author.pulumi("preview", "--json"))
    author.pulumi("up", "--yes", "--diff")
    assert value(cluster) == SECOND
    assert checksum(cluster) != before  # pods of the server restart
    author.pulumi("refresh", "--yes", "--diff")
    author.pulumi("stack", "export")
    author.pulumi("stack", "output", "--json")
    author.pulumi("stack", "history", "--json")
    author.set_key("costCenter")
    text = author.pulumi("preview", "--diff", fails=True)
    assert "teams.vision.costCenter: is secret, but the names and amounts of a plan are plain values" in text
    author.shows_none()


def is_reported_without_its_value(author: Author, preview: str) -> None:
    """The report, the comment, their data and the objects of `tenancy preview` with the engine's own preview."""
    folder = author.project.folder
    (folder / "preview.json").write_text(preview)
    given = ("--pulumi-preview", folder / "preview.json", "--out", folder / "out")
    seen = tenancy("preview", "good", *given, project=folder)
    assert seen.exit_code == 0, seen.output
    author.printed.append(seen.output)
    written = {file.name for file in (folder / "out").rglob("*")}
    assert {"report.html", "report.md", "report.json"} <= written
    assert "[secret]" in preview


@pytest.mark.pulumi
def test_an_error_of_the_api_server_about_a_secret_has_no_value(author: Author) -> None:
    """The value is not a registry's credentials, so the API server rejects the Secret."""
    made = sections(author.platform)
    key = {".dockerconfigjson": "wandb-vision"}
    made["teams"]["vision"] |= {
        "secrets": {"wandb": {"config": key, "type": "kubernetes.io/dockerconfigjson"}},
        "imagePullSecrets": ["wandb"],
        "serving": {"api": server()},
    }
    del made["teams"]["vision"]["training"]
    author.project.write("good", made)
    author.pulumi("stack", "init")
    author.set(REFUSED)
    text = author.pulumi("up", "--yes", "--diff", fails=True)
    assert "wandb" in text
    assert "nvalid" in text
    author.pulumi("stack", "export")
    author.shows_none()


@pytest.mark.pulumi
def test_embedded_up_has_placeholder_for_encrypted_value(author: Author, cluster: Cluster, tmp_path: Path) -> None:
    author.pulumi("stack", "init")
    author.set(FIRST)
    program = find_pulumi()
    assert program
    cli = PulumiCli(program, tmp_path / "own", author.project.folder)
    cli.up("good", author.platform.kubeconfig)
    assert value(cluster) not in {"", FIRST}
    author.printed.append(json.dumps([file.name for file in (tmp_path / "own").rglob("*")]))
    assert [file for canary in CANARIES for file in having(tmp_path / "own", canary)] == []
    author.shows_none()
