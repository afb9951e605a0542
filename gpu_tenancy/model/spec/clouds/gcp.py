"""GKE: https://cloud.google.com/kubernetes-engine/docs."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import Field, StringConstraints

from gpu_tenancy.model.fields import Date, Matching, Name, Section
from gpu_tenancy.model.spec.clouds.base import CloudCluster, Creation, Exclusion, Login, Maintenance
from gpu_tenancy.model.spec.people import Person

Project: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z][-a-z0-9]{4,28}[a-z0-9]$")]
Location: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z]+(-[a-z]+)*-[a-z]+\d+(-[a-z])?$")]
Group: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[\w.+-]+@[\w-]+(\.[\w-]+)+$")]
PoolProvider: TypeAlias = Annotated[
    str,
    StringConstraints(
        pattern=r"^projects/\d+/locations/global/workloadIdentityPools/[a-z0-9-]{4,32}/providers/[a-z0-9-]{4,32}$"
    ),
]
CryptoKey: TypeAlias = Annotated[
    str, StringConstraints(pattern=r"^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$")
]

_NAME: Final = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
"""https://cloud.google.com/compute/docs/naming-resources"""
_PROJECT: Final = r"projects/([a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]"

_DISK_IMAGE: Final = re.compile(f"{_PROJECT}/global/images/{_NAME}")


def _named(folder: str) -> Matching:
    """A name, alone or with its path in a project below a folder, where `<region>` stands for any region."""
    return Matching(
        re.compile(f"({_PROJECT}/{folder.replace('<region>', '[a-z0-9-]+')}/)?{_NAME}"),
        "is not a valid name in Google Cloud",
        "use at most 63 lowercase letters, digits and '-'; start with a letter; or use"
        f" projects/<host>/{folder}/<name>",
        schema="",
    )


Network: TypeAlias = Annotated[str, _named("global/networks")]
Subnetwork: TypeAlias = Annotated[str, _named("regions/<region>/subnetworks")]
Zone: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z]+(-[a-z]+)*-[a-z]+\d+-[a-z]$")]

_MAINTENANCE_HOURS: Final = 48
"""Hours of maintenance windows that GKE requires in any 32 days:
https://cloud.google.com/kubernetes-engine/docs/concepts/maintenance-windows-and-exclusions."""
_EACH_WEEKDAY: Final = 4
"""How often each weekday occurs in any 32 days, at least."""
_WEEK: Final = 7

VIEWER: Final = "roles/container.clusterViewer"
"""The role with which people get the address and the CA of clusters:
https://cloud.google.com/kubernetes-engine/docs/concepts/access-control."""


def iam_member(who: Person) -> str:
    """A person in IAM, where a service account is a user: https://cloud.google.com/iam/docs/principal-identifiers."""
    return f"{'serviceAccount' if who.name.endswith('.gserviceaccount.com') else who.kind}:{who.name}"


class FabricNetwork(Section):
    """An additional network, for one of a machine's GPU interfaces."""

    network: Network
    """Name of the VPC network."""
    subnetwork: Subnetwork
    """Name of its subnetwork in the cluster's region."""
    fabric: Literal["gpudirect-tcpx", "gpudirect-tcpxo", "gpudirect-rdma"] | None = None
    """Fabric whose pools use this network; default: all fabrics."""


