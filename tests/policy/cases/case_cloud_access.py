"""Cases for `cloud_rules.access`."""

from dataclasses import replace
from typing import Final

from policy_builders import GONE, UNKNOWN, Break, Case, Sample

from cases.clouds import AKS, CPU_GROUP, EKS, GKE, NODE_CLASS, POOLS, TEMPLATE
from cloud_rules import access

CLUSTERS: Final = {"eks": EKS, "gke": GKE, "aks": AKS}
NODES: Final = {**POOLS, "template": TEMPLATE, "class": NODE_CLASS, "gcp": GKE}
"""What nodes are made of, on all three clouds."""
_V1: Final = (
    "allows IMDSv1 requests without a token; set metadataOptions: {httpTokens: required, httpPutResponseHopLimit: 1}"
)
_FAR: Final = (
    "the metadata hop limit is 2, so pods can reach the metadata service; set"
    " metadataOptions.httpPutResponseHopLimit: 1"
)
_TEMPLATE: Final = "LaunchTemplate template: "
_CLASS: Final = "EC2NodeClass l4: "
_POOL: Final = "NodePool gke-pool: "
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
        name="nodes of three clouds",
        rule=access.imds_v2,
        given=NODES,
        also=[
            ("template: metadataOptions", {"httpEndpoint": "disabled"}),
            ("class: spec.metadataOptions", GONE),
            ("gke: nodeConfig.workloadMetadataConfig", GONE),
            ("gke: nodeConfig.metadata", {"disable-legacy-endpoints": "true"}),
            ("template: networkInterfaces", UNKNOWN),
        ],
        breaks=[
            Break("template: metadataOptions", GONE, f"{_TEMPLATE}{_V1}"),
            Break("template: metadataOptions.httpTokens", "optional", f"{_TEMPLATE}{_V1}"),
            Break("template: metadataOptions.httpPutResponseHopLimit", 2, f"{_TEMPLATE}{_FAR}"),
            Break("class: spec.metadataOptions.httpTokens", "optional", f"{_CLASS}{_V1}"),
            Break("class: spec.metadataOptions.httpPutResponseHopLimit", 2, f"{_CLASS}{_FAR}"),
            Break(
                "eks",
                CPU_GROUP,
                "NodeGroup cpu: has no launch template, so IMDSv2 is not enforced; add one with metadataOptions:"
                " {httpTokens: required, httpPutResponseHopLimit: 1}",
            ),
            Break(
                "gke: nodeConfig.workloadMetadataConfig.mode",
                "GCE_METADATA",
                f"{_POOL}allows pods to read the node's metadata (GCE_METADATA); set workloadMetadataConfig.mode:"
                " GKE_METADATA",
            ),
            Break(
                "gke: nodeConfig.metadata",
                {"disable-legacy-endpoints": "false"},
                f"{_POOL}serves the legacy metadata endpoints; set nodeConfig.metadata.disable-legacy-endpoints:"
                " 'true'",
            ),
        ],
        unknown={
            "template: metadataOptions": "LaunchTemplate template",
            "class: spec.metadataOptions": "EC2NodeClass l4",
            "gke: nodeConfig": "NodePool gke-pool",
        },
    ),
    Case(
        name="a hop limit of 2 in settings",
        rule=access.imds_v2,
        given={"template": replace(TEMPLATE, props={"metadataOptions": {"httpTokens": "required"}})},
        settings={"hops": 2},
        also=[("template: metadataOptions.httpPutResponseHopLimit", 2)],
        breaks=[
            Break(
                "template: metadataOptions.httpPutResponseHopLimit",
                3,
                f"{_TEMPLATE}the metadata hop limit is 3, so pods can reach the metadata service; set"
                " metadataOptions.httpPutResponseHopLimit: 2",
            )
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
