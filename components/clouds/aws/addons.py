"""EKS add-ons of a created cluster, and Helm releases in kube-system."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgsDict

from gpu_tenancy.model.catalogue.releases import cloud_charts
from gpu_tenancy.model.spec.clouds.aws import LUSTRE_TAG, AddonName, EksCreation

from ...objects import Component, Options
from .identity import Grant, Role
from .nodes import ClusterContext
from .policies import managed_policy, trust, written_policy

NAMESPACE: Final = "kube-system"
_SECONDS: Final = 600


def release(name: str, chart: str, values: Mapping[str, object], opts: ResourceOptions) -> Release:
    """A release of a chart of the catalogue. Pulumi waits until it is ready; a failed release is rolled back.

    Custom resource definitions are not taken from a chart's `crds` folder, which Helm installs once and never updates.
    """
    row = cloud_charts()[chart]
    repository: RepositoryOptsArgsDict | None = {"repo": row.repository} if row.repository else None
    return Release(
        name,
        name=chart,
        chart=row.reference,
        version=row.version,
        repository_opts=repository,
        namespace=NAMESPACE,
        values=values,
        skip_crds=True,
        atomic=True,
        timeout=_SECONDS,
        opts=opts,
    )


@dataclass(frozen=True, slots=True)
class Addon:
    """What an add-on needs.

    Attributes:
        account: its service account that calls AWS; None if it does not.
        policy: managed policy of that account, with the path of its ARN.
        values: its configuration, in the add-on's own schema (`aws eks describe-addon-configuration`).
        document: policy of that account, where no managed one is as narrow.
    """

    account: str | None = None
    policy: str | None = None
    values: Mapping[str, object] | None = None
    document: str | None = None


CNI: Final = Addon("aws-node", "AmazonEKS_CNI_Policy", {"enableNetworkPolicy": "true"})
"""The VPC CNI, which enforces NetworkPolicies only if it is told to:
https://docs.aws.amazon.com/eks/latest/userguide/cni-network-policy-configure.html."""
BEFORE_NODES: Final[Mapping[AddonName, Addon]] = {
    "eks-pod-identity-agent": Addon(),
    "kube-proxy": Addon(),
    "vpc-cni": CNI,
}
"""Add-ons that nodes need to become ready."""
ON_NODES: Final[Mapping[AddonName, Addon]] = {
    "coredns": Addon(),
    # Detects broken GPUs for node auto repair: https://docs.aws.amazon.com/eks/latest/userguide/node-health.html
    "eks-node-monitoring-agent": Addon(),
    # CPU usage for autoscalers: https://docs.aws.amazon.com/eks/latest/userguide/metrics-server.html
    "metrics-server": Addon(),
    # Its own default StorageClass has no encryption, and is set again with each update of the add-on.
    "aws-ebs-csi-driver": Addon(
        "ebs-csi-controller-sa", "service-role/AmazonEBSCSIDriverPolicy", {"defaultStorageClass": {"enabled": False}}
    ),
}
"""Add-ons that run on nodes."""


def drivers(cluster: str) -> Mapping[str, Mapping[AddonName, Addon]]:
    """CSI drivers of data and the controller of snapshots, by the ends of their resources' names."""
    return {
        # On all nodes. It has no role: from version 2 on it mounts with the role of the pod, by EKS Pod Identity:
        # https://github.com/awslabs/mountpoint-s3-csi-driver/pull/458.
        "s3": {"aws-mountpoint-s3-csi-driver": Addon(values={"node": {"tolerateAllTaints": True}})},
        # https://docs.aws.amazon.com/eks/latest/userguide/efs-csi.html
        "efs": {"aws-efs-csi-driver": Addon("efs-csi-controller-sa", "service-role/AmazonEFSCSIDriverPolicy")},
        # AWS proposes AmazonFSxFullAccess, which may delete every file system of the account:
        # https://docs.aws.amazon.com/eks/latest/userguide/fsx-csi-create.html.
        "fsx": {
            "aws-fsx-csi-driver": Addon(
                "fsx-csi-controller-sa", document=written_policy("lustre", "", cluster=cluster, tag=LUSTRE_TAG)
            )
        },
        # The controller of VolumeSnapshots with their definitions; the EBS driver then takes them:
        # https://docs.aws.amazon.com/eks/latest/userguide/csi-snapshot-controller.html.
        "snapshots": {"snapshot-controller": Addon()},
    }


class Addons(Component):
    """Add-ons of a created cluster, each in EKS's default version for the cluster's version, or as the stack pins it.

    The version is asked when the control plane has its version, so an upgrade updates the control plane first, then the
    add-ons. EKS does not update add-ons by itself:
    https://docs.aws.amazon.com/eks/latest/userguide/updating-an-add-on.html. Add-ons that call AWS have their own IAM
    role, so the node role needs no permissions for them.

    Args:
        addons: the add-ons to install.
        version: Kubernetes version of the control plane, known when the control plane has it.
    """

    def __init__(
        self,
        name: str,
        context: ClusterContext,
        addons: Mapping[AddonName, Addon],
        version: pulumi.Output[str],
        opts: Options = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:Addons", name, opts)
        self._context, self._kubernetes_version = context, version
        self.resources: list[pulumi.Resource] = [
            self._addon(f"{name}-{addon}", addon, needs) for addon, needs in addons.items()
        ]
        self.register_outputs({})

    def _addon(self, name: str, addon: AddonName, needs: Addon) -> aws.eks.Addon:
        context = self._context
        identity: list[aws.eks.AddonPodIdentityAssociationArgsDict] = []
        roles: list[pulumi.Resource] = []
        if needs.account and (needs.policy or needs.document):
            managed = (managed_policy(context.section.region, needs.policy),) if needs.policy else ()
            grant = Grant(trust("pods.eks"), managed, {"driver": needs.document} if needs.document else {})
            role = Role(f"{name}-role", f"{context.name}-{needs.account}", grant, context.tags, self.own)
            identity.append({"role_arn": role.arn, "service_account": needs.account})
            roles.append(role)
        return aws.eks.Addon(
            name,
            cluster_name=context.name,
            addon_name=addon,
            addon_version=self._addon_version(addon, context.section.create),
            configuration_values=json.dumps(needs.values, sort_keys=True) if needs.values else None,
            pod_identity_associations=identity or None,
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            tags=context.tags,
            opts=self.after(*roles),
        )

    def _addon_version(self, addon: AddonName, creation: EksCreation | None) -> pulumi.Input[str]:
        if creation and addon in creation.addons:
            return creation.addons[addon]
        version, invoke = self._kubernetes_version, pulumi.InvokeOutputOptions(parent=self)
        return aws.eks.get_addon_version_output(addon_name=addon, kubernetes_version=version, opts=invoke).version
