"""Fluid's objects before a real API server: they pass Fluid's definitions, and each test breaks one part.

Fluid's controllers, its CSI driver and its mounts do not run here: no cache is filled and no claim is made by it.
"""

import re
from functools import partial
from typing import Any, cast

import platformdirs
import pytest
import yaml
from acceptance_builders import an_account, declared, flat, in_waves, only, refusal
from builders import Data, job, stack, team
from removing import remove

from gpu_tenancy.base.json import at, map_at, maps_at, text_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.building import find_go, needed_go
from gpu_tenancy.embedded.definitions import module_folders
from gpu_tenancy.embedded.definitions.pins import Module, read_pins
from gpu_tenancy.embedded.drivers import CACHE, bring_claims, remove_claims
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.plan.datasets import CachedDataset, node_label

KINDS = {"Dataset", "AlluxioRuntime", "JuiceFSRuntime", "DataLoad"}


def sections() -> Data:
    cache = {"flavor": "h100", "cache": "100Gi", "secret": "keys", "warm": True}
    return stack(
        teams={"a": team(gpus={"h100": {"guaranteed": 8}}, training={"t": job(flavor="h100", datasets={"m": "/m"})})},
        datasets={
            "m": {"bucket": "s3://ml-corpus/v3", "accelerate": cache},
            "s": {"bucket": "az://mlcorpus/corpus", "accelerate": {**cache, "medium": "ssd"}},
            "j": {
                "bucket": "gs://ml-corpus",
                "writable": True,
                "accelerate": {**cache, "medium": "ssd", "runtime": "juicefs"},
            },
        },
    )


@pytest.fixture(scope="module")
def ours() -> tuple[KubernetesObject, ...]:
    return declared(sections())


def test_cache_objects_are_accepted_with_all_fields(cluster: Cluster, ours: tuple[KubernetesObject, ...]) -> None:
    manifests = flat(in_waves(ours))
    try:
        for manifest in manifests:
            cluster.apply(manifest)
        made = [one for one in manifests if one["kind"] in KINDS]
        # For each dataset: itself, its runtime, its load, and the reference of the team.
        assert len(made) == 3 * 4
        for manifest in made:
            live: Any = cluster.get(*Reference.of(manifest))
            assert contains(live["spec"], manifest["spec"]), manifest["kind"]
    finally:
        remove(cluster, manifests)


def contains(live: Any, sent: Any) -> bool:
    if isinstance(sent, dict):
        wanted = cast("Data", sent)
        return isinstance(live, dict) and all(contains(cast("Data", live).get(key), wanted[key]) for key in wanted)
    if isinstance(sent, list):
        wanted_items, items = cast("list[Any]", sent), cast("list[Any]", live)
        return len(items) == len(wanted_items) and all(map(contains, items, wanted_items))
    return live == sent


# A field, an invalid value, and words of the refusal.
BROKEN: list[tuple[str, tuple[Any, str]]] = [
    ("AlluxioRuntime.tieredstore.levels.0.mediumtype", ("RAM", "Unsupported value")),
    ("AlluxioRuntime.tieredstore.levels.0.volumeType", ("local", "Unsupported value")),
    ("AlluxioRuntime.worker.networkMode", ("Host", "Unsupported value")),
    ("AlluxioRuntime.fuse.cleanPolic", ("OnDemand", "field not declared in schema")),
    ("JuiceFSRuntime.tieredstore.levels.0.volumeType", ("local", "Unsupported value")),
    ("Dataset.placement", ("Alone", "Unsupported value")),
    ("Dataset.mounts", ([], "should have at least 1 items")),
    ("DataLoad.policy", ("Daily", "Unsupported value")),
]


@pytest.mark.parametrize(("path", "broken"), BROKEN)
def test_fluids_definitions_reject_unknown_fields(
    cluster: Cluster, namespace: str, ours: tuple[KubernetesObject, ...], path: str, broken: tuple[Any, str]
) -> None:
    (value, words), (kind, *keys) = broken, path.split(".")
    manifest = only((one for one in ours if one.namespace == "dataset-caches"), kind, named(ours, kind))
    manifest["metadata"]["namespace"] = namespace
    part = manifest["spec"]
    for key in keys[:-1]:
        part = part[int(key) if key.isdigit() else key]
    part[keys[-1]] = value
    assert words in refusal(lambda: cluster.apply(manifest))


