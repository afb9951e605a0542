"""Simulated volumes for the storage of a stack's teams, as a CSI driver of a cloud would create them."""

from collections.abc import Sequence
from typing import Final

from gpu_tenancy.base.json import text_at
from gpu_tenancy.base.quantity import format_bytes
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.plan.storage import ClaimPlan

OURS: Final = "gpu-tenancy.dev/embedded-volume"
"""Label of the volumes that this module created and can delete."""


def bring_volumes(cluster: Cluster, claims: Sequence[ClaimPlan]) -> None:
    """Creates a volume for each claim, and deletes those that no claim has any more.

    The platform's nodes are simulated and mount nothing, so nothing is stored at a volume's path. A volume whose claim
    was deleted is created again, as a new claim would get a new disk. A claim of an earlier stack keeps its volume
    until it is deleted itself.

    Raises:
        ApiError: the API server rejects a volume.
    """
    existing = {text_at(one, "metadata", "name"): one for one in cluster.list("v1", "PersistentVolume", labels=OURS)}
    wanted = {_name(claim): claim for claim in claims}
    for name, volume in existing.items():
        phase = text_at(volume, "status", "phase")
        if phase in {"Released", "Failed"} or (name not in wanted and phase != "Bound"):
            cluster.delete(Reference("v1", "PersistentVolume", name))
    for claim in wanted.values():
        cluster.apply(volume_of(claim), force=True)


def volume_of(claim: ClaimPlan) -> Manifest:
    """The volume of a claim, which only this claim can bind."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": _name(claim), "labels": {OURS: "true"}},
        "spec": {
            "accessModes": [claim.access_mode],
            "capacity": {"storage": format_bytes(claim.size)},
            "claimRef": {"namespace": claim.team, "name": claim.name},
            "hostPath": {"path": f"/var/lib/gpu-tenancy/volumes/{claim.team}/{claim.name}"},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": claim.storage_class or "",
        },
    }


def _name(claim: ClaimPlan) -> str:
    return f"embedded-{claim.team}.{claim.name}"
