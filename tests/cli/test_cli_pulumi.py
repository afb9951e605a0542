"""Deploying with the official Pulumi CLI results in the same objects as without it."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_builders import Project, small
from pulumi_tool import pulumi, run_here
from repository import ROOT

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.deploy.pulumi_cli import PulumiCli, find_pulumi
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.engine.objects import waves
from gpu_tenancy.engine.project import preview
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

pytestmark = pytest.mark.process


@pytest.fixture
def project(tmp_path: Path, cluster: Cluster) -> Iterator[Project]:
    with deployable(tmp_path / "project", cluster) as found:
        yield found


@contextmanager
def deployable(folder: Path, cluster: Cluster) -> Generator[Project]:
    """A project whose stack is deleted from the cluster afterwards."""
    found = Project.at(folder)
    found.write("good", small())
    yield found
    found.write("good", small())
    remove(cluster, references(found))


def references(project: Project) -> list[Reference]:
    return [Reference.of(one.manifest) for one in preview("good", project.folder).objects]


def remove(cluster: Cluster, found: list[Reference]) -> None:
    for one in found:
        cluster.delete(one, wait=0)
    for one in found:
        if one.kind == "Namespace":
            cluster.wait_gone(one)


def declared(cluster: Cluster, found: list[Reference]) -> dict[Reference, Any]:
    """The declared fields of each object, without fields that the API server and each engine add."""
    return {one: _declared(cluster.get(*one)) for one in found}


def _declared(live: Any) -> Any:
    assert live
    metadata, spec = live["metadata"], dict(live.get("spec") or {})
    for given in ("clusterIP", "clusterIPs", "finalizers"):
        spec.pop(given, None)
    if live["kind"] == "Job" and live["apiVersion"] == "batch/v1":
        spec.pop("selector")  # by the object's uid
        spec["template"]["metadata"].pop("labels", None)
    labels = metadata.get("labels", {})
    top = {key: live[key] for key in ("value", "preemptionPolicy", "globalDefault", "description") if key in live}
    return {"labels": labels, "spec": spec, **top}


@pytest.mark.pulumi
def test_both_ways_end_in_the_same_objects_and_follow_an_edit(
    platform: Platform, cluster: Cluster, project: Project, tmp_path: Path
) -> None:
    program = find_pulumi()
    assert program
    found = references(project)
    manifests = [[dict(one.manifest) for one in wave] for wave in waves(preview("good", project.folder).objects)]
    apply(cluster, manifests, tmp_path / "inventory.json")
    without = declared(cluster, found)
    remove(cluster, found)

    cli = PulumiCli(program, tmp_path / "pulumi", project.folder)
    first = cli.up("good", platform.kubeconfig)
    assert (first["created"], first["unchanged"]) == (len(found), 0)
    assert declared(cluster, found) == without
    again = cli.up("good", platform.kubeconfig)
    assert (again["created"], again["changed"], again["pruned"], again["unchanged"]) == (0, 0, 0, len(found))

    edited = small()
    edited["teams"]["speech"]["objects"] = {"services": 3}
    del edited["teams"]["vision"]["training"]
    project.write("good", edited)
    third = cli.up("good", platform.kubeconfig)
    assert (third["created"], third["changed"], third["replaced"], third["pruned"]) == (0, 1, 0, 1)
    assert not cluster.exists("batch/v1", "Job", "nightly", "vision")
    assert sorted(each.name for each in (project.folder / "stacks").iterdir()) == ["Pulumi.good.yaml"]


@pytest.mark.pulumi
def test_pulumis_errors_are_shown_verbatim(project: Project, tmp_path: Path) -> None:
    program = find_pulumi()
    assert program
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text("no kubeconfig\n")
    with pytest.raises(ConsoleError, match="pulumi up failed") as refused:
        PulumiCli(program, tmp_path / "pulumi", project.folder).up("good", nowhere)
    assert "fix the error and run the same command again" in str(refused.value)


def secretly(project: Project, *arguments: str, cluster: Path) -> tuple[int, str]:
    """Runs the CLI in a user's own project; returns its exit code and its output."""
    run_here(project)
    done = pulumi(project, *arguments, KUBECONFIG=str(cluster))
    return done.returncode, done.stdout + done.stderr


def having(folder: Path, text: str) -> list[Path]:
    """The files that contain a text, as it is or in base64."""
    forms = [text.encode(), base64.b64encode(text.encode())]
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [file for file in files if any(form in file.read_bytes() for form in forms)]


