"""An EKS cluster that is made here: its control plane, who administers it, and its add-ons."""

from collections.abc import Mapping
from typing import Final

import pulumi
import pulumi_aws as aws

from gpu_tenancy.model.plan.fleet import Fleet
from gpu_tenancy.model.spec.clouds.aws import AwsCluster, EksCreation

from .identity import Grant, Role
from .policies import access_policy, managed_policy, trust

LOGS: Final = ("api", "audit", "authenticator")
"""Logs that say who did what; the scheduler's and the controllers' say how it went, and are left out."""
_RETENTION: Final = 365
_WAIT: Final = 30
"""Days: how long logs are kept, and how long a deleted key can still be called back."""


class ControlPlane(pulumi.ComponentResource):
    """The control plane of an EKS cluster, with the key of its secrets, its audit log and its administrators.

    Its network is given, not made: the subnets need a way to AWS' APIs and to images, by NAT or endpoints
    (https://docs.aws.amazon.com/eks/latest/userguide/private-clusters.html). A private API server is reached only
    from that network, so that is where the deployment must run.
    """

    def __init__(
        self,
        name: str,
        fleet: Fleet,
        section: AwsCluster,
        creation: EksCreation,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:ControlPlane", name, {}, opts)
        within, tags = pulumi.ResourceOptions(parent=self), dict(fleet.tags)
        grant = Grant(trust("eks"), managed=(managed_policy(section.region, "AmazonEKSClusterPolicy"),))
        role = Role(f"{name}-role", f"{section.name}-cluster", grant, tags, within)
        # EKS would make it too, and keep it for ever.
        log = aws.cloudwatch.LogGroup(
            f"{name}-log",
            name=f"/aws/eks/{section.name}/cluster",
            retention_in_days=_RETENTION,
            tags=tags,
            opts=within,
        )
        network: aws.eks.ClusterVpcConfigArgsDict = {
            "subnet_ids": list(section.subnets.values()),
            "endpoint_private_access": True,
            "endpoint_public_access": bool(creation.allow_from),
        }
        if creation.allow_from:
            network["public_access_cidrs"] = list(creation.allow_from)
        self.cluster = aws.eks.Cluster(
            f"{name}-cluster",
            name=section.name,
            version=creation.version,
            role_arn=role.arn,
            vpc_config=network,
            access_config={"authentication_mode": "API", "bootstrap_cluster_creator_admin_permissions": True},
            encryption_config={"resources": ["secrets"], "provider": {"key_arn": self._key(name, fleet, creation)}},
            enabled_cluster_log_types=list(LOGS),
            # Extended support costs six times as much: https://aws.amazon.com/eks/pricing/
            upgrade_policy={"support_type": "STANDARD"},
            # The add-ons below take their place.
            bootstrap_self_managed_addons=False,
            deletion_protection=fleet.protect,
            tags=tags,
            opts=pulumi.ResourceOptions(parent=self, protect=fleet.protect, depends_on=[role, log]),
        )
        self._admins(name, section, creation, tags)
        self.register_outputs({"name": section.name})

    def _key(self, name: str, fleet: Fleet, creation: EksCreation) -> pulumi.Input[str]:
        """The key that encrypts secrets within the control plane: without it a backup of them cannot be read."""
        if creation.secrets_key:
            return creation.secrets_key
        key = aws.kms.Key(
            f"{name}-key",
            description=f"Secrets of the EKS cluster {fleet.environment}",
            enable_key_rotation=True,
            deletion_window_in_days=_WAIT,
            tags=dict(fleet.tags),
            opts=pulumi.ResourceOptions(parent=self, protect=fleet.protect),
        )
        return key.arn

    def _admins(self, name: str, section: AwsCluster, creation: EksCreation, tags: Mapping[str, str]) -> None:
        """Access entries: https://docs.aws.amazon.com/eks/latest/userguide/access-entries.html."""
        within = pulumi.ResourceOptions(parent=self, depends_on=[self.cluster])
        for arn in creation.admins:
            who = arn.partition(":role/")[2]
            entry = aws.eks.AccessEntry(
                f"{name}-{who}", cluster_name=section.name, principal_arn=arn, type="STANDARD", tags=tags, opts=within
            )
            aws.eks.AccessPolicyAssociation(
                f"{name}-{who}-admin",
                cluster_name=section.name,
                principal_arn=arn,
                policy_arn=access_policy(section.region, "AmazonEKSClusterAdminPolicy"),
                access_scope={"type": "cluster"},
                opts=pulumi.ResourceOptions(parent=self, depends_on=[entry]),
            )


class Addons(pulumi.ComponentResource):
    """Add-ons of a created cluster, each at the version that EKS prefers for the cluster's.

    Those that call AWS have an identity of their own, and the node's role needs no right for them.

    Args:
        accounts: the add-ons, each with the service account and the managed policy it needs, or None.
    """

    def __init__(
        self,
        name: str,
        section: AwsCluster,
        accounts: Mapping[str, tuple[str, str] | None],
        tags: Mapping[str, str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:Addons", name, {}, opts)
        self.made: list[pulumi.Resource] = []
        for addon, needs in accounts.items():
            identity: list[aws.eks.AddonPodIdentityAssociationArgsDict] = []
            before: list[pulumi.Resource] = []
            if needs:
                account, policy = needs
                grant = Grant(trust("pods.eks"), managed=(managed_policy(section.region, policy),))
                within = pulumi.ResourceOptions(parent=self)
                role = Role(f"{name}-{addon}-role", f"{section.name}-{account}", grant, tags, within)
                identity.append({"role_arn": role.arn, "service_account": account})
                before.append(role)
            made = aws.eks.Addon(
                f"{name}-{addon}",
                cluster_name=section.name,
                addon_name=addon,
                pod_identity_associations=identity or None,
                resolve_conflicts_on_create="OVERWRITE",
                resolve_conflicts_on_update="OVERWRITE",
                tags=tags,
                opts=pulumi.ResourceOptions(parent=self, depends_on=before),
            )
            self.made.append(made)
        self.register_outputs({})
