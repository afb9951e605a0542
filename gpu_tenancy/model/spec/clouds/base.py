"""What the sections of all clouds have in common."""

from ipaddress import ip_network
from typing import Annotated, ClassVar, TypeAlias

from pydantic import AfterValidator, Field, StringConstraints

from gpu_tenancy.model.spec.base import Cidr, Section, refuse
from gpu_tenancy.model.spec.pools import Nodes

Tag: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z]?[-_a-z0-9]{0,62}$")]
"""Key or value of a tag that every cloud takes: GCP's labels are the narrowest."""

KubernetesVersion: TypeAlias = Annotated[str, StringConstraints(pattern=r"^1\.\d{2}$")]
"""Minor version such as `1.35`; patches are the cloud's own business."""


def _not_everyone(cidr: str) -> str:
    if ip_network(cidr, strict=False).prefixlen == 0:
        raise refuse("opens the API server to everyone", "name the networks that need it, such as 203.0.113.0/24")
    return cidr


AllowedCidr: TypeAlias = Annotated[Cidr, AfterValidator(_not_everyone)]


class SystemPool(Section):
    """The nodes of a created cluster's own pods, apart from the GPUs."""

    machine: str
    """A machine type of the catalogue without GPUs."""
    nodes: Nodes = Nodes(min=2, max=3)
    """How many there may be."""


class Creation(Section):
    """What a cluster that is made here needs to be told, in every cloud."""

    version: KubernetesVersion
    """Minor version of Kubernetes, such as `1.35`."""
    allow_from: list[AllowedCidr] = []
    """Networks that may reach the API server; left out, it is private, and only the cluster's own network does."""
    system: SystemPool
    """Nodes for the cluster's own pods, so that none of them takes a GPU node's room."""


class ClusterSection(Section):
    """What every section under `cluster` answers, whichever cloud it is."""

    NODES_MADE: ClassVar[bool] = True
    """Whether the pools are made here, and not only described."""

    @property
    def grows(self) -> bool:
        """Whether something adds nodes up to `nodes.max`; else only `nodes.min` can be promised."""
        return True

    @property
    def creation(self) -> Creation | None:
        """What a cluster that is made here is like; None for one that exists."""
        return None

    def zone_rule(self, zone: str) -> tuple[str, str] | None:
        """Why the cluster has no such zone, and what to write instead; None where it may have it."""
        del zone
        return None

    def time_slicing_rule(self) -> tuple[str, str] | None:
        """Why pods cannot take turns on this cluster's GPUs, and what to do instead; None where they can."""
        return None

    def fabric_rule(self, fabric: str, interfaces: int) -> tuple[str, str] | None:
        """What the cluster lacks for pools with such a network between GPUs, and what to write; None if nothing."""
        del fabric, interfaces
        return None


class CloudCluster(ClusterSection):
    """What the clusters of all clouds say alike."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$")]
    """Name of the cluster: small letters, digits and `-`, at most 40."""
    tags: Annotated[dict[Tag, Tag], Field(max_length=20)] = {}
    """Further tags (labels, in GCP's word) on whatever is made in the cloud; `environment` and `managed-by` are there
    already."""
