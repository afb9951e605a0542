"""Cases for `cloud_rules.access`."""

from dataclasses import replace
from typing import Final

from policy_builders import GONE, UNKNOWN, Break, Case, Sample

from cases.clouds import AKS, EKS, GKE
from cloud_rules import access

CLUSTERS: Final = {"eks": EKS, "gke": GKE, "aks": AKS}
_ALL: Final = "the API server is reachable from the whole internet; set "
_SOME: Final = "the API server accepts {}, which is too wide for an allow-list; set {}"
_EKS: Final = "vpcConfig.endpointPublicAccess: false, or list the required networks under vpcConfig.publicAccessCidrs"
_GKE: Final = (
    "privateClusterConfig.enablePrivateEndpoint: true, or list the required networks under"
    " masterAuthorizedNetworksConfig.cidrBlocks"
)
_AKS: Final = (
    "apiServerAccessProfile.enablePrivateCluster: true, or list the required networks under"
    " apiServerAccessProfile.authorizedIPRanges"
)
_TOGETHER: Final = "the API server accepts {}, which is too wide for an allow-list; set {}"
_GOOGLE: Final = (
    "Cluster gke: the API server accepts all public addresses of Google Cloud, which its other customers have too; set"
    " masterAuthorizedNetworksConfig.gcpPublicCidrsAccessEnabled: false"
)
_DNS: Final = (
    "Cluster gke: the DNS endpoint of the API server accepts {} of Kubernetes from the whole internet, without a"
    " permission of IAM; set controlPlaneEndpointsConfig.dnsEndpointConfig.{}: false"
)
_OPEN: Final = {"endpointPublicAccess": True, "publicAccessCidrs": ["203.0.113.0/24", "0.0.0.0/0"]}
_BLOCK: Final = "gke: masterAuthorizedNetworksConfig.cidrBlocks.0.cidrBlock"
_ADDON: Final = Sample("aws:eks/addon:Addon", {"clusterName": "ml", "addonName": "eks-pod-identity-agent"}, "agent")
_ISSUER: Final = Sample("aws:iam/openIdConnectProvider:OpenIdConnectProvider", {"url": UNKNOWN}, "issuer")
_NO_IDENTITY: Final = (
    "Cluster eks: the stack has neither the add-on eks-pod-identity-agent nor an OpenID Connect provider for the"
    " cluster, so pods use the node's role; add one of them"
)
_CONFIG_MAP: Final = (
    "Cluster eks: authenticationMode is {}, so access is granted by the ConfigMap aws-auth, whose changes IAM does"
    " not log; set accessConfig.authenticationMode: API"
)

