"""Preflight on Azure, by GET requests of `az rest` to Azure Resource Manager."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gpu_tenancy.clouds.clients import Arm, Run
from gpu_tenancy.doctor.needs import NodesNeed, nodes_of, types_of
from gpu_tenancy.doctor.results import Question, Quota, Row, cluster_question, compared, judged, rights_of, zone_row
from gpu_tenancy.model.catalogue.preflight import preflight
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.azure import AzureCluster

if TYPE_CHECKING:
    from gpu_tenancy.engine.recording import Registration

# All machines that are not spot: https://learn.microsoft.com/azure/quotas/regional-quota-requests.
_ALL: Final = "cores"
_SPOT: Final = "lowPriorityCores"  # all spot machines: https://learn.microsoft.com/azure/virtual-machines/spot-vms.


def questions(stack: Stack, section: AzureCluster, resources: Sequence["Registration"], run: Run) -> Iterator[Question]:
    """Questions of a preflight to Azure."""
    arm, facts, needs = Arm(run), preflight().azure, nodes_of(stack, section)
    home = f"/subscriptions/{section.subscription}"
    group, types = section.resource_group, types_of(resources)
    here, rights = f"{home}/resourceGroups/{group}", _rights_by_scope(section, resources)
    for provider in sorted({need.partition("/")[0] for need in [*facts.needed(types), *rights[here]]}):
        path, fix = f"{home}/providers/{provider}", f"run `az provider register --namespace {provider}`"
        asked = partial(_registered, arm, ("provider", provider, fix), path, "2025-04-01")
        yield Question("provider", provider, "Registered", asked)
    for feature in (facts.features[one] for one in types if one in facts.features):
        namespace, _, name = feature.partition("/")
        path = f"{home}/providers/Microsoft.Features/providers/{namespace}/features/{name}"
        fix = f"run `az feature register --namespace {namespace} --name {name}`"
        asked = partial(_registered, arm, ("feature", feature, fix), path, "2021-07-01")
        yield Question("feature", feature, "Registered", asked)
    machines = ", ".join(sorted({need.machine.type for need in needs}))
    yield Question("machines", machines, "quota and zones", lambda: _machines(arm, home, needs, section))
    if subnet := section.subnet:
        exists = section.create is None
        yield Question("subnets", subnet, "free addresses", lambda: _subnet(arm, needs, subnet, exists=exists))
    for scope, needed in rights.items():
        place = f"resource group {group}" if scope == here else "/".join(scope.rsplit("/", 2)[1:])
        asked, missing = partial(_allowed, arm, scope, needed), f"create it, or correct its ID: {scope}"
        yield rights_of(place, needed, asked, f"assign a role with it in {place}", missing)
    versions = f"{home}/providers/Microsoft.ContainerService/locations/{section.location}/kubernetesVersions"
    cluster = f"{here}/providers/Microsoft.ContainerService/managedClusters/{section.name}"
    yield cluster_question(
        section,
        ("AKS", lambda: [row["version"] for row in arm.get(versions, "2026-08-01").get("values", [])]),
        ("Succeeded", lambda: arm.get(cluster, "2026-08-01").get("properties", {}).get("provisioningState", "unknown")),
        "cluster.name, subscription and resourceGroup",
    )


def _rights_by_scope(section: AzureCluster, resources: Iterable["Registration"]) -> dict[str, list[str]]:
    """Rights by the resource ID on which they are needed: what exists elsewhere, else the resource group."""
    facts, resources = preflight().azure, list(resources)
    here = f"/subscriptions/{section.subscription}/resourceGroups/{section.resource_group}"
    found = {here: [right for right in facts.needed(types_of(resources)) if "/" in right]}
    for one in resources:
        for key, rights in facts.places.get(one.type, {}).items():
            scope = re.split("/secrets/|/blobServices/", str(one.inputs.get(key)))[0]
            elsewhere = scope.startswith("/") and not f"{scope}/".lower().startswith(f"{here}/".lower())
            known = found.setdefault(scope if elsewhere else here, [])
            known += [right for right in rights if right not in known]
    return found


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
    yield from (_offered(need, skus.get(need.machine.type), location) for need in listed)
    used = arm.pages(f"{compute}/locations/{location}/usages", "2026-04-01")
    usages = {str(usage["name"]["value"]).lower(): usage for usage in used}
    sums = Counter[str]()
    for need in listed:
        sku = skus.get(need.machine.type)
        if sku and not need.reserved:
            own = (_SPOT,) if need.preemptible else (_ALL, str(sku.get("family", need.machine.type)))
            sums.update(dict.fromkeys(own, need.nodes * need.cpus))
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


def _allowed(arm: Arm, scope: str, rights: Iterable[str]) -> dict[str, str]:
    granted = list(arm.pages(f"{scope}/providers/Microsoft.Authorization/permissions", "2022-04-01"))

    def matches(right: str, patterns: Iterable[str]) -> bool:
        # Actions match patterns such as `Microsoft.Compute/*`; case is ignored.
        return any(fnmatchcase(right.lower(), str(pattern).lower()) for pattern in patterns)

    return {
        right: "allowed"
        for right in rights
        for row in granted
        if matches(right, row.get("actions", [])) and not matches(right, row.get("notActions", []))
    }
