"""Rules for access to API servers, and for cloud identities of pods."""

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Final

from pydantic import Field

from cloud_rules.pools import Cluster
from cloud_rules.subjects import CLUSTERS
from rule_engine import (
    ADVICE,
    Resource,
    Settings,
    Severity,
    Stack,
    Subject,
    UnknownValueError,
    UnknownValues,
    View,
    rule,
    typed,
)

_ADDRESS_BITS: Final = {4: 32, 6: 128}
_WIDER_IN_IPV6: Final = 4
"""A prefix of 8 in IPv4 corresponds to 32 in IPv6: 128 bits instead of 32."""


class EndpointSettings(Settings):
    """Maximum size of networks in an allow-list."""

    prefix: int = Field(
        8,
        ge=1,
        le=32,
        description=("Shortest allowed prefix of an IPv4 network in an allow-list; for IPv6, four times this value."),
    )
    total: int = Field(
        6,
        ge=1,
        le=32,
        description=(
            "Maximum number of addresses of an allow-list, as the prefix of one IPv4 network with as many (`6`: as many"
            " as four `/8` networks); for IPv6, four times this value. A shorter `prefix` counts instead."
        ),
    )


def _open_networks(cluster: Cluster, settings: EndpointSettings) -> Iterator[str]:
    endpoint = cluster.endpoint
    if not endpoint.public:
        return
    if endpoint.networks is None:
        yield f"the API server is reachable from the whole internet; set {endpoint.write}"
        return
    narrow: list[IPv4Network | IPv6Network] = []
    unknown_values = UnknownValues()
    for view in endpoint.networks:
        with unknown_values.collected():
            network = _network(view)
            if network.prefixlen < _prefix(settings.prefix, network.version):
                yield f"the API server accepts {view.text()}, which is too wide for an allow-list; set {endpoint.write}"
            else:
                narrow.append(network)
    for sum_ in _sums(narrow, min(settings.prefix, settings.total)):
        yield f"the API server accepts {sum_}, which is too wide for an allow-list; set {endpoint.write}"
    unknown_values.raise_first()


def _network(view: View) -> IPv4Network | IPv6Network:
    try:
        return ip_network(view.text(), strict=False)
    except ValueError as error:
        raise UnknownValueError(view.path, "is not a network") from error


def _prefix(prefix: int, version: int) -> int:
    return prefix if version == 4 else prefix * _WIDER_IN_IPV6  # noqa: PLR2004 - as in IPv4


def _sums(networks: list[IPv4Network | IPv6Network], prefix: int) -> Iterator[str]:
    """The networks of each IP version that have more addresses together than one network with this prefix.

    Addresses of networks that overlap count once.
    """
    versions: tuple[Iterator[IPv4Network] | Iterator[IPv6Network], ...] = (
        collapse_addresses(network for network in networks if isinstance(network, IPv4Network)),
        collapse_addresses(network for network in networks if isinstance(network, IPv6Network)),
    )
    for version, collapsed in zip(_ADDRESS_BITS, versions, strict=True):
        count = sum(1 for network in networks if network.version == version)
        addresses = sum(network.num_addresses for network in collapsed)
        if addresses > 2 ** (_ADDRESS_BITS[version] - _prefix(prefix, version)):
            yield f"{count} networks with {addresses:,} IPv{version} addresses together"


@rule(
    "private-endpoint",
    rationale=(
        "Otherwise a stolen kubeconfig works from anywhere, and a vulnerability of the API server can be used from"
        " anywhere."
    ),
    fix="Disable the public endpoint, or list the networks that need it.",
    link="https://docs.aws.amazon.com/eks/latest/userguide/cluster-endpoint.html",
    severity=Severity.HIGH,
    level=ADVICE,
    on=CLUSTERS,
)
def private_endpoint(cluster: Cluster, settings: EndpointSettings) -> Iterator[str]:
    """A cluster's API server must be private, or accept only listed networks."""
    unknown_values = UnknownValues()
    for messages in (cluster.other_access(), _open_networks(cluster, settings)):
        with unknown_values.collected():
            yield from messages
    unknown_values.raise_first()


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
