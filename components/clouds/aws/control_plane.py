"""A created EKS cluster: control plane and administrators."""

from collections.abc import Sequence
from typing import Final

import pulumi
import pulumi_aws as aws

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.spec.clouds.aws import AwsCluster, EksCreation

from .access import access_entry
from .addons import reached_version
from .identity import Grant, Role
from .policies import access_policy, managed_policy, trust

LOGS: Final = ("api", "audit", "authenticator")
"""Control plane logs for auditing; those of the scheduler and the controller manager are not enabled."""
_RETENTION: Final = 365
_WAIT: Final = 30
"""Days: log retention, and the period in which the deletion of a key can be cancelled."""


class ControlPlane(pulumi.ComponentResource):
    """The control plane of an EKS cluster, with its secrets encryption key, audit log and administrators.

    Its subnets need access to the AWS APIs and to images, through NAT or VPC endpoints
    (https://docs.aws.amazon.com/eks/latest/userguide/private-clusters.html). A private API server is reachable only
    from that network, so the deployment must run there.

    Attributes:
        access: rights of the administrators; objects in the cluster depend on them, because they are the deployment's.
        version: Kubernetes version, known when the control plane has it.

    Raises:
        TypeError: the stack names an existing cluster.
    """

    def __init__(
        self,
        name: str,
        plan: ClusterPlan,
        section: AwsCluster,
        subnets: Sequence[pulumi.Input[str]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        creation = section.create
        if creation is None:
            msg = f"cluster {section.name} exists"
            raise TypeError(msg)
        super().__init__("gpu-tenancy:clouds:ControlPlane", name, {}, opts)
        within, tags = pulumi.ResourceOptions(parent=self), dict(plan.tags)
        grant = Grant(trust("eks"), managed=(managed_policy(section.region, "AmazonEKSClusterPolicy"),))
        role = Role(f"{name}-role", f"{section.name}-cluster", grant, tags, within)
        log = self._log(f"{name}-log", section, tags)
        network: aws.eks.ClusterVpcConfigArgsDict = {
            "subnet_ids": list(creation.subnets.values() or subnets),
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
            # The creator's own entry would conflict with an explicit one for the same role.
            access_config={"authentication_mode": "API", "bootstrap_cluster_creator_admin_permissions": False},
            encryption_config={"resources": ["secrets"], "provider": {"key_arn": self._key(name, plan, creation)}},
            enabled_cluster_log_types=list(LOGS),
            # Extended support costs six times as much: https://aws.amazon.com/eks/pricing/
            upgrade_policy={"support_type": creation.support.upper()},
            # `Addons` installs managed add-ons instead.
            bootstrap_self_managed_addons=False,
            deletion_protection=plan.protect,
            tags=tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=plan.protect,
                depends_on=[role, log],
                # Only used on creation; a change would replace a cluster that was created with `true`.
                ignore_changes=["accessConfig.bootstrapClusterCreatorAdminPermissions"],
            ),
        )
        self.access = self._admins(name, plan, section, creation)
        # The ARN is known only of a cluster that exists.
        self.version = pulumi.Output.all(self.cluster.version, self.cluster.arn).apply(reached_version)
        self.register_outputs({"name": section.name})

    def _log(self, name: str, section: AwsCluster, tags: dict[str, str]) -> aws.cloudwatch.LogGroup:
        """The log group of the cluster; otherwise EKS creates it, with unlimited retention.

        It stays when the stack is destroyed, with the audit log: EKS would create it again for its last entries,
        https://github.com/terraform-aws-modules/terraform-aws-eks/issues/2763. A cluster with the same name takes it
        over. Its tags are those of its creation, because Pulumi takes over only what has the same properties.
        """
        group = f"/aws/eks/{section.name}/cluster"
        listing = pulumi.InvokeOptions(parent=self)
        existing = aws.cloudwatch.get_log_groups(log_group_name_prefix=group, opts=listing).log_group_names
        return aws.cloudwatch.LogGroup(
            name,
            name=group,
            retention_in_days=_RETENTION,
            tags=tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                retain_on_delete=True,
                ignore_changes=["tags", "tagsAll"],
                import_=group if group in existing else None,  # without effect where the state has it
            ),
        )

    def _key(self, name: str, plan: ClusterPlan, creation: EksCreation) -> pulumi.Input[str]:
        """The KMS key that encrypts secrets.

        It stays when the stack is destroyed or names another key: EKS goes on using the key of the cluster's creation,
        and backups cannot be decrypted without it.
        """
        if creation.secrets_key:
            return creation.secrets_key
        key = aws.kms.Key(
            f"{name}-key",
            description=f"Secrets of the EKS cluster {plan.environment}",
            enable_key_rotation=True,
            deletion_window_in_days=_WAIT,
            tags=dict(plan.tags),
            opts=pulumi.ResourceOptions(parent=self, protect=plan.protect, retain_on_delete=True),
        )
        return key.arn

    def _admins(
        self, name: str, plan: ClusterPlan, section: AwsCluster, creation: EksCreation
    ) -> list[pulumi.Resource]:
        """Access entries of administrators, with the policy that makes them so."""
        within = pulumi.ResourceOptions(parent=self, depends_on=[self.cluster])
        associations: list[pulumi.Resource] = []
        for arn in creation.admins:
            who = arn.partition(":role/")[2]
            entry = access_entry(f"{name}-{who}", plan, section, arn, within)
            association = aws.eks.AccessPolicyAssociation(
                f"{name}-{who}-admin",
                cluster_name=section.name,
                principal_arn=arn,
                policy_arn=access_policy(section.region, "AmazonEKSClusterAdminPolicy"),
                access_scope={"type": "cluster"},
                opts=pulumi.ResourceOptions(parent=self, depends_on=[entry]),
            )
            associations.append(association)
        return associations