def test_claims_of_caches_are_bound_and_removed(cluster: Cluster, namespace: str) -> None:
    cached = [
        CachedDataset(
            "m", namespace, "data.fluid.io/v1alpha1", "dataset://dataset-caches/m", writable=False, size=2**30
        )
    ]

    def phase() -> str:
        return text_at(cluster.get("v1", "PersistentVolumeClaim", "m", namespace) or {}, "status", "phase")

    remove_claims(cluster, cached)
    bring_claims(cluster, cached)
    cluster.wait_for(lambda: phase() == "Bound", what="the claim to be bound")
    bring_claims(cluster, cached)
    remove_claims(cluster, [])
    assert cluster.list("v1", "PersistentVolume", labels=CACHE) == ()
    assert phase() == ""


def named(ours: tuple[KubernetesObject, ...], kind: str) -> str:
    return next(one.name for one in ours if one.kind == kind and one.namespace == "dataset-caches")


def test_pods_keep_their_preference_for_the_nodes_of_the_cache(
    cluster: Cluster, namespace: str, ours: tuple[KubernetesObject, ...]
) -> None:
    an_account(cluster, namespace)
    spec = only(ours, "Job", "t")["spec"]["template"]["spec"]
    spec.pop("priorityClassName", None)
    made: Any = cluster.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "t", "namespace": namespace}, "spec": spec}
    )
    preferred = at(made, "spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
    assert isinstance(preferred, list)
    (term,) = preferred
    assert contains(term, {"preference": {"matchExpressions": [{"key": node_label("m"), "values": ["true"]}]}})


@pytest.fixture(scope="module")
def webhooks(report: Report) -> Manifest:
    """The configuration of all webhooks of Fluid's chart, from its Go module, with Helm's values written here."""
    (pin,) = {pin.source for pin in read_pins() if pin.operator == "fluid"}
    assert isinstance(pin, Module)
    go = find_go(needed_go(), platformdirs.user_cache_path("gpu-tenancy"), report)
    chart = module_folders([pin], go)[pin] / "charts" / "fluid" / "fluid" / "templates"
    texts = [file.read_text(encoding="utf-8") for file in sorted(chart.rglob("*.yaml"))]
    (text,) = [text for text in texts if re.search(r"^kind: \w+WebhookConfiguration$", text, re.MULTILINE)]
    lines = [line for line in text.splitlines() if not re.match(r"\s*\{\{", line)]
    filled = "\n".join(lines).replace("{{ .Values.webhook.timeoutSeconds }}", "1")
    filled = filled.replace("{{ .Values.webhook.reinvocationPolicy }}", "Never")
    return yaml.safe_load(re.sub(r"\{\{[^}]*\}\}", "fluid-system", filled))


def test_fluids_webhooks_match_no_object_of_a_stack(
    cluster: Cluster, namespace: str, ours: tuple[KubernetesObject, ...], webhooks: Manifest
) -> None:
    """Fluid has webhooks for pods with its labels only, none for its own kinds. They have no server here."""
    rules = [rule for webhook in maps_at(webhooks, "webhooks") for rule in maps_at(webhook, "rules")]
    assert {str(rule["resources"]) for rule in rules} == {"['pods']"}
    labels = [map_at(webhook, "objectSelector", "matchLabels") for webhook in maps_at(webhooks, "webhooks")]
    an_account(cluster, namespace)
    template = only(ours, "Job", "t")["spec"]["template"]
    template["spec"].pop("priorityClassName", None)
    pod: Data = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
    metadata: Data = {**template.get("metadata", {}), "name": "asked", "namespace": namespace}
    cluster.apply(webhooks)
    try:
        for one in labels:
            own: Data = metadata.get("labels", {})
            labelled: Data = {**metadata, "labels": {**own, **one}}
            cluster.wait_for(partial(unanswered, cluster, {**pod, "metadata": labelled}), what="the webhook to count")
        cluster.create({**pod, "metadata": metadata}, dry_run=True)
    finally:
        cluster.delete(Reference.of(webhooks))


def unanswered(cluster: Cluster, pod: Data) -> bool:
    """Whether a pod is rejected because no webhook of Fluid answers."""
    try:
        cluster.create(pod, dry_run=True)
    except ApiError as error:
        return "fluid.io" in error.message
    return False
