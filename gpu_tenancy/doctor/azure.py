"""Preflight on Azure: asks Azure Resource Manager with `az rest`, by GET requests alone."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final

from gpu_tenancy.clouds.azure import Arm
from gpu_tenancy.clouds.programs import Run
from gpu_tenancy.doctor.needs import NodesNeed, grants_of, nodes_of, parts_of, secrets_of, zone_fix
from gpu_tenancy.doctor.results import (
    Question,
    Quota,
    Row,
    cluster_row,
    compared,
    judged,
    present,
    version_row,
)
from gpu_tenancy.model.catalogue.preflight import preflight
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.azure import AzureCluster

_SPOT: Final = "lowPriorityCores"
"""The quota of all spot machines: https://learn.microsoft.com/azure/virtual-machines/spot-vms."""


def questions(stack: Stack, section: AzureCluster, run: Run) -> Iterator[Question]:
    """What a preflight asks Azure."""
    arm, facts, needs = Arm(run), preflight().azure, nodes_of(stack, section)
    home = f"/subscriptions/{section.subscription}"
    parts = parts_of(stack)
    for provider in (*facts.providers, *(facts.providers_of_buckets if "buckets" in parts else ())):
        yield Question("provider", provider, "Registered", partial(_provider, arm, home, provider))
    for feature in facts.features:
        yield Question("feature", feature, "Registered", partial(_feature, arm, home, feature))
    types = ", ".join(sorted({need.type for need in needs}))
    yield Question("machines", types, "quota and zones", partial(_machines, arm, home, needs, section))
    if section.subnet:
        subnet = partial(_subnet, arm, needs, section.subnet, exists=section.create is None)
        yield Question("subnets", section.subnet, "free addresses", subnet)
    rights, group = facts.needed(parts), f"{home}/resourcegroups/{section.resource_group}"
    where = f"resource group {section.resource_group}"
    yield Question(
        "rights", section.resource_group, f"{len(rights)} actions", partial(_rights, arm, group, where, rights)
    )
    for scope in _scopes(stack, section):
        name = "/".join(scope.rsplit("/", 2)[1:])
        asked = partial(_rights, arm, scope, name, facts.on_scope)
        yield Question("rights", name, f"{len(facts.on_scope)} actions", asked)
    if section.create:
        version = section.create.version
        yield Question("Kubernetes", version, "offered by AKS", partial(_version, arm, home, section, version))
    else:
        yield Question("cluster", section.name, "Succeeded", partial(_cluster, arm, section))


def _provider(arm: Arm, home: str, provider: str) -> Iterator[Row]:
    state = str(arm.get(f"{home}/providers/{provider}", "2025-04-01").get("registrationState", "unknown"))
    yield _registered("provider", provider, state, f"run `az provider register --namespace {provider}`")


def _feature(arm: Arm, home: str, feature: str) -> Iterator[Row]:
    namespace, _, name = feature.partition("/")
    path = f"{home}/providers/Microsoft.Features/providers/{namespace}/features/{name}"
    state = str(arm.get(path, "2021-07-01").get("properties", {}).get("state", "unknown"))
    yield _registered("feature", feature, state, f"run `az feature register --namespace {namespace} --name {name}`")


def _registered(check: str, name: str, state: str, fix: str) -> Row:
    return judged(check, name, "Registered", state, fits=state == "Registered", fix=fix)


def _machines(arm: Arm, home: str, needs: Iterable[NodesNeed], section: AzureCluster) -> Iterator[Row]:
    """Zones of each machine type, then the quota of each family, which only the list of machine types names."""
    listed, location = list(needs), section.location
    skus = {
        str(sku["name"]): sku
        for sku in arm.pages(
            f"{home}/providers/Microsoft.Compute/skus", "2021-07-01", **{"$filter": f"location eq '{location}'"}
        )
        if sku.get("resourceType") == "virtualMachines"
    }
    for need in listed:
        yield _offered(need, skus.get(need.type), location)
    usages = {
        str(usage["name"]["value"]).lower(): usage
        for usage in arm.pages(f"{home}/providers/Microsoft.Compute/locations/{location}/usages", "2026-04-01")
    }
    sums: dict[str, int] = {}
    for need in listed:
        sku = skus.get(need.type)
        if sku and not need.reserved:
            family = _SPOT if need.preemptible else str(sku.get("family", need.type))
            sums[family] = sums.get(family, 0) + need.nodes * need.cpus
    for family, cpus in sums.items():
        usage = usages.get(family.lower())
        fix = (
            f"request an increase of {family} in {location} at https://portal.azure.com/#view/Microsoft_Azure_Capacity"
        )
        if usage is None:
            yield Row("quota", family, f"{cpus:,} vCPUs", "not listed in the location", "unknown", fix)
        else:
            limit, used, exists = int(usage["limit"]), int(usage["currentValue"]), section.create is None
            yield compared("quota", family, cpus, Quota(limit, used, "vCPUs", fix, exists))


