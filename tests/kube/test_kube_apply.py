"""Applies objects in waves, and changes of others to them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from cluster_builders import a_bare_account, a_config_map, a_definition, a_job, an_object, created_by, live

from gpu_tenancy.base.json import Json, at, text_at
from gpu_tenancy.kube.apply import ApplyError, Change, apply
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.inventory import Entry, Inventory
from gpu_tenancy.kube.references import Reference


@pytest.fixture
def group(cluster: Cluster, namespace: str) -> Iterator[str]:
    """An API group for one test; its definitions are deleted after the test."""
    name = f"{namespace}.example.com"
    yield name
    for one in cluster.list("apiextensions.k8s.io/v1", "CustomResourceDefinition", metadata_only=True):
        if text_at(one, "metadata", "name").endswith(f".{name}"):
            cluster.delete(Reference.of(one))


def actions(changes: Sequence[Change]) -> list[tuple[str, str]]:
    return [(one.reference.name, one.action) for one in changes]


def uid(cluster: Cluster, manifest: Manifest) -> str:
    return text_at(live(cluster, manifest), "metadata", "uid")


def test_a_new_object_is_created_and_then_unchanged(cluster: Cluster, namespace: str, inventory: Path) -> None:
    waves = [[a_config_map("settings", namespace, a="1")]]
    settings = Reference("v1", "ConfigMap", "settings", namespace)
    assert apply(cluster, waves, inventory) == (Change("created", settings),)
    assert apply(cluster, waves, inventory) == (Change("unchanged", settings),)


def test_unchanged_objects_are_not_sent_again(
    cluster: Cluster, namespace: str, inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota = an_object("v1", "ResourceQuota", "gpus", namespace, spec={"hard": {"requests.nvidia.com/gpu": "8"}})
    apply(cluster, [[quota, a_bare_account("runner", namespace)]], inventory)
    cluster.patch(Reference.of(quota), {"status": {"used": {"requests.nvidia.com/gpu": "3"}}}, subresource="status")
    monkeypatch.delattr(Cluster, "apply")
    again = apply(cluster, [[quota, a_bare_account("runner", namespace)]], inventory)
    assert actions(again) == [("gpus", "unchanged"), ("runner", "unchanged")]


def test_object_is_ours_without_inventory(cluster: Cluster, namespace: str, inventory: Path) -> None:
    quota = an_object("v1", "ResourceQuota", "gpus", namespace, spec={"hard": {"requests.nvidia.com/gpu": "8"}})
    apply(cluster, [[quota]], inventory)
    inventory.unlink()
    assert actions(apply(cluster, [[quota]], inventory)) == [("gpus", "unchanged")]


def test_an_edit_changes_fields_and_removes_dropped_ones(cluster: Cluster, namespace: str, inventory: Path) -> None:
    apply(cluster, [[a_config_map("settings", namespace, a="1", b="1")]], inventory)
    changed = apply(cluster, [[a_config_map("settings", namespace, a="2")]], inventory)
    assert actions(changed) == [("settings", "changed")]
    assert (cluster.get("v1", "ConfigMap", "settings", namespace) or {})["data"] == {"a": "2"}


def test_a_removed_field_is_restored(cluster: Cluster, namespace: str, inventory: Path) -> None:
    settings = a_config_map("settings", namespace, a="1")
    apply(cluster, [[settings]], inventory)
    cluster.patch(Reference.of(settings), {"data": {"a": None}})
    assert actions(apply(cluster, [[settings]], inventory)) == [("settings", "changed")]
    assert live(cluster, settings)["data"] == {"a": "1"}


def test_a_deleted_object_is_created_again(cluster: Cluster, namespace: str, inventory: Path) -> None:
    settings = a_config_map("settings", namespace)
    apply(cluster, [[settings]], inventory)
    cluster.delete(Reference.of(settings))
    assert actions(apply(cluster, [[settings]], inventory)) == [("settings", "created")]


def test_a_job_with_another_image_is_replaced(cluster: Cluster, namespace: str, inventory: Path) -> None:
    apply(cluster, [[a_job("train", namespace, "pytorch:1")]], inventory)
    job = a_job("train", namespace, "pytorch:2")
    before = uid(cluster, job)
    assert actions(apply(cluster, [[job]], inventory)) == [("train", "replaced")]
    assert uid(cluster, job) not in {"", before}
    assert actions(apply(cluster, [[job]], inventory)) == [("train", "unchanged")]


def test_replaces_job_if_only_existing_one_forbids_field(cluster: Cluster, namespace: str, inventory: Path) -> None:
    """The existing job has a default `podReplacementPolicy` that the API server forbids beside `podFailurePolicy`."""
    apply(cluster, [[a_job("train", namespace, "pytorch:1")]], inventory)
    job = a_job("train", namespace, "pytorch:1")
    assert isinstance(job["spec"], dict)
    job["spec"]["podFailurePolicy"] = {
        "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    }
    before = uid(cluster, job)
    assert actions(apply(cluster, [[job]], inventory)) == [("train", "replaced")]
    assert uid(cluster, job) not in {"", before}


def test_refused_replacement_keeps_the_object(cluster: Cluster, namespace: str, inventory: Path) -> None:
    job = a_job("train", namespace, "pytorch:1")
    apply(cluster, [[job]], inventory)
    before = uid(cluster, job)
    broken = a_job("train", namespace, "pytorch:2")
    assert isinstance(broken["spec"], dict)
    broken["spec"]["parallelism"] = -1
    with pytest.raises(ApplyError, match="must be greater than or equal to 0"):
        apply(cluster, [[broken]], inventory)
    assert uid(cluster, job) == before


def test_an_immutable_field_of_a_custom_resource_is_replaced_too(
    cluster: Cluster, namespace: str, group: str, inventory: Path
) -> None:
    def waves(color: str) -> list[list[Manifest]]:
        return [[a_definition(group)], [an_object(f"{group}/v1", "Widget", "one", namespace, spec={"color": color})]]

    apply(cluster, waves("green"), inventory)
    changed = apply(cluster, waves("red"), inventory)
    assert actions(changed) == [(f"widgets.{group}", "unchanged"), ("one", "replaced")]


def test_a_definition_is_never_replaced(cluster: Cluster, group: str, inventory: Path) -> None:
    apply(cluster, [[a_definition(group)]], inventory)
    before = uid(cluster, a_definition(group))
    with pytest.raises(ApplyError, match=r"spec\.scope.*field is immutable"):
        apply(cluster, [[a_definition(group, scope="Cluster")]], inventory)
    assert uid(cluster, a_definition(group)) == before


def test_a_kind_is_found_in_the_run_that_defines_it(
    cluster: Cluster, namespace: str, group: str, inventory: Path
) -> None:
    widgets = [an_object(f"{group}/v1", "Widget", f"w{size}", namespace, spec={"size": size}) for size in (1, 2)]
    first = apply(cluster, [[a_definition(group)], widgets], inventory)
    assert [change.action for change in first] == ["created"] * 3


def test_a_new_field_is_known_in_the_run_that_adds_it(
    cluster: Cluster, namespace: str, group: str, inventory: Path
) -> None:
    light = an_object(f"{group}/v1", "Widget", "one", namespace, spec={"size": 1})
    heavy = an_object(f"{group}/v1", "Widget", "one", namespace, spec={"size": 1, "weight": 3})
    apply(cluster, [[a_definition(group)], [light]], inventory)
    changes = apply(cluster, [[a_definition(group, weight={"type": "integer"})], [heavy]], inventory)
    assert [one.action for one in changes] == ["changed", "changed"]


def test_one_kind_in_two_groups_is_two_objects(cluster: Cluster, namespace: str, group: str, inventory: Path) -> None:
    theirs = an_object(f"{group}/v1", "Job", "train", namespace, spec={"size": 1})
    waves = [[a_definition(group, "Job")], [a_job("train", namespace, "pytorch:2"), theirs]]
    apply(cluster, waves, inventory)
    left = apply(cluster, [waves[0], [theirs]], inventory)
    assert left[1:] == (
        Change("unchanged", Reference(f"{group}/v1", "Job", "train", namespace)),
        Change("pruned", Reference("batch/v1", "Job", "train", namespace)),
    )


def test_objects_of_others_are_refused_and_unchanged(cluster: Cluster, namespace: str, inventory: Path) -> None:
    theirs = cluster.create(a_config_map("settings", namespace, a="theirs"))
    with pytest.raises(ApplyError) as refused:
        apply(cluster, [[a_config_map("settings", namespace, b="ours"), a_config_map("more", namespace)]], inventory)
    assert [str(failure) for failure in refused.value.failures] == [
        (
            f"ConfigMap {namespace}/settings: already exists, owned by gpu-tenancy; rename it in the stack, delete the "
            f"existing object, or add ConfigMap/{namespace}/settings to cluster.adopt to take it over"
        )
    ]
    assert actions(refused.value.changes) == [("more", "created")]
    assert cluster.get("v1", "ConfigMap", "settings", namespace) == theirs


def test_a_replaced_object_of_others_is_refused(cluster: Cluster, namespace: str, inventory: Path) -> None:
    account = a_bare_account("runner", namespace)
    apply(cluster, [[account]], inventory)
    cluster.delete(Reference.of(account))
    cluster.create(account)
    with pytest.raises(ApplyError, match="already exists, owned by an unknown field manager; rename it"):
        apply(cluster, [[account]], inventory)


def test_reports_all_errors_of_wave_and_skips_later_ones(cluster: Cluster, namespace: str, inventory: Path) -> None:
    unknown = an_object("nobody.example.com/v1", "Widget", "one", namespace)
    misspelt = a_job("train", namespace, "pytorch:2")
    misspelt["spec"] = {"paralelism": 2}
    homeless = an_object("v1", "ConfigMap", "homeless")
    with pytest.raises(ApplyError) as refused:
        apply(
            cluster,
            [[unknown, a_config_map("good", namespace), misspelt, homeless], [a_config_map("later", namespace)]],
            inventory,
        )
    told = [str(one) for one in refused.value.failures]
    assert told[0] == (
        f'Widget.nobody.example.com {namespace}/one: no matches for kind "Widget" in version "nobody.example.com/v1"'
    )
    assert told[1].startswith(f"Job.batch {namespace}/train: ")
    assert "paralelism" in told[1]
    assert told[2] == "ConfigMap homeless: ConfigMap is namespaced; set metadata.namespace"
    assert str(refused.value).startswith("3 objects could not be applied or deleted:\n")
    assert actions(refused.value.changes) == [("good", "created")]
    assert not cluster.exists("v1", "ConfigMap", "later", namespace)


def test_a_custom_resources_rule_shows_the_servers_message(
    cluster: Cluster, namespace: str, group: str, inventory: Path
) -> None:
    widget = an_object(f"{group}/v1", "Widget", "one", namespace, spec={"size": 0, "colour": "red"})
    with pytest.raises(ApplyError, match=r"one: .*spec\.colour: field not declared in schema"):
        apply(cluster, [[a_definition(group)], [widget]], inventory)
    widget["spec"] = {"size": 0}
    with pytest.raises(ApplyError, match=r"spec\.size in body should be greater than or equal to 1"):
        apply(cluster, [[a_definition(group)], [widget]], inventory)


def test_duplicate_objects_are_refused_before_any_request(cluster: Cluster, namespace: str, inventory: Path) -> None:
    twin = a_config_map("settings", namespace)
    with pytest.raises(
        ApplyError, match=f"ConfigMap {namespace}/settings: declared more than once; remove the duplicates"
    ):
        apply(cluster, [[a_config_map("first", namespace), twin], [twin]], inventory)
    assert not cluster.exists("v1", "ConfigMap", "first", namespace)
    assert not inventory.exists()


def test_progress_counts_every_object(cluster: Cluster, namespace: str, inventory: Path) -> None:
    heard: list[Change] = []
    changes = apply(cluster, [[a_config_map(f"n{number}", namespace) for number in range(20)]], inventory, heard.append)
    assert sorted(heard, key=lambda one: one.reference.name) == sorted(changes, key=lambda one: one.reference.name)
    assert [one.reference.name for one in changes] == [f"n{number}" for number in range(20)]


def test_an_object_under_deletion_is_awaited_and_created(cluster: Cluster, namespace: str, inventory: Path) -> None:
    settings = a_config_map("settings", namespace)
    reference = Reference.of(settings)
    apply(cluster, [[settings]], inventory)
    cluster.patch(reference, {"metadata": {"finalizers": ["tests.example.com/held"]}})
    cluster.delete(reference, wait=0)
    release = Timer(0.5, lambda: cluster.patch(reference, {"metadata": {"finalizers": None}}))
    release.start()
    assert actions(apply(cluster, [[settings]], inventory)) == [("settings", "created")]
    release.join()


def test_an_interrupted_run_is_recovered_by_the_next(cluster: Cluster, namespace: str, inventory: Path) -> None:
    def interrupt(_: Change) -> None:
        raise KeyboardInterrupt

    names = [f"n{number}" for number in range(10)]
    with pytest.raises(KeyboardInterrupt):
        apply(cluster, [[a_config_map(name, namespace) for name in names]], inventory, interrupt)
    apply(cluster, [[a_config_map(name, namespace) for name in names[:2]]], inventory)
    left = cluster.list("v1", "ConfigMap", namespace=namespace, labels="owner=tests")
    assert [text_at(one, "metadata", "name") for one in left] == names[:2]


def test_objects_of_a_killed_run_are_recognised(cluster: Cluster, namespace: str, inventory: Path) -> None:
    account, settings = a_bare_account("runner", namespace), a_config_map("settings", namespace)
    entered = Inventory(inventory)
    for one in (account, settings):
        entered.put(Entry(Reference.of(one), wave=0))
        cluster.apply(one)
    entered.save()
    pruned = apply(cluster, [[account]], inventory)
    assert actions(pruned) == [("runner", "unchanged"), ("settings", "pruned")]


def test_only_named_objects_are_adopted(cluster: Cluster, namespace: str, inventory: Path) -> None:
    theirs = {
        name: created_by(cluster, "kubectl", a_config_map(name, namespace, a="theirs", b="kept"))
        for name in ("ours", "no")
    }
    wave = [a_config_map(name, namespace, a="ours") for name in theirs]
    with pytest.raises(ApplyError) as refused:
        apply(cluster, [wave], inventory, adopt=[f"ConfigMap/{namespace}/ours"])
    assert [str(failure) for failure in refused.value.failures] == [
        (
            f"ConfigMap {namespace}/no: already exists, owned by kubectl; rename it in the stack, delete the existing"
            f" object, or add ConfigMap/{namespace}/no to cluster.adopt to take it over"
        )
    ]
    assert [(change.reference.name, change.action) for change in refused.value.changes] == [("ours", "changed")]
    ours, no = (cluster.get("v1", "ConfigMap", name, namespace) or {} for name in theirs)
    assert at(ours, "data") == {"a": "ours", "b": "kept"}
    assert text_at(ours, "metadata", "uid") == text_at(theirs["ours"], "metadata", "uid")
    assert no == theirs["no"]


def test_adopted_objects_are_deleted_with_the_stack(cluster: Cluster, namespace: str, inventory: Path) -> None:
    created_by(cluster, "kubectl", a_config_map("settings", namespace, a="theirs"))
    account = a_bare_account("runner", namespace)
    cluster.create(account)
    wave, names = (
        [a_config_map("settings", namespace, a="ours"), account],
        [f"ConfigMap/{namespace}/settings", f"ServiceAccount/{namespace}/runner"],
    )
    apply(cluster, [wave], inventory, adopt=names)
    assert {change.action for change in apply(cluster, [wave], inventory)} == {"unchanged"}
    assert {(change.reference.name, change.action) for change in apply(cluster, [], inventory)} == {
        ("settings", "pruned"),
        ("runner", "pruned"),
    }
    assert not cluster.exists("v1", "ConfigMap", "settings", namespace)


def test_adopted_object_is_never_replaced(cluster: Cluster, namespace: str, inventory: Path) -> None:
    theirs = created_by(cluster, "kubectl", a_job("train", namespace, "pytorch:1"))
    with pytest.raises(ApplyError, match="field is immutable"):
        apply(cluster, [[a_job("train", namespace, "pytorch:2")]], inventory, adopt=[f"Job.batch/{namespace}/train"])
    live = cluster.get("batch/v1", "Job", "train", namespace) or {}
    assert text_at(live, "metadata", "uid") == text_at(theirs, "metadata", "uid")


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
