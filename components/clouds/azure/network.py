"""The network of a created AKS cluster whose stack names no subnet."""

import pulumi
from pulumi_azure_native import network

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.spec.clouds.azure import AksCreation, AzureCluster

_SUBNET = "nodes"


class Network(pulumi.ComponentResource):
    """A virtual network with one private subnet and, for `egress: nat-gateway`, a NAT gateway with a public address.

    Machines have no egress of their own, which Azure would give by default; pods have the addresses of the cluster's
    overlay network. Half of the addresses stay free for other subnets.

    https://learn.microsoft.com/azure/virtual-network/ip-services/default-outbound-access,
    https://learn.microsoft.com/azure/aks/nat-gateway

    Attributes:
        subnet: resource ID of the subnet.

    Example:
        >>> Network("cluster-network", plan, section, section.create).subnet
    """

    def __init__(
        self,
        name: str,
        plan: ClusterPlan,
        section: AzureCluster,
        creation: AksCreation,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:AksNetwork", name, {}, opts)
        kept, tags = pulumi.ResourceOptions(parent=self, protect=plan.protect), dict(plan.tags)
        subnet: network.SubnetArgsDict = {
            "name": _SUBNET,
            "address_prefix": str(next(creation.network_addresses.subnets())),
            "default_outbound_access": False,
        }
        if creation.egress == "nat-gateway":
            address = network.PublicIPAddress(
                f"{name}-address",
                resource_group_name=section.resource_group,
                public_ip_address_name=f"{section.name}-egress",
                location=section.location,
                sku={"name": "Standard"},
                public_ip_allocation_method="Static",
                tags=tags,
                opts=kept,
            )
            nat = network.NatGateway(
                f"{name}-nat",
                resource_group_name=section.resource_group,
                nat_gateway_name=section.name,
                location=section.location,
                sku={"name": "Standard"},
                public_ip_addresses=[{"id": address.id}],
                tags=tags,
                opts=kept,
            )
            subnet["nat_gateway"] = {"id": nat.id}
        vnet = network.VirtualNetwork(
            f"{name}-vnet",
            resource_group_name=section.resource_group,
            virtual_network_name=section.name,
            location=section.location,
            address_space={"address_prefixes": [str(creation.network_addresses)]},
            subnets=[subnet],
            tags=tags,
            opts=kept,
        )
        self.subnet = pulumi.Output.concat(vnet.id, f"/subnets/{_SUBNET}")
        self.register_outputs({"subnet": self.subnet})
