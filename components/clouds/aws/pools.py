"""Managed node groups."""

from collections.abc import Mapping, Sequence

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

from .home import Home
from .nodes import Group, Interface, Volume


class NodeGroup(pulumi.ComponentResource):
    """A managed node group with its launch template and, where asked for, its placement group.

    Its Auto Scaling group is EKS' own; only the tags that an autoscaler reads are added to it, since those of a node
    group do not get there. The nodes' role and the subnets are given. A KMS key of your own for the disks must admit
    the service-linked role of Auto Scaling: https://docs.aws.amazon.com/autoscaling/ec2/userguide/key-policy-requirements-EBS-encryption.html

    Where an autoscaler owns the number of nodes it is set once, to the least. A group of a capacity block that has not
    begun yet must have a least of 0, or its first nodes fail.
    """

    def __init__(
        self, name: str, group: Group, home: Home, role: pulumi.Input[str], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:NodeGroup", name, {}, opts)
        template = self._template(name, group, home)
        block = group.capacity == "CAPACITY_BLOCK"
        self.group = aws.eks.NodeGroup(
            f"{name}-group",
            cluster_name=home.name,
            node_group_name=group.name,
            node_role_arn=role,
            subnet_ids=list(group.subnets),
            # Only with the control plane's, and after it; where that is somebody else's, as it is at the beginning.
            version=home.section.create.version if home.section.create else None,
            ami_type=group.image.ami_type,
            capacity_type=group.capacity,
            # EKS wants a capacity block's machine in the launch template, and any other here.
            instance_types=None if block else [group.machine],
            launch_template={"id": template.id, "version": template.latest_version.apply(version_text)},
            scaling_config={"min_size": group.least, "max_size": group.most, "desired_size": group.least},
            labels=group.labels,
            taints=[{"key": key, "value": value, "effect": effect} for key, value, effect in group.taints],
            update_config={
                # MINIMAL ends a node before it starts the next; DEFAULT doubles the group for a while.
                "update_strategy": "DEFAULT" if group.surge.added else "MINIMAL",
                "max_unavailable": max(1, group.surge.unavailable),
            },
            # One at a time, whatever the group's size; EKS itself stops where a fifth of a larger group is unhealthy:
            # https://docs.aws.amazon.com/eks/latest/userguide/node-repair.html
            node_repair_config={"enabled": True, "max_parallel_nodes_repaired_count": 1},
            tags=home.tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=home.protect,
                # The name is the pool's, so there cannot be two; and a second set of GPUs is hardly to be had.
                delete_before_replace=True,
                ignore_changes=["scalingConfig.desiredSize"] if home.section.grows else [],
            ),
        )
        behind = self.group.resources.apply(group_behind)
        for key, value in group.hints.items():
            aws.autoscaling.Tag(
                f"{name}-{key.partition('node-template/')[2]}",
                autoscaling_group_name=behind,
                tag={"key": key, "value": value, "propagate_at_launch": False},
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({"name": group.name})

    def _template(self, name: str, group: Group, home: Home) -> aws.ec2.LaunchTemplate:
        tags = {**home.tags, "Name": f"{home.name}-{group.name}"}
        placement: LaunchTemplatePlacementArgsDict | None = None
        if group.compact:
            near = placement_group(f"{name}-near", f"{home.name}-{group.name}", home.tags, self)
            placement = {"group_name": near.name}
        market: LaunchTemplateInstanceMarketOptionsArgsDict = {"market_type": "capacity-block"}
        block = group.capacity == "CAPACITY_BLOCK"
        return aws.ec2.LaunchTemplate(
            f"{name}-template",
            name=f"{home.name}-{group.name}",
            update_default_version=True,
            instance_type=group.machine if block else None,
            instance_market_options=market if block else None,
            capacity_reservation_specification=_reserved(group.reservation),
            placement=placement,
            metadata_options={
                "http_endpoint": "enabled",
                "http_tokens": "required",
                # Not beyond the node itself: a pod has an identity of its own, or none.
                "http_put_response_hop_limit": 1,
                "instance_metadata_tags": "disabled",
            },
            block_device_mappings=[_mapping(volume) for volume in group.volumes],
            network_interfaces=[_interface(each, home.security_group) for each in group.interfaces],
            tag_specifications=[
                {"resource_type": kind, "tags": tags} for kind in ("instance", "volume", "network-interface")
            ],
            tags=home.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )


def placement_group(
    name: str, group_name: str, tags: Mapping[str, str], parent: pulumi.Resource
) -> aws.ec2.PlacementGroup:
    """Nodes close to each other, within one zone.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-strategies.html#placement-groups-cluster
    """
    return aws.ec2.PlacementGroup(
        name, name=group_name, strategy="cluster", tags=tags, opts=pulumi.ResourceOptions(parent=parent)
    )


def version_text(version: int) -> str:
    """A launch template's version as a node group wants it."""
    return str(version)


def group_behind(resources: Sequence[NodeGroupResource]) -> str:
    """Name of the Auto Scaling group that EKS made for a node group."""
    return next(group.name or "" for each in resources for group in each.autoscaling_groups or ())


def _reserved(reservation: str | None) -> LaunchTemplateCapacityReservationSpecificationArgsDict | None:
    if reservation is None:
        return None
    return {"capacity_reservation_target": {"capacity_reservation_id": reservation}}


def _mapping(volume: Volume) -> LaunchTemplateBlockDeviceMappingArgsDict:
    ebs: LaunchTemplateBlockDeviceMappingEbsArgsDict = {
        "volume_type": "gp3",
        "volume_size": volume.gib,
        "encrypted": "true",
        "delete_on_termination": "true",
    }
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
    # EC2 refuses to hear of addresses where an interface has none.
    return {**common, "associate_public_ip_address": "false"} if interface.kind == "interface" else common
