"""Whether pods find the Secrets and ConfigMaps that they refer to."""

from typing import Any, Final

import pytest
from live_builders import Data, checked, job, meta, only_gpus

from gpu_tenancy.cluster.answers import Check
from gpu_tenancy.cluster.demand import demand
from gpu_tenancy.cluster.mounts import kinds_named
from gpu_tenancy.cluster.reading import Missing

TEAM: Final = "research"


def row(name: str, *keys: str, kind: str = "Opaque", count: int | None = None) -> Data:
    """A Secret or ConfigMap as the API server's table shows it, with a record of the keys that were written."""
    fields: Data = {"f:data": {".": {}, **{f"f:{key}": {} for key in keys}}, "f:type": {}}
    managers: list[Data] = [{"manager": "kubectl", "operation": "Update", "fieldsV1": fields}]
    cells = {"Name": name, "Type": kind, "Data": len(keys) if count is None else count}
    return {"metadata": meta(name, TEAM, managedFields=managers), "cells": cells}


def using(container: Data | None = None, **spec: Any) -> Data:
    """A job whose container and pod refer to objects."""
    manifest = only_gpus(job())
    pod = manifest["spec"]["template"]["spec"]
    pod["containers"][0] |= container or {}
    pod |= spec
    return manifest


def variable(field: str = "secretKeyRef", name: str = "wandb", **more: Any) -> Data:
    return {"env": [{"name": "TOKEN", "valueFrom": {field: {"name": name, "key": "token", **more}}}]}


def only(manifest: Data, **objects: list[Data]) -> tuple[str, str]:
    (answer,) = checked(manifest, Check.REFERENCES, **objects)
    return answer.verdict, answer.lines[0]


def test_a_workload_without_references_causes_no_requests() -> None:
    assert checked(only_gpus(job()), Check.REFERENCES) == []
    assert kinds_named([demand(only_gpus(job()), TEAM)]) == ()


def test_only_the_kinds_that_pods_name_are_read() -> None:
    assert kinds_named([demand(using(variable()), TEAM)]) == ("Secret",)
    assert kinds_named([demand(using(variable("configMapKeyRef")), TEAM)]) == ("ConfigMap",)
    assert kinds_named([demand(using(variable(optional=True)), TEAM)]) == ()


FILES: Final = {
    "volumes": [{"name": "tls", "secret": {"secretName": "wandb", "items": [{"key": "token", "path": "t"}]}}]
}
PROJECTED: Final = {"volumes": [{"name": "all", "projected": {"sources": [{"secret": {"name": "wandb"}}]}}]}


@pytest.mark.parametrize(
    ("manifest", "where"),
    [
        (using(variable()), "env TOKEN of container main"),
        (using({"envFrom": [{"secretRef": {"name": "wandb"}}]}), "envFrom of container main"),
        (using(initContainers=[{"name": "fetch", **variable()}]), "env TOKEN of container fetch"),
        (using(None, **FILES), "volume tls"),
        (using(None, **PROJECTED), "volume all"),
    ],
    ids=["env", "envFrom", "init container", "files", "projected files"],
)
def test_a_secret_that_does_not_exist_is_named_with_its_place(manifest: Data, where: str) -> None:
    assert only(manifest, Secret=[row("wandb-2")]) == (
        "never",
        (
            f"Secret wandb not found ({where}), so pods do not start; create it, or set another one;"
            " did you mean 'wandb-2'? Known: wandb-2"
        ),
    )
    assert only(manifest, Secret=[row("wandb", "token")])[0] == "now"


@pytest.mark.parametrize("manifest", [using(variable()), using(None, **FILES)], ids=["env", "files"])
def test_a_key_that_a_secret_lacks_is_named(manifest: Data) -> None:
    verdict, line = only(manifest, Secret=[row("wandb", "tokens")])
    assert verdict == "never"
    assert line.startswith("Secret wandb has no key token (")
    assert line.endswith("add it, or set another one; did you mean 'tokens'? Known: tokens")


def test_unrecorded_keys_are_unknown() -> None:
    assert only(using(variable()), Secret=[row("wandb", "other", count=2)]) == (
        "unknown",
        "Secret wandb exists; unknown whether it has the key token (not in its managedFields)",
    )


def test_keys_that_were_applied_as_string_data_count_if_all_are_there() -> None:
    applied = row("wandb", "other", count=2)
    applied["metadata"]["managedFields"].append({"operation": "Apply", "fieldsV1": {"f:stringData": {"f:token": {}}}})
    assert only(using(variable()), Secret=[applied]) == ("now", "Secret wandb has the key token")
    applied["cells"]["Data"] = 1  # somebody deleted one of them
    assert only(using(variable()), Secret=[applied])[0] == "never"
    applied["cells"]["Data"] = 3  # another one has no record
    assert only(using(variable()), Secret=[applied])[0] == "unknown"


def test_binary_keys_of_a_config_map_count() -> None:
    binary = row("wandb", count=1)
    binary["metadata"]["managedFields"][0]["fieldsV1"] = {"f:binaryData": {".": {}, "f:token": {}}}
    assert only(using(variable("configMapKeyRef")), ConfigMap=[binary]) == ("now", "ConfigMap wandb has the key token")


@pytest.mark.parametrize(
    ("secrets", "words"),
    [([], "not found"), ([row("hub", ".dockerconfigjson")], "has type Opaque")],
    ids=["missing", "of another type"],
)
def test_images_are_pulled_without_a_secret_that_the_kubelet_cannot_use(secrets: list[Data], words: str) -> None:
    verdict, line = only(using(imagePullSecrets=[{"name": "hub"}]), Secret=secrets)
    assert verdict == "now"
    assert f"Secret hub {words}" in line
    assert "the kubelet pulls images without it" in line
    fine = row("hub", ".dockerconfigjson", kind="kubernetes.io/dockerconfigjson")
    assert only(using(imagePullSecrets=[{"name": "hub"}]), Secret=[fine]) == ("now", "Secret hub exists")


def test_without_the_right_to_list_secrets_it_is_unknown() -> None:
    hidden = Missing("Secret", "names and keys of Secrets", "you may not list secrets", "a lead")
    (answer,) = checked(using(variable()), Check.REFERENCES, (hidden,))
    assert (answer.verdict, answer.lines) == (
        "unknown",
        ("Secrets not readable (names and keys of Secrets): you may not list secrets; ask a lead",),
    )


def test_failures_are_listed_before_successes() -> None:
    manifest = using({**variable(), "envFrom": [{"secretRef": {"name": "missing"}}]})
    (answer,) = checked(manifest, Check.REFERENCES, Secret=[row("wandb", "token")])
    assert answer.lines[0].startswith("Secret missing not found")
    assert answer.lines[1] == "Secret wandb has the key token"
