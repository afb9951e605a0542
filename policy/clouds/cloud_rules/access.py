"""Rules for who reaches a cluster, and as whom its pods reach the cloud."""

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Final

from pydantic import Field

from cloud_rules.pools import Cluster
from cloud_rules.subjects import CLUSTERS
from judge import ADVICE, AnyRule, CannotTellError, Resource, Rule, Settings, Severity, Stack, Subject, View, typed


class EndpointSettings(Settings):
    """How much of the internet an allow-list may hold."""

    prefix: int = Field(
        8, ge=1, le=32, description="The shortest prefix of an IPv4 network in an allow-list; of IPv6, four times that."
    )


def _endpoint(cluster: Cluster, settings: EndpointSettings) -> Iterator[str]:
    endpoint = cluster.endpoint
    if not endpoint.public:
        return
    if endpoint.networks is None:
        yield f"its API server answers the whole internet; write {endpoint.write}"
        return
    for each in endpoint.networks:
        if _wide(each, settings.prefix):
            yield f"its API server answers {each.text()}, which is no allow-list; write {endpoint.write}"


def _wide(view: View, prefix: int) -> bool:
    try:
        found = ip_network(view.text(), strict=False)
    except ValueError as error:
        raise CannotTellError(view.path, "is no network") from error
    return found.prefixlen < prefix * (1 if found.version == 4 else 4)  # noqa: PLR2004 - as in IPv4


PRIVATE_ENDPOINT: Final = Rule(
    name="private-endpoint",
    says="A cluster's API server is private, or answers named networks only.",
    why="A stolen kubeconfig works from anywhere, and so does the next hole in the API server.",
    mend="Close the public endpoint, or list the networks that need it.",
    link="https://docs.aws.amazon.com/eks/latest/userguide/cluster-endpoint.html",
    severity=Severity.HIGH,
    level=ADVICE,
    on=CLUSTERS,
    judge=_endpoint,
    settings=EndpointSettings,
)


def _identity(cluster: Cluster, _: Settings) -> Iterator[str]:
    yield from cluster.identity()


WORKLOAD_IDENTITY: Final = Rule(
    name="workload-identity",
    says="Pods have identities of their own in the cloud, on GKE and on AKS.",
    why="Else they use keys that never end, or what their node may do.",
    mend="GKE: workloadIdentityConfig. AKS: the OIDC issuer and workload identity.",
    link="https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=CLUSTERS,
    judge=_identity,
    settings=Settings,
)

_ADDON: Final = "aws:eks/addon:Addon"
_SIGNS: Final = (
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider",
    "aws:eks/podIdentityAssociation:PodIdentityAssociation",
    _ADDON,
)
_IDENTITIES: Final[Subject[Resource]] = Subject("identities of pods on EKS", typed(*_SIGNS), lambda each: [each])


def _is_sign(resource: Resource) -> bool:
    return resource.type != _ADDON or resource.props.text("addonName") == "eks-pod-identity-agent"


def _pod_identity(cluster: Cluster, _: Settings, stack: Stack) -> Iterator[str]:
    if cluster.cloud != "aws" or cluster.own_nodes:
        return
    if stack.first(_IDENTITIES, _is_sign) is None:
        yield (
            "the stack makes neither the add-on eks-pod-identity-agent nor an OpenID Connect provider of the cluster's,"
            " so pods use the node's role; make one of them"
        )


POD_IDENTITY: Final = Rule(
    name="pod-identity",
    says="Pods have identities of their own in the cloud, on EKS: by Pod Identity, or by an OpenID Connect provider.",
    why="Else they use keys that never end, or what their node may do.",
    mend="Make the add-on eks-pod-identity-agent, or the provider for IAM roles of service accounts.",
    link="https://docs.aws.amazon.com/eks/latest/userguide/service-accounts.html",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=CLUSTERS,
    judge=_pod_identity,
    settings=Settings,
    whole=True,
)


def _credentials(cluster: Cluster, _: Settings) -> Iterator[str]:
    yield from cluster.credentials()


NO_SHARED_CREDENTIALS: Final = Rule(
    name="no-shared-credentials",
    says="People reach a cluster by their names in the cloud, by nothing that can be passed on.",
    why="Nobody knows who used a shared certificate, and nobody can take it back from one person.",
    mend="AKS: disableLocalAccounts. EKS: authenticationMode API. GKE: no client certificate.",
    link="https://learn.microsoft.com/azure/aks/manage-local-accounts-managed-azure-ad",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=CLUSTERS,
    judge=_credentials,
    settings=Settings,
)

RULES: Final[tuple[AnyRule, ...]] = (PRIVATE_ENDPOINT, WORKLOAD_IDENTITY, POD_IDENTITY, NO_SHARED_CREDENTIALS)
