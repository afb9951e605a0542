"""Preflight on Google Cloud: asks the REST APIs with the token of gcloud, by methods that only read."""

import re
import urllib.parse
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from gpu_tenancy.clouds.gcp import COMPUTE, CONTAINER, SECRETS, SERVICES, STORAGE, Google
from gpu_tenancy.clouds.programs import NotFoundError
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
from gpu_tenancy.model.plan.object_storage import Folder
from gpu_tenancy.model.plan.storage import storage_classes
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster

_QUEUED: Final = {"flex-start", "queued"}
"""They count against the quota of preemptible GPUs: https://cloud.google.com/kubernetes-engine/docs/concepts/dws."""


def questions(stack: Stack, section: GcpCluster, google: Google) -> Iterator[Question]:
    """What a preflight asks Google Cloud."""
    facts, project, needs = preflight().gcp, section.project, nodes_of(stack, section)
    parts = parts_of(stack)
    rights = facts.needed(parts)
    _ = google.token
    yield Question("rights", project, f"{len(rights)} permissions", partial(_rights, google, project, rights))
    services = [*facts.services, *(facts.services_of_create if "create" in parts else [])]
    services += facts.services_of_service_accounts if "serviceAccounts" in parts else []
    kinds = dict.fromkeys(made.kind for made in storage_classes(stack.cluster, stack.teams.values()))
    services += [name for kind in kinds for name in facts.services_of_storage.get(kind, ())]
    for service in services:
        yield Question("API", service, "enabled", partial(_service, google, project, service))
    yield from _data(stack, google)
    yield Question("quota", section.region, "GPUs", partial(_quotas, google, needs, section))
    for machine_type in sorted({need.type for need in needs}):
        own = [need for need in needs if need.type == machine_type]
        yield Question("zones", machine_type, "offered", partial(_zones, google, own, section, machine_type))
    if section.create:
        if subnetwork := section.create.subnetwork:
            ranges = partial(_subnetwork, google, needs, section, subnetwork, section.create.pod_range or "")
            yield Question("subnets", subnetwork, "free addresses", ranges)
        yield Question("Kubernetes", section.create.version, "offered by GKE", partial(_version, google, section))
    else:
        yield Question("cluster", section.name, "RUNNING", partial(_cluster, google, section))


def _data(stack: Stack, google: Google) -> Iterator[Question]:
    """Rights to grant on each existing bucket or folder, and on each secret, which can be of other projects."""
    facts = preflight().gcp
    for place in [grant.folder for grant in grants_of(stack)]:
        rights = facts.on_folder if place.prefix else facts.on_bucket
        yield Question("rights", str(place), f"{len(rights)} permissions", partial(_on_folder, google, place, rights))
    secrets = secrets_of(stack)
    for project in dict.fromkeys(store.place for store, _ in secrets):
        service = facts.service_of_secrets
        yield Question("API", service, "enabled", partial(_service, google, project, service))
    for store, name in secrets:
        asked = partial(_on_secret, google, store.place, name)
        yield Question("rights", name, f"{len(facts.on_secret)} permissions", asked)


def _on_folder(google: Google, place: Folder, rights: list[str]) -> Iterator[Row]:
    url, what, fix = f"{STORAGE}/b/{place.bucket}", "a bucket", "correct its name, or set create"
    if place.prefix:
        url += f"/managedFolders/{urllib.parse.quote(f'{place.prefix}/', safe='')}"
        what, fix = "a managed folder", f"run `gcloud storage managed-folders create {place}/`"
    try:
        granted = google.get(f"{url}/iam/testPermissions", "", permissions=rights).get("permissions", [])
    except NotFoundError:
        yield Row("rights", str(place), what, "not found", "missing", fix)
        return
    yield from _each(rights, granted, str(place))


def _on_secret(google: Google, project: str, name: str) -> Iterator[Row]:
    rights = preflight().gcp.on_secret
    granted = google.tested(f"{SECRETS}/projects/{project}/secrets/{name}", rights)
    yield from _each(rights, granted, f"secret {name} of project {project}")


def _each(rights: list[str], granted: list[str], place: str) -> Iterator[Row]:
    for right in rights:
        answer = "allowed" if right in granted else "not allowed"
        fix = f"grant a role with it on {place}"
        yield judged("rights", f"{right} on {place}", "allowed", answer, fits=right in granted, fix=fix)


def _rights(google: Google, project: str, rights: list[str]) -> Iterator[Row]:
    return present("rights", rights, google.allowed(project, rights), f"grant a role with it in project {project}")


def _service(google: Google, project: str, service: str) -> Iterator[Row]:
    answer = google.get(f"{SERVICES}/projects/{project}/services/{service}", "serviceusage.services.get")
    state = str(answer.get("state", "unknown")).lower()
    fix = f"run `gcloud services enable {service} --project {project}`"
    yield judged("API", service, "enabled", state, fits=state == "enabled", fix=fix)


