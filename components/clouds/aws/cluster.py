"""An EKS cluster with its nodes."""

from collections.abc import Mapping, Sequence
from typing import Final

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes
from pulumi_aws.eks.outputs import ClusterVpcConfig

from gpu_tenancy.model.plan.fleet import Fleet
from gpu_tenancy.model.spec.clouds.aws import AwsCluster

from .autoscaling import ClusterAutoscaler
from .charts import release
from .control_plane import Addons, ControlPlane
from .home import Home, NodeRole
from .identity import Grant, Role
from .karpenter import Karpenter
from .kubeconfig import certificate, kubeconfig
from .nodes import efa_plugin, pool_group, system_group
from .policies import managed_policy, node_trust, partition
from .pools import NodeGroup

CNI: Final = ("aws-node", "AmazonEKS_CNI_Policy")
NODE_POLICIES: Final = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly")
"""What a node must be allowed to: https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html."""
BEFORE_NODES: Final[Mapping[str, tuple[str, str] | None]] = {
    "eks-pod-identity-agent": None,
    "kube-proxy": None,
    "vpc-cni": CNI,
}
"""DaemonSets without which no node becomes ready."""
ON_NODES: Final[Mapping[str, tuple[str, str] | None]] = {
    "coredns": None,
    # What finds a broken GPU, so that node repair sees it: https://docs.aws.amazon.com/eks/latest/userguide/node-health.html
    "eks-node-monitoring-agent": None,
    "aws-ebs-csi-driver": ("ebs-csi-controller-sa", "AmazonEBSCSIDriverPolicy"),
}
"""What needs a node to run on."""


