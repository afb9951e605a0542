"""IAM roles, and their associations with service accounts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from .context import ClusterContext
from .policies import trust


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


class Role(pulumi.ComponentResource):
    """An IAM role with its policies. Resources that depend on it are created after all policies.

    Role names are unique in an account, so two clusters of one account must have different names in all regions.
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
            aws.iam.RolePolicyAttachment(f"{name}-{name_of(arn)}", role=role.name, policy_arn=arn, opts=within)
        for policy, text in grant.inline.items():
            aws.iam.RolePolicy(f"{name}-{policy}", name=policy, role=role.name, policy=text, opts=within)
        self.arn = role.arn
        self.register_outputs({"arn": self.arn})


class PodRole(pulumi.ComponentResource):
    """A role for the pods of one service account, by EKS Pod Identity. It requires the add-on with the agent.

    https://docs.aws.amazon.com/eks/latest/userguide/pod-identities.html
    """

    def __init__(
        self,
        name: str,
        context: ClusterContext,
        account: str,
        inline: Mapping[str, str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:PodRole", name, {}, opts)
        grant = Grant(trust("pods.eks"), inline=inline)
        role = Role(
            f"{name}-identity", f"{context.name}-{account}", grant, context.tags, pulumi.ResourceOptions(parent=self)
        )
        aws.eks.PodIdentityAssociation(
            f"{name}-association",
            cluster_name=context.name,
            namespace="kube-system",
            service_account=account,
            role_arn=role.arn,
            tags=context.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})
