"""A foreign cluster is adopted while jobs run in it: they continue to run, and the stack is unchanged afterwards."""

import json
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from builders import GPU
from cli_builders import Project
from foreign_clusters import cluster_of
from pulumi_tool import pulumi, read_schema, run_here, succeeded, tenancy
from queueing import Queueing, a_job
from repository import ROOT
from test_live_foreign import applied, inspected, is_admitted, shape
from typer.testing import CliRunner

from gpu_tenancy.adopt.adopting import plan_sections
from gpu_tenancy.base.json import at, maps_at, text_at
from gpu_tenancy.cli.main import app
from gpu_tenancy.embedded.definitions import fetch
from gpu_tenancy.embedded.definitions.pins import needed, read_pins
from gpu_tenancy.embedded.nodes import bring_nodes
from gpu_tenancy.engine.objects import waves
from gpu_tenancy.engine.project import Preview
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import UnknownKindError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.local.up import api_groups
from gpu_tenancy.model.plan.operators.kueue import TEAM_LABEL

SIDES: Final = ("test-left", "test-right")

pytestmark = [pytest.mark.process, pytest.mark.slow]


def guaranteed(queue: Manifest) -> list[str]:
    """Nominal quota of GPUs."""
    groups = maps_at(queue, "spec", "resourceGroups")
    resources = [
        one for group in groups for flavor in maps_at(group, "flavors") for one in maps_at(flavor, "resources")
    ]
    return [text_at(one, "nominalQuota") for one in resources if text_at(one, "name") == GPU]


def state(cluster: Cluster) -> dict[str, Any]:
    """The state that must not change: pods on their nodes, workloads with their quota, and queues."""
    found: dict[str, Any] = {}
    for side in SIDES:
        for pod in cluster.list("v1", "Pod", namespace=side):
            found[text_at(pod, "metadata", "uid")] = (
                text_at(pod, "spec", "nodeName"),
                text_at(pod, "status", "startTime"),
            )
        for one in cluster.list("kueue.x-k8s.io/v1beta2", "Workload", namespace=side):
            evicted = is_true(one, "Evicted"), at(one, "status", "requeueState")
            found[text_at(one, "metadata", "uid")] = is_true(one, "Admitted"), evicted, at(one, "status", "admission")
        queue = cluster.get("kueue.x-k8s.io/v1beta2", "ClusterQueue", side) or {}
        found[side] = text_at(queue, "metadata", "uid"), guaranteed(queue), text_at(queue, "spec", "stopPolicy")
    return found


