"""The cluster as its nodes and their helpers need to know it."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from gpu_tenancy.model.spec.clouds.aws import AwsCluster


@dataclass(frozen=True, slots=True)
class Home:
    """The cluster that nodes join.

    Attributes:
        section: what the stack says of it.
        security_group: its own, which lets nodes and control plane speak, and EFA within itself:
            https://docs.aws.amazon.com/eks/latest/userguide/sec-group-reqs.html
        tags: on whatever is made.
        protect: whether Pulumi refuses to delete its nodes.
    """

    section: AwsCluster
    security_group: pulumi.Output[str]
    tags: Mapping[str, str]
    protect: bool

    @property
    def name(self) -> str:
        """Name of the cluster."""
        return self.section.name


@dataclass(frozen=True, slots=True)
class NodeRole:
    """The role of nodes that Karpenter makes.

    Attributes:
        name: without its path.
        arn: or a pattern of it.
    """

    name: str
    arn: str