def _quotas(google: Google, needs: Iterable[NodesNeed], section: GcpCluster) -> Iterator[Row]:
    region = google.get(f"{COMPUTE}/projects/{section.project}/regions/{section.region}", "compute.regions.get")
    quotas = {quota["metric"]: quota for quota in region.get("quotas", [])}
    sums: dict[str, int] = {}
    for need in needs:
        if not need.gpu or need.reserved:
            continue
        prefix = "PREEMPTIBLE_" if need.preemptible or need.capacity in _QUEUED else ""
        metric = preflight().gcp.metric_of(need.type) or f"GPUS of {need.type}"
        sums[prefix + metric] = sums.get(prefix + metric, 0) + need.nodes * need.gpus
    page = f"https://console.cloud.google.com/iam-admin/quotas?project={section.project}"
    for metric, needed in sums.items():
        quota = quotas.get(metric)
        if quota is None:
            fix = f"compare the quota of these GPUs in {section.region} at {page}"
            yield Row("quota", metric, f"{needed} GPUs", "not listed by the region", "unknown", fix)
            continue
        fix = f"request an increase of {metric} in {section.region} at {page}"
        limit, used, exists = int(quota["limit"]), int(quota["usage"]), section.create is None
        yield compared("quota", metric, needed, Quota(limit, used, "GPUs", fix, exists))


def _zones(google: Google, needs: Iterable[NodesNeed], section: GcpCluster, machine_type: str) -> Iterator[Row]:
    offered = set(_offered(google, section, machine_type))
    for need in needs:
        zones = section.node_zones(need.zones)
        fits = set(zones) <= offered if zones else bool(offered)
        yield judged(
            "zones",
            f"{need.pool}: {need.type}",
            f"all of {', '.join(zones)}" if zones else f"zones of {section.region}",
            ", ".join(sorted(offered)) or f"no zone of {section.region}",
            fits=fits,
            fix=zone_fix(need, offered),
        )


def _offered(google: Google, section: GcpCluster, machine_type: str) -> Iterator[str]:
    page = ""
    while True:
        answer = google.get(
            f"{COMPUTE}/projects/{section.project}/aggregated/machineTypes",
            "compute.machineTypes.list",
            filter=f"name={machine_type}",
            **({"pageToken": page} if page else {}),
        )
        for scope, listed in answer.get("items", {}).items():
            zone = scope.removeprefix("zones/")
            if listed.get("machineTypes") and zone.startswith(f"{section.region}-"):
                yield zone
        if not (page := answer.get("nextPageToken", "")):
            return


def _subnetwork(
    google: Google, needs: Iterable[NodesNeed], section: GcpCluster, subnetwork: str, pod_range: str
) -> Iterator[Row]:
    """Free addresses of the nodes' range and of the pods' range; GKE gives each node a part of the latter."""
    match = re.fullmatch(r"projects/([^/]+)/regions/([^/]+)/subnetworks/([^/]+)", subnetwork)
    project, region, name = match.groups() if match else (section.project, section.region, subnetwork)
    url = f"{COMPUTE}/projects/{project}/regions/{region}/subnetworks/{name}"
    answer = google.get(url, "compute.subnetworks.get", views="WITH_UTILIZATION")
    free = {
        row.get("rangeName", ""): int(row["totalFreeIp"])
        for row in answer.get("utilizationDetails", {}).get("ipv4Utilizations", [])
        if "totalFreeIp" in row
    }
    secondary = {row["rangeName"] for row in answer.get("secondaryIpRanges", [])}
    nodes = sum(need.nodes for need in needs)
    for title, key, needed in (
        ("nodes", "", nodes),
        (f"pods, range {pod_range}", pod_range, nodes * preflight().gcp.pod_addresses),
    ):
        subject = f"{name}: {title}"
        if key and key not in secondary:
            fix = f"set cluster.create.podRange to one of {', '.join(sorted(secondary)) or 'its secondary ranges'}"
            yield Row("subnets", subject, f"{needed:,} addresses", "no such range", "missing", fix)
        elif key not in free:
            fix = f"compare the free addresses of {name} in the console"
            yield Row("subnets", subject, f"{needed:,} addresses", "not told by the API", "unknown", fix)
        else:
            fits, available = free[key] >= needed, f"{free[key]:,} free"
            yield judged("subnets", subject, f"{needed:,} addresses", available, fits=fits, fix="use a larger range")


def _version(google: Google, section: GcpCluster) -> Iterator[Row]:
    version = section.create.version if section.create else ""
    url = f"{CONTAINER}/projects/{section.project}/locations/{section.location}/serverConfig"
    offered = google.get(url, "container.clusters.list").get("validMasterVersions", [])
    yield version_row("GKE", version, (".".join(str(name).split(".")[:2]) for name in offered))


def _cluster(google: Google, section: GcpCluster) -> Iterator[Row]:
    url = f"{CONTAINER}/projects/{section.project}/locations/{section.location}/clusters/{section.name}"

    def status() -> object:
        return google.get(url, "container.clusters.get").get("status", "unknown")

    yield cluster_row(section.name, "RUNNING", status, "cluster.name, project and location")
