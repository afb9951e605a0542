"""Simulated claims of datasets with a cache, as Fluid would create them from a team's reference."""

from collections.abc import Sequence
from typing import Final

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.base.quantity import format_bytes
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.plan.caches import CachedDataset

OURS: Final = "gpu-tenancy.dev/embedded-cache"
"""Label of the volumes and claims that this module created and can delete."""
_CLASS: Final = "fluid"
"""StorageClass of Fluid's claims: https://github.com/fluid-cloudnative/fluid/blob/v1.0.8/pkg/common/volume.go."""


def remove_claims(cluster: Cluster, cached: Sequence[CachedDataset]) -> None:
    """Deletes claims and volumes of an earlier stack, whose names the stack may need for claims of its own.

    Raises:
        ApiError: the API server rejects a deletion.
    """
    wanted = {(one.team, one.dataset) for one in cached}
    for claim in cluster.list("v1", "PersistentVolumeClaim", labels=OURS):
        namespace, name = (text_at(claim, "metadata", key) for key in ("namespace", "name"))
        if (namespace, name) not in wanted:
            cluster.delete(Reference("v1", "PersistentVolumeClaim", name, namespace))
    volumes = {_volume(one) for one in cached}
    for volume in cluster.list("v1", "PersistentVolume", labels=OURS):
        name = text_at(volume, "metadata", "name")
        if name not in volumes or text_at(volume, "status", "phase") in {"Released", "Failed"}:
            cluster.delete(Reference("v1", "PersistentVolume", name))


def bring_claims(cluster: Cluster, cached: Sequence[CachedDataset]) -> None:
    """Creates a volume and a claim for each reference; the teams' namespaces exist.

    Fluid does not run on the platform: nothing is cached, and its nodes are simulated and mount nothing.

    Raises:
        ApiError: the API server rejects an object.
    """
    for one in cached:
        for manifest in _manifests(one):
            cluster.apply(manifest, force=True)


def _manifests(cached: CachedDataset) -> tuple[Manifest, Manifest]:
    size: Json = {"storage": format_bytes(cached.size)}
    labels: Json = {OURS: "true"}
    volume: Manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": _volume(cached), "labels": labels},
        "spec": {
            "accessModes": [cached.access_mode],
            "capacity": size,
            "claimRef": {"namespace": cached.team, "name": cached.dataset},
            "hostPath": {"path": f"/var/lib/gpu-tenancy/caches/{cached.team}/{cached.dataset}"},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": _CLASS,
        },
    }
    claim: Manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": cached.dataset, "namespace": cached.team, "labels": labels},
        "spec": {
            "accessModes": [cached.access_mode],
            "resources": {"requests": size},
            "storageClassName": _CLASS,
            "volumeName": _volume(cached),
        },
    }
    return volume, claim


def _volume(cached: CachedDataset) -> str:
    return f"embedded-cache-{cached.team}.{cached.dataset}"
