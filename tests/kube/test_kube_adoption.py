"""Objects of somebody else that a stack takes over because it names them."""

from pathlib import Path

import pytest
from cluster_builders import a_bare_account, a_config_map, a_job, created_by

from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.kube.apply import ApplyError, apply
from gpu_tenancy.kube.client import Cluster


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
    assert [(change.name, change.action) for change in refused.value.changes] == [("ours", "changed")]
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
        [
            f"ConfigMap/{namespace}/settings",
            f"ServiceAccount/{namespace}/runner",
        ],
    )
    apply(cluster, [wave], inventory, adopt=names)
    assert {change.action for change in apply(cluster, [wave], inventory)} == {"unchanged"}
    assert {(change.name, change.action) for change in apply(cluster, [], inventory)} == {
        ("settings", "pruned"),
        ("runner", "pruned"),
    }
    assert not cluster.exists("v1", "ConfigMap", "settings", namespace)


def test_an_adopted_object_is_never_deleted_for_an_immutable_field(
    cluster: Cluster, namespace: str, inventory: Path
) -> None:
    theirs = created_by(cluster, "kubectl", a_job("train", namespace, "pytorch:1"))
    with pytest.raises(ApplyError, match="field is immutable"):
        apply(cluster, [[a_job("train", namespace, "pytorch:2")]], inventory, adopt=[f"Job.batch/{namespace}/train"])
    live = cluster.get("batch/v1", "Job", "train", namespace) or {}
    assert text_at(live, "metadata", "uid") == text_at(theirs, "metadata", "uid")
