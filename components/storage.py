"""Storage of teams: StorageClasses, claims, datasets on object storage as volumes, and snapshots."""

from typing import Any, Final

import pulumi
from pulumi_kubernetes.admissionregistration.v1 import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding
from pulumi_kubernetes.core import v1 as core
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.rbac.v1 import ClusterRole, Role, RoleBinding
from pulumi_kubernetes.storage.v1 import StorageClass

from gpu_tenancy.base.quantity import format_bytes
from gpu_tenancy.model.names import BUCKET
from gpu_tenancy.model.plan.datasets import VolumePlan
from gpu_tenancy.model.plan.object_storage import access_mode
from gpu_tenancy.model.plan.people import Subject
from gpu_tenancy.model.plan.storage import ClaimPlan, SnapshotPlan, StorageClassPlan
from gpu_tenancy.model.spec.data import SNAPSHOT_GROUP, SNAPSHOTS

from . import objects
from .objects import DO_NOT_AWAIT, Component, Options, PlainObject


class StorageClasses(Component):
    """The StorageClasses that claims of teams need. Their CSI drivers are managed with the cluster.

    Volumes of a class that keeps them stay in the cloud without their claim, with its name in `claimRef`.
    """

    def __init__(self, name: str, classes: tuple[StorageClassPlan, ...], opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:StorageClasses", name, opts)
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
                opts=self.own,
            )