class GkeExclusion(Exclusion):
    """Days without upgrades by GKE."""

    end: Date | None = None  # pyright: ignore[reportIncompatibleVariableOverride] - a scope of GKE has no last day
    """Last day, in UTC; default: the end of support of the cluster's minor version, not for scope `upgrades`."""
    scope: Literal["upgrades", "minor-upgrades", "minor-or-node-upgrades"] = "upgrades"
    """Excluded: any upgrades, upgrades to another minor version, or these and upgrades of nodes. GKE limits the length
    of `upgrades`."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if self.end is not None:
            yield from super()._conflicts()
        elif self.scope == "upgrades":
            yield "has no end, which scope upgrades requires", "set end, or scope: minor-or-node-upgrades"


class GkeMaintenance(Maintenance):
    """When GKE upgrades the control plane and the nodes."""

    exclusions: Annotated[dict[Name, GkeExclusion], Field(max_length=20)] = {}
    """Days without upgrades, by a name."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        yield from super()._conflicts()
        times = (len(self.days) or _WEEK) * _EACH_WEEKDAY
        if times * self.hours < _MAINTENANCE_HOURS:
            rule = f"has windows of {times * self.hours} hours in 32 days, but GKE requires {_MAINTENANCE_HOURS}"
            yield rule, f"set hours: {-(-_MAINTENANCE_HOURS // times)}, or add days"


class GkeCreation(Creation):
    """A GKE cluster to create: with private nodes, encrypted secrets, audit logs and Workload Identity."""

    _ADDRESSES: ClassVar[str] = "10.16.0.0/14"
    # Half for pods, 256 addresses a node; a quarter for nodes.
    _PREFIXES: ClassVar[tuple[int, int]] = (8, 20)

    network: Network | None = None
    """VPC network, by name or `projects/<host>/global/networks/<name>` for a shared one, set together with
    `subnetwork`, `podRange` and `serviceRange`; default: one with jumbo frames and Cloud NAT is created, named after
    the cluster."""
    subnetwork: Subnetwork | None = None
    """Subnetwork of the nodes, by name or `projects/<host>/regions/<region>/subnetworks/<name>`."""
    pod_range: str | None = None
    """Name of the subnetwork's secondary range for pods."""
    service_range: str | None = None
    """Name of the subnetwork's secondary range for services."""
    node_locations: list[Zone] = []
    """Zones of the nodes of pools that set no `zones`; default: GKE selects three zones of the region."""
    maintenance: GkeMaintenance = GkeMaintenance()
    """When GKE upgrades the cluster and its nodes; default: every day from 03:00 to 07:00 UTC."""
    secrets_key: CryptoKey | None = None
    """Cloud KMS key that encrypts secrets; default: a key is created."""
    security_group: Group | None = None
    """Security group `gke-security-groups@<domain>`; the groups under `admins` must be its members."""
    admins: list[Group] = []
    """Google Groups that administer the cluster; requires `securityGroup`."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        yield from super()._conflicts()
        keys = ("network", "subnetwork", "podRange", "serviceRange")
        named = dict(zip(keys, (self.network, self.subnetwork, self.pod_range, self.service_range), strict=True))
        missing = [key for key, value in named.items() if value is None]
        if 0 < len(missing) < len(named):
            there = ", ".join(key for key in named if key not in missing)
            fix = "set all four for an existing network, or none to have a network created"
            yield f"sets {there} without {', '.join(missing)}", fix
        if self.admins and self.security_group is None:
            fix = "set securityGroup: gke-security-groups@<domain>, and add the groups to it as members"
            yield "sets admins without securityGroup, but GKE only finds Google Groups in a security group", fix


OBJECT_ROLES: Final = {False: "roles/storage.objectViewer", True: "roles/storage.objectUser"}
"""Roles on objects, by whether they write: https://cloud.google.com/storage/docs/access-control/iam-roles."""


