"""The network of a created EKS cluster whose stack names no subnets."""

from collections.abc import Mapping
from typing import Final

import pulumi
import pulumi_aws as aws

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.spec.clouds.aws import AwsCluster, EksCreation

from ..ordering import once_there

_PARTS: Final = 3
"""Bits of the part of each zone: an eighth of the addresses."""


class Network(pulumi.ComponentResource):
    """A VPC with a private subnet in each zone, and egress through one NAT gateway.

    The NAT gateway is regional: it needs no public subnet, and is in each zone that has nodes, also if one zone fails
    (https://docs.aws.amazon.com/vpc/latest/userguide/nat-gateways-regional.html). Nothing in the network has a public
    address. S3, which also has the layers of images in ECR, is reached through a gateway endpoint, which costs nothing
    (https://docs.aws.amazon.com/vpc/latest/privatelink/vpc-endpoints-s3.html); interface endpoints are not created,
    because the NAT gateway reaches the same services.

    Attributes:
        subnets: ids of the subnets by zone. They are known once the subnet has its route, so that nodes start with
            egress.

    Example:
        >>> Network("cluster-network", plan, section, section.create).subnets
    """

    def __init__(
        self,
        name: str,
        plan: ClusterPlan,
        section: AwsCluster,
        creation: EksCreation,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:EksNetwork", name, {}, opts)
        kept, within = pulumi.ResourceOptions(parent=self, protect=plan.protect), pulumi.ResourceOptions(parent=self)
        tags = {**plan.tags, "Name": section.name}
        self.vpc = aws.ec2.Vpc(
            f"{name}-vpc",
            cidr_block=str(creation.network_addresses),
            # EKS requires both: https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html
            enable_dns_hostnames=True,
            enable_dns_support=True,
            tags=tags,
            opts=kept,
        )
        gateway = aws.ec2.InternetGateway(f"{name}-internet", vpc_id=self.vpc.id, tags=tags, opts=within)
        nat = aws.ec2.NatGateway(
            f"{name}-nat",
            availability_mode="regional",
            vpc_id=self.vpc.id,
            tags=tags,
            opts=pulumi.ResourceOptions(parent=self, protect=plan.protect, depends_on=[gateway]),
        )
        routes = aws.ec2.RouteTable(f"{name}-routes", vpc_id=self.vpc.id, tags=tags, opts=within)
        egress = aws.ec2.Route(
            f"{name}-egress",
            route_table_id=routes.id,
            destination_cidr_block="0.0.0.0/0",
            nat_gateway_id=nat.id,
            opts=within,
        )
        aws.ec2.VpcEndpoint(
            f"{name}-s3",
            vpc_id=self.vpc.id,
            service_name=f"com.amazonaws.{section.region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=[routes.id],
            tags=tags,
            opts=within,
        )
        parts = creation.network_addresses.subnets(prefixlen_diff=_PARTS)
        subnets: dict[str, pulumi.Input[str]] = {}
        for zone, part in zip(creation.zones, parts, strict=False):
            subnet = aws.ec2.Subnet(
                f"{name}-{zone}",
                vpc_id=self.vpc.id,
                availability_zone=zone,
                cidr_block=str(part),
                # Internal load balancers of Services: https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html
                tags={**tags, "Name": f"{section.name}-{zone}", "kubernetes.io/role/internal-elb": "1"},
                opts=kept,
            )
            routed = aws.ec2.RouteTableAssociation(
                f"{name}-{zone}-routes", subnet_id=subnet.id, route_table_id=routes.id, opts=within
            )
            subnets[zone] = once_there(subnet.id, routed.id, egress.id)
        self.subnets: Mapping[str, pulumi.Input[str]] = subnets
        self.register_outputs({"vpc": self.vpc.id})
