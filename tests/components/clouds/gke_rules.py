"""What GKE's messages do not say: names that differ from Pulumi's, words and patterns of text, what is required.

The REST reference is https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1, the provider's
https://www.pulumi.com/registry/packages/gcp/api-docs/container/nodepool/ (and cluster/).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

Names: TypeAlias = tuple[str, ...]
"""A place without list positions."""

CLUSTER: Final = "gcp:container/cluster:Cluster"
POOL: Final = "gcp:container/nodePool:NodePool"

_CREATED: Final[Mapping[Names, Names]] = {("minMasterVersion",): ("initialClusterVersion",)}
"""Names of a request that descriptions do not have."""
_OF_DEFAULT_POOL: Final[Mapping[Names, Names]] = {
    ("nodeConfig", "guestAccelerators"): ("accelerators",),
    ("nodeConfig", "guestAccelerators", "count"): ("acceleratorCount",),
    ("nodeConfig", "guestAccelerators", "type"): ("acceleratorType",),
}


def _paths(renamed: Mapping[str, str]) -> dict[Names, Names]:
    return {tuple(name.split(".")): tuple(place.split(".")) for name, place in renamed.items()}


_OF_POOLS: Final = _paths(
    {
        "maintenancePolicies": "maintenancePolicy",
        "maintenancePolicies.exclusionUntilEndOfSupports": "exclusionUntilEndOfSupport",
        "nodeConfig": "config",
        "nodeConfig.guestAccelerators": "accelerators",
        "nodeConfig.guestAccelerators.count": "acceleratorCount",
        "nodeConfig.guestAccelerators.type": "acceleratorType",
        "nodeLocations": "locations",
    }
)
_OF_CLUSTERS: Final = _paths(
    {
        "clusterAutoscaling": "autoscaling",
        "clusterAutoscaling.enabled": "enableNodeAutoprovisioning",
        "datapathProvider": "networkConfig.datapathProvider",
        "enableLegacyAbac": "legacyAbac.enabled",
        "enableMultiNetworking": "networkConfig.enableMultiNetworking",
        "enableShieldedNodes": "shieldedNodes.enabled",
        "loggingConfig.enableComponents": "componentConfig.enableComponents",
        "maintenancePolicy.dailyMaintenanceWindow": "window.dailyMaintenanceWindow",
        "maintenancePolicy.maintenanceExclusions": "window.maintenanceExclusions",
        "maintenancePolicy.maintenanceExclusions.exclusionOptions": "maintenanceExclusionOptions",
        "maintenancePolicy.recurringWindow": "window.recurringWindow",
        "maintenancePolicy.recurringWindow.endTime": "window.endTime",
        "maintenancePolicy.recurringWindow.startTime": "window.startTime",
        "minMasterVersion": "currentMasterVersion",
        "monitoringConfig.enableComponents": "componentConfig.enableComponents",
        "monitoringConfig.managedPrometheus": "managedPrometheusConfig",
        "nodeLocations": "locations",
    }
)
RENAMED: Final[Mapping[str, Mapping[Names, Names]]] = {
    POOL: _OF_POOLS,
    CLUSTER: {**_OF_DEFAULT_POOL, **_OF_CLUSTERS, **_CREATED},
}
"""The API's name of an input, within the message that it is in, where it is another."""

KEYED: Final[Mapping[Names, str]] = {("maintenancePolicy", "maintenanceExclusions"): "exclusionName"}
"""Lists of Pulumi that are maps in the API, with the input that is the key."""
SINGLE: Final[frozenset[Names]] = frozenset(
    {("maintenancePolicies",), ("maintenancePolicies", "exclusionUntilEndOfSupports")}
)
"""Lists of Pulumi that are one message in the API."""

OF_PROVIDER: Final[Mapping[str, Mapping[str, type]]] = {
    POOL: {"cluster": str, "location": str, "project": str},
    CLUSTER: {
        "location": str,
        "project": str,
        "deletionProtection": bool,
        "removeDefaultNodePool": bool,
        "networkingMode": str,
    },
}
"""Inputs that are in the request's path, or only the provider's."""

