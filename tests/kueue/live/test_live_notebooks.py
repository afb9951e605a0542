"""Notebooks with the rights of a researcher of the stack `local`, and the CronJob that stops them."""

import json
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from queueing import Queueing
from repository import ROOT
from researchers import TEAM, Researcher, identified, sections
from scheduled import Scheduled
from typer.testing import CliRunner, Result

from gpu_tenancy.base.json import at, maps_at, text_at
from gpu_tenancy.cli.main import app
from gpu_tenancy.cluster.demand import demand
from gpu_tenancy.cluster.dry_run import pod_of
from gpu_tenancy.embedded.drivers import STORAGE, bring_volumes
from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.render import render
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.names import NOTEBOOKS
from gpu_tenancy.model.plan.notebooks import NOTEBOOK_STOPS, OfferedHome
from gpu_tenancy.model.source import Source, to_config
from gpu_tenancy.model.spec.people import Person

pytestmark = [
    pytest.mark.platform,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no `kubectl` on the PATH"),
]
LONG_AGO: Final = "2026-01-01T00:00:00Z"


@pytest.fixture(scope="module", autouse=True)
def disks(researcher: Researcher) -> Iterator[None]:
    """Disks for homes, as the embedded platform has them."""
    bring_volumes(researcher.cluster, (), {TEAM: OfferedHome("20Gi", "ReadWriteOnce", None)}, default=True)
    yield
    # A volume whose claim has just been deleted can still be bound.
    for volume in researcher.cluster.list("v1", "PersistentVolume", labels=STORAGE):
        researcher.cluster.delete(Reference.of(volume))
    bring_volumes(researcher.cluster, (), default=False)


def notebook(researcher: Researcher, *words: str, kubeconfig: Path | None = None) -> Result:
    place = ("--kubeconfig", str(kubeconfig or researcher.kubeconfig), "-n", TEAM)
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, ["notebook", *words, *place])


def listed(researcher: Researcher) -> list[Any]:
    found = json.loads(invoked(researcher, "queue", TEAM, "-v", "-o", "json").stdout)
    return [one for one in (*found["jobs"], *found["others"]) if one["name"] == "lab"]


@pytest.fixture
def lab(researcher: Researcher) -> Iterator[Manifest]:
    done = notebook(researcher, "start", "lab", "--size", "gpu")
    assert done.exit_code == 0, done.output
    assert "it stops when idle for 1h, and after 12h" in done.stdout
    (pod,) = researcher.running("lab", 1)
    yield pod
    made: Any = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "lab", "namespace": TEAM}}
    researcher.end(made)
    for claim in researcher.cluster.list("v1", "PersistentVolumeClaim", namespace=TEAM):
        researcher.cluster.delete(Reference.of(claim))


def test_a_notebook_stops_and_starts_with_its_home(researcher: Researcher, lab: Manifest) -> None:
    spec: Any = lab["spec"]
    assert spec["nodeName"].startswith("a100-")
    assert (spec["priorityClassName"], spec["serviceAccountName"]) == ("ml-high", "workload")
    (row,) = listed(researcher)
    assert (row["name"], row["state"], row["user"]) == ("lab", "admitted", "rita")
    assert row["requests"]["nvidia.com/gpu"] == 1
    again = notebook(researcher, "start", "lab")
    assert "notebook ml-research/lab: is started already; open it with" in again.stderr
    assert notebook(researcher, "stop", "lab").stdout == "notebook ml-research/lab stopped; its home stays\n"
    other = notebook(researcher, "start", "lab", "--size", "small")
    assert "notebook ml-research/lab: exists; `tenancy cancel lab` deletes it" in other.stderr
    # At once: Kueue refuses that until the pod has ended.
    assert notebook(researcher, "start", "lab").stdout == "notebook ml-research/lab started again\n"
    (after,) = researcher.running("lab", 1)
    assert text_at(after, "metadata", "uid") != text_at(lab, "metadata", "uid")
    assert claims_of(after) == claims_of(lab) == ["home-lab-0"]


def claims_of(pod: Any) -> list[str]:
    return [
        one["persistentVolumeClaim"]["claimName"] for one in pod["spec"]["volumes"] if "persistentVolumeClaim" in one
    ]


def test_idle_and_old_notebooks_are_stopped(researcher: Researcher, lab: Manifest, tmp_path: Path) -> None:
    run = Scheduled(researcher, tmp_path, NOTEBOOK_STOPS, "stop")
    assert run() == ""  # it is ready
    state(researcher, lab, ready=False, running="2100-01-01T00:00:00Z")
    assert run() == ""  # its container has just started
    state(researcher, lab, ready=False, running=LONG_AGO)
    assert run() == "statefulset.apps/lab scaled\n"
    researcher.cluster.wait_for(lambda: not researcher.pods("lab") or None, what="the end of its pod")
    (row,) = listed(researcher)
    # It holds no quota; Kueue deletes its Workload at some point after its pod.
    assert (row["state"], row.get("flavors", [])) == ("stopped", [])
    assert notebook(researcher, "start", "lab").exit_code == 0
    (pod,) = researcher.running("lab", 1)
    assert run() == ""
    researcher.cluster.patch(Reference.of(pod), {"status": {"startTime": LONG_AGO}}, subresource="status")
    assert run() == "statefulset.apps/lab scaled\n"


