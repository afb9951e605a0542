"""Datasets on object storage, as volumes in a team's namespace."""

import pulumi
from pulumi_kubernetes.core.v1 import CSIPersistentVolumeSourceArgsDict, PersistentVolume, PersistentVolumeClaim

from gpu_tenancy.base.quantity import format_bytes
from gpu_tenancy.model.plan.buckets import access_mode
from gpu_tenancy.model.plan.datasets import VolumePlan


class DatasetVolume(pulumi.ComponentResource):
    """A PersistentVolume on a bucket and the claim that it is reserved for.

    The bucket, access to it and the cloud's CSI driver are not managed here: the cluster's component grants the rights.

    Example:
        >>> DatasetVolume("ml-research-corpus", plan(stack).teams[0].volumes[0])
    """

    def __init__(self, name: str, volume: VolumePlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:DatasetVolume", name, {}, opts)
        mode = access_mode(writable=volume.writable)
        size = {"storage": format_bytes(volume.size)}
        source: CSIPersistentVolumeSourceArgsDict = {
            "driver": volume.driver,
            "volume_handle": volume.handle,
            "read_only": not volume.writable,
        }
        if volume.attributes:
            source["volume_attributes"] = volume.attributes
        self.volume = PersistentVolume(
            f"{name}-volume",
            metadata={"name": volume.name},
            spec={
                "access_modes": [mode],
                "capacity": size,
                "claim_ref": {"namespace": volume.team, "name": volume.dataset},
                "csi": source,
                "mount_options": list(volume.mount_options),
                # The bucket's content does not belong to this stack.
                "persistent_volume_reclaim_policy": "Retain",
                "storage_class_name": "",
            },
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.claim = PersistentVolumeClaim(
            f"{name}-claim",
            metadata={
                "name": volume.dataset,
                "namespace": volume.team,
                "annotations": {"pulumi.com/skipAwait": "true"},
            },
            spec={
                "access_modes": [mode],
                "resources": {"requests": size},
                "storage_class_name": "",
                # Of the volume itself: if it is replaced, its claim is deleted before it.
                "volume_name": self.volume.metadata.name,
            },
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self.volume]),
        )
