"""Defaults of a team for a plain `kubectl create job`: a maximum run time, and Secrets to pull images with."""

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest
from queueing import Queueing
from repository import ROOT
from researchers import TEAM, Researcher, researching, sections
from typer.testing import CliRunner

from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.cli.main import app
from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.render import render
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.source import Source, to_config

pytestmark = pytest.mark.platform
IMAGE: Final = "registry.example.com/ml/train:3.0.1"
LABEL: Final = "kueue.x-k8s.io/max-exec-time-seconds"
JOB: Final = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": IMAGE}]}}}
GROUP: Final[Any] = {"groupName": "w", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "rayStartParams": {}}
RAY: Final[Any] = {
    "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "h", "image": IMAGE}]}}},
    "workerGroupSpecs": [{**GROUP, "template": {"spec": {"containers": [{"name": "w", "image": IMAGE}]}}}],
}
KINDS: Final[dict[str, tuple[str, Any, str]]] = {
    "Job": ("batch/v1", JOB, "spec"),
    "CronJob": ("batch/v1", {"schedule": "0 2 * * *", "jobTemplate": {"spec": JOB}}, "spec.jobTemplate.spec"),
    "TrainJob": ("trainer.kubeflow.org/v1alpha1", {"runtimeRef": {"name": "torch-distributed"}}, "spec"),
    "RayJob": ("ray.io/v1", {"entrypoint": "python t.py", "rayClusterSpec": RAY}, "spec"),
    "JobSet": ("jobset.x-k8s.io/v1alpha2", {"replicatedJobs": [{"name": "w", "template": {"spec": JOB}}]}, ""),
    "RayCluster": ("ray.io/v1", RAY, ""),
    "Pod": ("v1", JOB["template"]["spec"], ""),
}
"""For each kind: API version, a spec, and the path of the object with a field for the maximum run time."""


def stack_of(pulls: list[str]) -> Any:
    found = sections()
    teams: Any = found["teams"]
    of_team: Any = {**teams[TEAM], "deadline": "1h", "imagePullSecrets": pulls}
    of_team["secrets"] = of_team.get("secrets", {}) | {name: {"existing": True} for name in ("hub", "mirror")}
    return {**found, "teams": {**teams, TEAM: of_team}}


@pytest.fixture(scope="module")
def bounded(queueing: Queueing, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Researcher]:
    with researching(queueing, tmp_path_factory.mktemp("rita"), stack_of(["hub"])) as rita:
        yield rita


def written(kind: str, **spec: Any) -> Manifest:
    version, own, _ = KINDS[kind]
    metadata: Any = {"name": f"plain-{kind.lower()}", "namespace": TEAM}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {**own, **spec}}


@pytest.mark.parametrize("kind", KINDS)
def test_jobs_without_a_maximum_run_time_have_that_of_the_team(bounded: Researcher, kind: str) -> None:
    made = bounded.own.create(written(kind), dry_run=True)
    place = KINDS[kind][2]
    around = place.split(".")[1:-1]
    labels: Any = at(made, *(["spec", *around] if around else []), "metadata", "labels")
    assert labels[LABEL] == ("3660" if place else "3600")
    if place:
        assert at(made, *place.split("."), "activeDeadlineSeconds") == 3600


def test_who_writes_a_maximum_run_time_has_this_one(bounded: Researcher) -> None:
    by_field = bounded.own.create(written("Job", activeDeadlineSeconds=90000), dry_run=True)
    assert at(by_field, "spec", "activeDeadlineSeconds") == 90000
    assert LABEL not in str(by_field)
    labelled: Any = written("Job")
    labelled["metadata"]["labels"] = {LABEL: "7200"}
    by_label = bounded.own.create(labelled, dry_run=True)
    assert text_at(by_label, "metadata", "labels", LABEL) == "7200"
    assert at(by_label, "spec", "activeDeadlineSeconds") is None
    of_set: Any = written("JobSet")
    of_set["spec"]["replicatedJobs"] = [{"name": "w", "template": {"spec": {**JOB, "activeDeadlineSeconds": 60}}}]
    assert LABEL not in str(bounded.own.create(of_set, dry_run=True))