def test_the_job_can_do_nothing_else(researcher: Researcher, tmp_path: Path) -> None:
    run = Scheduled(researcher, tmp_path, NOTEBOOK_STOPS, "stop")
    for verb, resource in (
        ("get", "secrets"),
        ("create", "pods"),
        ("get", "pods/log"),
        ("create", "pods/exec"),
        ("create", "pods/portforward"),
        ("delete", "statefulsets"),
        ("patch", "statefulsets"),
        ("patch", "deployments/scale"),
        ("get", "configmaps"),
    ):
        assert not run.can(verb, resource, TEAM), (verb, resource)
    assert run.can("patch", "statefulsets/scale", TEAM)
    for team in ("ml-production", NOTEBOOK_STOPS, "kube-system"):
        assert not run.can("patch", "statefulsets/scale", team)
        assert not run.can("list", "pods", team)


def test_the_home_of_somebody_else_is_not_taken(researcher: Researcher, lab: Manifest, tmp_path: Path) -> None:
    researcher.end({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "lab", "namespace": TEAM}})
    done = notebook(researcher, "start", "lab", kubeconfig=identified(researcher, Person("user", "rosa"), tmp_path))
    assert "notebook ml-research/lab: its home is of rita; set another name" in done.stderr
    assert claims_of(lab) == ["home-lab-0"]
    assert notebook(researcher, "start", "lab", "--size", "gpu").exit_code == 0
    researcher.running("lab", 1)


@pytest.mark.parametrize("words", [("--image", "registry.example.com/ml/notebok:4.5.0"), ("--size", "gpus")])
def test_what_the_team_is_not_offered_is_named(researcher: Researcher, words: tuple[str, str]) -> None:
    done = notebook(researcher, "start", "lab", *words)
    assert done.exit_code == 1
    assert f"{words[0][2:]} {words[1]}: team ml-research is not offered it; did you mean" in done.stderr


def test_pod_security_admits_its_pod(researcher: Researcher) -> None:
    """A dry run in a namespace of the strictest level."""
    level = "restricted"
    wanted = demand(yaml.safe_load(notebook(researcher, "start", "lab", "--dry-run").stdout), TEAM)
    pod = pod_of(wanted, wanted.templates[0])
    space: Manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": f"level-{level}", "labels": {"pod-security.kubernetes.io/enforce": level}},
    }
    researcher.cluster.apply(space)
    account: Manifest = {"name": "workload", "namespace": f"level-{level}"}
    researcher.cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    try:
        metadata: Manifest = {"name": "lab", "namespace": f"level-{level}"}
        researcher.cluster.create({**pod, "metadata": metadata}, dry_run=True)
    finally:
        researcher.cluster.delete(Reference.of(space), wait=0)


