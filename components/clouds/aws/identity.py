"""Roles that are made here, and the pods that are given one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from .home import Home
from .policies import trust


@dataclass(frozen=True, slots=True)
class Grant:
    """What a role is for.

    Attributes:
        trust: policy document of who may become it.
        managed: ARNs of policies that AWS keeps.
        inline: policy documents of its own, by name; 10240 characters together at most:
            https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
    """

    trust: str
    managed: Sequence[str] = ()
    inline: Mapping[str, str] = field(default_factory=dict[str, str])


class Role(pulumi.ComponentResource):
    """An IAM role with its policies; what depends on it waits for all of them, and goes before them.

    Roles are of the whole account, so clusters of one name in two regions of an account would want the same ones.
    """

    def __init__(
        self,
        name: str,
        role_name: str,
        grant: Grant,
        tags: Mapping[str, str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:Role", name, {}, opts)
        within = pulumi.ResourceOptions(parent=self)
        role = aws.iam.Role(f"{name}-role", name=role_name, assume_role_policy=grant.trust, tags=tags, opts=within)
        for arn in grant.managed:
            policy = arn.rpartition("/")[2]
            aws.iam.RolePolicyAttachment(f"{name}-{policy}", role=role.name, policy_arn=arn, opts=within)
        for policy, text in grant.inline.items():
            aws.iam.RolePolicy(f"{name}-{policy}", name=policy, role=role.name, policy=text, opts=within)
        self.arn = role.arn
        self.register_outputs({"arn": self.arn})


class PodRole(pulumi.ComponentResource):
    """A role for the pods of one service account, by EKS Pod Identity. The agent that hands it out is an add-on.

    https://docs.aws.amazon.com/eks/latest/userguide/pod-identities.html
    """

    def __init__(
        self,
        name: str,
        home: Home,
        account: str,
        inline: Mapping[str, str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:PodRole", name, {}, opts)
        grant = Grant(trust("pods.eks"), inline=inline)
        role = Role(f"{name}-identity", f"{home.name}-{account}", grant, home.tags, pulumi.ResourceOptions(parent=self))
        aws.eks.PodIdentityAssociation(
            f"{name}-association",
            cluster_name=home.name,
            namespace="kube-system",
            service_account=account,
            role_arn=role.arn,
            tags=home.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})