def a_pulumi(folder: Path, events: str, code: int = 0) -> PulumiCli:
    """A program that answers as the CLI does, and records its calls."""
    program, script = folder / "pulumi", folder / "pulumi.py"
    (folder / "events").write_text(events)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    script.write_text(
        "import os, pathlib, sys\n"
        f"folder = pathlib.Path({str(folder)!r})\n"
        "with (folder / 'calls').open('a') as calls:\n"
        "    print(*sys.argv[1:], os.environ['PULUMI_BACKEND_URL'], file=calls)\n"
        "if sys.argv[1] == 'up':\n"
        "    print((folder / 'events').read_text())\n"
        f"    sys.exit({code})\n"
    )
    program.chmod(0o755)
    return PulumiCli(str(program), folder / "own", ROOT)


def test_state_and_config_have_their_own_folder(tmp_path: Path) -> None:
    cli = a_pulumi(
        tmp_path, '{"resOutputsEvent": {"metadata": {"op": "create", "type": "kubernetes:core/v1:Namespace"}}}'
    )
    assert cli.up("example-tree", tmp_path / "kubeconfig")["created"] == 1
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["stack", "up"]
    assert all(call.endswith((cli.folder / "state").as_uri()) for call in calls)
    config = (cli.folder / "Pulumi.example-tree.yaml").read_text()
    assert f"kubeconfig: {tmp_path / 'kubeconfig'}" in config


def test_only_the_lock_of_a_run_that_has_ended_is_removed(tmp_path: Path) -> None:
    cli = a_pulumi(tmp_path, "")
    lock = cli.folder / "state" / ".pulumi" / "locks" / "p" / "local" / "lock.json"
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps({"pid": os.getpid()}))
    cli.up("local", tmp_path / "kubeconfig")
    lock.write_text(json.dumps({"pid": ended()}))
    cli.up("local", tmp_path / "kubeconfig")
    calls = [call.split() for call in (tmp_path / "calls").read_text().splitlines()]
    assert [call[0] for call in calls] == ["stack", "up", "stack", "cancel", "up"]


def test_removes_partial_attributes_only_after_a_kill(tmp_path: Path) -> None:
    cli = a_pulumi(tmp_path, "")
    state = cli.folder / "state" / ".pulumi"
    lock, torn, whole = (
        state / "locks" / "lock.json",
        state / "stacks" / "a.json.attrs",
        state / "stacks" / "b.json.attrs",
    )
    for file, text in ((lock, json.dumps({"pid": os.getpid()})), (torn, '{"user'), (whole, "{}")):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    cli.up("local", tmp_path / "kubeconfig")
    assert torn.exists()  # the other run is writing it
    lock.write_text(json.dumps({"pid": ended()}))
    cli.up("local", tmp_path / "kubeconfig")
    assert not torn.exists()
    assert whole.exists()


def ended() -> int:
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    return int(done.stdout)


def test_counts_only_kubernetes_objects(tmp_path: Path) -> None:
    events = """
        warning: not an event
        {"resOutputsEvent": {"metadata": {"op": "update", "type": "kubernetes:core/v1:ResourceQuota"}}}
        {"resOutputsEvent": {"metadata": {"op": "same", "type": "gpu-tenancy:tenancy:Tenancy"}}}
        {"resOutputsEvent": {"metadata": {"op": "delete", "type": "kubernetes:batch/v1:Job"}}}
        {"resOutputsEvent": {}}
        []
    """
    assert a_pulumi(tmp_path, events).up("local", tmp_path / "kubeconfig") == {
        "created": 0,
        "changed": 1,
        "replaced": 0,
        "pruned": 1,
        "unchanged": 0,
    }


def test_a_failure_shows_diagnostics_or_else_the_whole_output(tmp_path: Path) -> None:
    event = '{"diagnosticEvent": {"severity": "error", "message": "quota budget: Forbidden\\n"}}'
    with pytest.raises(ConsoleError) as refused:
        a_pulumi(tmp_path, event, code=1).up("local", tmp_path / "kubeconfig")
    assert refused.value.what == "pulumi up failed:\nquota budget: Forbidden"
    with pytest.raises(ConsoleError) as refused:
        a_pulumi(tmp_path, "something else", code=1).up("local", tmp_path / "kubeconfig")
    assert refused.value.what == "pulumi up failed:\nsomething else"
