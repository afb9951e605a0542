"""Preflight on Azure, by GET requests of `az rest` to Azure Resource Manager."""

from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final

from gpu_tenancy.clouds.clients import Arm, Run
from gpu_tenancy.doctor.needs import NodesNeed, grants_of, nodes_of, parts_of, secrets_of
from gpu_tenancy.doctor.results import Question, Quota, Row, cluster_question, compared, judged, present, zone_row
from gpu_tenancy.model.catalogue.preflight import preflight
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.azure import AzureCluster

_SPOT: Final = "lowPriorityCores"  # all spot machines: https://learn.microsoft.com/azure/virtual-machines/spot-vms.


def questions(stack: Stack, section: AzureCluster, run: Run) -> Iterator[Question]:
    """Questions of a preflight to Azure."""
    arm, facts, needs = Arm(run), preflight().azure, nodes_of(stack, section)
    home = f"/subscriptions/{section.subscription}"
    parts = parts_of(stack)
    for provider in (*facts.providers, *(facts.providers_of_buckets if "buckets" in parts else ())):
        path, fix = f"{home}/providers/{provider}", f"run `az provider register --namespace {provider}`"
        asked = partial(_registered, arm, ("provider", provider, fix), path, "2025-04-01")
        yield Question("provider", provider, "Registered", asked)
    for feature in facts.features:
        namespace, _, name = feature.partition("/")
        path = f"{home}/providers/Microsoft.Features/providers/{namespace}/features/{name}"
        fix = f"run `az feature register --namespace {namespace} --name {name}`"
        asked = partial(_registered, arm, ("feature", feature, fix), path, "2021-07-01")
        yield Question("feature", feature, "Registered", asked)
    types = ", ".join(sorted({need.machine.type for need in needs}))
    yield Question("machines", types, "quota and zones", lambda: _machines(arm, home, needs, section))
    if subnet := section.subnet:
        exists = section.create is None
        yield Question("subnets", subnet, "free addresses", lambda: _subnet(arm, needs, subnet, exists=exists))
    rights, group = facts.needed(parts), section.resource_group
    asked = partial(_rights, arm, f"{home}/resourcegroups/{group}", f"resource group {group}", rights)
    yield Question("rights", group, f"{len(rights)} actions", asked)
    # Existing storage accounts and vaults on which teams get rights, by resource ID.
    scopes = [
        section.container_id(grant.folder.account, grant.folder.bucket, grant.account).partition("/blobServices")[0]
        for grant in grants_of(stack)
    ]
    for store, _ in secrets_of(stack):
        scopes.append(f"{home}/resourceGroups/{store.group}/providers/Microsoft.KeyVault/vaults/{store.place}")
    for scope in dict.fromkeys(scopes):
        name = "/".join(scope.rsplit("/", 2)[1:])
        asked = partial(_rights, arm, scope, name, facts.on_scope)
        yield Question("rights", name, f"{len(facts.on_scope)} actions", asked)
    versions = f"{home}/providers/Microsoft.ContainerService/locations/{section.location}/kubernetesVersions"
    cluster = f"{home}/resourceGroups/{group}/providers/Microsoft.ContainerService/managedClusters/{section.name}"
    yield cluster_question(
        section,
        ("AKS", lambda: [row["version"] for row in arm.get(versions, "2026-08-01").get("values", [])]),
        ("Succeeded", lambda: arm.get(cluster, "2026-08-01").get("properties", {}).get("provisioningState", "unknown")),
        "cluster.name, subscription and resourceGroup",
    )


def _registered(arm: Arm, subject: tuple[str, str, str], path: str, version: str) -> Iterator[Row]:
    # `subject` is the check, the name and the fix.
    check, name, fix = subject
    answer = arm.get(path, version)
    state = answer.get("registrationState") or answer.get("properties", {}).get("state") or "unknown"
    yield judged(check, name, "Registered", str(state), fits=state == "Registered", fix=fix)


def _machines(arm: Arm, home: str, needs: Iterable[NodesNeed], section: AzureCluster) -> Iterator[Row]:
    """Zones of each machine type, then quotas of families, which only the list of machine types names."""
    listed, location, compute = list(needs), section.location, f"{home}/providers/Microsoft.Compute"
    in_location = {"$filter": f"location eq '{location}'"}
    machines = arm.pages(f"{compute}/skus", "2021-07-01", **in_location)
    skus = {str(sku["name"]): sku for sku in machines if sku.get("resourceType") == "virtualMachines"}
    for need in listed:
        yield _offered(need, skus.get(need.machine.type), location)
    used = arm.pages(f"{compute}/locations/{location}/usages", "2026-04-01")
    usages = {str(usage["name"]["value"]).lower(): usage for usage in used}
    sums = Counter[str]()
    for need in listed:
        sku = skus.get(need.machine.type)
        if sku and not need.reserved:
            sums[_SPOT if need.preemptible else str(sku.get("family", need.machine.type))] += need.nodes * need.cpus
    page = "https://portal.azure.com/#view/Microsoft_Azure_Capacity"
    for family, cpus in sums.items():
        usage = usages.get(family.lower())
        fix = f"request an increase of {family} in {location} at {page}"
        if usage is None:
            yield Row("quota", family, f"{cpus:,} vCPUs", "not listed in the location", "unknown", fix)
        else:
            limit, current, exists = int(usage["limit"]), int(usage["currentValue"]), section.create is None
            yield compared("quota", family, cpus, Quota(limit, current, "vCPUs", fix, exists))


def _offered(need: NodesNeed, sku: dict[str, Any] | None, location: str) -> Row:
    restrictions: list[dict[str, Any]] = sku.get("restrictions", []) if sku else []
    closed = sku is None or any(restriction.get("type") != "Zone" for restriction in restrictions)
    zones = {str(zone) for info in (sku or {}).get("locationInfo", []) for zone in info.get("zones", [])}
    for restriction in restrictions:
        if restriction.get("type") == "Zone":
            zones -= {str(zone) for zone in restriction.get("restrictionInfo", {}).get("zones", [])}
    available = f"not available in {location}" if closed else f"zones {', '.join(sorted(zones)) or 'none'}"
    wanted = f"zones {', '.join(need.zones)}" if need.zones else location
    fits = not closed and set(need.zones) <= zones
    return zone_row(need, wanted, available, set() if closed else zones, fits=fits)


def _subnet(arm: Arm, needs: Iterable[NodesNeed], subnet: str, *, exists: bool) -> Iterator[Row]:
    # Addresses of nodes; pods have their own overlay network.
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


def _rights(arm: Arm, scope: str, where: str, rights: Iterable[str]) -> Iterator[Row]:
    granted = list(arm.pages(f"{scope}/providers/Microsoft.Authorization/permissions", "2022-04-01"))

    def matches(right: str, patterns: Iterable[str]) -> bool:
        # Actions match patterns such as `Microsoft.Compute/*`; case is ignored.
        return any(fnmatchcase(right.lower(), str(pattern).lower()) for pattern in patterns)

    wanted = list(rights)
    allowed = [
        right
        for right in wanted
        if any(
            matches(right, row.get("actions", [])) and not matches(right, row.get("notActions", [])) for row in granted
        )
    ]
    yield from present("rights", wanted, allowed, f"assign a role with it in {where}")