WORDS: Final[Mapping[str, Mapping[Names, frozenset[str]]]] = {
    POOL: {
        # https://cloud.google.com/kubernetes-engine/docs/how-to/custom-boot-disks
        ("nodeConfig", "diskType"): frozenset({"pd-standard", "pd-balanced", "pd-ssd", "hyperdisk-balanced"}),
        # https://cloud.google.com/kubernetes-engine/docs/concepts/node-images
        ("nodeConfig", "imageType"): frozenset({"COS_CONTAINERD", "UBUNTU_CONTAINERD"}),
        # https://cloud.google.com/kubernetes-engine/docs/how-to/consuming-reservations
        ("nodeConfig", "reservationAffinity", "key"): frozenset({"compute.googleapis.com/reservation-name"}),
    },
    CLUSTER: {
        ("networkingMode",): frozenset({"VPC_NATIVE", "ROUTES"}),
        # https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters
        ("maintenancePolicy", "maintenanceExclusions", "exclusionOptions", "scope"): frozenset(
            {"NO_UPGRADES", "NO_MINOR_UPGRADES", "NO_MINOR_OR_NODE_UPGRADES"}
        ),
    },
}
"""Words that a field of text may have."""

_LABEL: Final = r"[a-z0-9_-]{0,63}"
_NODES: Final[Mapping[Names, str]] = {
    ("nodeConfig", "serviceAccount"): r"[^@\s]+@[\w.-]+\.gserviceaccount\.com|[\w.+-]+@[\w.-]+",
    ("nodeConfig", "oauthScopes"): r"https://www\.googleapis\.com/auth/[a-z.-]+",
    ("nodeConfig", "machineType"): r"[a-z][a-z0-9]*(-[a-z0-9]+)+",
    # https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
    ("nodeConfig", "guestAccelerators", "gpuPartitionSize"): r"\d+g\.\d+gb",
    ("nodeConfig", "guestAccelerators", "type"): r"nvidia-[a-z0-9-]+",
    ("nodeConfig", "bootDiskKmsKey"): r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+",
    # https://cloud.google.com/kubernetes-engine/docs/how-to/creating-managing-labels
    ("nodeConfig", "resourceLabels", "*"): _LABEL,
}
PATTERNS: Final[Mapping[str, Mapping[Names, str]]] = {
    POOL: {
        **_NODES,
        ("name",): r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?",
        ("nodeLocations",): r"[a-z]+(-[a-z]+)*-[a-z]+\d+-[a-z]",
        ("location",): r"[a-z]+(-[a-z]+)*-[a-z]+\d+(-[a-z])?",
    },
    CLUSTER: {
        **_NODES,
        ("name",): r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?",
        ("location",): r"[a-z]+(-[a-z]+)*-[a-z]+\d+(-[a-z])?",
        ("minMasterVersion",): r"latest|-|\d+\.\d+(\.\d+(-gke\.\d+)?)?",
        ("resourceLabels", "*"): _LABEL,
        # https://cloud.google.com/kubernetes-engine/docs/how-to/google-groups-rbac
        ("authenticatorGroupsConfig", "securityGroup"): r"gke-security-groups@[\w-]+(\.[\w-]+)+",
        # https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity
        ("workloadIdentityConfig", "workloadPool"): r"[a-z][-a-z0-9]+\.svc\.id\.goog",
        ("maintenancePolicy", "dailyMaintenanceWindow", "startTime"): r"([01]\d|2[0-3]):[0-5]\d",
        # https://datatracker.ietf.org/doc/html/rfc5545#section-3.8.5.3
        ("maintenancePolicy", "recurringWindow", "recurrence"): (
            r"FREQ=(DAILY|WEEKLY;BYDAY=(MO|TU|WE|TH|FR|SA|SU)(,(MO|TU|WE|TH|FR|SA|SU))*)"
        ),
        ("maintenancePolicy", "recurringWindow", "startTime"): r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
        ("maintenancePolicy", "recurringWindow", "endTime"): r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
        ("nodeLocations",): r"[a-z]+(-[a-z]+)*-[a-z]+\d+-[a-z]",
    },
}
"""What a field of text looks like."""


@dataclass(frozen=True)
class Need:
    """What must be there, wherever the thing that it is in is there.

    Attributes:
        within: names that lead to that thing.
        key: what must be there.
        when: another key of it with a value, without which there is no need.
    """

    within: Names
    key: str
    when: tuple[str, object] | None = None


