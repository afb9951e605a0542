"""Managed node groups of EKS, and Cluster Autoscaler, which scales them."""

from collections.abc import Mapping, Sequence
from typing import Final

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions
from pulumi_aws.eks.outputs import NodeGroupResource
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.rbac.v1 import ClusterRole, ClusterRoleBinding

from gpu_tenancy.base.texts import base64_of
from gpu_tenancy.model.plan.cluster import NodePool
from gpu_tenancy.model.plan.pools import uses_local_disks

from ...objects import RBAC, Component, Options
from .. import node_taints
from . import nodes
from .control_plane import NAMESPACE, release
from .identity import PodRole
from .nodes import ClusterContext, Interface, Volume
from .policies import written_policy


def live_group(cluster: str, group: str, parent: pulumi.Resource) -> aws.autoscaling.GetGroupResult | None:
    """The Auto Scaling group of a node group in the cloud; None if it does not exist, as before its creation."""
    # It is found by the tags of its Auto Scaling group: asking for a node group that does not exist is an error.
    invoke = pulumi.InvokeOptions(parent=parent)
    tags = {"tag:eks:cluster-name": cluster, "tag:eks:nodegroup-name": group}
    # Pulumi's name of the list of Auto Scaling groups.
    groups = aws.autoscaling.get_ami_ids(
        filters=[{"name": tag, "values": [value]} for tag, value in tags.items()], opts=invoke
    )
    return aws.autoscaling.get_group(name=groups.names[0], opts=invoke) if groups.names else None


LIVE_SIZE: Final = "gpu-tenancy.dev/desired-size"  # tag: the number of nodes is read from the cloud before it is sent

_CAPACITY: Final = {"spot": "SPOT", "capacity-block": "CAPACITY_BLOCK"}
"""EKS's capacity types by kind of capacity; all others are ON_DEMAND."""


