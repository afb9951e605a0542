"""The Auto Scaling groups of node groups that exist, read from the cloud."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws


@dataclass(frozen=True, slots=True)
class LiveBounds:
    """The bounds of a node group in the cloud, and the name of its Auto Scaling group."""

    auto_scaling_group: str
    minimum: int
    maximum: int

    def running(self, parent: pulumi.Resource, after: Sequence[pulumi.Resource]) -> pulumi.Output[int]:
        """The number of nodes that the autoscaler wants, read when these resources are ready.

        The Auto Scaling group is asked, because the node group's own number can be outdated:
        https://docs.aws.amazon.com/eks/latest/APIReference/API_NodegroupScalingConfig.html.
        """
        options = pulumi.InvokeOutputOptions(parent=parent, depends_on=list(after))
        return aws.autoscaling.get_group_output(name=self.auto_scaling_group, opts=options).desired_capacity


def live_bounds(cluster: str, group: str, parent: pulumi.Resource) -> LiveBounds | None:
    """The bounds of a node group in the cloud; None if it does not exist, as before its creation.

    It is found by the tags that EKS sets on Auto Scaling groups, because a list can be empty: asking for a node group
    that does not exist is an error.
    """
    options = pulumi.InvokeOptions(parent=parent)
    # Pulumi's name of the list of Auto Scaling groups.
    groups = aws.autoscaling.get_ami_ids(
        filters=[
            {"name": "tag:eks:cluster-name", "values": [cluster]},
            {"name": "tag:eks:nodegroup-name", "values": [group]},
        ],
        opts=options,
    )
    if not groups.names:
        return None
    size = aws.autoscaling.get_group(name=groups.names[0], opts=options)
    return LiveBounds(groups.names[0], size.min_size, size.max_size)