def adopted(file: Path, kubeconfig: Path, project: Path = ROOT) -> Any:
    command = ["cluster", "adopt", "--project", str(project), "--out", str(file), "--kubeconfig", str(kubeconfig)]
    result = CliRunner().invoke(app, [*command, "-o", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def planned(file: Path) -> Preview:
    config = yaml.safe_load(file.read_text(encoding="utf-8"))["config"]
    return plan_sections({key.partition(":")[2]: value for key, value in config.items()}, "adopted", ROOT)


def served(cluster: Cluster, manifest: Manifest) -> bool:
    """Whether the platform has the kind: kinds of operators that it does not run are left out."""
    try:
        cluster.resource(text_at(manifest, "apiVersion"), text_at(manifest, "kind"))
    except UnknownKindError:
        return False
    return True


@contextmanager
def working(queueing: Queueing) -> Generator[dict[str, Any]]:
    """A foreign cluster with running jobs; yields the state that must not change. The jobs are deleted at the end."""
    cluster = queueing.cluster
    with applied(queueing, "kueue-named"):
        for side in SIDES:
            cluster.patch(Reference("v1", "Namespace", side), {"metadata": {"labels": dict([TEAM_LABEL])}})
        jobs = [cluster.create(a_job("long", side, {GPU: str(gpus)})) for side, gpus in zip(SIDES, (8, 4), strict=True)]
        for side in ("left", "right"):
            cluster.wait_for(partial(is_admitted, cluster, side), what=f"the job of {side} to be admitted")
        used = partial(inspected, queueing.platform.kubeconfig)
        cluster.wait_for(lambda: used()["gpus"][0]["used"] == 12 or None, what="pods on nodes")
        try:
            yield state(cluster)
        finally:
            for each in jobs:
                cluster.delete(Reference.of(each), wait=60)


def test_a_foreign_cluster_is_adopted_while_its_jobs_run(queueing: Queueing, tmp_path: Path) -> None:
    cluster, kubeconfig, inventory = queueing.cluster, queueing.platform.kubeconfig, tmp_path / "applied.json"
    with working(queueing) as before:
        first = adopted(tmp_path / "Pulumi.adopted.yaml", kubeconfig)
        assert state(cluster) == before  # It reads only.
        stack = planned(tmp_path / "Pulumi.adopted.yaml")
        manifests = [
            [dict(item.manifest) for item in wave if served(cluster, dict(item.manifest))]
            for wave in waves(stack.objects)
        ]
        try:
            changes = apply(cluster, manifests, inventory, adopt=stack.stack.cluster.adopt)
            after = state(cluster)
            second = adopted(tmp_path / "Pulumi.again.yaml", kubeconfig)
            again = Counter(one.action for one in apply(cluster, manifests, inventory, adopt=stack.stack.cluster.adopt))
        finally:
            apply(cluster, [], inventory)
    assert {"ClusterQueue", "Cohort", "ResourceFlavor", "LocalQueue"}.isdisjoint(first["new"])
    assert not {one.action for one in changes} & {"replaced", "deleted", "pruned"}
    assert after == before
    assert second["differences"] == []
    assert [*again] == ["unchanged"]


# How the quota for objects of operators ends: groups of the operators' own kinds.
OPERATORS: Final = (".x-k8s.io", ".ray.io", ".kubeflow.org", ".volcano.sh")

# Kinds that a tutorial has, in the order in which kubectl applies them.
TUTORIAL: Final = (
    "Namespace", "PriorityClass", "ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue", "ResourceQuota",
    "LimitRange", "WorkloadPriorityClass", "NetworkPolicy", "Job",
)  # fmt: skip


@contextmanager
def created(queueing: Queueing, name: str) -> Generator[list[Manifest]]:
    """The tenancy of a stack of this repository as plain objects that others created, with its nodes."""
    cluster, made = queueing.cluster, cluster_of(name)
    bring_nodes(cluster, [shape(each) for each in made if each["kind"] == "Node"])
    found: list[Manifest] = [each for kind in TUTORIAL for each in made if each["kind"] == kind]
    try:
        for each in found:
            cluster.create(each)
        yield found
    finally:
        for each in reversed(found):
            cluster.delete(Reference.of(each), wait=60)
        bring_nodes(cluster, ())


def kept(manifest: Manifest) -> Manifest:
    """An object without its metadata and status.

    Without quota for the objects of operators too, which an adopted stack counts where other tests have installed them.
    """
    fields: Any = {key: value for key, value in manifest.items() if key not in {"metadata", "status"}}
    if manifest["kind"] == "ResourceQuota":
        hard = {name: most for name, most in fields["spec"]["hard"].items() if not name.endswith(OPERATORS)}
        fields = {**fields, "spec": {**fields["spec"], "hard": hard}}
    return fields


def test_a_tutorial_is_adopted_and_no_object_changes(queueing: Queueing, tmp_path: Path) -> None:
    cluster, kubeconfig = queueing.cluster, queueing.platform.kubeconfig
    project = Project.at(tmp_path / "project")
    file = project.folder / "stacks" / "Pulumi.adopted.yaml"
    with created(queueing, "example-shared-queue") as made:
        found = adopted(file, kubeconfig, project.folder)
        for each in planned(file).objects:
            if live := served(cluster, dict(each.manifest)) and cluster.get(*Reference.of(each.manifest)):
                assert kept(cluster.apply(each.manifest, dry_run=True, force=True)) == kept(live)
        command = ["preview", "adopted", "--live", "--project", str(project.folder), "--kubeconfig", str(kubeconfig)]
        preview = CliRunner().invoke(app, command)
    fields = {(each["kind"], each["field"]) for each in found["differences"] if not each["field"].endswith(OPERATORS)}
    assert fields == {("Namespace", "metadata.labels.app.kubernetes.io/managed-by")}
    assert found["leftAlone"] == ["Job vision/nightly: it continues to run; a stack has jobs under teams.TEAM.training"]
    adopts = yaml.safe_load(file.read_text(encoding="utf-8"))["config"]["gpu-tenancy:cluster"]["adopt"]
    assert {Reference.of(each).adoptable for each in made if each["kind"] != "Job"} == set(adopts)
    assert preview.exit_code == 0, preview.output
    assert "The change preempts, deletes, admits or delays no workload." in preview.output


@pytest.mark.pulumi
@pytest.mark.official
@pytest.mark.parametrize("by", ["pulumi", "tenancy"])
def test_pulumi_takes_over_a_foreign_cluster_while_its_jobs_run(queueing: Queueing, tmp_path: Path, by: str) -> None:
    """`pulumi preview` and `pulumi up`, or `tenancy up`, with the file as it was written."""
    cluster, kubeconfig = queueing.cluster, queueing.platform.kubeconfig
    project = Project.at(tmp_path / "project")
    run_here(project)
    file = project.folder / "stacks" / "Pulumi.adopted.yaml"
    cli = partial(pulumi, project, stack="adopted", KUBECONFIG=str(kubeconfig))
    with working(queueing) as before:
        adopted(file, kubeconfig, project.folder)
        stack = planned(file)
        existing = {reference: live for reference, live in lives(cluster, stack).items() if live}
        install(queueing, stack)
        succeeded(cli("stack", "init"))
        steps = json.loads(succeeded(cli("preview", "--json")))["steps"]
        assert {step["op"] for step in steps} == {"create"}  # Nothing is deleted, replaced or read again.
        assert state(cluster) == before
        try:
            if by == "pulumi":
                succeeded(cli("up", "--yes", "--skip-preview"))
            else:
                succeeded(tenancy(project, "up", "adopted", "--yes", KUBECONFIG=str(kubeconfig)))
            after, now = state(cluster), lives(cluster, stack)
            succeeded(cli("preview", "--expect-no-changes"))
            succeeded(cli("refresh", "--yes", "--skip-preview"))
            succeeded(cli("preview", "--expect-no-changes"))
            again = adopted(tmp_path / "Pulumi.again.yaml", kubeconfig)
            file.write_text(without_adopt(file.read_text(encoding="utf-8")), encoding="utf-8")
            steps = json.loads(succeeded(cli("preview", "--json")))["steps"]
        finally:
            succeeded(tenancy(project, "destroy", "adopted", "--yes", KUBECONFIG=str(kubeconfig)))
    assert after == before
    assert {reference: now[reference] for reference in existing} == existing
    assert all(now.values())
    assert again["differences"] == []
    # Without `adopt`, the provider that takes over objects leaves the state, and nothing of the cluster changes.
    changed = {step["urn"].partition("pulumi:providers:")[2] for step in steps if step["op"] != "same"}
    assert changed == {"kubernetes::cluster-adopting"}


def lives(cluster: Cluster, stack: Preview) -> dict[Reference, str]:
    """The uid of each object of a stack; empty if it does not exist."""
    found = [Reference.of(item.manifest) for item in stack.objects if served(cluster, dict(item.manifest))]
    return {one: text_at(cluster.get(*one, metadata_only=True) or {}, "metadata", "uid") for one in found}


def install(queueing: Queueing, stack: Preview) -> None:
    """Installs the definitions of all kinds of a stack, and waits until clients can read their schemas."""
    platform = queueing.platform
    pins = needed(read_pins(), api_groups(stack.objects))
    platform.install(fetch(pins, platform.cache, queueing.report), queueing.report)
    read_schema(platform.kubeconfig)


def without_adopt(content: str) -> str:
    """A stack's file without names of objects to adopt, as after the first deployment."""
    found = yaml.safe_load(content)
    del found["config"]["gpu-tenancy:cluster"]["adopt"]
    return yaml.safe_dump(found, sort_keys=False)
