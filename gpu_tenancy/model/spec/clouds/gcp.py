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
    """A network beside the node's own, for one of a machine's GPU interfaces."""

    network: str
    """Name of the VPC network."""
    subnetwork: str
    """Name of its subnetwork in the cluster's region."""
    fabric: Literal["gpudirect-tcpx", "gpudirect-tcpxo", "gpudirect-rdma"] | None = None
    """The only fabric whose pools it serves, where a cluster has several; left out, all."""


class GkeCreation(Creation):
    """A GKE cluster to be made: private nodes, secrets encrypted, audit logs on, Workload Identity."""

    network: str
    """VPC network, by name or `projects/<host>/global/networks/<name>` for a shared one."""
    subnetwork: str
    """Subnetwork of the nodes, by name or `projects/<host>/regions/<region>/subnetworks/<name>`."""
    pod_range: str
    """Name of the subnetwork's secondary range for pods."""
    service_range: str
    """Name of the subnetwork's secondary range for services."""
    secrets_key: CryptoKey | None = None
    """Cloud KMS key that encrypts secrets; left out, one is made."""
    security_group: Group | None = None
    """`gke-security-groups@<domain>`, of which the groups under `admins` are members."""
    admins: list[Group] = []
    """Google Groups that administer the cluster; needs `securityGroup`."""

    @model_validator(mode="after")
    def _groups_known(self) -> Self:
        if self.admins and self.security_group is None:
            raise refuse(
                "names Google Groups, which GKE looks up only within a security group",
                "write securityGroup: gke-security-groups@<domain>, and make the groups its members",
            )
        return self


class GcpCluster(CloudCluster):
    """A GKE cluster of the Standard kind. Its network is given, not made."""

    cloud: Literal["gcp"]
    """`gcp`: GKE."""
    project: Project
    """Project of the cluster."""
    location: Location
    """Region such as `us-central1`, or a zone for a cluster of one zone."""
    node_service_account: Group | None = None
    """Service account of the nodes, as an address; left out, one is made with what a node needs and no more."""
    fabric_networks: list[FabricNetwork] = []
    """Networks for the GPU interfaces of pools with `fabric`, in the order of the interfaces beyond the node's first.

    A pool takes as many as its machine has: 4 for A3 High, 8 for A3 Mega, and for RDMA one for the second network card
    of the host, then one for each GPU interface. A cluster made with any is made for multi-networking, which cannot
    be changed later."""
    create: GkeCreation | None = None
    """What the cluster is like that is made here; left out, it exists under its name."""

    @property
    def region(self) -> str:
        """Region of the cluster, whether its location is one or a zone."""
        head, _, last = self.location.rpartition("-")
        return head if len(last) == 1 else self.location

    @property
    def creation(self) -> GkeCreation | None:
        """What the cluster is like that is made here."""
        return self.create

    def zone_rule(self, zone: str) -> tuple[str, str] | None:
        """A pool's zones lie in its cluster's region."""
        if zone.startswith(f"{self.region}-"):
            return None
        return f"is no zone of {self.region}", f"write one such as {self.region}-a"

    def fabric_networks_for(self, fabric: str, interfaces: int) -> list[FabricNetwork]:
        """The networks of a machine's interfaces: one for each, and for RDMA one for the host's second card before."""
        serving = [each for each in self.fabric_networks if each.fabric in {None, fabric}]
        return serving[: interfaces + (fabric == "gpudirect-rdma")]

    def fabric_rule(self, fabric: str, interfaces: int) -> tuple[str, str] | None:
        """Each interface has a network of its own."""
        wanted, there = interfaces + (fabric == "gpudirect-rdma"), len(self.fabric_networks_for(fabric, interfaces))
        if there == wanted:
            return None
        rule = f"needs {wanted} networks beside the node's own, and cluster.fabricNetworks has {there} for {fabric}"
        return rule, "add the others there, or leave fabric out"
