"""Rules for credentials of nodes, pods and users."""

from collections.abc import Iterator
from typing import Final

from pydantic import Field

from cloud_rules.pools import Cluster, Nodes
from cloud_rules.subjects import CLUSTERS, NODES
from rule_engine import ADVICE, Resource, Settings, Severity, Stack, Subject, rule, typed


class Metadata(Settings):
    """Hop limit of the metadata service."""

    hops: int = Field(
        1, ge=1, description=("Maximum number of hops of a metadata response on AWS; pods are two hops away.")
    )


@rule(
    "imds-v2",
    rationale=(
        "An attacker in one pod gets the permissions of its node: to pull every image, and to call the cloud API as"
        " the node."
    ),
    fix=(
        "AWS: require tokens, and set a hop limit of 1. GKE: set GKE_METADATA, and disable legacy endpoints. Azure"
        " has no such setting."
    ),
    link="https://docs.aws.amazon.com/eks/latest/best-practices/identity-and-access-management.html",
    severity=Severity.HIGH,
    level=ADVICE,
    on=NODES,
)
def imds_v2(nodes: Nodes, settings: Metadata) -> Iterator[str]:
    """Pods must not reach the credentials of their node through the cloud's metadata service."""
    return nodes.metadata(settings.hops)


@rule(
    "workload-identity",
    rationale="Otherwise pods use keys that do not expire, or the permissions of their node.",
    fix="GKE: set workloadIdentityConfig. AKS: enable the OIDC issuer and workload identity.",
    link="https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=CLUSTERS,
)
def workload_identity(cluster: Cluster, _: Settings) -> Iterator[str]:
    """On GKE and AKS, pods must have their own cloud identities."""
    return cluster.identity()


_ADDONS: Final = ("aws:eks/addon:Addon", "aws-native:eks:Addon")
_IDENTITY_TYPES: Final = (
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider",
    "aws-native:iam:OidcProvider",
    "aws:eks/podIdentityAssociation:PodIdentityAssociation",
    "aws-native:eks:PodIdentityAssociation",
    *_ADDONS,
)
_IDENTITIES: Final[Subject[Resource]] = Subject(
    "EKS pod identities", typed(*_IDENTITY_TYPES), lambda resource: [resource]
)


def _gives_identity(resource: Resource) -> bool:
    return resource.type not in _ADDONS or resource.props.text("addonName") == "eks-pod-identity-agent"


@rule(
    "pod-identity",
    rationale="Otherwise pods use keys that do not expire, or the permissions of their node.",
    fix="Add the add-on eks-pod-identity-agent, or the provider for IAM roles for service accounts.",
    link="https://docs.aws.amazon.com/eks/latest/userguide/service-accounts.html",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=CLUSTERS,
)
def pod_identity(cluster: Cluster, _: Settings, stack: Stack) -> Iterator[str]:
    """On EKS, pods must have their own cloud identities: by Pod Identity, or by an OpenID Connect provider."""
    if cluster.cloud != "aws" or cluster.own_nodes:
        return
    if stack.first(_IDENTITIES, _gives_identity) is None:
        yield (
            "the stack has neither the add-on eks-pod-identity-agent nor an OpenID Connect provider for the"
            " cluster, so pods use the node's role; add one of them"
        )


@rule(
    "no-shared-credentials",
    rationale="Use of a shared certificate cannot be attributed to a person, nor revoked for one person.",
    fix="AKS: set disableLocalAccounts. EKS: set authenticationMode API. GKE: issue no client certificate.",
    link="https://learn.microsoft.com/azure/aks/manage-local-accounts-managed-azure-ad",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=CLUSTERS,
)
def no_shared_credentials(cluster: Cluster, _: Settings) -> Iterator[str]:
    """Users must access a cluster with their own cloud identity, not with shared credentials."""
    return cluster.credentials()
