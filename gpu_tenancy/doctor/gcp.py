"""Preflight on Google Cloud, by read-only REST methods with the token of gcloud."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from gpu_tenancy.base.json import map_at
from gpu_tenancy.clouds.clients import COMPUTE, CONTAINER, PROJECTS, SERVICES, Google
from gpu_tenancy.doctor.needs import NodesNeed, nodes_of, types_of
from gpu_tenancy.doctor.results import Question, Quota, Row, cluster_question, compared, judged, rights_of, zone_row
from gpu_tenancy.model.catalogue.preflight import Place, preflight
from gpu_tenancy.model.plan.storage import storage_classes
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster

if TYPE_CHECKING:
    from gpu_tenancy.engine.recording import Registration

_BUCKET: Final = "gcp:storage/bucket:Bucket"
_POOL: Final = "gcp:container/nodePool:NodePool"
_API: Final = ".googleapis.com"
_NAMES: Final = {"resourcemanager": "cloudresourcemanager"}  # of APIs whose rights begin otherwise
_TESTED: Final = ":testIamPermissions"
# These use quota of preemptible GPUs: https://cloud.google.com/kubernetes-engine/docs/concepts/dws.
_QUEUED: Final = {"flex-start", "queued"}


def questions(
    stack: Stack, section: GcpCluster, resources: Sequence["Registration"], google: Google
) -> Iterator[Question]:
    """Questions of a preflight to Google Cloud."""
    facts, project, needs = preflight().gcp, section.project, nodes_of(stack, section)
    _ = google.token
    yield from _rights(google, project, resources)
    kinds = {made.kind for made in storage_classes(stack.cluster, stack.teams.values())}
    for service in dict.fromkeys(name for kind in kinds for name in facts.services_of_storage.get(kind, ())):
        yield Question("API", service, "enabled", partial(_service, google, project, service))
    yield Question("quota", project, "GPUs and CPUs", lambda: _of_project(google, needs, section))
    yield Question(
        "quota", section.region, "GPUs, CPUs and disks", lambda: _of_region(google, needs, section, resources)
    )
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


def _rights(google: Google, project: str, resources: Sequence["Registration"]) -> Iterator[Question]:
    """Rights in the project and on what exists, and the APIs of these rights; what exists can be of other projects."""
    facts, places = preflight().gcp, _places(resources)
    needed = facts.needed(types_of(one for one in resources if one.urn not in places))
    rights = [need for need in needed if not need.endswith(_API)]
    url, fix = f"{PROJECTS}/projects/{project}{_TESTED}", f"grant a role with it in project {project}"
    yield rights_of(f"project {project}", rights, partial(_on_place, google, url, rights), fix)
    grants = [(one, places[one.urn][1]) for one in resources if one.urn in places]
    services = [(project, _service_of(need)) for need in needed]
    services += [(str(one.inputs.get("project") or project), _service_of(first)) for one, (first, *_) in grants]
    for used, service in dict.fromkeys(services):
        yield Question("API", service, "enabled", partial(_service, google, used, service))
    for place, granted in dict.fromkeys(places.values()):
        asked, fix = partial(_on_place, google, place.url, granted), f"grant a role with it on {place.name}"
        yield rights_of(place.name, granted, asked, fix, place.fix)


def _service_of(need: str) -> str:
    """The API of a right such as `container.clusters.get`; an API is its own."""
    name = need.partition(".")[0]
    return need if need.endswith(_API) else f"{_NAMES.get(name, name)}{_API}"


def _places(resources: Sequence["Registration"]) -> dict[str, tuple[Place, tuple[str, ...]]]:
    """What exists and gets rights, with the rights that this needs, by the URN of the right."""
    facts, made = preflight().gcp, {str(one.inputs.get("name")) for one in resources if one.type == _BUCKET}
    found: dict[str, tuple[Place, tuple[str, ...]]] = {}
    for one in resources:
        if (place := facts.places.get(one.type)) and one.inputs.get("bucket") not in made:
            given = {key: str(value).rstrip("/") for key, value in one.inputs.items()}
            url = place.url.format(**{key: quote(str(value), safe="") for key, value in one.inputs.items()})
            filled = Place(name=place.name.format(**given), url=url, fix=place.fix.format(**given))
            found[one.urn] = filled, facts.types[one.type]
    return found


def _on_place(google: Google, url: str, rights: Sequence[str]) -> dict[str, str]:
    if url.endswith(_TESTED):
        granted = google.tested(url.removesuffix(_TESTED), [*rights])
    else:
        granted = google.get(url, "", permissions=[*rights]).get("permissions", [])
    return dict.fromkeys(granted, "allowed")


def _service(google: Google, project: str, service: str) -> Iterator[Row]:
    answer = google.get(f"{SERVICES}/projects/{project}/services/{service}", "serviceusage.services.get")
    state = str(answer.get("state", "unknown")).lower()
    fix = f"run `gcloud services enable {service} --project {project}`"
    yield judged("API", service, "enabled", state, fits=state == "enabled", fix=fix)


def _of_project(google: Google, needs: Iterable[NodesNeed], section: GcpCluster) -> Iterator[Row]:
    """Quotas of all regions together, which also spot machines count against; that of GPUs is 0 in a new project."""
    answer = google.get(f"{COMPUTE}/projects/{section.project}", "compute.projects.get")
    sums = Counter[tuple[str, str]]()
    for need in (need for need in needs if not need.reserved):
        sums["GPUS_ALL_REGIONS", "GPUs"] += need.nodes * need.machine.gpus
        sums["CPUS_ALL_REGIONS", "CPUs"] += need.nodes * need.cpus
    yield from _compared(answer, sums, section, "project")


def _of_region(
    google: Google, needs: Iterable[NodesNeed], section: GcpCluster, resources: Iterable["Registration"]
) -> Iterator[Row]:
    facts = preflight().gcp
    answer = google.get(f"{COMPUTE}/projects/{section.project}/regions/{section.region}", "compute.regions.get")
    sums = Counter[tuple[str, str]]()
    for need in (need for need in needs if not need.reserved):
        if need.machine.gpus:
            prefix = "PREEMPTIBLE_" if need.preemptible or need.capacity in _QUEUED else ""
            metric = _metric(facts.gpus, need) or f"GPUS of {need.machine.type}"
            sums[prefix + metric, "GPUs"] += need.nodes * need.machine.gpus
        # Spot machines have a quota of CPUs only if the project was given one.
        if not need.preemptible and (metric := _metric(facts.cpus, need)):
            sums[metric, "CPUs"] += need.nodes * need.cpus
    for pool in (one for one in resources if one.type == _POOL):
        disk, most = map_at(pool.inputs, "nodeConfig"), map_at(pool.inputs, "autoscaling")["totalMaxNodeCount"]
        sums[facts.disks[str(disk["diskType"])], "GB"] += int(str(disk["diskSizeGb"])) * int(str(most))
    yield from _compared(answer, sums, section, "region")


def _metric(table: Mapping[str, str], need: NodesNeed) -> str | None:
    return next((metric for begin, metric in table.items() if need.machine.type.startswith(f"{begin}-")), None)


def _compared(
    answer: Mapping[str, Any], sums: Mapping[tuple[str, str], int], section: GcpCluster, where: str
) -> Iterator[Row]:
    quotas = {quota["metric"]: quota for quota in answer.get("quotas", [])}
    scope = section.region if where == "region" else "all regions"
    page = f"{scope} at https://console.cloud.google.com/iam-admin/quotas?project={section.project}"
    for (metric, unit), needed in sums.items():
        if quota := quotas.get(metric):
            limit, used, exists = int(quota["limit"]), int(quota["usage"]), section.create is None
            fix = f"request an increase of {metric} in {page}"
            yield compared("quota", metric, needed, Quota(limit, used, unit, fix, exists))
        elif needed:
            fix = f"compare the quota of these {unit} in {page}"
            yield Row("quota", metric, f"{needed:,} {unit}", f"not listed by the {where}", "unknown", fix)


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