def test_servers_have_none(bounded: Researcher) -> None:
    pod: Any = {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [{"name": "c", "image": IMAGE}]}}
    spec: Any = {"selector": {"matchLabels": {"app": "s"}}, "template": pod}
    made = bounded.submit({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "server"}, "spec": spec})
    try:
        (running,) = bounded.running("server", 1)
        assert LABEL not in str([made["metadata"], made["spec"], running["metadata"]])
        assert at(running, "spec", "activeDeadlineSeconds") is None
        assert at(running, "spec", "imagePullSecrets") == [{"name": "hub"}]
    finally:
        bounded.end(made)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no `kubectl` on the PATH")
def test_plain_jobs_have_deadline_and_secrets_of_the_team(bounded: Researcher) -> None:
    place = ("kubectl", "--kubeconfig", str(bounded.kubeconfig), "-n", TEAM)
    subprocess.run([*place, "create", "job", "by-hand", f"--image={IMAGE}"], check=True, capture_output=True)
    made: Manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "by-hand", "namespace": TEAM}}
    try:
        (pod,) = bounded.running("by-hand", 1)
        assert at(pod, "spec", "imagePullSecrets") == [{"name": "hub"}]
        assert text_at(pod, "spec", "serviceAccountName") == "default"
        (workload,) = bounded.cluster.list("kueue.x-k8s.io/v1beta2", "Workload", namespace=TEAM)
        assert at(workload, "spec", "maximumExecutionTimeSeconds") == 3660
    finally:
        bounded.end(made)


def test_kueue_stops_kinds_without_a_deadline_field(bounded: Researcher) -> None:
    short: Any = written("JobSet")
    short["metadata"]["labels"] = {LABEL: "2"}
    made = bounded.own.create(short)
    place = ("--kubeconfig", str(bounded.kubeconfig))

    def stopped() -> str | None:
        text = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["why", f"{TEAM}/plain-jobset", *place]).stdout
        return text if "its maximum run time of 2 s" in text else None

    try:
        told = bounded.cluster.wait_for(stopped, timeout=60, what="its end")
        assert f"run `tenancy requeue {TEAM}/plain-jobset`" in told
        bounded.cluster.wait_for(lambda: not bounded.pods("plain-jobset") or None, what="the end of its pods")
    finally:
        bounded.end(made)


def test_a_team_gets_and_loses_secrets_while_it_exists(bounded: Researcher) -> None:
    def pulled() -> Any:
        return at(bounded.own.create(written("Pod"), dry_run=True), "spec", "imagePullSecrets")

    def deploy(pulls: list[str]) -> None:
        source = Source(stack_of(pulls))
        made = kubernetes_objects(render(ROOT, project="gpu-tenancy", stack="submitting", config=to_config(source)))
        (namespace,) = [item.manifest for item in made if (item.kind, item.name) == ("Namespace", TEAM)]
        bounded.cluster.apply(dict(namespace))
        expected = [{"name": name} for name in pulls] or None
        bounded.cluster.wait_for(lambda: pulled() == expected or None, what=f"pods with the Secrets {pulls}")

    for pulls in (["hub", "mirror"], [], ["hub"]):
        deploy(pulls)
    named = written("Pod", imagePullSecrets=[{"name": "own"}])
    assert at(bounded.own.create(named, dry_run=True), "spec", "imagePullSecrets") == [{"name": "own"}]


def test_an_update_of_an_older_job_gives_it_no_maximum_run_time(bounded: Researcher) -> None:
    """The API server would refuse the change of an existing job."""
    old: Any = written("Job", suspend=True)
    reference = Reference.of(bounded.cluster.create(old))
    try:
        bounded.own.patch(reference, {"metadata": {"annotations": {"note": "seen"}}})
        assert LABEL not in str((bounded.cluster.get("batch/v1", "Job", reference.name, TEAM) or {})["metadata"])
    except ApiError as error:
        pytest.fail(str(error))
    finally:
        bounded.cluster.delete(reference)