class EksCluster(pulumi.ComponentResource):
    """An EKS cluster, made or found by its name, with its node pools and what scales them.

    Its network (subnets, and their way out) is given, not made. Of a cluster that exists nothing is changed but that
    nodes are added, with an autoscaler if the stack wants it; its add-ons and the EFA device plugin are its owner's
    business, and its nodes' role gets the rights of the network add-on too, since nobody here knows whether that has
    its own.
    """

    def __init__(
        self, name: str, fleet: Fleet, section: AwsCluster, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:EksCluster", name, {}, opts)
        self._fleet, self._section = fleet, section
        within = pulumi.ResourceOptions(parent=self)
        plane = (
            ControlPlane(f"{name}-control-plane", fleet, section, section.create, within) if section.create else None
        )
        cluster = plane.cluster if plane else aws.eks.Cluster.get(f"{name}-cluster", section.name, within)
        # With the endpoint, since it is known no sooner than the cluster is there.
        security_group = pulumi.Output.all(cluster.endpoint, cluster.vpc_config).apply(own_security_group)
        self._home = Home(section, security_group, fleet.tags, fleet.protect)
        self.kubernetes = kubernetes.Provider(
            f"{name}-kubernetes",
            kubeconfig=pulumi.Output.all(
                cluster.endpoint, cluster.certificate_authority.apply(certificate), section.name, section.region
            ).apply(kubeconfig),
            # A renewed certificate is still the same cluster: without a fixed name every resource would be replaced.
            cluster_identifier=f"{section.region}/{section.name}",
            enable_config_map_mutable=True,  # else a changed dashboard would be gone for a moment
            opts=within,
        )
        early = self._early(name, plane) if plane else []
        system = self._system(name, plane, early) if plane else []
        self.nodes: Sequence[pulumi.Resource] = [*system, *self._pools(name, early, system)]
        efa = efa_plugin(fleet.pools)
        if plane and efa:
            after = pulumi.ResourceOptions(parent=self, provider=self.kubernetes, depends_on=system)
            release(f"{name}-efa", "aws-efa-k8s-device-plugin", efa, after)
        self.register_outputs({"name": section.name})

    def _early(self, name: str, plane: ControlPlane) -> list[pulumi.Resource]:
        """The add-ons of a created cluster without which no node becomes ready."""
        after = pulumi.ResourceOptions(parent=self, depends_on=[plane.cluster])
        return Addons(f"{name}-first-addons", self._section, BEFORE_NODES, self._fleet.tags, after).made

    def _system(self, name: str, plane: ControlPlane, early: Sequence[pulumi.Resource]) -> list[pulumi.Resource]:
        """A created cluster's nodes for its own pods, and the add-ons that run on them."""
        section, tags, system = self._section, self._fleet.tags, self._fleet.system
        if system is None:
            return []
        role = self._node_role(f"{name}-system-role", "system", NODE_POLICIES)
        after = pulumi.ResourceOptions(parent=self, depends_on=[plane.cluster, *early, role])
        nodes = NodeGroup(f"{name}-system", system_group(section, system), self._home, role.arn, after)
        then = pulumi.ResourceOptions(parent=self, depends_on=[nodes.group])
        return [nodes.group, *Addons(f"{name}-addons", section, ON_NODES, tags, then).made]

    def _pools(
        self, name: str, early: Sequence[pulumi.Resource], system: Sequence[pulumi.Resource]
    ) -> list[pulumi.Resource]:
        """The stack's pools, and what scales them."""
        section = self._section
        role_arn, before = self._pools_role(name, early)
        in_cluster = pulumi.ResourceOptions(parent=self, providers=[self.kubernetes], depends_on=[*before, *system])
        if section.autoscaler == "karpenter":
            role = role_name(section.node_role) if section.node_role else f"{section.name}-node"
            passed = section.node_role or f"arn:{partition(section.region)}:iam::*:role/{role}"
            nodes = NodeRole(role, passed)
            return [*Karpenter(f"{name}-karpenter", self._fleet.pools, self._home, nodes, in_cluster).node_pools]
        within = pulumi.ResourceOptions(parent=self, depends_on=before)
        groups: list[pulumi.Resource] = [
            NodeGroup(f"{name}-pool-{pool.name}", pool_group(section, pool), self._home, role_arn, within).group
            for pool in self._fleet.pools
        ]
        if section.autoscaler == "cluster-autoscaler":
            groups.append(ClusterAutoscaler(f"{name}-autoscaler", self._home, in_cluster).release)
        return groups

    def _pools_role(
        self, name: str, early: Sequence[pulumi.Resource]
    ) -> tuple[pulumi.Input[str], list[pulumi.Resource]]:
        """The role of the pools' nodes, and what must be there before any of them.

        EKS itself makes the access entry of a node group's role, but not of one that only Karpenter uses:
        https://docs.aws.amazon.com/eks/latest/userguide/access-entries.html. Of a role that is given to a cluster that
        exists, there may be one.
        """
        section, before = self._section, list(early)
        arn: pulumi.Input[str]
        if section.node_role:
            arn = section.node_role
        else:
            policies = NODE_POLICIES if section.create else (*NODE_POLICIES, CNI[1])
            role = self._node_role(f"{name}-node-role", "node", policies)
            arn, before = role.arn, [*before, role]
        if section.autoscaler == "karpenter" and (section.create or not section.node_role):
            entry = aws.eks.AccessEntry(
                f"{name}-nodes",
                cluster_name=section.name,
                principal_arn=arn,
                type="EC2_LINUX",
                tags=self._fleet.tags,
                opts=pulumi.ResourceOptions(parent=self, depends_on=before),
            )
            before = [*before, entry]
        return arn, before

    def _node_role(self, name: str, what: str, policies: Sequence[str]) -> Role:
        region = self._section.region
        grant = Grant(node_trust(region), managed=[managed_policy(region, policy) for policy in policies])
        within = pulumi.ResourceOptions(parent=self)
        return Role(name, f"{self._section.name}-{what}", grant, self._fleet.tags, within)


def open_eks(name: str, fleet: Fleet, section: AwsCluster, opts: pulumi.ResourceOptions | None = None) -> EksCluster:
    """The cluster, by the credentials of whoever deploys it and in the stack's region."""
    provider = aws.Provider(f"{name}-aws", region=section.region, opts=opts)
    return EksCluster(
        name, fleet, section, pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(providers=[provider]))
    )


def own_security_group(parts: Sequence[str | ClusterVpcConfig]) -> str:
    """Id of the security group that EKS made for a cluster."""
    return next((part.cluster_security_group_id or "" for part in parts if isinstance(part, ClusterVpcConfig)), "")


def role_name(arn: str) -> str:
    """The last part of a role's ARN, which is its name without its path."""
    return arn.rpartition("/")[2]