class NodeGroup(Component):
    """A managed node group with its launch template and, if the pool is compact, its placement group.

    Tags of nodes and for Cluster Autoscaler are set on the Auto Scaling group, which EKS creates without a node group's
    tags. New nodes get their values. The launch template keeps its first tags, for the first nodes and disks, because
    another version of it replaces all nodes.

    The policy of a customer-managed KMS key for disks must allow the service-linked role of Auto Scaling:
    https://docs.aws.amazon.com/autoscaling/ec2/userguide/key-policy-requirements-EBS-encryption.html

    If an autoscaler owns the number of nodes, it starts as the minimum, and is sent again, as the running number, only
    if the bounds are edited. Before a capacity block starts, the minimum must be 0: its nodes cannot start.
    """

    def __init__(
        self, name: str, pool: NodePool, context: ClusterContext, role: pulumi.Input[str], opts: Options = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:NodeGroup", name, opts)
        section, template = context.section, self._template(name, pool, context)
        minimum, maximum = pool.supply.min_nodes, max(1, pool.supply.max_nodes)  # EKS requires 1 as the maximum
        live = live_group(context.name, pool.name, self) if section.grows else None
        edited = live is not None and (live.min_size, live.max_size) != (minimum, maximum)
        size: aws.eks.NodeGroupScalingConfigArgsDict = {
            "min_size": minimum,
            "max_size": maximum,
            "desired_size": minimum,
        }
        # With another machine or image, system nodes have another name, so that both groups can run side by side.
        is_system = pool.supply.name == nodes.SYSTEM
        capacity = _CAPACITY.get(pool.spec.capacity.kind, "ON_DEMAND")
        machines = [pool.machine.type, *(machine.type for machine in pool.alternatives)]
        if live and edited:
            # The provider always sends the number of nodes together with the bounds, and EKS ends what is above it and
            # rejects a number outside of the bounds: `expandNodegroupScalingConfig` in
            # https://github.com/hashicorp/terraform-provider-aws/blob/main/internal/service/eks/node_group.go. So the
            # number is what runs, and a lower maximum takes effect when the autoscaler has removed nodes.
            # The Auto Scaling group is asked when the template is ready, because the node group's own number can be
            # outdated: https://docs.aws.amazon.com/eks/latest/APIReference/API_NodegroupScalingConfig.html.
            invoke = pulumi.InvokeOutputOptions(parent=self, depends_on=[template])
            running = aws.autoscaling.get_group_output(name=live.name, opts=invoke).desired_capacity
            size = {
                "min_size": minimum,
                "max_size": running.apply(lambda number: max(maximum, number)),
                "desired_size": running.apply(lambda number: max(minimum, number)),
            }
        self.group = aws.eks.NodeGroup(
            f"{name}-group",
            cluster_name=context.name,
            node_group_name=pool.name,
            node_role_arn=role,
            subnet_ids=context.subnets_in(pool.spec.zones),
            # The version of a created control plane. For an existing one, the version at creation stays.
            version=section.create.version if section.create else None,
            # Without a release, the latest at creation and at each change of the version.
            release_version=section.images.get(nodes.image(pool).ami_type),
            ami_type=nodes.image(pool).ami_type,
            capacity_type=capacity,
            # EKS requires the machine type of a capacity block in the launch template, and any other here.
            instance_types=None if capacity == "CAPACITY_BLOCK" else machines,
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            scaling_config=size,
            labels=nodes.node_labels(pool),
            taints=node_taints(pool.supply.taints),
            update_config={
                # MINIMAL terminates a node before it starts the next; DEFAULT temporarily doubles the group.
                "update_strategy": "DEFAULT" if pool.surge.added else "MINIMAL",
                "max_unavailable": max(1, pool.surge.unavailable),
            },
            # One node at a time, for all group sizes. EKS pauses repairs if 20 % of a larger group is unhealthy:
            # https://docs.aws.amazon.com/eks/latest/userguide/node-repair.html
            node_repair_config={"enabled": True, "max_parallel_nodes_repaired_count": 1},
            tags={**context.tags, **({LIVE_SIZE: "live"} if section.grows else {})},
            opts=ResourceOptions(
                parent=self,
                protect=context.protect,
                # Two groups cannot have the same name, and a second set of GPUs is rarely available. Otherwise the
                # provider deletes a group first only if the name stays.
                delete_before_replace=None if is_system else True,
                # If the bounds are as they should be, nothing is sent: the stored number of nodes is old.
                ignore_changes=["scalingConfig"] if live and not edited else [],
            ),
        )
        asg_name = self.group.resources.apply(auto_scaling_group_name)
        # Its value overrides that of the launch template:
        # https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_CreateAutoScalingGroup.html (read 2026-11-28).
        tags = {f"tag-{key}": (key, value, True) for key, value in context.tags.items()}
        for key, value in (nodes.node_template_tags(section, pool) if section.grows and not is_system else {}).items():
            tags[key.partition("node-template/")[2]] = (key, value, False)
        for own, (key, value, of_nodes) in tags.items():
            aws.autoscaling.Tag(
                f"{name}-{own}",
                autoscaling_group_name=asg_name,
                tag={"key": key, "value": value, "propagate_at_launch": of_nodes},
                opts=self.own,
            )

    def _template(self, name: str, pool: NodePool, context: ClusterContext) -> aws.ec2.LaunchTemplate:
        called, block = f"{context.name}-{pool.name}", pool.spec.capacity.kind == "capacity-block"
        placement: aws.ec2.LaunchTemplatePlacementArgsDict | None = None
        if pool.spec.compact:
            placement = {"group_name": placement_group(f"{name}-near", called, context.tags, self).name}
        reserved: aws.ec2.LaunchTemplateCapacityReservationSpecificationArgsDict | None = None
        if pool.reservation and pool.reservation.startswith("arn:"):
            reserved = {"capacity_reservation_target": {"capacity_reservation_resource_group_arn": pool.reservation}}
        elif pool.reservation:
            reserved = {"capacity_reservation_target": {"capacity_reservation_id": pool.reservation}}
        market: aws.ec2.LaunchTemplateInstanceMarketOptionsArgsDict = {"market_type": "capacity-block"}
        tags = {**context.tags, "Name": called}
        disks = nodes.volumes(context.section, pool.spec.disk, nodes.image(pool), pool.machine, pool.spec.image_disk)
        local = uses_local_disks(context.section, pool.machine)
        configuration = nodes.node_configuration(nodes.image(pool), numa=pool.spec.numa, disks=local)
        return aws.ec2.LaunchTemplate(
            f"{name}-template",
            name=called,
            update_default_version=True,
            instance_type=pool.machine.type if block else None,
            user_data=base64_of(configuration) if configuration else None,
            instance_market_options=market if block else None,
            capacity_reservation_specification=reserved,
            placement=placement,
            metadata_options={
                "http_endpoint": "enabled",
                "http_tokens": "required",
                # Pods cannot reach the metadata service; they have their own IAM roles.
                "http_put_response_hop_limit": 1,
                "instance_metadata_tags": "disabled",
            },
            block_device_mappings=[{"device_name": volume.device, "ebs": _ebs(volume)} for volume in disks],
            network_interfaces=[
                _interface(interface, context.security_group) for interface in nodes.interfaces(pool.fabric)
            ],
            tag_specifications=[
                {"resource_type": kind, "tags": tags} for kind in ("instance", "volume", "network-interface")
            ],
            tags=context.tags,
            opts=ResourceOptions(parent=self, ignore_changes=["tagSpecifications"]),
        )


def placement_group(
    name: str, group_name: str, tags: Mapping[str, str], parent: pulumi.Resource
) -> aws.ec2.PlacementGroup:
    """A cluster placement group: nodes close to each other, in one zone."""
    # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-strategies.html#placement-groups-cluster
    return aws.ec2.PlacementGroup(
        name, name=group_name, strategy="cluster", tags=tags, opts=ResourceOptions(parent=parent)
    )


def auto_scaling_group_name(resources: Sequence[NodeGroupResource]) -> str:
    """Name of the Auto Scaling group that EKS creates for a node group."""
    return next(group.name or "" for resource in resources for group in resource.autoscaling_groups or ())


def _ebs(volume: Volume) -> aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgsDict:
    ebs: aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgsDict = {
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
    return ebs


def _interface(interface: Interface, group: pulumi.Output[str]) -> aws.ec2.LaunchTemplateNetworkInterfaceArgsDict:
    common: aws.ec2.LaunchTemplateNetworkInterfaceArgsDict = {
        "network_card_index": interface.card,
        "device_index": interface.device,
        "interface_type": interface.kind,
        "security_groups": [group],
        "delete_on_termination": "true",
    }
    # EC2 rejects this key for interfaces without IP addresses.
    return {**common, "associate_public_ip_address": "false"} if interface.kind == "interface" else common


_AUTOSCALER: Final = "cluster-autoscaler"  # chart of Cluster Autoscaler, and name of its service account
_REQUESTS: Final = {"enable-provisioning-requests": True, "kube-api-content-type": "application/json"}
"""Flags for ProvisioningRequests, whose status it cannot write as protobuf before 1.34.5:
https://github.com/kubernetes/autoscaler/issues/8855."""

_REMOVES: Final = {
    "scale-down-gpu-utilization-threshold": 0.001,
    "scale-down-utilization-threshold": 0.001,
    "ignore-daemonsets-utilization": True,
}
"""Flags to remove only nodes whose pods request nothing, DaemonSets aside; default: less than half of GPUs or CPUs.
Nodes with GPU partitions count by CPUs and memory. With 0 no node is removed, because use must be below the threshold
(isNodeBelowUtilizationThreshold, read 2026-11-24):
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/core/scaledown/eligibility/eligibility.go."""


class ClusterAutoscaler(Component):
    """Cluster Autoscaler with its own IAM role, which can scale only this cluster's node groups.

    It finds them by EKS's tags on Auto Scaling groups:
    https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html
    If pools are queued, it also handles ProvisioningRequests, whose definition the cluster must have:
    https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#how-can-i-use-provisioningrequest-to-run-batch-workloads
    """

    def __init__(self, name: str, context: ClusterContext, *, queued: bool, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:ClusterAutoscaler", name, opts)
        if queued:
            self._requests(f"{name}-requests")
        policies = {"node-groups": written_policy("cluster-autoscaler", context.section.region, cluster=context.name)}
        role = PodRole(f"{name}-role", context, _AUTOSCALER, policies, self.own)
        values = {
            "cloudProvider": "aws",
            "awsRegion": context.section.region,
            "autoDiscovery": {"clusterName": context.name},
            "rbac": {"serviceAccount": {"name": _AUTOSCALER}},
            # If a pod fits several pools, add a node with the least idle CPU.
            "extraArgs": {"expander": "least-waste", **_REMOVES, **(_REQUESTS if queued else {})},
            "resources": {"requests": {"cpu": "100m", "memory": "600Mi"}, "limits": {"memory": "600Mi"}},
        }
        # The pods get their credentials when they start, so the association must exist first.
        release(f"{name}-release", _AUTOSCALER, values, self.after(role))

    def _requests(self, name: str) -> None:
        """Rights to handle ProvisioningRequests, which the chart's role does not have."""
        metadata: ObjectMetaArgsDict = {"name": "cluster-autoscaler-provisioning-requests"}
        reads, writes = ["get", "list", "watch"], ["update", "patch"]
        requests = ["provisioningrequests", "provisioningrequests/status"]
        role = ClusterRole(
            f"{name}-role",
            metadata=metadata,
            rules=[
                {"api_groups": ["autoscaling.x-k8s.io"], "resources": requests, "verbs": [*reads, *writes]},
                {"api_groups": [""], "resources": ["podtemplates"], "verbs": reads},
            ],
            opts=self.own,
        )
        ClusterRoleBinding(
            f"{name}-binding",
            metadata=metadata,
            role_ref={"api_group": RBAC, "kind": "ClusterRole", "name": role.metadata.name},
            subjects=[{"kind": "ServiceAccount", "name": _AUTOSCALER, "namespace": NAMESPACE}],
            opts=self.own,
        )