class TeamStorage(Component):
    """A claim of a team, which its workloads mount. A deployment does not wait until it is bound."""

    def __init__(self, name: str, claim: ClaimPlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:TeamStorage", name, opts)
        spec: core.PersistentVolumeClaimSpecArgsDict = {
            "access_modes": [claim.access_mode],
            "resources": {"requests": {"storage": format_bytes(claim.size)}},
        }
        if claim.storage_class is not None:
            spec["storage_class_name"] = claim.storage_class
        metadata: ObjectMetaArgsDict = {"name": claim.name, "namespace": claim.team, "annotations": DO_NOT_AWAIT}
        self.claim = core.PersistentVolumeClaim(f"{name}-claim", metadata=metadata, spec=spec, opts=self.own)


class DatasetVolume(Component):
    """A PersistentVolume on a bucket, and its claim; bucket, access and CSI driver are not managed here."""

    def __init__(self, name: str, volume: VolumePlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:DatasetVolume", name, opts)
        mode = access_mode(writable=volume.writable)
        size = {"storage": format_bytes(volume.size)}
        source: core.CSIPersistentVolumeSourceArgsDict = {
            "driver": volume.driver,
            "volume_handle": volume.handle,
            "read_only": not volume.writable,
        }
        if volume.attributes:
            source["volume_attributes"] = volume.attributes
        self.volume = core.PersistentVolume(
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
            opts=self.own,
        )
        annotations = {**DO_NOT_AWAIT, BUCKET: volume.bucket}
        self.claim = core.PersistentVolumeClaim(
            f"{name}-claim",
            metadata={"name": volume.dataset, "namespace": volume.team, "annotations": annotations},
            spec={
                "access_modes": [mode],
                "resources": {"requests": size},
                "storage_class_name": "",
                # Of the volume itself: if it is replaced, its claim is deleted before it.
                "volume_name": self.volume.metadata.name,
            },
            opts=self.after(self.volume),
        )


OF: Final = "gpu-tenancy.dev/snapshot-of"  # label of a CronJob's snapshots: the claim; it deletes no others
SCRIPT: Final = objects.read_scripts("take_snapshot")
"""Takes a snapshot, then deletes complete ones beyond the newest `KEEP`, and as many incomplete ones, counted apart:
failed snapshots must not replace good ones. Names end in the time. Nothing is deleted without a requested snapshot.
Contents of a class that keeps them (`KEPT`) are released first:
https://kubernetes.io/docs/concepts/storage/volume-snapshots/#delete."""

SNAPSHOTS_POLICY: Final = "gpu-tenancy-snapshots"
_USER: Final = f"system:serviceaccount:{SNAPSHOTS}:"


class Snapshots(Component):
    """The common parts of all teams' snapshots: the namespace of their CronJobs, and VolumeSnapshotClasses.

    Each team has its own ServiceAccount there, with rights on VolumeSnapshots of its namespace alone. RBAC cannot
    restrict the cluster-wide VolumeSnapshotContents to a team, so an admission policy lets an account only release
    contents of its team's snapshots. Snapshot controller, definitions and CSI drivers are not managed here.
    """

    def __init__(
        self, name: str, environment: str, classes: tuple[StorageClassPlan, ...], opts: Options = None
    ) -> None:
        super().__init__("gpu-tenancy:tenancy:Snapshots", name, opts)
        objects.namespace_of_jobs(name, SNAPSHOTS, environment, self)
        for made in classes:
            parameters = made.service.snapshot_parameters
            fields = {
                "metadata": {"name": made.name},
                "driver": made.service.provisioner,
                "deletionPolicy": "Retain" if made.keep else "Delete",
                **({"parameters": dict(parameters)} if parameters else {}),
            }
            PlainObject(f"{name}-{made.name}", f"{SNAPSHOT_GROUP}/v1", "VolumeSnapshotClass", fields, self.own)
        if any(made.keep for made in classes):
            self._release(name)

    def _release(self, name: str) -> None:
        """The right to release contents of snapshots for deletion, and the policy that restricts it to a team's own."""
        named: ObjectMetaArgsDict = {"name": SNAPSHOTS_POLICY}
        policy = ValidatingAdmissionPolicy(f"{name}-policy", metadata=named, spec=releases_only(), opts=self.own)
        enforced = ValidatingAdmissionPolicyBinding(
            f"{name}-policy-binding",
            metadata=named,
            spec={"policy_name": SNAPSHOTS_POLICY, "validation_actions": ["Deny"]},
            opts=self.after(policy),
        )
        # kubectl reads an object before it patches it.
        rules: Any = [
            {"api_groups": [SNAPSHOT_GROUP], "resources": ["volumesnapshotcontents"], "verbs": ["get", "patch"]}
        ]
        ClusterRole(f"{name}-role", metadata=named, rules=rules, opts=self.own)
        accounts = Subject("Group", f"system:serviceaccounts:{SNAPSHOTS}")
        objects.cluster_role_binding(f"{name}-binding", named, SNAPSHOTS_POLICY, [accounts], self.after(enforced))


def releases_only() -> Any:
    """A policy that lets a team's account change only `deletionPolicy`, in contents of this team."""
    team = f"object.spec.volumeSnapshotRef.namespace == request.userInfo.username.substring({len(_USER)})"
    fields = ("spec.driver", "spec.source", "spec.volumeSnapshotRef")
    fields += ("metadata.?labels", "metadata.?annotations", "metadata.?finalizers")
    only = ["object.spec.deletionPolicy == 'Delete'", *(f"object.{field} == oldObject.{field}" for field in fields)]
    contents = {
        "api_groups": [SNAPSHOT_GROUP],
        "api_versions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["volumesnapshotcontents"],
    }
    return {
        "failure_policy": "Fail",
        "match_constraints": {"resource_rules": [contents]},
        "match_conditions": [
            {"name": "of-snapshots", "expression": f"request.userInfo.username.startsWith('{_USER}')"}
        ],
        "validations": [
            {"expression": team, "message": "the snapshot is of another namespace; ask its team"},
            {
                "expression": " && ".join(only),
                "message": "only spec.deletionPolicy can be changed, to Delete; keep all other fields",
            },
        ],
    }


class TeamSnapshots(Component):
    """The CronJobs of a team's claims, with the one ServiceAccount that may handle snapshots of its namespace."""

    def __init__(self, name: str, team: str, snapshots: tuple[SnapshotPlan, ...], opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:TeamSnapshots", name, opts)
        account = core.ServiceAccount(f"{name}-account", metadata={"name": team, "namespace": SNAPSHOTS}, opts=self.own)
        named: ObjectMetaArgsDict = {"name": SNAPSHOTS, "namespace": team}
        rules: Any = [
            {"api_groups": [SNAPSHOT_GROUP], "resources": ["volumesnapshots"], "verbs": ["create", "delete", "list"]}
        ]
        Role(f"{name}-role", metadata=named, rules=rules, opts=self.own)
        binding = RoleBinding(
            f"{name}-binding",
            metadata=named,
            role_ref=objects.role_ref(SNAPSHOTS, "Role"),
            subjects=[{"kind": "ServiceAccount", "name": team, "namespace": SNAPSHOTS}],
            opts=self.own,
        )
        after = self.after(account, binding)
        self.jobs: list[pulumi.Resource] = []
        for planned in snapshots:
            variables = {
                "TEAM": planned.team,
                "CLAIM": planned.claim,
                "CLASS": planned.snapshot_class,
                "KEEP": str(planned.keep),
                "KEPT": "true" if planned.kept else "false",
            }
            metadata: ObjectMetaArgsDict = {"name": planned.name, "namespace": SNAPSHOTS, "labels": {OF: planned.claim}}
            pod = planned.team, objects.script_container("snapshot", SCRIPT, variables)
            self.jobs.append(objects.cron_job(f"{name}.{planned.claim}", metadata, planned.schedule, pod, after))
