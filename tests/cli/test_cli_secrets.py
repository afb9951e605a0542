"""Canaries of secrets on an embedded platform of its own: values are in no output, report, log or state."""

import base64
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

import pytest
import yaml
from builders import Data, server
from cli_builders import Home, small

from gpu_tenancy.base.json import map_at, text_at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference

pytestmark = pytest.mark.platform

# Values by their Secret; the stack does not have `key`.
CANARIES: Final = {name: f"hunter2-canary-{name}" for name in ("signing", "wandb", "key")}


def sections() -> Data:
    """A team with a Secret of the config and an existing one, and workloads that refer to both."""
    made = small()
    vision = made["teams"]["vision"]
    vision["secrets"] = {"wandb": {"config": {"TOKEN": "wandb-vision"}}, "signing": {"existing": True}}
    token = {"secret": "wandb", "key": "TOKEN"}
    vision["serving"]["api"] = server(env={"TOKEN": token}, files={"/etc/signing": {"secret": "signing"}})
    vision["training"]["nightly"]["envFrom"] = [{"secret": "signing"}]
    return made


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    found = Home.at(tmp_path)
    found.project.write("good", sections())
    yield found
    found.run("local", "down")


def job() -> Data:
    """A researcher's job that refers to a Secret, and misspells a key of another one."""
    reference = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "signing", "key": "a.key"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "TOKN"}}},
    ]
    container = {"name": "main", "image": "registry.example.com/x:1", "env": reference}
    pod = {"containers": [container], "restartPolicy": "Never"}
    metadata = {"name": "own", "labels": {"kueue.x-k8s.io/queue-name": "vision"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}}


def test_values_in_the_cluster_are_in_no_output_and_no_file(home: Home) -> None:
    printed: list[CompletedProcess[str]] = []

    def run(*arguments: object) -> CompletedProcess[str]:
        printed.append(home.run(*arguments))
        return printed[-1]

    printed.append(home.up())
    assert printed[0].returncode == 0, printed[0].stderr
    with Cluster(home.kubeconfig) as cluster:
        assert value(cluster, "wandb", "TOKEN") not in {"", CANARIES["wandb"]}
        by_hand(cluster)
        file = home.folder / "job.yaml"
        file.write_text(yaml.safe_dump(job()))
        misspelt = run("fit", "vision", "-f", file, "--embedded")
        assert misspelt.returncode == 3
        assert "Secret wandb has no key TOKN (env B of container main)" in misspelt.stdout
        for command in (("usage",), ("why", "vision/nightly"), ("why", "vision/api"), ("local", "status")):
            run(*command, *(("--embedded",) if command != ("local", "status") else ()))
        run("preview", "good", "--project", home.project.folder, "--out", home.folder / "out", "--json")

        again = home.up()
        printed.append(again)
        assert again.returncode == 0, again.stderr
        assert (
            "corrected fields that were changed outside the stack: Secret vision/wandb" in again.stdout + again.stderr
        )
        assert value(cluster, "wandb", "TOKEN") != CANARIES["wandb"]  # the stack's placeholder is back
        assert value(cluster, "signing", "a.key") == CANARIES["signing"]
    rejected = refused(home)
    printed.append(rejected)
    assert rejected.returncode == 1
    assert "Secret vision/wandb" in rejected.stderr
    assert "<secret contents redacted>" in rejected.stderr
    shows_none(home, "".join(done.stdout + done.stderr for done in printed))


def by_hand(cluster: Cluster) -> None:
    """Creates the Secret that the stack refers to, and writes a real value into the stack's own, as with kubectl."""
    name = {"name": "signing", "namespace": "vision"}
    signing: Manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {**name}}
    cluster.patch(Reference.of(signing), {"stringData": {"a.key": CANARIES["signing"]}})
    values: Manifest = {"TOKEN": CANARIES["wandb"], "KEY": CANARIES["key"]}
    cluster.patch(Reference("v1", "Secret", "wandb", "vision"), {"stringData": values})


def refused(home: Home) -> CompletedProcess[str]:
    """An `up` of a stack whose own Secret the API server rejects, because its type requires another key."""
    made = sections()
    wandb = {"config": {".dockerconfigjson": "wandb-vision"}, "type": "kubernetes.io/dockerconfigjson"}
    made["teams"]["vision"] |= {
        "secrets": {"wandb": wandb},
        "serving": {"api": server()},
        "imagePullSecrets": ["wandb"],
    }
    del made["teams"]["vision"]["training"]
    home.project.write("good", made)
    return home.up()


def value(cluster: Cluster, name: str, key: str) -> str:
    live = cluster.get("v1", "Secret", name, "vision") or {}
    return base64.b64decode(text_at(map_at(live, "data"), key)).decode()


def shows_none(home: Home, text: str) -> None:
    """Only etcd has them: no output, log, inventory, state of the platform, report or YAML file."""
    forms = [form for canary in CANARIES.values() for form in (canary, base64.b64encode(canary.encode()).decode())]
    assert [form for form in forms if form in text] == []
    files = [file for file in home.folder.rglob("*") if file.is_file() and "etcd" not in file.parts]
    assert {"applied.json", "report.html"} <= {file.name for file in files}
    assert [file for file in files if any(form.encode() in file.read_bytes() for form in forms)] == []
