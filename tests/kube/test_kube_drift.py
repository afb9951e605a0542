"""Objects that were edited by hand, and their correction by an apply."""

from pathlib import Path
from typing import Any

import pytest
from cluster_builders import a_config_map, a_job, an_object, live

from gpu_tenancy.base.json import Json, at, text_at
from gpu_tenancy.kube.apply import ApplyError, apply
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference


def a_server(name: str, namespace: str, replicas: int | None) -> Manifest:
    container: Json = {"name": "server", "image": "registry.example.com/server:1", "env": [{"name": "A", "value": "1"}]}
    spec: Manifest = {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return an_object("apps/v1", "Deployment", name, namespace, spec=spec)


def applied(cluster: Cluster, manifest: Manifest, inventory: Path) -> tuple[str, tuple[str, ...]]:
    """The change by an apply of one object, and the corrected fields."""
    (change,) = apply(cluster, [[manifest]], inventory)
    return change.action, change.corrected


def test_manual_edits_are_corrected_and_listed_by_field(cluster: Cluster, namespace: str, inventory: Path) -> None:
    settings, server = a_config_map("settings", namespace, a="1", b="2"), a_server("server", namespace, 0)
    apply(cluster, [[settings, server]], inventory)
    cluster.patch(Reference.of(settings), {"data": {"a": "theirs", "b": None}})
    other: Json = {"name": "server", "image": "registry.example.com/other:1"}
    cluster.patch(Reference.of(server), {"spec": {"template": {"spec": {"containers": [other]}}}})
    changes = apply(cluster, [[settings, server]], inventory)
    assert [change.correction for change in changes] == [
        f"ConfigMap {namespace}/settings: data.a, data.b",
        (
            f"Deployment {namespace}/server: spec.template.spec.containers[name=server].env[name=A].name, "
            "spec.template.spec.containers[name=server].env[name=A].value, "
            "spec.template.spec.containers[name=server].image"
        ),
    ]
    assert at(live(cluster, settings), "data") == {"a": "1", "b": "2"}
    assert {change.action for change in apply(cluster, [[settings, server]], inventory)} == {"unchanged"}


def test_added_fields_stay_and_are_not_corrections(cluster: Cluster, namespace: str, inventory: Path) -> None:
    settings = a_config_map("settings", namespace, a="1")
    apply(cluster, [[settings]], inventory)
    cluster.patch(Reference.of(settings), {"data": {"theirs": "1"}, "metadata": {"labels": {"theirs": "1"}}})
    assert applied(cluster, settings, inventory) == ("unchanged", ())
    assert at(live(cluster, settings), "data") == {"a": "1", "theirs": "1"}


def test_a_change_of_the_stack_is_not_a_correction(cluster: Cluster, namespace: str, inventory: Path) -> None:
    apply(cluster, [[a_config_map("settings", namespace, a="1")]], inventory)
    assert applied(cluster, a_config_map("settings", namespace, a="2", b="1"), inventory) == ("changed", ())


def test_replicas_set_by_an_autoscaler_are_kept(cluster: Cluster, namespace: str, inventory: Path) -> None:
    server = a_server("server", namespace, None)
    apply(cluster, [[server]], inventory)
    cluster.patch(Reference.of(server), {"spec": {"replicas": 0}}, subresource="scale")
    assert applied(cluster, server, inventory) == ("unchanged", ())
    assert at(live(cluster, server), "spec", "replicas") == 0


def test_controller_field_is_conflict_by_field_and_manager(
    cluster: Cluster, namespace: str, inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = a_config_map("settings", namespace, a="1", b="1")
    apply(cluster, [[settings]], inventory)
    with monkeypatch.context() as patched:
        patched.setattr("gpu_tenancy.kube.request.FIELD_MANAGER", "their-controller")
        cluster.patch(Reference.of(settings), {"data": {"a": "theirs"}})
    cluster.patch(Reference.of(settings), {"data": {"b": "by hand"}})
    with pytest.raises(
        ApplyError, match=r'data\.a: conflict with "their-controller".*; remove the field from the stack'
    ):
        apply(cluster, [[settings]], inventory)
    assert at(live(cluster, settings), "data") == {"a": "theirs", "b": "by hand"}


def test_shared_field_with_same_value_is_no_correction(
    cluster: Cluster, namespace: str, inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tolerations: list[Any] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    job = a_job("train", namespace, "pytorch:1", tolerations=tolerations)
    apply(cluster, [[job]], inventory)
    path = "spec", "template", "spec", "tolerations"
    with monkeypatch.context() as patched:
        patched.setattr("gpu_tenancy.kube.request.FIELD_MANAGER", "kueue")
        for value in ([*tolerations, {"key": "more", "operator": "Exists"}], tolerations):
            pods: Any = {"spec": {"tolerations": value}}
            cluster.patch(Reference.of(job), {"spec": {"template": pods}})
    assert applied(cluster, job, inventory) == ("unchanged", ())
    assert at(live(cluster, job), *path) == tolerations


def test_list_written_by_kueue_stays_until_stack_changes(
    cluster: Cluster, namespace: str, inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def a_ray_job(image: str) -> Manifest:
        template: Json = {"spec": {"containers": [{"name": "ray", "image": image}]}}
        workers: Json = [{"groupName": "worker", "rayStartParams": {}, "template": template}]
        head: Json = {"rayStartParams": {}, "template": template}
        spec: Manifest = {"rayClusterSpec": {"headGroupSpec": head, "workerGroupSpecs": workers}}
        return an_object("ray.io/v1", "RayJob", "tune", namespace, spec=spec)

    job = a_ray_job("ray:1")
    apply(cluster, [[job]], inventory)
    workers: Any = at(live(cluster, job), "spec", "rayClusterSpec", "workerGroupSpecs")
    workers[0]["template"]["metadata"] = {"labels": {"kueue.x-k8s.io/podset": "worker"}}
    with monkeypatch.context() as patched:
        patched.setattr("gpu_tenancy.kube.request.FIELD_MANAGER", "kueue")
        cluster.patch(Reference.of(job), {"spec": {"rayClusterSpec": {"workerGroupSpecs": workers}}})

    assert applied(cluster, job, inventory) == ("unchanged", ())
    assert at(live(cluster, job), "spec", "rayClusterSpec", "workerGroupSpecs") == workers

    assert applied(cluster, a_ray_job("ray:2"), inventory) == ("replaced", ())
    assert applied(cluster, a_ray_job("ray:2"), inventory) == ("unchanged", ())


def test_an_apply_again_changes_no_version_of_any_object(cluster: Cluster, namespace: str, inventory: Path) -> None:
    wave = [a_config_map(f"n{number}", namespace) for number in range(20)]
    wave += [an_object("v1", "ResourceQuota", "quota", namespace, spec={"hard": {"count/jobs.batch": "8"}})]

    def versions() -> list[str]:
        found = [cluster.get(*Reference.of(one), metadata_only=True) or {} for one in wave]
        return [text_at(one, "metadata", "resourceVersion") for one in found]

    apply(cluster, [wave], inventory)
    cluster.wait_for(lambda: at(live(cluster, wave[-1]), "status", "hard"), what="the quota to be counted")
    before = versions()
    apply(cluster, [wave], inventory)
    assert versions() == before
    inventory.unlink()  # without it each object is sent, and still nothing changes
    apply(cluster, [wave], inventory)
    assert versions() == before
