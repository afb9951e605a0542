"""Preflight on Google Cloud, by read-only REST methods with the token of gcloud."""

import re
import urllib.parse
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from gpu_tenancy.clouds.clients import COMPUTE, CONTAINER, PROJECTS, SECRETS, SERVICES, STORAGE, Google, NotFoundError
from gpu_tenancy.doctor.needs import NodesNeed, grants_of, nodes_of, parts_of, secrets_of
from gpu_tenancy.doctor.results import Question, Quota, Row, cluster_question, compared, judged, present, zone_row
from gpu_tenancy.model.catalogue.preflight import preflight
from gpu_tenancy.model.plan.object_storage import Folder
from gpu_tenancy.model.plan.storage import storage_classes
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster

# These use quota of preemptible GPUs: https://cloud.google.com/kubernetes-engine/docs/concepts/dws.
_QUEUED: Final = {"flex-start", "queued"}


def questions(stack: Stack, section: GcpCluster, google: Google) -> Iterator[Question]:
    """Questions of a preflight to Google Cloud."""
    facts, project, needs = preflight().gcp, section.project, nodes_of(stack, section)
    parts = parts_of(stack)
    rights = facts.needed(parts)
    _ = google.token
    fix = f"grant a role with it in project {project}"
    yield Question(
        "rights",
        project,
        f"{len(rights)} permissions",
        lambda: present("rights", rights, google.tested(f"{PROJECTS}/projects/{project}", rights), fix),
    )
    services = [*facts.services, *(facts.services_of_create if "create" in parts else [])]
    services += facts.services_of_service_accounts if "serviceAccounts" in parts else []
    kinds = dict.fromkeys(made.kind for made in storage_classes(stack.cluster, stack.teams.values()))
    services += [name for kind in kinds for name in facts.services_of_storage.get(kind, ())]
    for service in services:
        yield Question("API", service, "enabled", partial(_service, google, project, service))
    yield from _data(stack, google)
    yield Question("quota", section.region, "GPUs", lambda: _quotas(google, needs, section))
    for machine_type in sorted({need.machine.type for need in needs}):
        own = [need for need in needs if need.machine.type == machine_type]
        yield Question("zones", machine_type, "offered", partial(_zones, google, own, section, machine_type))
    if section.create and (subnetwork := section.create.subnetwork):
        ranges = partial(_subnetwork, google, needs, section, subnetwork, section.create.pod_range or "")
        yield Question("subnets", subnetwork, "free addresses", ranges)
    location = f"{CONTAINER}/projects/{project}/locations/{section.location}"
    versions = ("GKE", lambda: _versions(google, location))
    cluster = f"{location}/clusters/{section.name}"
    ready = ("RUNNING", lambda: google.get(cluster, "container.clusters.get").get("status", "unknown"))
    yield cluster_question(section, versions, ready, "cluster.name, project and location")


def _versions(google: Google, location: str) -> list[str]:
    offered = google.get(f"{location}/serverConfig", "container.clusters.list").get("validMasterVersions", [])
    return [".".join(str(name).split(".")[:2]) for name in offered]


def _data(stack: Stack, google: Google) -> Iterator[Question]:
    # Existing buckets, folders and secrets can be of other projects.
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


def _on_secret(google: Google, project: str, name: str) -> Iterator[Row]:
    rights = preflight().gcp.on_secret
    granted = google.tested(f"{SECRETS}/projects/{project}/secrets/{name}", rights)
    yield from _each(rights, granted, f"secret {name} of project {project}")


def _each(rights: list[str], granted: list[str], place: str) -> Iterator[Row]:
    for right in rights:
        answer = "allowed" if right in granted else "not allowed"
        fix = f"grant a role with it on {place}"
        yield judged("rights", f"{right} on {place}", "allowed", answer, fits=right in granted, fix=fix)


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


def _service(google: Google, project: str, service: str) -> Iterator[Row]:
    answer = google.get(f"{SERVICES}/projects/{project}/services/{service}", "serviceusage.services.get")
    state = str(answer.get("state", "unknown")).lower()
    fix = f"run `gcloud services enable {service} --project {project}`"
    yield judged("API", service, "enabled", state, fits=state == "enabled", fix=fix)


def _quotas(google: Google, needs: Iterable[NodesNeed], section: GcpCluster) -> Iterator[Row]:
    region = google.get(f"{COMPUTE}/projects/{section.project}/regions/{section.region}", "compute.regions.get")
    quotas = {quota["metric"]: quota for quota in region.get("quotas", [])}
    sums = Counter[str]()
    for need in (need for need in needs if need.machine.gpus and not need.reserved):
        prefix = "PREEMPTIBLE_" if need.preemptible or need.capacity in _QUEUED else ""
        metric = preflight().gcp.metric_of(need.machine.type) or f"GPUS of {need.machine.type}"
        sums[prefix + metric] += need.nodes * need.machine.gpus
    page = f"{section.region} at https://console.cloud.google.com/iam-admin/quotas?project={section.project}"
    for metric, needed in sums.items():
        if quota := quotas.get(metric):
            limit, used, exists = int(quota["limit"]), int(quota["usage"]), section.create is None
            fix = f"request an increase of {metric} in {page}"
            yield compared("quota", metric, needed, Quota(limit, used, "GPUs", fix, exists))
        else:
            fix = f"compare the quota of these GPUs in {page}"
            yield Row("quota", metric, f"{needed} GPUs", "not listed by the region", "unknown", fix)


def _zones(google: Google, needs: Iterable[NodesNeed], section: GcpCluster, machine_type: str) -> Iterator[Row]:
    offered = set(_offered(google, section, machine_type))
    for need in needs:
        zones = section.node_zones(need.zones)
        fits = set(zones) <= offered if zones else bool(offered)
        wanted = f"all of {', '.join(zones)}" if zones else f"zones of {section.region}"
        available = ", ".join(sorted(offered)) or f"no zone of {section.region}"
        yield zone_row(need, wanted, available, offered, fits=fits)


def _offered(google: Google, section: GcpCluster, machine_type: str) -> Iterator[str]:
    url, query = f"{COMPUTE}/projects/{section.project}/aggregated/machineTypes", {"filter": f"name={machine_type}"}
    while True:
        answer = google.get(url, "compute.machineTypes.list", **query)
        for scope, listed in answer.get("items", {}).items():
            zone = scope.removeprefix("zones/")
            if listed.get("machineTypes") and zone.startswith(f"{section.region}-"):
                yield zone
        if not (page := answer.get("nextPageToken", "")):
            return
        query["pageToken"] = page


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
    of_pods = (f"pods, range {pod_range}", pod_range, nodes * preflight().gcp.pod_addresses)
    for title, key, needed in (("nodes", "", nodes), of_pods):
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