CASES: Final = (
    Case(
        name="API servers of three clouds",
        rule=access.private_endpoint,
        given=CLUSTERS,
        also=[
            (
                "eks: vpcConfig",
                {"endpointPublicAccess": True, "publicAccessCidrs": ["203.0.113.0/24", "2001:db8::/32"]},
            ),
            ("eks: vpcConfig.subnetIds.0", UNKNOWN),
            ("eks: vpcConfig.publicAccessCidrs", UNKNOWN),
            ("gke: masterAuthorizedNetworksConfig", {}),
            ("gke", replace(GKE, props={"privateClusterConfig": {"enablePrivateEndpoint": True}})),
            ("gke", replace(GKE, props={"controlPlaneEndpointsConfig": {"ipEndpointsConfig": {"enabled": False}}})),
            ("gke: masterAuthorizedNetworksConfig.gcpPublicCidrsAccessEnabled", False),
            ("gke: controlPlaneEndpointsConfig", {"dnsEndpointConfig": {"enableK8sTokensViaDns": True}}),
            ("gke: controlPlaneEndpointsConfig", {"dnsEndpointConfig": {"allowExternalTraffic": True}}),
            # Networks that overlap count once.
            ("aks: apiServerAccessProfile", {"authorizedIPRanges": ["10.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9"] * 9}),
            ("aks: apiServerAccessProfile", {"authorizedIPRanges": ["203.0.113.7"]}),
            ("aks", replace(AKS, props={"publicNetworkAccess": "Disabled"})),
            ("aks", replace(AKS, props={})),
        ],
        breaks=[
            Break("eks: vpcConfig", {}, f"Cluster eks: {_ALL}{_EKS}"),
            Break("eks: vpcConfig", _OPEN, f"Cluster eks: {_SOME.format('0.0.0.0/0', _EKS)}"),
            Break("gke: masterAuthorizedNetworksConfig", GONE, f"Cluster gke: {_ALL}{_GKE}"),
            Break(_BLOCK, "128.0.0.0/1", f"Cluster gke: {_SOME.format('128.0.0.0/1', _GKE)}"),
            Break(_BLOCK, "::/0", f"Cluster gke: {_SOME.format('::/0', _GKE)}"),
            Break("aks: apiServerAccessProfile", GONE, f"ManagedCluster aks: {_ALL}{_AKS}"),
            Break(
                "aks: apiServerAccessProfile",
                {"authorizedIPRanges": [f"{first}.0.0.0/8" for first in range(1, 255)]},
                "ManagedCluster aks: "
                + _TOGETHER.format("254 networks with 4,261,412,864 IPv4 addresses together", _AKS),
            ),
            Break(
                "eks: vpcConfig",
                {"publicAccessCidrs": ["203.0.113.0/24", *(f"{first}::/32" for first in range(2000, 2300))]},
                "Cluster eks: " + _TOGETHER.format(f"300 networks with {300 * 2**96:,} IPv6 addresses together", _EKS),
            ),
            Break("gke: masterAuthorizedNetworksConfig.gcpPublicCidrsAccessEnabled", to=True, says=_GOOGLE),
            *(
                Break(
                    "gke: controlPlaneEndpointsConfig",
                    {
                        "dnsEndpointConfig": {"allowExternalTraffic": True, key: True},
                        "ipEndpointsConfig": {"enabled": False},
                    },
                    _DNS.format(what, key),
                )
                for what, key in (("tokens", "enableK8sTokensViaDns"), ("certificates", "enableK8sCertsViaDns"))
            ),
        ],
        unknown={
            "eks: vpcConfig": "Cluster eks",
            _BLOCK: "Cluster gke",
            "gke: masterAuthorizedNetworksConfig.gcpPublicCidrsAccessEnabled": "Cluster gke",
            "gke: controlPlaneEndpointsConfig": "Cluster gke",
            "aks: apiServerAccessProfile.enablePrivateCluster": "ManagedCluster aks",
        },
    ),
    Case(
        name="narrower networks",
        rule=access.private_endpoint,
        given={"gke": GKE},
        settings={"prefix": 24},
        breaks=[Break(_BLOCK, "10.0.0.0/8", f"Cluster gke: {_SOME.format('10.0.0.0/8', _GKE)}")],
    ),
    Case(
        name="halves of the internet",
        rule=access.private_endpoint,
        given={"eks": EKS},
        settings={"prefix": 1, "total": 4},
        also=[
            ("eks: vpcConfig", {"publicAccessCidrs": ["128.0.0.0/1"]}),
            ("eks: vpcConfig", {"publicAccessCidrs": ["8000::/4", "128.0.0.0/1"]}),
        ],
        breaks=[
            Break(
                "eks: vpcConfig",
                {"publicAccessCidrs": ["0.0.0.0/1", "128.0.0.0/1"]},
                "Cluster eks: " + _TOGETHER.format("2 networks with 4,294,967,296 IPv4 addresses together", _EKS),
            ),
            Break(
                "eks: vpcConfig",
                {"publicAccessCidrs": ["::/4", "8000::/4"]},
                "Cluster eks: " + _TOGETHER.format(f"2 networks with {2**125:,} IPv6 addresses together", _EKS),
            ),
        ],
    ),
    Case(
        name="identities on GKE and AKS",
        rule=access.workload_identity,
        given=CLUSTERS,
        also=[
            ("gke: workloadIdentityConfig.workloadPool", UNKNOWN),
            ("gke", replace(GKE, props={"enableAutopilot": True})),
        ],
        breaks=[
            Break(
                "gke: workloadIdentityConfig",
                GONE,
                "Cluster gke: workload identity is disabled, so pods use the node's service account; set"
                " workloadIdentityConfig.workloadPool: <project>.svc.id.goog",
            ),
            Break(
                "aks: oidcIssuerProfile",
                GONE,
                "ManagedCluster aks: the OIDC issuer is disabled; set oidcIssuerProfile.enabled: true",
            ),
            Break(
                "aks: securityProfile.workloadIdentity.enabled",
                to=False,
                says=(
                    "ManagedCluster aks: workload identity is disabled; set"
                    " securityProfile.workloadIdentity.enabled: true"
                ),
            ),
        ],
        unknown={"gke: workloadIdentityConfig": "Cluster gke", "aks: oidcIssuerProfile": "ManagedCluster aks"},
    ),
    Case(
        name="identities on EKS",
        rule=access.pod_identity,
        given={**CLUSTERS, "addon": _ADDON},
        also=[
            ("addon", _ISSUER),
            ("addon", Sample("aws:eks/podIdentityAssociation:PodIdentityAssociation", {}, "association")),
            ("addon: addonVersion", UNKNOWN),
            ("eks: computeConfig", {"enabled": True}),
        ],
        breaks=[Break("addon", GONE, _NO_IDENTITY), Break("addon: addonName", "coredns", _NO_IDENTITY)],
        unknown={"addon: addonName": "Cluster eks"},
    ),
    Case(
        name="shared credentials on three clouds",
        rule=access.no_shared_credentials,
        given=CLUSTERS,
        also=[("gke: masterAuth", {"clientCertificateConfig": {"issueClientCertificate": False}})],
        breaks=[
            Break("eks: accessConfig", GONE, _CONFIG_MAP.format("CONFIG_MAP")),
            Break(
                "eks: accessConfig.authenticationMode", "API_AND_CONFIG_MAP", _CONFIG_MAP.format("API_AND_CONFIG_MAP")
            ),
            Break(
                "gke: masterAuth",
                {"clientCertificateConfig": {"issueClientCertificate": True}},
                "Cluster gke: issues a client certificate, which identifies no user and does not expire; set"
                " masterAuth.clientCertificateConfig.issueClientCertificate: false",
            ),
            Break(
                "gke: enableLegacyAbac",
                to=True,
                says="Cluster gke: attribute-based access control is enabled beside RBAC; set enableLegacyAbac: false",
            ),
            Break(
                "aks: disableLocalAccounts",
                GONE,
                "ManagedCluster aks: local accounts are enabled, whose certificates identify no user; set"
                " disableLocalAccounts: true",
            ),
        ],
        unknown={"eks: accessConfig": "Cluster eks", "aks: disableLocalAccounts": "ManagedCluster aks"},
    ),
)
