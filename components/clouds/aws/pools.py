"""Managed node groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws as aws
from pulumi_aws.ec2 import (
    LaunchTemplateBlockDeviceMappingArgsDict,
    LaunchTemplateBlockDeviceMappingEbsArgsDict,
    LaunchTemplateCapacityReservationSpecificationArgsDict,
    LaunchTemplateInstanceMarketOptionsArgsDict,
    LaunchTemplateNetworkInterfaceArgsDict,
    LaunchTemplatePlacementArgsDict,
)
from pulumi_aws.eks.outputs import NodeGroupResource

from .nodes import ClusterContext, Group, Interface, Volume


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


LIVE_SIZE: Final = "gpu-tenancy.dev/desired-size"
"""Tag that tells policies that the number of nodes is read from the cloud before it is sent."""


class NodeGroup(pulumi.ComponentResource):
    """A managed node group with its launch template and, if the pool is compact, its placement group.

    EKS creates the Auto Scaling group. Only Cluster Autoscaler's tags are added to it, because tags of a node group are
    not propagated. The node role and the subnets are the cluster's. The policy of a customer-managed KMS key for the
    disks must allow the service-linked role of Auto Scaling:
    https://docs.aws.amazon.com/autoscaling/ec2/userguide/key-policy-requirements-EBS-encryption.html

    If an autoscaler owns the number of nodes, it is set to the minimum on creation, and sent again only if the bounds
    are edited: then as the number that runs. For a capacity block that has not started yet, the minimum must be 0,
    because its nodes cannot start.
    """

    def __init__(
        self,
        name: str,
        group: Group,
        context: ClusterContext,
        role: pulumi.Input[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:NodeGroup", name, {}, opts)
        template = self._template(name, group, context)
        block = group.capacity == "CAPACITY_BLOCK"
        live = live_bounds(context.name, group.name, self) if context.section.grows else None
        edited = live is not None and (live.minimum, live.maximum) != (group.minimum, group.maximum)
        size: aws.eks.NodeGroupScalingConfigArgsDict = {
            "min_size": group.minimum,
            "max_size": group.maximum,
            "desired_size": group.minimum,
        }
        if live and edited:
            # The provider always sends the number of nodes together with the bounds, and EKS ends what is above it and
            # rejects a number outside of the bounds: `expandNodegroupScalingConfig` in
            # https://github.com/hashicorp/terraform-provider-aws/blob/main/internal/service/eks/node_group.go. So the
            # number is what runs, and a lower maximum takes effect when the autoscaler has removed nodes.
            running = live.running(self, [template])
            size = {
                "min_size": group.minimum,
                "max_size": running.apply(lambda nodes: max(group.maximum, nodes)),
                "desired_size": running.apply(lambda nodes: max(group.minimum, nodes)),
            }
        self.group = aws.eks.NodeGroup(
            f"{name}-group",
            cluster_name=context.name,
            node_group_name=group.name,
            node_role_arn=role,
            subnet_ids=context.subnets_in(group.zones),
            # The version of a created control plane. For an existing one, the version at creation stays.
            version=context.section.create.version if context.section.create else None,
            # Without a release, the latest at creation and at each change of the version.
            release_version=group.release,
            ami_type=group.image.ami_type,
            capacity_type=group.capacity,
            # EKS requires the machine type of a capacity block in the launch template, and any other here.
            instance_types=None if block else [group.machine, *group.alternatives],
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            scaling_config=size,
            labels=group.labels,
            taints=[{"key": key, "value": value, "effect": effect} for key, value, effect in group.taints],
            update_config={
                # MINIMAL terminates a node before it starts the next; DEFAULT temporarily doubles the group.
                "update_strategy": "DEFAULT" if group.surge.added else "MINIMAL",
                "max_unavailable": max(1, group.surge.unavailable),
            },
            # One node at a time, for all group sizes. EKS pauses repairs if 20 % of a larger group is unhealthy:
            # https://docs.aws.amazon.com/eks/latest/userguide/node-repair.html
            node_repair_config={"enabled": True, "max_parallel_nodes_repaired_count": 1},
            tags={**context.tags, **({LIVE_SIZE: "live"} if context.section.grows else {})},
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=context.protect,
                # Two groups cannot have the same name, and a second set of GPUs is rarely available. Otherwise the
                # provider deletes a group first only if the name stays.
                delete_before_replace=None if group.replaced_by_name else True,
                # If the bounds are as they should be, nothing is sent: the stored number of nodes is old.
                ignore_changes=["scalingConfig"] if live and not edited else [],
            ),
        )
        asg_name = self.group.resources.apply(auto_scaling_group_name)
        for key, value in group.node_template_tags.items():
            aws.autoscaling.Tag(
                f"{name}-{key.partition('node-template/')[2]}",
                autoscaling_group_name=asg_name,
                tag={"key": key, "value": value, "propagate_at_launch": False},
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({"name": group.name})

    def _template(self, name: str, group: Group, context: ClusterContext) -> aws.ec2.LaunchTemplate:
        tags = {**context.tags, "Name": f"{context.name}-{group.name}"}
        placement: LaunchTemplatePlacementArgsDict | None = None
        if group.compact:
            cluster_placement = placement_group(f"{name}-near", f"{context.name}-{group.name}", context.tags, self)
            placement = {"group_name": cluster_placement.name}
        market: LaunchTemplateInstanceMarketOptionsArgsDict = {"market_type": "capacity-block"}
        block = group.capacity == "CAPACITY_BLOCK"
        return aws.ec2.LaunchTemplate(
            f"{name}-template",
            name=f"{context.name}-{group.name}",
            update_default_version=True,
            instance_type=group.machine if block else None,
            user_data=group.user_data,
            instance_market_options=market if block else None,
            capacity_reservation_specification=_reserved(group.reservation),
            placement=placement,
            metadata_options={
                "http_endpoint": "enabled",
                "http_tokens": "required",
                # Pods cannot reach the metadata service; they have their own IAM roles.
                "http_put_response_hop_limit": 1,
                "instance_metadata_tags": "disabled",
            },
            block_device_mappings=[_mapping(volume) for volume in group.volumes],
            network_interfaces=[_interface(interface, context.security_group) for interface in group.interfaces],
            tag_specifications=[
                {"resource_type": kind, "tags": tags} for kind in ("instance", "volume", "network-interface")
            ],
            tags=context.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )


def placement_group(
    name: str, group_name: str, tags: Mapping[str, str], parent: pulumi.Resource
) -> aws.ec2.PlacementGroup:
    """A cluster placement group: nodes close to each other, in one zone.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-strategies.html#placement-groups-cluster
    """
    return aws.ec2.PlacementGroup(
        name, name=group_name, strategy="cluster", tags=tags, opts=pulumi.ResourceOptions(parent=parent)
    )


def auto_scaling_group_name(resources: Sequence[NodeGroupResource]) -> str:
    """Name of the Auto Scaling group that EKS creates for a node group."""
    return next(group.name or "" for resource in resources for group in resource.autoscaling_groups or ())


def _reserved(reservation: str | None) -> LaunchTemplateCapacityReservationSpecificationArgsDict | None:
    if reservation is None:
        return None
    if reservation.startswith("arn:"):
        return {"capacity_reservation_target": {"capacity_reservation_resource_group_arn": reservation}}
    return {"capacity_reservation_target": {"capacity_reservation_id": reservation}}


def _mapping(volume: Volume) -> LaunchTemplateBlockDeviceMappingArgsDict:
    ebs: LaunchTemplateBlockDeviceMappingEbsArgsDict = {
        "volume_type": "gp3",
        "volume_size": volume.gib,
        "throughput": volume.throughput,
        "iops": volume.iops,
        "encrypted": "true",
        "delete_on_termination": "true",
    }
    if volume.snapshot:
        ebs["snapshot_id"] = volume.snapshot
    if volume.key:
        ebs["kms_key_id"] = volume.key
    return {"device_name": volume.device, "ebs": ebs}


def _interface(interface: Interface, group: pulumi.Output[str]) -> LaunchTemplateNetworkInterfaceArgsDict:
    common: LaunchTemplateNetworkInterfaceArgsDict = {
        "network_card_index": interface.card,
        "device_index": interface.device,
        "interface_type": interface.kind,
        "security_groups": [group],
        "delete_on_termination": "true",
    }
    # EC2 rejects this key for interfaces without IP addresses.
    return {**common, "associate_public_ip_address": "false"} if interface.kind == "interface" else common
