"""The cluster and the pools of a stack, as the cloud describes them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from gpu_tenancy.base.json import Json, map_at, maps_at, texts_at
from gpu_tenancy.inspect.adopt.pools import Drafted
from gpu_tenancy.inspect.adopt.recordings import Recorded, Recording, value_of
from gpu_tenancy.inspect.pods import Manifest, name_of
from gpu_tenancy.model.catalogue import Machine, find_gpu, machines
from gpu_tenancy.model.catalogue.clouds import clouds

_GPU_TAINTS: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/")
"""The program sets the taint of GPU pools by itself."""
_OF_THIS: Final = "gpu-tenancy.dev/"
_EFFECTS: Final = {
    "NO_SCHEDULE": "NoSchedule",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
    "NO_EXECUTE": "NoExecute",
}
_SLICES: Final = "MIG"
_DISK: Final = 200
"""GiB: the default of a stack."""


def pools_of(recording: Recording) -> Drafted:
    """The pools; those whose machine type a stack cannot have are named."""
    read: Mapping[str, Callable[[Recording, Recorded], dict[str, Any]]] = {"aws": _eks, "gcp": _gke, "azure": _aks}
    drafted = Drafted()
    for pool in recording.pools:
        if recording.service == "azure" and _text(pool, "mode") == "System":
            drafted.left.append(f"pool {pool.name}: system pool of AKS, which stays with the cluster")
            continue
        kind = _machine_type(recording, pool)
        machine = _machine(recording, kind, pool)
        if machine is None:
            drafted.left.append(f"pool {pool.name}: machine type {kind or 'unknown'} is not in the catalogue")
            continue
        entry = {"machine": machine.name, **read[recording.service](recording, pool)}
        drafted.entries[pool.name] = {key: value for key, value in entry.items() if value not in (None, {}, [])}
        drafted.notes[pool.name] = f"{pool.id}, {kind}"
    return drafted


def _text(pool: Recorded, *path: str) -> str:
    value = value_of(pool.state, *path)
    return str(value) if value is not None else ""


def _whole(pool: Recorded, *path: str) -> int:
    text = _text(pool, *path)
    return int(text) if text.isdigit() else 0


def _machine_type(recording: Recording, pool: Recorded) -> str:
    match recording.service:
        case "gcp":
            return _text(pool, "config", "machineType")
        case "azure":
            return _text(pool, "vmSize")
        case "aws":
            listed = value_of(pool.state, "instanceTypes")
            template = _template(recording, pool)
            return str(listed[0]) if isinstance(listed, list) and listed else str(value_of(template, "InstanceType"))


def _machine(recording: Recording, kind: str, pool: Recorded) -> Machine | None:
    found = [one for one in machines().values() if one.cloud == recording.service and one.type == kind]
    count = sum(
        int(str(value_of(one, "acceleratorCount") or 0)) for one in maps_at(pool.state, "config", "accelerators")
    )
    return next((one for one in found if not count or one.gpus == count), None)


def _labels(labels: Mapping[str, str], service: str) -> dict[str, str]:
    own = (*clouds()[service].own_labels, "k8s.amazonaws.com", "kubernetes.io", "k8s.io", "alpha.eksctl.io")
    return {
        key: value
        for key, value in labels.items()
        if not key.startswith(_OF_THIS) and not any(_within(key.partition("/")[0], domain) for domain in own)
    }


def _within(domain: str, other: str) -> bool:
    return domain == other or domain.endswith(f".{other}")


def _taints(taints: Iterable[Mapping[str, Json]], service: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for taint in taints:
        key = str(taint.get("key") or "")
        if key.startswith((*_GPU_TAINTS, *clouds()[service].own_labels)):
            continue
        value, effect = str(taint.get("value") or ""), str(taint.get("effect"))
        found.append({"key": key, **({"value": value} if value else {}), "effect": _EFFECTS.get(effect, effect)})
    return found


def _nodes(least: int, most: int) -> int | dict[str, int]:
    return least if least == most else {"min": least, "max": max(least, most)}


def _disk(gib: int, key: str = "") -> dict[str, Any] | None:
    entry: dict[str, Any] = {"size": f"{gib}Gi"} if gib and gib != _DISK else {}
    return entry | ({"key": key} if key else {})


def _template(recording: Recording, pool: Recorded) -> dict[str, Json]:
    template = recording.templates.get(_text(pool, "launchTemplate", "id"))
    return map_at(template.state, "LaunchTemplateData") if template else {}


def _eks(recording: Recording, pool: Recorded) -> dict[str, Any]:
    template, kind = _template(recording, pool), _text(pool, "capacityType")
    target = value_of(template, "CapacityReservationSpecification", "CapacityReservationTarget")
    named = [str(value) for value in target.values()] if isinstance(target, dict) else []
    capacity: Any = {"SPOT": "spot"}.get(kind)
    if named:
        capacity = {"kind": "capacity-block" if kind == "CAPACITY_BLOCK" else "reserved", "reservation": named[0]}
    sizes = [value_of(one, "Ebs", "VolumeSize") for one in maps_at(template, "BlockDeviceMappings")]
    disk = next((size for size in reversed(sizes) if isinstance(size, int)), _whole(pool, "diskSize"))
    zones = _zones(recording, pool)
    every = {zone for one in recording.pools for zone in _zones(recording, one)}
    types = value_of(pool.state, "instanceTypes")
    return {
        "nodes": _nodes(_whole(pool, "scalingConfig", "minSize"), _whole(pool, "scalingConfig", "maxSize")),
        "alternatives": [str(each) for each in types[1:]] if isinstance(types, list) else [],
        "capacity": capacity,
        "driver": "bottlerocket" if _text(pool, "amiType").startswith("BOTTLEROCKET") else None,
        "zones": zones if {*zones} != every else [],
        "disk": _disk(disk),
        "labels": _labels(texts_at(pool.state, "labels"), "aws"),
        "taints": _taints(maps_at(pool.state, "taints"), "aws"),
    }


def _zones(recording: Recording, pool: Recorded) -> list[str]:
    subnets = value_of(pool.state, "subnets")
    return sorted(
        {zone for one in subnets if (zone := recording.zones.get(str(one)))} if isinstance(subnets, list) else ()
    )


def _gke(recording: Recording, pool: Recorded) -> dict[str, Any]:
    places = value_of(pool.state, "locations")
    zones = [str(zone) for zone in places] if isinstance(places, list) else []
    count, bounds = max(1, len(zones)), map_at(pool.state, "autoscaling")
    least = most = _whole(pool, "initialNodeCount") * count
    if bounds.get("enabled"):
        each = _whole(pool, "autoscaling", "minNodeCount") * count, _whole(pool, "autoscaling", "maxNodeCount") * count
        total = _whole(pool, "autoscaling", "totalMinNodeCount"), _whole(pool, "autoscaling", "totalMaxNodeCount")
        least, most = total if total[1] else each
    accelerator = next(iter(maps_at(pool.state, "config", "accelerators")), dict[str, Json]())
    driver = value_of(accelerator, "gpuDriverInstallationConfig", "gpuDriverVersion")
    return {
        "nodes": _nodes(least, most),
        "capacity": _gke_capacity(pool),
        "driver": "operator" if driver == "INSTALLATION_DISABLED" else None,
        "sharing": _gke_sharing(accelerator),
        # A stack knows no zones of a regional cluster that exists.
        "zones": zones if zones != [recording.cluster.id.split("/")[3]] else [],
        "compact": _text(pool, "placementPolicy", "type") == "COMPACT" or None,
        "placementPolicy": _text(pool, "placementPolicy", "policyName") or None,
        "disk": _disk(_whole(pool, "config", "diskSizeGb"), _text(pool, "config", "bootDiskKmsKey")),
        "labels": _labels(texts_at(pool.state, "config", "labels"), "gcp"),
        "taints": _taints(maps_at(pool.state, "config", "taints"), "gcp"),
    }


def _gke_sharing(accelerator: Mapping[str, Json]) -> dict[str, Any] | None:
    if profile := value_of(accelerator, "gpuPartitionSize"):
        return {"mig": {"profile": str(profile)}}
    turns = value_of(accelerator, "gpuSharingConfig", "maxSharedClientsPerGpu")
    return {"timeSlicing": int(str(turns))} if turns else None


def _gke_capacity(pool: Recorded) -> Any:
    run = _text(pool, "config", "maxRunDuration")
    if value_of(pool.state, "queuedProvisioning", "enabled"):
        return {"kind": "queued", **({"maxRun": run} if run else {})}
    if value_of(pool.state, "config", "flexStart"):
        return {"kind": "flex-start", "maxRun": run}
    if value_of(pool.state, "config", "spot"):
        return "spot"
    names = value_of(pool.state, "config", "reservationAffinity", "values")
    return {"kind": "reserved", "reservation": str(names[0])} if isinstance(names, list) and names else None


def _aks(recording: Recording, pool: Recorded) -> dict[str, Any]:
    count = _whole(pool, "count")
    scaled = value_of(pool.state, "enableAutoScaling")
    reservation = _text(pool, "capacityReservationGroupID")
    capacity: Any = "spot" if _text(pool, "scaleSetPriority") == "Spot" else None
    zones = value_of(pool.state, "availabilityZones")
    taints = value_of(pool.state, "nodeTaints")
    labels = value_of(pool.state, "nodeLabels")
    return {
        "nodes": _nodes(_whole(pool, "minCount"), _whole(pool, "maxCount")) if scaled else count,
        "capacity": {"kind": "reserved", "reservation": reservation} if reservation else capacity,
        "driver": "operator" if _text(pool, "gpuProfile", "driver") == "None" else None,
        "sharing": _aks_sharing(recording, pool),
        "zones": [str(zone) for zone in zones] if isinstance(zones, list) else [],
        "compact": bool(_text(pool, "proximityPlacementGroupID")) or None,
        "disk": _disk(_whole(pool, "osDiskSizeGB")),
        "labels": _labels({key: str(value) for key, value in labels.items()}, "azure")
        if isinstance(labels, dict)
        else {},
        "taints": _taints(map(_parsed, taints), "azure") if isinstance(taints, list) else [],
    }


def _parsed(taint: Json) -> dict[str, Json]:
    """`key=value:Effect`."""
    head, _, effect = str(taint).rpartition(":")
    key, _, value = head.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _aks_sharing(recording: Recording, pool: Recorded) -> dict[str, Any] | None:
    """The profile with the most partitions of those with its compute slices: `MIG1g` of an A100 is `1g.10gb`."""
    slices = _text(pool, "gpuInstanceProfile").removeprefix(_SLICES)
    machine = _machine(recording, _machine_type(recording, pool), pool)
    row = find_gpu(machine.gpu or "") if machine else None
    fitting = {profile: parts for profile, parts in row.mig.items() if profile.startswith(f"{slices}.")} if row else {}
    return {"mig": {"profile": max(fitting, key=lambda profile: fitting[profile])}} if slices and fitting else None


def cluster_of(recording: Recording) -> tuple[dict[str, Any], list[str]]:
    """The section of an existing cluster, and what it cannot express."""
    sections = {"aws": _eks_cluster, "gcp": _gke_cluster, "azure": _aks_cluster}
    return sections[recording.service](recording)


def _common(recording: Recording, *path: str) -> tuple[str | None, list[str]]:
    """The value that most pools have, and the pools that have others."""
    values = [_text(pool, *path) for pool in recording.pools if _text(pool, *path)]
    if not values:
        return None, []
    usual = max(dict.fromkeys(values), key=values.count)
    others = [pool.name for pool in recording.pools if _text(pool, *path) not in {usual, ""}]
    return usual, [f"pool {name}: another {path[-1]} than {usual}, which a stack has once" for name in others]


def _eks_cluster(recording: Recording) -> tuple[dict[str, Any], list[str]]:
    cluster = recording.cluster
    role, left = _common(recording, "nodeRole")
    subnets: dict[str, str] = {}
    for pool in recording.pools:
        listed = value_of(pool.state, "subnets")
        for one in listed if isinstance(listed, list) else ():
            zone = recording.zones.get(str(one))
            if zone is None:
                left.append(f"subnet {one}: its zone is unknown; save `aws ec2 describe-subnets` too")
            elif subnets.setdefault(zone, str(one)) != str(one):
                left.append(f"subnet {one}: a second one in {zone}, and a stack has one for each zone")
    grow = any(
        _whole(pool, "scalingConfig", "minSize") < _whole(pool, "scalingConfig", "maxSize") for pool in recording.pools
    )
    section = {
        "cloud": "aws",
        "name": cluster.name,
        "region": _text(cluster, "arn").split(":")[3],
        "subnets": dict(sorted(subnets.items())),
        "nodeRole": role,
        "autoscaler": "installed" if grow else "none",
    }
    return section, list(dict.fromkeys(left))


def _gke_cluster(recording: Recording) -> tuple[dict[str, Any], list[str]]:
    _, project, _, location, _, name = recording.cluster.id.split("/")
    account, left = _common(recording, "config", "serviceAccount")
    section: dict[str, Any] = {"cloud": "gcp", "name": name, "project": project, "location": location}
    if account == "default":
        left.append("nodes use Compute Engine's default service account, which a stack replaces by one of its own")
        account = None
    return section | ({"nodeServiceAccount": account} if account else {}), left


def _aks_cluster(recording: Recording) -> tuple[dict[str, Any], list[str]]:
    parts = recording.cluster.id.split("/")
    subnet, left = _common(recording, "vnetSubnetID")
    if subnet is None:
        left.append("pools have no subnet of yours, which a stack needs: AKS keeps such a network to itself")
    section = {
        "cloud": "azure",
        "name": recording.cluster.name,
        "subscription": parts[2],
        "resourceGroup": parts[4],
        "location": _text(recording.cluster, "location").replace(" ", "").lower(),
        **({"subnet": subnet} if subnet else {}),
    }
    return section, left


POOL_LABELS: Final[Mapping[str, str]] = {
    "aws": "eks.amazonaws.com/nodegroup",
    "gcp": "cloud.google.com/gke-nodepool",
    "azure": "kubernetes.azure.com/agentpool",
}
"""Label with which the cloud marks the nodes of a pool: https://docs.aws.amazon.com/eks/latest/userguide/,
https://cloud.google.com/kubernetes-engine/docs/concepts/node-pools, https://learn.microsoft.com/azure/aks/use-labels."""


def with_flavors(
    drafted: Drafted, recording: Recording, nodes: Iterable[Manifest], flavors: Iterable[Manifest]
) -> None:
    """Sets the flavor of each pool: the one with the most labels of those that its nodes have."""
    label = POOL_LABELS[recording.service]
    ordered = sorted(flavors, key=lambda flavor: -len(texts_at(flavor, "spec", "nodeLabels")))
    labels = {
        texts_at(node, "metadata", "labels").get(label, ""): texts_at(node, "metadata", "labels") for node in nodes
    }
    for pool, entry in drafted.entries.items():
        seen = {label: pool, **entry.get("labels", {}), **labels.get(pool, {})}
        fitting = (name_of(each) for each in ordered if texts_at(each, "spec", "nodeLabels").items() <= seen.items())
        flavor = next(fitting, None)
        if flavor is None:
            drafted.left.append(f"pool {pool}: its nodes have the labels of no ResourceFlavor")
        elif flavor != pool:
            entry["flavor"] = flavor
