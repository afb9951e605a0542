"""IAM roles, their associations with service accounts, and access to EKS clusters.

https://docs.aws.amazon.com/eks/latest/userguide/access-entries.html
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions
from pulumi_aws.eks.outputs import ClusterCertificateAuthority, ClusterIdentity

from gpu_tenancy.model.kubeconfig import Server, eks_helper, of_helper
from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.plan.people import group_of
from gpu_tenancy.model.plan.secrets import READER
from gpu_tenancy.model.spec.clouds.aws import AwsCluster
from gpu_tenancy.model.spec.people import Person

from ...objects import Component, Options
from .nodes import ClusterContext
from .policies import AUDIENCE, account_trust, ci_policy, ci_trust, secrets_policy, trust


@dataclass(frozen=True, slots=True)
class Grant:
    """The policies of a role.

    Attributes:
        trust: the trust policy: who can assume the role; late if it names an issuer that the cloud decides.
        managed: ARNs of AWS managed policies.
        inline: inline policy documents by name, with at most 10,240 characters in total:
            https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
    """

    trust: pulumi.Input[str]
    managed: Sequence[str] = ()
    inline: Mapping[str, str] = field(default_factory=dict[str, str])


def name_of(arn: str) -> str:
    """The name or ID, without its path, at the end of an ARN. A preview without the cloud invents IDs, but no ARNs."""
    return arn.rpartition("/")[2]


class Role(Component):
    """An IAM role with its policies. Resources that depend on it are created after all policies.

    Role names are unique in an account, so two clusters of one account must have different names in all regions.
    """

    def __init__(self, name: str, role_name: str, grant: Grant, tags: Mapping[str, str], opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:Role", name, opts)
        role = aws.iam.Role(f"{name}-role", name=role_name, assume_role_policy=grant.trust, tags=tags, opts=self.own)
        for arn in grant.managed:
            aws.iam.RolePolicyAttachment(f"{name}-{name_of(arn)}", role=role.name, policy_arn=arn, opts=self.own)
        for policy, text in grant.inline.items():
            aws.iam.RolePolicy(f"{name}-{policy}", name=policy, role=role.name, policy=text, opts=self.own)
        self.arn = role.arn
        self.register_outputs({"arn": self.arn})


class PodRole(Component):
    """A role for the pods of one service account, by EKS Pod Identity. It requires the add-on with the agent.

    https://docs.aws.amazon.com/eks/latest/userguide/pod-identities.html
    """

    def __init__(
        self, name: str, context: ClusterContext, account: str, inline: Mapping[str, str], opts: Options = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:PodRole", name, opts)
        grant = Grant(trust("pods.eks"), inline=inline)
        role = Role(f"{name}-identity", f"{context.name}-{account}", grant, context.tags, self.own)
        aws.eks.PodIdentityAssociation(
            f"{name}-association",
            cluster_name=context.name,
            namespace="kube-system",
            service_account=account,
            role_arn=role.arn,
            tags=context.tags,
            opts=self.own,
        )
        self.register_outputs({})


def certificate(authority: ClusterCertificateAuthority) -> str:
    """The CA certificate of the API server, in base64."""
    return authority.data or ""


def kubeconfig(parts: Sequence[str]) -> str:
    """A kubeconfig without credentials: the AWS CLI creates a token for each use.

    Args:
        parts: URL of the API server, its CA certificate, name and region of the cluster.
    """
    endpoint, authority, name, region = parts
    return json.dumps(of_helper(Server(name, endpoint, authority), eks_helper(name, region)))


def access_entry(name: str, plan: ClusterPlan, cluster: str, arn: str, opts: ResourceOptions) -> aws.eks.AccessEntry:
    """The entry of an IAM role or user: EKS accepts one for each, so administrators who are people have both rights."""
    return _entry(name, plan, (arn, [who for who in plan.people if who.name == arn]), cluster, opts)


def _entry(
    name: str,
    plan: ClusterPlan,
    principal: tuple[pulumi.Input[str], Sequence[Person]],
    cluster: str,
    opts: ResourceOptions,
) -> aws.eks.AccessEntry:
    """The entry of an ARN, with the groups of whom it is.

    A group has no rights by itself: the RoleBindings of the stack name it.
    """
    arn, people = principal
    return aws.eks.AccessEntry(
        name,
        cluster_name=cluster,
        principal_arn=arn,
        type="STANDARD",
        kubernetes_groups=[group_of(who) for who in people] or None,
        tags=dict(plan.tags),
        opts=opts,
    )


def people_entries(name: str, plan: ClusterPlan, section: AwsCluster, opts: ResourceOptions) -> None:
    """The entries of people who are not administrators in the cluster's section; those have one already.

    Without policies of EKS: what people may do is decided by Kubernetes RBAC.
    """
    admins = section.create.admins if section.create else []
    for who in plan.people:
        if who.name not in admins:
            access_entry(f"{name}-{who.name.partition('::')[2]}", plan, section.name, who.name, opts)


def ci_entries(name: str, plan: ClusterPlan, section: AwsCluster, opts: ResourceOptions) -> None:
    """The IAM roles that CI jobs assume with their own tokens, and the entries of these roles.

    The account's OIDC provider of the CI system is not created here, because an account has one for all stacks.
    """
    for account in plan.service_accounts:
        own = f"{name}-{account.team}.{account.name}"
        grant = Grant(ci_trust(section, account.subject or ""), inline={"cluster": ci_policy(section)})
        role = Role(f"{own}-role", section.identity_name(account.team, account.name), grant, plan.tags, opts)
        people = [account.identity] if account.identity else []
        _entry(f"{own}-entry", plan, (role.arn, people), section.name, opts)


class SecretReaders(Component):
    """The roles of all teams that read secrets of AWS Secrets Manager.

    The secrets are not created here. A role does not get the right to decrypt with a key of KMS that is not AWS's own:
    its owner must allow it. IAM must know the issuer of the cluster's tokens: for a created cluster it is registered
    here, an existing one must have its IAM OIDC provider.

    Attributes:
        arns: of the roles, by their names in the plan.
    """

    def __init__(
        self, name: str, plan: ClusterPlan, section: AwsCluster, cluster: aws.eks.Cluster, opts: Options = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:SecretReaders", name, opts)
        issuer = cluster.identities.apply(issuer_of)
        invoke = pulumi.InvokeOutputOptions(parent=self)
        provider: pulumi.Output[str] = (
            aws.iam.OpenIdConnectProvider(
                f"{name}-issuer", url=issuer, client_id_lists=[AUDIENCE], tags=plan.tags, opts=self.own
            ).arn
            if section.create
            else aws.iam.get_open_id_connect_provider_output(url=issuer, opts=invoke).arn
        )
        self.arns: dict[str, pulumi.Output[str]] = {}
        for reader in plan.readers:
            trusted = pulumi.Output.all(provider, issuer, reader.team).apply(_trusts_reader)
            grant = Grant(trusted, inline={"secrets": secrets_policy(reader.secrets, section.region)})
            role = Role(f"{name}-{reader.team}", section.reader_name(reader.team), grant, plan.tags, self.own)
            self.arns |= dict.fromkeys(reader.annotations.values(), role.arn)
        self.register_outputs({})


def _trusts_reader(parts: Sequence[str]) -> str:
    provider, issuer, team = parts
    return account_trust(provider, issuer, team, READER)


def issuer_of(identities: Sequence[ClusterIdentity]) -> str:
    """URL of the issuer of a cluster's tokens."""
    return next((one.issuer or "" for identity in identities for one in identity.oidcs or []), "")
