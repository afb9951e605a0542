"""Facts of a cluster that its nodes and autoscalers need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from gpu_tenancy.model.spec.clouds.aws import AwsCluster


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """The cluster that nodes join.

    Attributes:
        subnets: ids of its subnets, by zone.
        security_group: the cluster's security group, which allows traffic between nodes and control plane, and EFA:
            https://docs.aws.amazon.com/eks/latest/userguide/sec-group-reqs.html
    """

    section: AwsCluster
    subnets: Mapping[str, pulumi.Input[str]]
    security_group: pulumi.Output[str]
    tags: Mapping[str, str]
    protect: bool

    @property
    def name(self) -> str:
        """Name of the cluster."""
        return self.section.name

    def subnets_in(self, zones: Sequence[str]) -> list[pulumi.Input[str]]:
        """Ids of the subnets in these zones; if there are none, of those in Availability Zones."""
        return [self.subnets[zone] for zone in zones or self.section.zonal]