# https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/NodeConfig and what the provider demands of it
_NODE_NEEDS: Final = (
    Need(("nodeConfig", "guestAccelerators"), "count"),
    Need(("nodeConfig", "guestAccelerators"), "type"),
    Need(("nodeConfig", "guestAccelerators", "gpuDriverInstallationConfig"), "gpuDriverVersion"),
    Need(("nodeConfig", "guestAccelerators", "gpuSharingConfig"), "gpuSharingStrategy"),
    Need(("nodeConfig", "guestAccelerators", "gpuSharingConfig"), "maxSharedClientsPerGpu"),
    Need(("nodeConfig", "taints"), "key"),
    Need(("nodeConfig", "taints"), "value"),
    Need(("nodeConfig", "taints"), "effect"),
    Need(("nodeConfig", "gvnic"), "enabled"),
    Need(("nodeConfig", "workloadMetadataConfig"), "mode"),
    Need(("nodeConfig", "taintConfig"), "architectureTaintBehavior"),
    Need(("nodeConfig", "ephemeralStorageLocalSsdConfig"), "localSsdCount"),
    Need(("nodeConfig", "reservationAffinity"), "consumeReservationType"),
    # https://cloud.google.com/kubernetes-engine/docs/how-to/consuming-reservations
    Need(("nodeConfig", "reservationAffinity"), "key", ("consumeReservationType", "SPECIFIC_RESERVATION")),
    Need(("nodeConfig", "reservationAffinity"), "values", ("consumeReservationType", "SPECIFIC_RESERVATION")),
    # https://cloud.google.com/kubernetes-engine/docs/concepts/dws
    Need(("nodeConfig",), "reservationAffinity", ("flexStart", True)),
)
NEEDS: Final[Mapping[str, tuple[Need, ...]]] = {
    POOL: (
        *_NODE_NEEDS,
        # https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters.nodePools
        Need((), "name"),
        Need((), "cluster"),
        Need(("autoscaling",), "totalMaxNodeCount"),
        Need(("queuedProvisioning",), "enabled"),
        Need(("placementPolicy",), "type"),
        Need(("networkConfig", "additionalNodeNetworkConfigs"), "network"),
        Need(("networkConfig", "additionalNodeNetworkConfigs"), "subnetwork"),
    ),
    CLUSTER: (
        *_NODE_NEEDS,
        # https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters
        Need((), "name"),
        Need((), "initialNodeCount", ("removeDefaultNodePool", True)),
        # https://cloud.google.com/kubernetes-engine/docs/how-to/encrypting-secrets
        Need(("databaseEncryption",), "state"),
        Need(("databaseEncryption",), "keyName", ("state", "ENCRYPTED")),
        # https://cloud.google.com/kubernetes-engine/docs/how-to/setup-multinetwork-support-for-pods
        Need((), "datapathProvider", ("enableMultiNetworking", True)),
        Need(("authenticatorGroupsConfig",), "securityGroup"),
        Need(("workloadIdentityConfig",), "workloadPool"),
        Need(("masterAuthorizedNetworksConfig", "cidrBlocks"), "cidrBlock"),
        Need(("maintenancePolicy", "dailyMaintenanceWindow"), "startTime"),
        Need(("maintenancePolicy", "recurringWindow"), "startTime"),
        Need(("maintenancePolicy", "recurringWindow"), "endTime"),
        Need(("maintenancePolicy", "recurringWindow"), "recurrence"),
        Need(("maintenancePolicy", "maintenanceExclusions"), "exclusionName"),
        Need(("maintenancePolicy", "maintenanceExclusions"), "startTime"),
        Need(("maintenancePolicy", "maintenanceExclusions", "exclusionOptions"), "scope"),
        Need(("loggingConfig",), "enableComponents"),
        Need(("monitoringConfig",), "enableComponents"),
        Need(("monitoringConfig", "managedPrometheus"), "enabled"),
        Need(("releaseChannel",), "channel"),
        Need(("costManagementConfig",), "enabled"),
        Need(("addonsConfig", "gcePersistentDiskCsiDriverConfig"), "enabled"),
        Need(("addonsConfig", "gcsFuseCsiDriverConfig"), "enabled"),
        Need(("addonsConfig", "gcpFilestoreCsiDriverConfig"), "enabled"),
        Need(("addonsConfig", "lustreCsiDriverConfig"), "enabled"),
    ),
}
