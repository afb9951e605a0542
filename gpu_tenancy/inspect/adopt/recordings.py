"""What the clouds' own commands print of a cluster, its node pools and what these need, read from files."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from gpu_tenancy.base.bounds import LARGEST, read_json
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, at, list_at, map_at, maps_at, text_at

Service: TypeAlias = Literal["aws", "gcp", "azure"]

EKS_CLUSTER: Final = "aws:eks/cluster:Cluster"
NODE_GROUP: Final = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"
ROLE: Final = "aws:iam/role:Role"
GKE_CLUSTER: Final = "gcp:container/cluster:Cluster"
GKE_POOL: Final = "gcp:container/nodePool:NodePool"
AKS_CLUSTER: Final = "azure-native:containerservice:ManagedCluster"
AKS_POOL: Final = "azure-native:containerservice:AgentPool"
COMMANDS: Final = (
    "save what these print to files of one folder: `aws eks describe-cluster`, `describe-nodegroup` for each group,"
    " `aws ec2 describe-subnets` and `describe-launch-template-versions`; `gcloud container clusters describe --format"
    " json`; `az aks show` and `az aks nodepool list`"
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A resource of a cloud.

    Attributes:
        type: type token of Pulumi.
        name: in the cloud.
        id: with which Pulumi imports it; the forms are those of the provider's registry page of the type.
        state: as the cloud describes it.
    """

    type: str
    name: str
    id: str
    state: Mapping[str, Json]


@dataclass(slots=True)
class Recording:
    """A cluster of a cloud, as its commands describe it.

    Attributes:
        zones: Availability Zone of each subnet, by ID (AWS).
        templates: launch templates by ID (AWS): their newest version.
    """

    service: Service
    cluster: Recorded
    pools: list[Recorded] = field(default_factory=list[Recorded])
    zones: dict[str, str] = field(default_factory=dict[str, str])
    templates: dict[str, Recorded] = field(default_factory=dict[str, Recorded])


def read_recording(folder: Path) -> Recording:
    """Reads the files of a folder.

    Raises:
        ConsoleError: a file is not JSON, or no file describes a cluster, or several do.
    """
    documents = [document for file in sorted(folder.glob("*.json")) for document in _documents(file)]
    found = [one for read in (_eks, _gke, _aks) if (one := read(documents))]
    if len(found) != 1:
        what = "no file" if not found else "files"
        raise ConsoleError(f"--recorded {folder}: {what} of {'a' if not found else 'several'} cluster", COMMANDS)
    return found[0]


def _documents(file: Path) -> Iterator[dict[str, Json]]:
    if file.stat().st_size > LARGEST:
        raise ConsoleError(f"{file}: larger than {LARGEST // 2**20} MiB", "save one description in each file")
    try:
        value = read_json(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ConsoleError(f"{file}: not JSON: {error}", "save what the cloud's command prints as JSON") from error
    for item in cast("list[Any]", value) if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            yield cast("dict[str, Json]", item)


def _one(clusters: list[dict[str, Json]], service: str) -> dict[str, Json] | None:
    if len(clusters) > 1:
        names = ", ".join(text_at(cluster, "name") for cluster in clusters)
        raise ConsoleError(f"{service}: descriptions of {len(clusters)} clusters ({names})", "use one folder for each")
    return clusters[0] if clusters else None


def _eks(documents: Iterable[dict[str, Json]]) -> Recording | None:
    """https://docs.aws.amazon.com/eks/latest/APIReference/API_Nodegroup.html."""
    known = list(documents)
    clusters = [map_at(one, "cluster") for one in known if text_at(one, "cluster", "arn").startswith("arn:aws")]
    state = _one(clusters, "EKS")
    if state is None:
        return None
    name = text_at(state, "name")
    # Pulumi's name of the list, which the API has by whether they are enabled.
    logs = [one for one in maps_at(state, "logging", "clusterLogging") if at(one, "enabled")]
    state["enabledClusterLogTypes"] = [kind for one in logs for kind in list_at(one, "types")]
    made = Recording("aws", Recorded(EKS_CLUSTER, name, name, state))
    for one in known:
        if group := map_at(one, "nodegroup"):
            own = text_at(group, "nodegroupName")
            made.pools.append(Recorded(NODE_GROUP, own, f"{name}:{own}", group))
        for subnet in maps_at(one, "Subnets"):
            made.zones[text_at(subnet, "SubnetId")] = text_at(subnet, "AvailabilityZone")
        for version in maps_at(one, "LaunchTemplateVersions"):
            key = text_at(version, "LaunchTemplateId")
            before = made.templates.get(key)
            if before is None or _number(version, "VersionNumber") > _number(before.state, "VersionNumber"):
                made.templates[key] = Recorded(TEMPLATE, text_at(version, "LaunchTemplateName"), key, version)
    return made


def _number(state: Mapping[str, Json], key: str) -> int:
    value = at(state, key)
    return value if isinstance(value, int) else 0


def _gke(documents: Iterable[dict[str, Json]]) -> Recording | None:
    """https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters."""
    known = list(documents)
    state = _one([one for one in known if "/clusters/" in text_at(one, "selfLink") and "nodePools" in one], "GKE")
    if state is None:
        return None
    _, _, place = text_at(state, "selfLink").partition("/projects/")
    project, _, location, _, name = place.split("/")[:5]
    cluster = Recorded(GKE_CLUSTER, name, f"projects/{project}/locations/{location}/clusters/{name}", state)
    listed = {text_at(one, "name"): one for one in known if "/nodePools/" in text_at(one, "selfLink")}
    pools = {text_at(one, "name"): one for one in maps_at(state, "nodePools")} | listed
    return Recording(
        "gcp",
        cluster,
        [Recorded(GKE_POOL, own, f"{project}/{location}/{name}/{own}", pool) for own, pool in pools.items()],
    )


def _aks(documents: Iterable[dict[str, Json]]) -> Recording | None:
    """https://learn.microsoft.com/rest/api/aks/managed-clusters/get, flat as the Azure CLI prints it, or not."""
    known = [{**one, **map_at(one, "properties")} for one in documents]
    kind = "microsoft.containerservice/managedclusters"
    state = _one([one for one in known if text_at(one, "type").lower() == kind], "AKS")
    if state is None:
        return None
    place = text_at(state, "id")
    cluster = Recorded(AKS_CLUSTER, text_at(state, "name"), place, state)
    listed = {text_at(one, "name"): one for one in known if text_at(one, "type").lower() == f"{kind}/agentpools"}
    pools = {text_at(one, "name"): one for one in maps_at(state, "agentPoolProfiles")} | listed
    return Recording(
        "azure", cluster, [Recorded(AKS_POOL, own, f"{place}/agentPools/{own}", pool) for own, pool in pools.items()]
    )


def value_of(state: Mapping[str, Json], *path: str) -> Json:
    """The value at a path of keys; None if there is none.

    Capitals do not count: the Azure CLI prints `osDiskSizeGb` for the API's `osDiskSizeGB`, and EC2 has `Ebs`.
    """
    value: Json = dict(state)
    for key in path:
        if isinstance(value, list):
            (value,) = value if len(value) == 1 else [None]
        if not isinstance(value, dict):
            return None
        value = value.get(key, next((inner for own, inner in value.items() if own.lower() == key.lower()), None))
    return value
