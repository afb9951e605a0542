"""A created EKS cluster: network, control plane, administrators and add-ons; Helm releases in kube-system."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgsDict
from pydantic import BaseModel, ConfigDict, TypeAdapter

from gpu_tenancy.model.catalogue.releases import cloud_charts
from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.spec.clouds.aws import LUSTRE_TAG, AddonName, AwsCluster, EksCreation
from gpu_tenancy.model.yaml import read_table

from ...objects import Component, Options
from .. import once_there
from .identity import Grant, Role, access_entry
from .nodes import ClusterContext
from .policies import access_policy, managed_policy, trust, written_policy

LOGS: Final = ("api", "audit", "authenticator")  # control plane logs for auditing, without scheduler and controllers
_RETENTION: Final = 365
_WAIT: Final = 30  # days of log retention, and until a deleted key is gone
_PARTS: Final = 3  # bits of the part of each zone: an eighth of the addresses


class Network(Component):
    """A VPC with a private subnet in each zone, and egress through one NAT gateway.

    The NAT gateway is regional: it needs no public subnet, and is in each zone that has nodes, also if one zone fails
    (https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateways-regional.html). Nothing has a public address. S3,
    which also has the layers of images in ECR, is reached through a gateway endpoint at no cost
    (https://docs.aws.amazon.com/vpc/latest/privatelink/vpc-endpoints-s3.html); the NAT gateway replaces interface
    endpoints. `subnets` are ids by zone, known once the subnet has its route, so that nodes start with egress.
    """

    def __init__(
        self, name: str, plan: ClusterPlan, section: AwsCluster, creation: EksCreation, opts: Options = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:EksNetwork", name, opts)
        kept = ResourceOptions(parent=self, protect=plan.protect)
        tags = {**plan.tags, "Name": section.name}
        vpc = aws.ec2.Vpc(
            f"{name}-vpc",
            cidr_block=str(creation.network_addresses),
            # EKS requires both: https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html
            enable_dns_hostnames=True,
            enable_dns_support=True,
            tags=tags,
            opts=kept,
        )
        gateway = aws.ec2.InternetGateway(f"{name}-internet", vpc_id=vpc.id, tags=tags, opts=self.own)
        nat = aws.ec2.NatGateway(
            f"{name}-nat",
            availability_mode="regional",
            vpc_id=vpc.id,
            tags=tags,
            opts=ResourceOptions(parent=self, protect=plan.protect, depends_on=[gateway]),
        )
        routes = aws.ec2.RouteTable(f"{name}-routes", vpc_id=vpc.id, tags=tags, opts=self.own)
        egress = aws.ec2.Route(
            f"{name}-egress",
            route_table_id=routes.id,
            destination_cidr_block="0.0.0.0/0",
            nat_gateway_id=nat.id,
            opts=self.own,
        )
        aws.ec2.VpcEndpoint(
            f"{name}-s3",
            vpc_id=vpc.id,
            service_name=f"com.amazonaws.{section.region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=[routes.id],
            tags=tags,
            opts=self.own,
        )
        parts = creation.network_addresses.subnets(prefixlen_diff=_PARTS)
        self.subnets: dict[str, pulumi.Input[str]] = {}
        for zone, part in zip(creation.zones, parts, strict=False):
            subnet = aws.ec2.Subnet(
                f"{name}-{zone}",
                vpc_id=vpc.id,
                availability_zone=zone,
                cidr_block=str(part),
                # Internal load balancers of Services: https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html
                tags={**tags, "Name": f"{section.name}-{zone}", "kubernetes.io/role/internal-elb": "1"},
                opts=kept,
            )
            routed = aws.ec2.RouteTableAssociation(
                f"{name}-{zone}-routes", subnet_id=subnet.id, route_table_id=routes.id, opts=self.own
            )
            self.subnets[zone] = once_there(subnet.id, routed.id, egress.id)


class ControlPlane(Component):
    """A created EKS control plane with key, audit log and administrators; raises TypeError for an existing cluster.

    Its subnets need access to the AWS APIs and to images, through NAT or VPC endpoints
    (https://docs.aws.amazon.com/eks/latest/userguide/private-clusters.html). A private API server is reachable only
    from that network, so the deployment must run there. Objects in the cluster depend on `access`, the rights of the
    administrators, because the deployment uses them. `version` is known when the control plane has it.
    """

    def __init__(
        self,
        name: str,
        plan: ClusterPlan,
        section: AwsCluster,
        subnets: Mapping[str, pulumi.Input[str]],
        opts: Options = None,
    ) -> None:
        creation = section.create
        if creation is None:
            raise TypeError(f"cluster {section.name} exists")
        super().__init__("gpu-tenancy:clouds:ControlPlane", name, opts)
        tags = dict(plan.tags)
        grant = Grant(trust("eks"), managed=(managed_policy(section.region, "AmazonEKSClusterPolicy"),))
        role = Role(f"{name}-role", f"{section.name}-cluster", grant, tags, self.own)
        log = self._log(f"{name}-log", section, tags)
        network: aws.eks.ClusterVpcConfigArgsDict = {
            "subnet_ids": list(creation.subnets.values() or (subnets[zone] for zone in section.zonal)),
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
            opts=ResourceOptions(
                parent=self,
                protect=plan.protect,
                depends_on=[role, log],
                # Only used on creation; a change would replace a cluster that was created with `true`.
                ignore_changes=["accessConfig.bootstrapClusterCreatorAdminPermissions"],
            ),
        )
        self.access: list[pulumi.Resource] = []
        for arn in creation.admins:
            who = arn.partition(":role/")[2]
            entry = access_entry(f"{name}-{who}", plan, section.name, arn, self.after(self.cluster))
            association = aws.eks.AccessPolicyAssociation(
                f"{name}-{who}-admin",
                cluster_name=section.name,
                principal_arn=arn,
                policy_arn=access_policy(section.region, "AmazonEKSClusterAdminPolicy"),
                access_scope={"type": "cluster"},
                opts=self.after(entry),
            )
            self.access.append(association)
        # The ARN is known only of a cluster that exists.
        self.version = once_there(self.cluster.version, self.cluster.arn)

    def _log(self, name: str, section: AwsCluster, tags: dict[str, str]) -> aws.cloudwatch.LogGroup:
        """The log group of the cluster; otherwise EKS creates it, with unlimited retention."""
        # It stays when the stack is destroyed, with the audit log: EKS would create it again for its last entries,
        # https://github.com/terraform-aws-modules/terraform-aws-eks/issues/2763. A cluster with the same name takes it
        # over, with the tags of its creation: Pulumi takes over only equal properties.
        group = f"/aws/eks/{section.name}/cluster"
        listing = pulumi.InvokeOptions(parent=self)
        existing = aws.cloudwatch.get_log_groups(log_group_name_prefix=group, opts=listing).log_group_names
        return aws.cloudwatch.LogGroup(
            name,
            name=group,
            retention_in_days=_RETENTION,
            tags=tags,
            opts=ResourceOptions(
                parent=self,
                retain_on_delete=True,
                ignore_changes=["tags", "tagsAll"],
                import_=group if group in existing else None,  # without effect where the state has it
            ),
        )

    def _key(self, name: str, plan: ClusterPlan, creation: EksCreation) -> pulumi.Input[str]:
        """The KMS key that encrypts secrets. It is kept: EKS never changes a cluster's key, and backups need it."""
        if creation.secrets_key:
            return creation.secrets_key
        key = aws.kms.Key(
            f"{name}-key",
            description=f"Secrets of the EKS cluster {plan.environment}",
            enable_key_rotation=True,
            deletion_window_in_days=_WAIT,
            tags=dict(plan.tags),
            opts=self.kept(protect=plan.protect),
        )
        return key.arn


NAMESPACE: Final = "kube-system"
_RELEASE_SECONDS: Final = 600


def release(name: str, chart: str, values: Mapping[str, object], opts: ResourceOptions) -> Release:
    """A release of a catalogue chart: Pulumi waits until it is ready, and a failed release is rolled back."""
    # Definitions are not taken from a chart's `crds` folder, which Helm installs once and never updates.
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
        timeout=_RELEASE_SECONDS,
        opts=opts,
    )


class Addon(BaseModel):
    """An add-on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    account: str | None = None  # the service account with which it calls AWS; None if it does not
    policy: str | None = None  # the managed policy of that account, with the path of its ARN
    values: Mapping[str, Any] | None = None  # in the add-on's own schema (`aws eks describe-addon-configuration`)
    document: str | None = None  # the name of one in `policies.yaml`, if no managed policy is as narrow


ADDONS: Final[Mapping[str, Mapping[AddonName, Addon]]] = TypeAdapter(dict[str, dict[AddonName, Addon]]).validate_python(
    read_table(Path(__file__).with_name("addons.yaml"))
)
"""Add-ons by the ends of their resources' names: add-ons that nodes need, add-ons on nodes, and drivers of data."""


class Addons(Component):
    """Add-ons of a created cluster, in EKS's default version for the cluster's version, or as the stack pins it.

    The version is asked when the control plane has its version, so an upgrade updates add-ons after the control plane.
    EKS does not update them: https://docs.aws.amazon.com/eks/latest/userguide/updating-an-add-on.html. Add-ons that
    call AWS have their own IAM role, so the node role needs no permissions for them.
    """

    def __init__(
        self, name: str, context: ClusterContext, kind: str, version: pulumi.Output[str], opts: Options = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:Addons", name, opts)
        self._context, self._kubernetes_version = context, version
        self.resources: list[pulumi.Resource] = [
            self._addon(f"{name}-{addon}", addon, needs) for addon, needs in ADDONS[kind].items()
        ]

    def _addon(self, name: str, addon: AddonName, needs: Addon) -> aws.eks.Addon:
        context = self._context
        identity: list[aws.eks.AddonPodIdentityAssociationArgsDict] = []
        roles: list[pulumi.Resource] = []
        if needs.account and (needs.policy or needs.document):
            managed = [managed_policy(context.section.region, needs.policy)] if needs.policy else []
            inline: dict[str, str] = {}
            if needs.document:
                inline["driver"] = written_policy(needs.document, "", cluster=context.name, tag=LUSTRE_TAG)
            grant = Grant(trust("pods.eks"), managed, inline)
            role = Role(f"{name}-role", f"{context.name}-{needs.account}", grant, context.tags, self.own)
            identity.append({"role_arn": role.arn, "service_account": needs.account})
            roles.append(role)
        creation = context.section.create
        version: pulumi.Input[str]
        if creation and addon in creation.addons:
            version = creation.addons[addon]
        else:
            invoke, kubernetes = pulumi.InvokeOutputOptions(parent=self), self._kubernetes_version
            asked = aws.eks.get_addon_version_output(addon_name=addon, kubernetes_version=kubernetes, opts=invoke)
            version = asked.version
        return aws.eks.Addon(
            name,
            cluster_name=context.name,
            addon_name=addon,
            addon_version=version,
            configuration_values=json.dumps(needs.values, sort_keys=True) if needs.values else None,
            pod_identity_associations=identity or None,
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            tags=context.tags,
            opts=self.after(*roles),
        )
