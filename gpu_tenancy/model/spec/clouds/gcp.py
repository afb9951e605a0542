"""GKE: https://cloud.google.com/kubernetes-engine/docs."""

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import StringConstraints, model_validator

from gpu_tenancy.model.spec.base import Section, refuse
from gpu_tenancy.model.spec.clouds.base import CloudCluster, Creation

Project: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z][-a-z0-9]{4,28}[a-z0-9]$")]
Location: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z]+(-[a-z]+)*-[a-z]+\d+(-[a-z])?$")]
Group: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[\w.+-]+@[\w-]+(\.[\w-]+)+$")]
CryptoKey: TypeAlias = Annotated[
    str, StringConstraints(pattern=r"^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$")
]


class FabricNetwork(Section):
    """An additional network, for one of a machine's GPU interfaces."""

    network: str
    """Name of the VPC network."""
    subnetwork: str
    """Name of its subnetwork in the cluster's region."""
    fabric: Literal["gpudirect-tcpx", "gpudirect-tcpxo", "gpudirect-rdma"] | None = None
    """Fabric whose pools use this network; default: all fabrics."""


class GkeCreation(Creation):
    """A GKE cluster to create: with private nodes, encrypted secrets, audit logs and Workload Identity."""

    network: str
    """VPC network, by name or `projects/<host>/global/networks/<name>` for a shared one."""
    subnetwork: str
    """Subnetwork of the nodes, by name or `projects/<host>/regions/<region>/subnetworks/<name>`."""
    pod_range: str
    """Name of the subnetwork's secondary range for pods."""
    service_range: str
    """Name of the subnetwork's secondary range for services."""
    secrets_key: CryptoKey | None = None
    """Cloud KMS key that encrypts secrets; default: a key is created."""
    security_group: Group | None = None
    """Security group `gke-security-groups@<domain>`; the groups under `admins` must be its members."""
    admins: list[Group] = []
    """Google Groups that administer the cluster; requires `securityGroup`."""

    @model_validator(mode="after")
    def _groups_known(self) -> Self:
        if self.admins and self.security_group is None:
            raise refuse(
                "sets admins without securityGroup, but GKE only finds Google Groups in a security group",
                "set securityGroup: gke-security-groups@<domain>, and add the groups to it as members",
            )
        return self


class GcpCluster(CloudCluster):
    """A GKE Standard cluster in an existing network."""

    cloud: Literal["gcp"]
    """`gcp`: GKE."""
    project: Project
    """Project of the cluster."""
    location: Location
    """Region such as `us-central1`, or a zone for a zonal cluster."""
    node_service_account: Group | None = None
    """Email of the nodes' service account; default: one with the minimum permissions is created."""
    fabric_networks: list[FabricNetwork] = []
    """Networks for the GPU interfaces of pools with `fabric`, in the order of the interfaces after the node's first.

    Number per machine: 4 for A3 High, 8 for A3 Mega; for RDMA one for the second network card of the host, then one
    for each GPU interface. A cluster created with such networks has multi-networking enabled, which cannot be changed
    later."""
    create: GkeCreation | None = None
    """Settings of the cluster to create; default: use the existing cluster with this name."""

    @property
    def region(self) -> str:
        """Region of the cluster, for regional and zonal locations."""
        head, _, last = self.location.rpartition("-")
        return head if len(last) == 1 else self.location

    @property
    def creation(self) -> GkeCreation | None:
        """Settings of the cluster to create."""
        return self.create

    def zone_rule(self, zone: str) -> tuple[str, str] | None:
        """A pool's zones must be in the cluster's region."""
        if zone.startswith(f"{self.region}-"):
            return None
        return f"is not a zone of {self.region}", f"set a zone such as {self.region}-a"

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
