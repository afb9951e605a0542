"""What AKS's pages say beside its models: each rule with the page that it was read on."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from cloud_descriptions import Place

from gpu_tenancy.engine.recording import UNKNOWN

Json: TypeAlias = Mapping[str, Any]
SPOT: Final = "kubernetes.azure.com/scalesetpriority"
TAINT: Final = re.compile(
    r"[A-Za-z0-9][-\w./]{0,252}(=[A-Za-z0-9]?[-\w.]{0,62})?:(NoSchedule|PreferNoSchedule|NoExecute)"
)


@dataclass(frozen=True)
class Finding:
    """Something that the description says of one place of some inputs."""

    kind: Literal["problem", "required", "enumerated"]
    place: Place
    text: str = ""


Rule: TypeAlias = Callable[[Json], Iterator[Finding]]


def wrong(text: str, *place: str | int) -> Finding:
    return Finding("problem", place, text)


def needed(inputs: Json, *place: str | int) -> Iterator[Finding]:
    here: object = inputs
    for part in place:
        here = cast("Mapping[str | int, object]", here).get(part) if isinstance(here, Mapping) else None
    yield wrong("is missing", *place) if here is None else Finding("required", place)


def pool_name(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/create-node-pools#limitations."""
    name = pool.get("agentPoolName", pool.get("name", ""))
    if name != UNKNOWN and not re.fullmatch("[a-z][a-z0-9]{0,11}", str(name)):
        yield wrong(f"{name} is no name of a Linux node pool", "agentPoolName")


