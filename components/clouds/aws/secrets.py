"""IAM roles that read the secrets of teams, by the tokens of a ServiceAccount of the team.

Not EKS Pod Identity, which gives credentials to pods only: External Secrets requests tokens of the team's account, and
its own pod has no rights (https://docs.aws.amazon.com/eks/latest/userguide/iam-roles-for-service-accounts.html).
"""

from collections.abc import Callable, Sequence

import pulumi
import pulumi_aws as aws
from pulumi_aws.eks.outputs import ClusterIdentity

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.plan.secrets import READER, SecretReader
from gpu_tenancy.model.spec.clouds.aws import AwsCluster

from .identity import Grant, Role
from .policies import AUDIENCE, account_trust, secrets_policy


class SecretReaders(pulumi.ComponentResource):
    """The roles of all teams that read secrets of AWS Secrets Manager.

    The secrets are not created here. A role does not get the right to decrypt with a key of KMS that is not AWS's own:
    its owner must allow it. IAM must know the issuer of the cluster's tokens: for a created cluster it is registered
    here, an existing one must have its IAM OIDC provider.

    Attributes:
        arns: of the roles, by their names in the plan.
    """

    def __init__(
        self,
        name: str,
        plan: ClusterPlan,
        section: AwsCluster,
        cluster: aws.eks.Cluster,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:SecretReaders", name, {}, opts)
        within = pulumi.ResourceOptions(parent=self)
        issuer = cluster.identities.apply(issuer_of)
        provider: pulumi.Output[str] = (
            aws.iam.OpenIdConnectProvider(
                f"{name}-issuer", url=issuer, client_id_lists=[AUDIENCE], tags=plan.tags, opts=within
            ).arn
            if section.create
            else aws.iam.get_open_id_connect_provider_output(
                url=issuer, opts=pulumi.InvokeOutputOptions(parent=self)
            ).arn
        )
        self.arns: dict[str, pulumi.Output[str]] = {}
        for reader in plan.readers:
            grant = Grant(
                pulumi.Output.all(provider, issuer).apply(_trusting(reader)),
                inline={"secrets": secrets_policy(reader.secrets, section.region)},
            )
            role = Role(f"{name}-{reader.team}", section.reader_name(reader.team), grant, plan.tags, within)
            self.arns |= dict.fromkeys(reader.annotations.values(), role.arn)
        self.register_outputs({})


def _trusting(reader: SecretReader) -> Callable[[list[str]], str]:
    return lambda parts: account_trust(parts[0], parts[1], reader.team, READER)


def issuer_of(identities: Sequence[ClusterIdentity]) -> str:
    """URL of the issuer of a cluster's tokens."""
    return next((one.issuer or "" for identity in identities for one in identity.oidcs or []), "")