def test_open_reads_the_token_and_forwards_the_port(
    researcher: Researcher, lab: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing runs in pods of simulated nodes, so the real kubectl finds no token there; another one answers for it."""
    assert text_at(lab, "status", "phase") in {"Pending", "Running"}
    researcher.cluster.wait_for(
        lambda: text_at(researcher.pods("lab")[0], "status", "phase") == "Running" or None, what="the pod to run"
    )
    done = notebook(researcher, "open", "lab")
    assert done.exit_code == 1
    said = " ".join(done.stderr.split())
    failed = f"--namespace {TEAM} exec lab-0 -- cat /tmp/notebook-token` failed"
    assert failed in said or f"{TEAM}/lab: pod lab-0 has no token in /tmp/notebook-token" in said, said
    with another_kubectl(tmp_path, monkeypatch) as calls:
        done = notebook(researcher, "open", "lab", "--port", "9999")
    assert done.stdout == "http://127.0.0.1:9999/lab?token=a-token\n"
    of = f"{researcher.kubeconfig} --namespace {TEAM}"
    assert calls == [f"{of} exec lab-0 -- cat /tmp/notebook-token", f"{of} port-forward pod/lab-0 9999:8888"]
    notebook(researcher, "stop", "lab")
    done = notebook(researcher, "open", "lab")
    assert "notebook ml-research/lab: is stopped; start it with" in done.stderr
    done = notebook(researcher, "open", "lob")
    assert "notebook ml-research/lob: not found; did you mean 'lab'?" in done.stderr


@contextmanager
def another_kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[list[str]]:
    """A kubectl that prints a token; yields its kubeconfig and arguments of each call, afterwards."""
    other, calls = folder / "kubectl", list[str]()
    other.write_text('#!/bin/sh\necho "$KUBECONFIG $@" >> "$0.calls"\necho a-token\n', encoding="utf-8")
    other.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        yield calls
    calls += other.with_name("kubectl.calls").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def hosted(researcher: Researcher) -> Iterator[None]:
    """A host for the notebook `lab`, without its route: this platform has no Gateway API."""
    own: Any = sections()
    own["cluster"]["provides"] = [*own["cluster"]["provides"], "gateways"]
    team: Any = own["teams"][TEAM]
    team["network"] = {**team.get("network", {}), "expose": {"hosts": ["*.lab.example.com"], "classes": ["infra/edge"]}}
    expose = {"domain": "lab.example.com", "gateway": "infra/edge", "names": ["lab"]}
    team["notebooks"] = {**team["notebooks"], "expose": expose}
    made = kubernetes_objects(render(ROOT, project="gpu-tenancy", stack="hosted", config=to_config(Source(own))))
    wanted = {("ConfigMap", NOTEBOOKS), ("Service", "lab"), ("NetworkPolicy", "allow-notebook-lab")}
    objects: Any = [dict(one.manifest) for one in made if (one.kind, one.name) in wanted and one.namespace == TEAM]
    assert len(objects) == len(wanted)
    for manifest in objects:
        researcher.cluster.apply(manifest, force=True)
    yield
    for manifest in objects:
        before = next((one for one in researcher.objects if Reference.of(one) == Reference.of(manifest)), None)
        if before:
            researcher.cluster.apply(before, force=True)
        else:
            researcher.cluster.delete(Reference.of(manifest))


def test_notebooks_with_a_host_open_at_the_host(
    researcher: Researcher,
    hosted: None,  # noqa: ARG001 - before the notebook
    lab: Manifest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No controller of Gateways runs here: the test reads the Service, and the policy that allows the Gateway."""
    (container,) = maps_at(lab, "spec", "containers")
    assert {"name": "NOTEBOOK_HOST", "value": "lab.lab.example.com"} in maps_at(container, "env")
    own = researcher.own
    policy: Any = own.get("networking.k8s.io/v1", "NetworkPolicy", "allow-notebook-lab", TEAM)
    labels: Any = at(lab, "metadata", "labels")
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()

    def behind() -> list[Any] | None:
        slices: Any = own.list(
            "discovery.k8s.io/v1", "EndpointSlice", namespace=TEAM, labels="kubernetes.io/service-name=lab"
        )
        return [
            (end["targetRef"]["name"], end["conditions"]["ready"], port["port"])
            for one in slices
            for end in one.get("endpoints") or ()
            for port in one["ports"]
        ] or None

    researcher.cluster.wait_for(
        lambda: text_at(researcher.pods("lab")[0], "status", "phase") == "Running" or None, what="the pod to run"
    )
    # Pods of simulated nodes have no address, so the test says one, as a kubelet does.
    address: Any = {"status": {"podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}]}}
    researcher.cluster.patch(Reference.of(lab), address, subresource="status")
    assert researcher.cluster.wait_for(behind, timeout=60, what="the pod behind its Service") == [("lab-0", True, 8888)]
    with another_kubectl(tmp_path, monkeypatch) as calls:
        by_host, by_port = notebook(researcher, "open", "lab"), notebook(researcher, "open", "lab", "--port", "9999")
    assert by_host.stdout == "https://lab.lab.example.com/lab?token=a-token\n"
    assert by_port.stdout == "http://127.0.0.1:9999/lab?token=a-token\n"
    assert [call.split()[3] for call in calls] == ["exec", "exec", "port-forward"]


def state(researcher: Researcher, pod: Manifest, *, ready: bool, running: str) -> None:
    """Sets readiness and start time of a notebook's container, as a kubelet."""
    status: Any = {
        "name": "notebook",
        "image": "i",
        "imageID": "",
        "restartCount": 0,
        "ready": ready,
        "state": {"running": {"startedAt": running}},
    }
    researcher.cluster.patch(Reference.of(pod), {"status": {"containerStatuses": [status]}}, subresource="status")
    live = researcher.cluster.get("v1", "Pod", "lab-0", TEAM)
    assert at(live or {}, "status", "containerStatuses") is not None


def invoked(researcher: Researcher, *words: str) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, [*words, "--kubeconfig", str(researcher.kubeconfig)])


def test_the_platform_is_left_as_it_was(queueing: Queueing) -> None:
    assert queueing.cluster.list("apps/v1", "StatefulSet", namespace=TEAM) == ()
