"""Storage of teams: StorageClasses and claims."""

import pulumi
from pulumi_kubernetes.core.v1 import PersistentVolumeClaim, PersistentVolumeClaimSpecArgsDict
from pulumi_kubernetes.storage.v1 import StorageClass

from gpu_tenancy.base.quantity import format_bytes
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
