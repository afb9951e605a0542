"""Storage of teams: StorageClasses, claims, and datasets on object storage as volumes."""

import pulumi
from pulumi_kubernetes.core.v1 import (
    CSIPersistentVolumeSourceArgsDict,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpecArgsDict,
)
from pulumi_kubernetes.storage.v1 import StorageClass

from gpu_tenancy.base.quantity import format_bytes
from gpu_tenancy.model.names import BUCKET
from gpu_tenancy.model.plan.datasets import VolumePlan
from gpu_tenancy.model.plan.sidecars import access_mode
from gpu_tenancy.model.plan.storage import ClaimPlan, StorageClassPlan

from .conventions import DO_NOT_AWAIT


class StorageClasses(pulumi.ComponentResource):
    """The StorageClasses that claims of teams need. Their CSI drivers are managed with the cluster.

    Volumes of a class that keeps them stay in the cloud when their claim is deleted, with the claim's name in
    `claimRef` of the PersistentVolume.

    Example:
        >>> StorageClasses("storage", plan(stack).storage_classes)
    """

    def __init__(
        self, name: str, classes: tuple[StorageClassPlan, ...], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-tenancy:tenancy:StorageClasses", name, {}, opts)
        for planned in classes:
            StorageClass(
                f"{name}-{planned.name}",
                metadata={"name": planned.name},
                provisioner=planned.service.provisioner,
                parameters=dict(planned.parameters),
                reclaim_policy="Retain" if planned.keep else "Delete",
                # A disk is created in the zone of the pod.
                volume_binding_mode="Immediate" if planned.service.immediate else "WaitForFirstConsumer",
                allow_volume_expansion=True,
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})


class TeamStorage(pulumi.ComponentResource):
    """A claim of a team, which its workloads mount. A deployment does not wait until it is bound.

    Example:
        >>> TeamStorage("ml-research.checkpoints", plan(stack).teams[0].claims[0])
    """

    def __init__(self, name: str, claim: ClaimPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:TeamStorage", name, {}, opts)
        spec: PersistentVolumeClaimSpecArgsDict = {
            "access_modes": [claim.access_mode],
            "resources": {"requests": {"storage": format_bytes(claim.size)}},
        }
        if claim.storage_class is not None:
            spec["storage_class_name"] = claim.storage_class
        self.claim = PersistentVolumeClaim(
            f"{name}-claim",
            metadata={"name": claim.name, "namespace": claim.team, "annotations": DO_NOT_AWAIT},
            spec=spec,
            opts=pulumi.ResourceOptions(parent=self),
        )


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
                "annotations": {**DO_NOT_AWAIT, BUCKET: volume.bucket},
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
