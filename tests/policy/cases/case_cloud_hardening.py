"""Cases for `cloud_rules.hardening`."""

from dataclasses import replace
from typing import Final

from policy_builders import GONE, UNKNOWN, Break, Case

from cases.clouds import CPU_GROUP, GKE, GKE_POOL, NODE_CLASS, POOLS, TEMPLATE
from cloud_rules import hardening

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
_PLAIN: Final = "/dev/xvda is not encrypted; set ebs.encrypted: true for it under blockDeviceMappings"
_UNNAMED: Final = (
    "lists no disk, so disk encryption is not enforced; set ebs.encrypted: true for each disk under blockDeviceMappings"
)
_NO_TEMPLATE: Final = (
    "NodeGroup cpu: has no launch template, so disk encryption is not enforced; add one with"
    " blockDeviceMappings.0.ebs.encrypted: true"
)

CASES: Final = (
    Case(
        name="nodes of three clouds",
        rule=hardening.imds_v2,
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
        rule=hardening.imds_v2,
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
        name="disks of three clouds",
        rule=hardening.disks_encrypted,
        given=NODES,
        also=[
            ("template: blockDeviceMappings.0.ebs.kmsKeyId", GONE),
            ("template: blockDeviceMappings", [TEMPLATE.props["blockDeviceMappings"][0], {"deviceName": "/dev/sdb"}]),
            ("class: spec.blockDeviceMappings", GONE),
            ("gke: nodeConfig.bootDiskKmsKey", GONE),
            ("aks: enableEncryptionAtHost", GONE),
        ],
        breaks=[
            Break("template: blockDeviceMappings.0.ebs.encrypted", "false", f"{_TEMPLATE}{_PLAIN}"),
            Break("template: blockDeviceMappings", GONE, f"{_TEMPLATE}{_UNNAMED}"),
            Break("class: spec.blockDeviceMappings.0.ebs.encrypted", to=False, says=f"{_CLASS}{_PLAIN}"),
            Break("eks", CPU_GROUP, _NO_TEMPLATE),
        ],
        unknown={"template: blockDeviceMappings.0.ebs": "LaunchTemplate template"},
    ),
    Case(
        name="disks with customer-managed keys, and host encryption",
        rule=hardening.disks_encrypted,
        given=NODES,
        settings={"keys": "own", "host": True, "account": True},
        breaks=[
            Break(
                "template: blockDeviceMappings.0.ebs.kmsKeyId",
                GONE,
                f"{_TEMPLATE}/dev/xvda is not encrypted with a customer-managed key; set ebs.kmsKeyId for it under"
                " blockDeviceMappings",
            ),
            Break("template: blockDeviceMappings", [], f"{_TEMPLATE}{_UNNAMED}"),
            Break("class: spec.blockDeviceMappings", [], f"{_CLASS}{_UNNAMED}"),
            Break("eks", CPU_GROUP, _NO_TEMPLATE),
            Break(
                "gke: nodeConfig.bootDiskKmsKey",
                GONE,
                f"{_POOL}the boot disk is not encrypted with a customer-managed key; set nodeConfig.bootDiskKmsKey",
            ),
            Break(
                "aks: enableEncryptionAtHost",
                GONE,
                "AgentPool aks-pool: host encryption of disks is disabled; set enableEncryptionAtHost: true",
            ),
            Break(
                "cluster: agentPoolProfiles.0.enableEncryptionAtHost",
                to=False,
                says=(
                    "ManagedCluster aks, node pool system: host encryption of disks is disabled; set"
                    " enableEncryptionAtHost: true"
                ),
            ),
        ],
        unknown={"aks: enableEncryptionAtHost": "AgentPool aks-pool"},
    ),
    Case(
        name="accounts that encrypt by default",
        rule=hardening.disks_encrypted,
        given={"template": replace(TEMPLATE, props={}), "eks": CPU_GROUP},
        settings={"account": True},
        also=[("template: blockDeviceMappings", [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": 100}}])],
        breaks=[
            Break(
                "template: blockDeviceMappings",
                [{"deviceName": "/dev/xvda", "ebs": {"encrypted": "false"}}],
                f"{_TEMPLATE}{_PLAIN}",
            )
        ],
    ),
    Case(
        name="addresses of three clouds",
        rule=hardening.no_public_addresses,
        given=NODES,
        also=[
            ("template: networkInterfaces", GONE),
            ("gke: networkConfig", GONE),
            ("template: networkInterfaces.0.securityGroups", [UNKNOWN]),
            ("gcp", replace(GKE, props={"enableAutopilot": True})),
            ("gcp", replace(GKE, props={})),
        ],
        breaks=[
            Break(
                "template: networkInterfaces.0.associatePublicIpAddress",
                "true",
                f"{_TEMPLATE}assigns public addresses to nodes; set associatePublicIpAddress: false under"
                " networkInterfaces",
            ),
            Break(
                "class: spec.associatePublicIPAddress",
                to=True,
                says=f"{_CLASS}assigns public addresses to nodes; set associatePublicIPAddress: false",
            ),
            Break(
                "gke: networkConfig.enablePrivateNodes",
                to=False,
                says=f"{_POOL}assigns public addresses to nodes; set networkConfig.enablePrivateNodes: true",
            ),
            Break(
                "gcp: privateClusterConfig",
                GONE,
                "Cluster gke: assigns public addresses to nodes unless a pool disables them; set"
                " privateClusterConfig.enablePrivateNodes: true",
            ),
            Break(
                "aks: enableNodePublicIP",
                to=True,
                says="AgentPool aks-pool: assigns public addresses to nodes; set enableNodePublicIP: false",
            ),
        ],
        unknown={
            "gke: networkConfig": "NodePool gke-pool",
            "gcp: privateClusterConfig": "Cluster gke",
            "aks: enableNodePublicIP": "AgentPool aks-pool",
        },
    ),
    Case(
        name="secure boot if required",
        rule=hardening.node_integrity,
        given=NODES,
        settings={"boot": True},
        also=[
            ("aks: securityProfile", UNKNOWN),
            ("aks", replace(POOLS["aks"], props={"vmSize": "standard_nd96isr_h100_v5"})),
            ("gcp: enableShieldedNodes", True),
        ],
        breaks=[
            Break(
                "gke: nodeConfig.shieldedInstanceConfig",
                GONE,
                f"{_POOL}enableSecureBoot is disabled; set nodeConfig.shieldedInstanceConfig.enableSecureBoot: true",
            ),
            Break(
                "cluster: agentPoolProfiles.0.securityProfile.enableVTPM",
                to=False,
                says=(
                    "ManagedCluster aks, node pool system: enableVTPM is disabled; set securityProfile.enableVTPM: true"
                ),
            ),
            Break(
                "aks: vmSize",
                "Standard_D8s_v5",
                (
                    "AgentPool aks-pool: enableSecureBoot is disabled; set securityProfile.enableSecureBoot: true",
                    "AgentPool aks-pool: enableVTPM is disabled; set securityProfile.enableVTPM: true",
                ),
            ),
        ],
        unknown={"cluster: agentPoolProfiles.0.securityProfile": "ManagedCluster aks, node pool system"},
    ),
    Case(
        name="shielded nodes",
        rule=hardening.node_integrity,
        given={"gcp": GKE, "gke": GKE_POOL},
        also=[("gke: nodeConfig.shieldedInstanceConfig", GONE)],
        breaks=[
            Break(
                "gcp: enableShieldedNodes",
                to=False,
                says=(
                    "Cluster gke: shielded nodes are disabled, so any machine can register as a node; set"
                    " enableShieldedNodes: true"
                ),
            ),
            Break(
                "gke: nodeConfig.shieldedInstanceConfig.enableIntegrityMonitoring",
                to=False,
                says=(
                    f"{_POOL}enableIntegrityMonitoring is disabled; set"
                    " nodeConfig.shieldedInstanceConfig.enableIntegrityMonitoring: true"
                ),
            ),
        ],
        unknown={"gcp: enableShieldedNodes": "Cluster gke"},
    ),
)
