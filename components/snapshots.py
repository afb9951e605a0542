"""Snapshots of storage: CronJobs in a namespace of the platform that create VolumeSnapshots and delete the oldest."""

from typing import Any, Final

import pulumi
from pulumi_kubernetes.admissionregistration.v1 import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding
from pulumi_kubernetes.batch.v1 import CronJob
from pulumi_kubernetes.core.v1 import ContainerArgsDict, ServiceAccount
from pulumi_kubernetes.rbac.v1 import ClusterRole, ClusterRoleBinding, Role, RoleBinding

from gpu_tenancy.model.plan.storage import SnapshotClassPlan, SnapshotPlan, SnapshotsPlan
from gpu_tenancy.model.spec.data import SNAPSHOT_GROUP, SNAPSHOTS

from .conventions import PlainObject
from .cron_jobs import cron_job, namespace_of_jobs

OF: Final = "gpu-tenancy.dev/snapshot-of"
"""Label of the snapshots that a CronJob takes: the claim. It deletes no others."""
SCRIPT: Final = """\
set -eu
snapshots=volumesnapshots.snapshot.storage.k8s.io
kubectl create --namespace "$TEAM" --filename - <<END
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata:
  name: "$CLAIM-$(date -u +%Y%m%d-%H%M%S)"
  labels: {gpu-tenancy.dev/snapshot-of: "$CLAIM"}
spec:
  volumeSnapshotClassName: "$CLASS"
  source: {persistentVolumeClaimName: "$CLAIM"}
END
row='{.metadata.name}|{.status.readyToUse}|{.status.boundVolumeSnapshotContentName}{"\\n"}'
taken=$(kubectl get "$snapshots" --namespace "$TEAM" --selector "gpu-tenancy.dev/snapshot-of=$CLAIM" \\
  --output jsonpath="{range .items[*]}$row{end}")
old=$(printf '%s\\n' "$taken" | sort -r | awk -F'|' -v keep="$KEEP" \\
  'NF == 3 && ($2 == "true" ? ++complete : ++incomplete) > keep { print $1 "|" $3 }')
for snapshot in $old; do
  content=${snapshot#*|}
  if [ "$KEPT" = true ] && [ -n "$content" ]; then
    kubectl patch volumesnapshotcontents.snapshot.storage.k8s.io "$content" --type merge \\
      --patch '{"spec":{"deletionPolicy":"Delete"}}'
  fi
  kubectl delete "$snapshots" "${snapshot%%|*}" --namespace "$TEAM" --wait=false
done
"""
"""Takes a snapshot, then deletes those beyond the newest `KEEP` complete ones, and beyond as many incomplete ones.

Complete and incomplete ones are counted apart, because a driver that fails must not replace good snapshots by failed
ones. Names end in the time, so they sort by it. Nothing is deleted if no snapshot could be requested. A class that
keeps what the cloud stores (`KEPT`) would keep it for old snapshots, too, so their content is released first:
https://kubernetes.io/docs/concepts/storage/volume-snapshots/#delete."""

_RBAC: Final = "rbac.authorization.k8s.io"
_RIGHT: Final = "gpu-tenancy-snapshots"
_USER: Final = f"system:serviceaccount:{SNAPSHOTS}:"


class Snapshots(pulumi.ComponentResource):
    """What the snapshots of all teams share: the namespace of their CronJobs, and VolumeSnapshotClasses.

    In the namespace of the CronJobs, each team has its own ServiceAccount, with rights on VolumeSnapshots of the team's
    namespace alone. RBAC cannot restrict the cluster-wide VolumeSnapshotContents to a team, so an admission
    policy does: an account can only release contents of its team's snapshots for deletion.

    The snapshot controller, its definitions and the CSI drivers are not managed here.

    Example:
        >>> Snapshots("snapshots", plan(stack).snapshots)
    """

    def __init__(self, name: str, plan: SnapshotsPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Snapshots", name, {}, opts)
        own = pulumi.ResourceOptions(parent=self)
        namespace_of_jobs(name, plan.namespace, plan.environment, self)
        for made in plan.classes:
            _class(f"{name}-{made.name}", made, own)
        if any(made.keep for made in plan.classes):
            self._release(name)
        self.register_outputs({"namespace": plan.namespace})

    def _release(self, name: str) -> None:
        """The right to release contents of snapshots for deletion, and the policy that restricts it to a team's own."""
        own = pulumi.ResourceOptions(parent=self)
        policy = ValidatingAdmissionPolicy(f"{name}-policy", metadata={"name": _RIGHT}, spec=_releases_only(), opts=own)
        enforced = ValidatingAdmissionPolicyBinding(
            f"{name}-policy-binding",
            metadata={"name": _RIGHT},
            spec={"policy_name": _RIGHT, "validation_actions": ["Deny"]},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[policy]),
        )
        # kubectl reads an object before it patches it.
        ClusterRole(
            f"{name}-role",
            metadata={"name": _RIGHT},
            rules=[
                {"api_groups": [SNAPSHOT_GROUP], "resources": ["volumesnapshotcontents"], "verbs": ["get", "patch"]}
            ],
            opts=own,
        )
        ClusterRoleBinding(
            f"{name}-binding",
            metadata={"name": _RIGHT},
            role_ref={"api_group": _RBAC, "kind": "ClusterRole", "name": _RIGHT},
            subjects=[{"api_group": _RBAC, "kind": "Group", "name": f"system:serviceaccounts:{SNAPSHOTS}"}],
            opts=pulumi.ResourceOptions(parent=self, depends_on=[enforced]),
        )