def _offered(need: NodesNeed, sku: dict[str, Any] | None, location: str) -> Row:
    infos: list[dict[str, Any]] = sku.get("locationInfo", []) if sku else []
    offered = {str(zone) for info in infos for zone in info.get("zones", [])}
    restrictions: list[dict[str, Any]] = sku.get("restrictions", []) if sku else []
    restricted = {
        str(zone)
        for restriction in restrictions
        if restriction.get("type") == "Zone"
        for zone in restriction.get("restrictionInfo", {}).get("zones", [])
    }
    closed = sku is None or any(restriction.get("type") != "Zone" for restriction in restrictions)
    open_ = offered - restricted
    fits = not closed and set(need.zones) <= open_
    available = f"not available in {location}" if closed else f"zones {', '.join(sorted(open_)) or 'none'}"
    return judged(
        "zones",
        f"{need.pool}: {need.type}",
        f"zones {', '.join(need.zones)}" if need.zones else location,
        available,
        fits=fits,
        fix=zone_fix(need, set() if closed else open_),
    )


def _subnet(arm: Arm, needs: Iterable[NodesNeed], subnet: str, *, exists: bool) -> Iterator[Row]:
    """Addresses of nodes; pods have their own overlay network."""
    network, _, name = subnet.rpartition("/subnets/")
    needed = sum(need.nodes for need in needs)
    usages = {str(usage["id"]).lower(): usage for usage in arm.pages(f"{network}/usages", "2026-03-01")}
    usage = usages.get(subnet.lower())
    if usage is None:
        fix = "set cluster.subnet to a subnet that exists"
        yield Row("subnets", name, f"{needed} addresses", "no such subnet", "missing", fix)
        return
    limit, used = int(usage["limit"]), int(usage["currentValue"])
    yield compared("subnets", name, needed, Quota(limit, used, "addresses", "use a larger subnet", exists))


def _scopes(stack: Stack, section: AzureCluster) -> Iterator[str]:
    """Existing storage accounts and vaults on which teams get rights, by resource ID."""
    home = f"/subscriptions/{section.subscription}/resourceGroups"
    accounts = (
        section.container_id(grant.folder.account, grant.folder.bucket, grant.account).partition("/blobServices")[0]
        for grant in grants_of(stack)
    )
    vaults = (
        f"{home}/{store.group}/providers/Microsoft.KeyVault/vaults/{store.place}" for store, _ in secrets_of(stack)
    )
    yield from dict.fromkeys((*accounts, *vaults))


def _rights(arm: Arm, scope: str, where: str, rights: Iterable[str]) -> Iterator[Row]:
    granted = list(arm.pages(f"{scope}/providers/Microsoft.Authorization/permissions", "2022-04-01"))
    wanted = list(rights)
    allowed = [
        right
        for right in wanted
        if any(
            _matches(right, row.get("actions", [])) and not _matches(right, row.get("notActions", []))
            for row in granted
        )
    ]
    yield from present("rights", wanted, allowed, f"assign a role with it in {where}")


def _matches(right: str, patterns: Iterable[str]) -> bool:
    """Whether an action matches a pattern of a role, such as `Microsoft.Compute/*`; case is ignored."""
    return any(fnmatchcase(right.lower(), str(pattern).lower()) for pattern in patterns)


def _version(arm: Arm, home: str, section: AzureCluster, version: str) -> Iterator[Row]:
    path = f"{home}/providers/Microsoft.ContainerService/locations/{section.location}/kubernetesVersions"
    rows = arm.get(path, "2026-08-01").get("values", [])
    yield version_row("AKS", version, (str(row["version"]) for row in rows))


def _cluster(arm: Arm, section: AzureCluster) -> Iterator[Row]:
    group = f"/subscriptions/{section.subscription}/resourceGroups/{section.resource_group}"
    path = f"{group}/providers/Microsoft.ContainerService/managedClusters/{section.name}"

    def state() -> object:
        return arm.get(path, "2026-08-01").get("properties", {}).get("provisioningState", "unknown")

    yield cluster_row(section.name, "Succeeded", state, "cluster.name, subscription and resourceGroup")
