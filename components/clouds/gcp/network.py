"""The network of a created GKE cluster whose stack names none."""

from typing import Final, NamedTuple

import pulumi
from pulumi_gcp import compute

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster, GkeCreation

from ..ordering import once_there

_MTU: Final = 8896
"""The largest MTU of a VPC, which Google recommends for GPUs; traffic to the internet has smaller packets:
https://cloud.google.com/vpc/docs/mtu."""
_SERVICES: Final = 20
"""Prefix length of the range of services, if there is room for it: 4,096 of them."""


class ClusterNetwork(NamedTuple):
    """Names of the network and the ranges that a cluster uses."""

    network: pulumi.Input[str] | None
    subnetwork: pulumi.Input[str] | None
    pods: pulumi.Input[str] | None
    services: pulumi.Input[str] | None


class Network(pulumi.ComponentResource):
    """A VPC with jumbo frames, a subnetwork with ranges for pods and services, and Cloud NAT.

    Nodes reach Google's APIs and registries without Cloud NAT (Private Google Access), and everything else through it.
    The VPC has no firewall rule that admits anything; GKE adds those of the cluster.

    https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips, https://cloud.google.com/nat/docs/gke-example

    Attributes:
        names: known once nodes have egress.

    Example:
        >>> Network("cluster-network", plan, section, section.create).names
    """

    def __init__(
        self,
        name: str,
        plan: ClusterPlan,
        section: GcpCluster,
        creation: GkeCreation,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:GkeNetwork", name, {}, opts)
        kept, within = pulumi.ResourceOptions(parent=self, protect=plan.protect), pulumi.ResourceOptions(parent=self)
        vpc = compute.Network(
            f"{name}-vpc",
            name=section.name,
            project=section.project,
            auto_create_subnetworks=False,
            mtu=_MTU,
            opts=kept,
        )
        first, pods = creation.network_addresses.subnets()
        nodes, others = first.subnets()
        services = next(iter(others.subnets(new_prefix=max(_SERVICES, others.prefixlen))))
        subnetwork = compute.Subnetwork(
            f"{name}-subnetwork",
            name=section.name,
            project=section.project,
            region=section.region,
            network=vpc.id,
            ip_cidr_range=str(nodes),
            secondary_ip_ranges=[
                {"range_name": "pods", "ip_cidr_range": str(pods)},
                {"range_name": "services", "ip_cidr_range": str(services)},
            ],
            private_ip_google_access=True,
            opts=kept,
        )
        router = compute.Router(
            f"{name}-router",
            name=section.name,
            project=section.project,
            region=section.region,
            network=vpc.id,
            opts=within,
        )
        nat = compute.RouterNat(
            f"{name}-nat",
            name=section.name,
            project=section.project,
            region=section.region,
            router=router.name,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
            opts=within,
        )
        named = once_there(subnetwork.name, nat.id)
        self.names = ClusterNetwork(vpc.name, named, "pods", "services")
        self.register_outputs({"network": vpc.name})
