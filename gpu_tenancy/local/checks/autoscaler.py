"""A HorizontalPodAutoscaler with other settings for some seconds, restored with the owners of its fields."""

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, cast

from gpu_tenancy.base.json import Json, at, maps_at, text_at
from gpu_tenancy.base.quantity import CPU
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import FIELD_MANAGER

BEFORE: Final = "gpu-tenancy.dev/before-check"
"""Annotation of what a check changes: what it was before, for a later run if this one is killed."""


@contextmanager
def simplified(cluster: Cluster, scaler: Reference, step: int) -> Generator[tuple[str, ...]]:
    """Has an autoscaler add and remove pods at once, and by CPU only; yields the names of its other metrics.

    A metric that nothing serves blocks every removal of pods, which is why the others are left out. The engine that
    deployed the autoscaler owns its fields again afterwards: otherwise its next run would find a conflict.

    Args:
        cluster: with the autoscaler.
        scaler: the autoscaler.
        step: number of pods that it may add or remove in 15 seconds.

    Raises:
        ApiError: the autoscaler does not exist.
    """
    simple = _behavior(step)
    before = _settings(cluster.get(*scaler) or {}, simple)
    metrics = maps_at(before, "metrics")
    try:
        annotation: Json = {"annotations": {BEFORE: json.dumps(before)}}
        own: list[Json] = [dict(metric) for metric in metrics if _is_cpu(metric)]
        changed = cluster.patch(scaler, {"metadata": annotation, "spec": {"behavior": simple, "metrics": own}})
        # If this process is killed, the next deployment must find no conflict with it.
        cluster.patch(scaler, {"metadata": {"managedFields": _of_others(changed)}})
        yield tuple(_names(metric for metric in metrics if not _is_cpu(metric)))
    finally:
        spec: Json = {"behavior": before["behavior"], "metrics": before["metrics"]}
        cluster.patch(scaler, {"metadata": {"annotations": {BEFORE: None}}, "spec": spec})
        # Only without other changes is this list kept as it is.
        cluster.patch(scaler, {"metadata": {"managedFields": before["managedFields"]}})


def _behavior(step: int) -> Json:
    policies: Json = [{"type": "Pods", "value": step, "periodSeconds": 15}]
    at_once: Json = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": policies}
    return {"scaleUp": at_once, "scaleDown": at_once}


def _settings(scaler: Manifest, simple: Json) -> Manifest:
    """What is to be restored: the present settings, or those before a run that was killed."""
    left = text_at(scaler, "metadata", "annotations", BEFORE)
    if left and at(scaler, "spec", "behavior") == simple:
        return cast("Manifest", json.loads(left))
    spec: Manifest = {key: at(scaler, "spec", key) for key in ("behavior", "metrics")}
    return {**spec, "managedFields": at(scaler, "metadata", "managedFields")}


def _of_others(scaler: Manifest) -> list[Json]:
    """The owners of fields without us as the client that patches; as the engine we apply."""
    entries = maps_at(scaler, "metadata", "managedFields")
    return [dict(entry) for entry in entries if (entry["manager"], entry["operation"]) != (FIELD_MANAGER, "Update")]


def _is_cpu(metric: Mapping[str, Json]) -> bool:
    return text_at(metric, "resource", "name") == CPU


def _names(metrics: Iterable[Mapping[str, Json]]) -> Iterator[str]:
    for metric in metrics:
        yield (
            text_at(metric, "pods", "metric", "name") or text_at(metric, "resource", "name") or text_at(metric, "type")
        )