def _class(name: str, planned: SnapshotClassPlan, opts: pulumi.ResourceOptions) -> PlainObject:
    fields = {
        "metadata": {"name": planned.name},
        "driver": planned.driver,
        "deletionPolicy": "Retain" if planned.keep else "Delete",
        **({"parameters": dict(planned.parameters)} if planned.parameters else {}),
    }
    return PlainObject(name, f"{SNAPSHOT_GROUP}/v1", "VolumeSnapshotClass", fields, opts)


def _releases_only() -> Any:
    """A policy by which an account of a team changes nothing but `deletionPolicy`, in contents of this team."""
    team = f"object.spec.volumeSnapshotRef.namespace == request.userInfo.username.substring({len(_USER)})"
    spec = "object.spec.{0} == oldObject.spec.{0}"
    optional = "object.{0} == oldObject.{0}"
    metadata = [optional.format(f"metadata.?{field}") for field in ("labels", "annotations", "finalizers")]
    same = [spec.format(field) for field in ("driver", "source", "volumeSnapshotRef")]
    return {
        "failure_policy": "Fail",
        "match_constraints": {
            "resource_rules": [
                {
                    "api_groups": [SNAPSHOT_GROUP],
                    "api_versions": ["*"],
                    "operations": ["UPDATE"],
                    "resources": ["volumesnapshotcontents"],
                }
            ]
        },
        "match_conditions": [
            {"name": "of-snapshots", "expression": f"request.userInfo.username.startsWith('{_USER}')"}
        ],
        "validations": [
            {"expression": team, "message": "the snapshot is of another namespace; ask its team"},
            {
                "expression": " && ".join(["object.spec.deletionPolicy == 'Delete'", *same, *metadata]),
                "message": "only spec.deletionPolicy can be changed, to Delete; keep all other fields",
            },
        ],
    }


class TeamSnapshots(pulumi.ComponentResource):
    """The CronJobs of a team's claims, with the one ServiceAccount that may handle snapshots of its namespace.

    Example:
        >>> TeamSnapshots("ml-research.snapshots", "ml-research", plan(stack).teams[0].snapshots)
    """

    def __init__(
        self, name: str, team: str, snapshots: tuple[SnapshotPlan, ...], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-tenancy:tenancy:TeamSnapshots", name, {}, opts)
        own = pulumi.ResourceOptions(parent=self)
        account = ServiceAccount(f"{name}-account", metadata={"name": team, "namespace": SNAPSHOTS}, opts=own)
        Role(
            f"{name}-role",
            metadata={"name": SNAPSHOTS, "namespace": team},
            rules=[
                {
                    "api_groups": [SNAPSHOT_GROUP],
                    "resources": ["volumesnapshots"],
                    "verbs": ["create", "delete", "list"],
                }
            ],
            opts=own,
        )
        binding = RoleBinding(
            f"{name}-binding",
            metadata={"name": SNAPSHOTS, "namespace": team},
            role_ref={"api_group": _RBAC, "kind": "Role", "name": SNAPSHOTS},
            subjects=[{"kind": "ServiceAccount", "name": team, "namespace": SNAPSHOTS}],
            opts=own,
        )
        after = pulumi.ResourceOptions(parent=self, depends_on=[account, binding])
        self.jobs = [_cron_job(f"{name}.{planned.claim}", planned, after) for planned in snapshots]
        self.register_outputs({})


def _cron_job(name: str, planned: SnapshotPlan, opts: pulumi.ResourceOptions) -> CronJob:
    environment = {
        "TEAM": planned.team,
        "CLAIM": planned.claim,
        "CLASS": planned.snapshot_class,
        "KEEP": str(planned.keep),
        "KEPT": "true" if planned.kept else "false",
        "HOME": "/tmp",  # noqa: S108 - of the pod, where kubectl keeps what it discovers
    }
    own: ContainerArgsDict = {
        "name": "snapshot",
        "command": ["/bin/sh", "-c", SCRIPT],
        "env": [{"name": key, "value": value} for key, value in environment.items()],
    }
    place, labels = (SNAPSHOTS, planned.name), {OF: planned.claim}
    return cron_job(name, place, planned.schedule, account=planned.team, own=own, opts=opts, labels=labels)