class GcpCluster(CloudCluster):
    """A GKE Standard cluster, in an existing network or in one that is created with it."""

    _LONGEST_IDENTITY: ClassVar[int] = 30

    cloud: Literal["gcp"]
    """`gcp`: GKE."""
    project: Project
    """Project of the cluster."""
    location: Location
    """Region such as `us-central1`, or a zone for a zonal cluster."""
    node_service_account: Group | None = None
    """Email of the nodes' service account; default: one with the minimum permissions is created."""
    identity_provider: PoolProvider | None = None
    """Workload identity pool provider of the CI system, with whose tokens service accounts with `subject` log in:
    `projects/<number>/locations/global/workloadIdentityPools/<pool>/providers/<provider>`. It must map `google.subject`
    to `assertion.sub`, and be the only provider of its pool."""
    fabric_networks: list[FabricNetwork] = []
    """Networks for the GPU interfaces of pools with `fabric`, in the order of the interfaces after the node's first.
    Number per machine: 4 for A3 High, 8 for A3 Mega; for RDMA one for the second network card of the host, then one for
    each GPU interface. A cluster created with them has multi-networking, which cannot be changed later."""
    image_streaming: bool = False
    """Whether containers start before their image is downloaded completely, for images in Artifact Registry. Requires
    the API `containerfilesystem.googleapis.com` in the project."""
    gpu_upgrades: Literal["on-demand", "windows"] = "on-demand"
    """When GKE upgrades the nodes of GPU pools. `on-demand`: not before the end of support of the cluster's version.
    `windows`: in the maintenance windows, which ends running pods; set it to have the nodes upgraded, then remove
    it."""
    endpoint: Literal["ip", "dns"] = "ip"
    """Address of the API server in kubeconfigs. `ip`: private unless `create.allowFrom` is set. `dns`: its [DNS
    name](https://cloud.google.com/kubernetes-engine/docs/concepts/network-isolation), reachable from anywhere with the
    permission `container.clusters.connect`, also without a public IP address. An existing cluster must accept requests
    by this name."""
    create: GkeCreation | None = None
    """Settings of the cluster to create; default: use the existing cluster with this name."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        yield from super()._conflicts()
        if self.endpoint == "dns" and self.create and self.create.allow_from:
            rule = "sets endpoint: dns and create.allowFrom, which does not restrict the DNS name"
            yield rule, "remove create.allowFrom, or endpoint"
        locations = self.create.node_locations if self.create else []
        if locations and self.location != self.region:
            rule = f"sets create.nodeLocations, but its location is the zone {self.location}"
            yield rule, "remove create.nodeLocations, or set location to a region"
        for zone in locations:
            if wrong := self.zone_rule(zone):
                yield f"create.nodeLocations: {zone} {wrong[0]}", wrong[1]

    @property
    def region(self) -> str:
        """Region of the cluster, for regional and zonal locations."""
        head, _, last = self.location.rpartition("-")
        return head if len(last) == 1 else self.location

    @property
    def makes_network(self) -> bool:
        """Whether it names no network."""
        return self.create is not None and self.create.network is None

    @property
    def ways_out(self) -> dict[str, int]:
        """Cloud NAT."""
        return {"cloud-nat": 1} if self.makes_network else {}

    def login(self, who: Person) -> Login | None:
        """People find clusters of a project by a role of IAM."""
        if who.kind == "serviceaccount":
            return None
        command = f"gcloud projects add-iam-policy-binding {self.project} --member={iam_member(who)} --role={VIEWER}"
        return Login(VIEWER, self.create is not None, command)

    def identity_name(self, team: str, name: str) -> str:
        """ID of the Google service account: unique in a project, and at most 30 characters.

        https://cloud.google.com/iam/docs/service-accounts-create
        """
        whole = f"{self.location}/{self.name}/{team}/{name}"
        return f"robot-{name[:15]}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"

    @property
    def reader_cluster(self) -> dict[str, str]:
        """The cluster whose ServiceAccounts are members of IAM policies, as External Secrets names it."""
        return {"clusterName": self.name, "clusterLocation": self.location, "clusterProjectID": self.project}

    @property
    def storage_parameters(self) -> Mapping[str, str]:
        """The cluster's network; in a shared VPC, Filestore needs private services access.

        https://github.com/kubernetes-sigs/gcp-filestore-csi-driver#plugin-features
        """
        if self.create is None:
            return {}
        named = self.create.network or self.name
        name = named.rpartition("/")[2]
        own = f"projects/{self.project}/global/networks/{name}"
        if named in {name, own}:
            return {"network": name, "networkPath": own, "connectMode": "DIRECT_PEERING"}
        return {"network": named, "networkPath": named, "connectMode": "PRIVATE_SERVICE_ACCESS"}

    def pull_rights(self, registries: Sequence[str]) -> Iterator[str]:
        """Nodes read Artifact Registry by a role of their service account in the project of each repository."""
        role, given = "roles/artifactregistry.reader", self.node_service_account
        own = f"give {given} the role {role}" if given else "made here"
        yield f"Nodes read Artifact Registry of project {self.project}: {own}"
        yield from (f"Nodes read {registry}: made here" for registry in registries)

    def account_member(self, namespace: str, account: str) -> str:
        """A ServiceAccount as a member of IAM: https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity."""
        return f"serviceAccount:{self.project}.svc.id.goog[{namespace}/{account}]"

    def account_identity(self, team: str, name: str) -> Person | None:
        """The Google service account of a service account, which a cluster knows as a user.

        https://cloud.google.com/kubernetes-engine/docs/how-to/role-based-access-control
        """
        if self.identity_provider is None:
            return None
        return Person("user", f"{self.identity_name(team, name)}@{self.project}.iam.gserviceaccount.com")

    def principal(self, project_number: str, namespace: str, account: str) -> str:
        """A ServiceAccount of the cluster, as a member of an IAM policy.

        Every cluster of the project has the same pool, so a namespace with the same name in another one is the same
        principal: https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity#identity_sameness.
        """
        pool = f"projects/{project_number}/locations/global/workloadIdentityPools/{self.project}.svc.id.goog"
        return f"principal://iam.googleapis.com/{pool}/subject/ns/{namespace}/sa/{account}"

    def federated(self, subject: str) -> str:
        """A subject of the CI system's tokens in IAM: https://cloud.google.com/iam/docs/principal-identifiers."""
        pool = (self.identity_provider or "").partition("/providers/")[0]
        return f"principal://iam.googleapis.com/{pool}/subject/{subject}"

    def image_disk_rule(self, image_disk: str, driver: str | None, *, local_disks: bool) -> tuple[str, str] | None:
        """A secondary boot disk, which needs image streaming.

        https://cloud.google.com/kubernetes-engine/docs/how-to/data-container-image-preloading
        """
        if not _DISK_IMAGE.fullmatch(image_disk):
            return "is not a disk image", "set projects/<project>/global/images/<name>"
        if not self.image_streaming:
            return "needs image streaming", "set cluster.imageStreaming: true, or remove it"
        return None

    def zone_rule(self, zone: str) -> tuple[str, str] | None:
        """A pool's zones must be in the cluster's region."""
        if zone.startswith(f"{self.region}-"):
            return None
        return f"is not a zone of {self.region}", f"set a zone such as {self.region}-a"

    def node_zones(self, zones: Sequence[str]) -> tuple[str, ...]:
        """The pool's zones, else the cluster's: its own zone, or `nodeLocations`; GKE's selection is unknown."""
        if zones or self.location == self.region:
            return tuple(zones) or tuple(self.create.node_locations if self.create else ())
        return (self.location,)

    def fabric_networks_for(self, fabric: str, interfaces: int) -> list[FabricNetwork]:
        """The networks of a machine's interfaces: one each, and for RDMA first one for the host's second card."""
        serving = [network for network in self.fabric_networks if network.fabric in {None, fabric}]
        return serving[: interfaces + (fabric == "gpudirect-rdma")]

    def fabric_rule(self, fabric: str, interfaces: int) -> tuple[str, str] | None:
        """Each interface needs its own network."""
        needed, existing = interfaces + (fabric == "gpudirect-rdma"), len(self.fabric_networks_for(fabric, interfaces))
        if existing == needed:
            return None
        rule = f"needs {needed} additional networks, but cluster.fabricNetworks has {existing} for {fabric}"
        return rule, "add the missing networks there, or remove fabric"