def autoscaler(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/cluster-autoscaler."""
    if pool.get("enableAutoScaling") is True:
        for key in ("minCount", "maxCount"):
            yield from needed(pool, key)
        bounds = [pool.get("minCount"), pool.get("count"), pool.get("maxCount")]
        known = [bound for bound in bounds if isinstance(bound, int)]
        if known != sorted(known):
            yield wrong("are not in order: minCount, count, maxCount", "minCount")
    elif "count" not in pool:
        yield wrong("is missing: the pool would have one node", "count")
    else:
        yield Finding("required", ("count",))
    if not pool.get("enableAutoScaling") and {"minCount", "maxCount"} & set(pool):
        yield wrong("has bounds without an autoscaler", "minCount")


def labels(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/use-labels#reserved-prefixes, but for AKS's own mark of spot pools."""
    spot = pool.get("scaleSetPriority") == "Spot"
    for key in pool.get("nodeLabels", {}):
        if key.startswith(("kubernetes.azure.com/", "kubernetes.io/")) and not (spot and key == SPOT):
            yield wrong(f"{key} has a prefix of AKS's own", "nodeLabels")


def taints(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/use-node-taints; twins: https://github.com/Azure/AKS/issues/1412."""
    taint_texts = [str(taint) for taint in pool.get("nodeTaints", [])]
    if len({re.split("[=:]", taint)[0] for taint in taint_texts}) < len(taint_texts):
        yield wrong("has two taints of one key", "nodeTaints")
    yield from (wrong(f"{taint} is no taint", "nodeTaints") for taint in taint_texts if not TAINT.fullmatch(taint))


def disk(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/templates/microsoft.containerservice/managedclusters/agentpools."""
    if not 0 <= pool.get("osDiskSizeGB", 0) <= 2048:
        yield wrong("is not between 0 and 2048", "osDiskSizeGB")


def spot(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/spot-node-pool."""
    is_spot, price = pool.get("scaleSetPriority") == "Spot", pool.get("spotMaxPrice", -1)
    if not is_spot and {"scaleSetEvictionPolicy", "spotMaxPrice"} & set(pool):
        yield wrong("only a spot pool has an eviction policy and a price", "scaleSetPriority")
    if price != -1 and not price > 0:
        yield wrong("is neither -1 nor above zero", "spotMaxPrice")
    if is_spot and f"{SPOT}=spot:NoSchedule" not in pool.get("nodeTaints", []):
        yield wrong("a spot pool has the spot taint", "nodeTaints")
    # https://github.com/hashicorp/terraform-provider-azurerm/pull/31129
    for key in {"maxSurge", "maxUnavailable"} & set(pool.get("upgradeSettings", {})) if is_spot else ():
        yield wrong("a spot pool has no such setting", "upgradeSettings", key)


def reservation(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/virtual-machines/capacity-reservation-overview#limitations-and-restrictions."""
    beside = pool.get("scaleSetPriority") == "Spot" or "proximityPlacementGroupID" in pool
    if "capacityReservationGroupID" not in pool:
        return
    if beside:
        yield wrong("goes neither with spot nor with a proximity placement group", "capacityReservationGroupID")
    if re.match("Standard_(ND|NC.*H100)", pool.get("vmSize", "")):
        yield wrong("is of a machine that Azure reserves no capacity of", "capacityReservationGroupID")


def placement(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/reduce-latency-ppg#limitations."""
    if "proximityPlacementGroupID" in pool and len(pool.get("availabilityZones", [])) > 1:
        yield wrong("a proximity placement group is in one zone", "availabilityZones")


def boot(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/use-trusted-launch#limitations."""
    secure = pool.get("securityProfile", {}).get("enableSecureBoot")
    if secure and pool.get("gpuProfile", {"driver": "None"}).get("driver") != "None":
        yield wrong("Secure Boot does not go with a driver that AKS installs", "securityProfile", "enableSecureBoot")


def upgrade(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/upgrade-aks-node-pools-rolling."""
    said: Json = pool.get("upgradeSettings", {})
    for key in {"maxSurge", "maxUnavailable"} & set(said):
        if not re.fullmatch(r"\d+%?", str(said[key])):
            yield wrong(f"{said[key]} is neither a number nor a percentage", "upgradeSettings", key)
    if "maxUnavailable" in said and pool.get("mode") == "System":
        yield wrong("a system pool has no such setting", "upgradeSettings", "maxUnavailable")
    if said.get("maxSurge") == "0":
        yield from needed(pool, "upgradeSettings", "maxUnavailable")
        if said.get("maxUnavailable", "0") == "0":
            yield wrong("neither adds a node nor takes one away", "upgradeSettings", "maxUnavailable")
    if not 5 <= said.get("drainTimeoutInMinutes", 30) <= 1440:
        yield wrong("is not between 5 minutes and 24 hours", "upgradeSettings", "drainTimeoutInMinutes")


POOL_RULES: Final[tuple[Rule, ...]] = (
    pool_name,
    autoscaler,
    labels,
    taints,
    disk,
    spot,
    reservation,
    placement,
    boot,
    upgrade,
)


def whole(cluster: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/templates/microsoft.containerservice/managedclusters."""
    for key in ("dnsPrefix", "agentPoolProfiles", "identity"):
        yield from needed(cluster, key)
    if cluster.get("identity", {}).get("type") == "UserAssigned":
        yield from needed(cluster, "identity", "userAssignedIdentities")


def system_pool(cluster: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/use-system-pools."""
    pools: list[Json] = cluster.get("agentPoolProfiles", [])
    if not any(pool.get("mode") == "System" and pool.get("count", 1) for pool in pools):
        yield wrong("has no system pool with a node", "agentPoolProfiles")
    for index, pool in enumerate(pools):
        for rule in POOL_RULES:
            for finding in rule(pool):
                yield Finding(finding.kind, ("agentPoolProfiles", index, *finding.place), finding.text)


def people(cluster: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/manage-local-accounts-managed-azure-ad."""
    if cluster.get("disableLocalAccounts"):
        yield from needed(cluster, "aadProfile", "managed")


def key_of_secrets(cluster: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/use-kms-etcd-encryption."""
    kms: Json = cluster.get("securityProfile", {}).get("azureKeyVaultKms", {})
    if not kms.get("enabled"):
        return
    yield from needed(cluster, "securityProfile", "azureKeyVaultKms", "keyId")
    if (kms.get("keyVaultNetworkAccess") == "Private") != ("keyVaultResourceId" in kms):
        yield wrong("only a private vault has its id here", "securityProfile", "azureKeyVaultKms")
    if cluster.get("identity", {}).get("type") != "UserAssigned":
        yield wrong("reads a key by an identity that was there before it", "identity", "type")


def workload_identity(cluster: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/workload-identity-deploy-cluster."""
    if cluster.get("securityProfile", {}).get("workloadIdentity", {}).get("enabled"):
        yield from needed(cluster, "oidcIssuerProfile", "enabled")


def entrance(cluster: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/api-server-authorized-ip-ranges#limitations."""
    said: Json = cluster.get("apiServerAccessProfile", {})
    if said.get("enablePrivateCluster") and said.get("authorizedIPRanges"):
        yield wrong("a private cluster has no allow-list", "apiServerAccessProfile")


CLUSTER_RULES: Final[tuple[Rule, ...]] = (whole, system_pool, people, key_of_secrets, workload_identity, entrance)
