"""EKS: the cluster, its node groups or Karpenter, and their IAM roles."""

from collections.abc import Mapping, Sequence
from typing import Final

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions
from pulumi_aws.eks.outputs import ClusterVpcConfig
from pulumi_kubernetes.storage.v1 import StorageClass

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.spec.clouds.aws import LUSTRE_SUBNET, AwsCluster
from gpu_tenancy.model.spec.data import CACHES

from ...objects import Component, Options
from .. import Api, section_of
from . import identity
from .control_plane import ADDONS, Addons, ControlPlane, Network, release
from .identity import Grant, Role, SecretReaders
from .karpenter import Karpenter
from .nodes import ClusterContext, efa_plugin, system_pool
from .policies import managed_policy, partition, trust
from .pools import ClusterAutoscaler, NodeGroup

NODE_POLICIES: Final = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly")
"""Managed policies that nodes need: https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html."""
SESSION_MANAGER: Final = "AmazonSSMManagedInstanceCore"
"""Managed policy for shells on nodes: https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager.html."""
STORAGE_CLASS: Final = "gp3-encrypted"  # name of the default StorageClass


def open_cluster(name: str, plan: ClusterPlan, opts: Options = None) -> "EksCluster":
    """The EKS cluster of a stack; its provider has the stack's region and the environment's credentials."""
    section = section_of(plan, AwsCluster)
    provider = aws.Provider(f"{name}-aws", region=section.region, opts=opts)
    return EksCluster(name, plan, section, ResourceOptions.merge(opts, ResourceOptions(providers=[provider])))


class EksCluster(Component):
    """An EKS cluster, created or looked up by name, with its node pools and their autoscaler.

    Its network is created if the stack names no subnets. An existing cluster only gets nodes, access entries of people
    and service accounts, roles of service accounts and of readers of secrets and, if the stack sets one, an autoscaler:
    its owner manages its add-ons and the EFA device plugin. Its nodes' role also gets the policy of the VPC CNI,
    because that add-on may have no role of its own.
    """

    def __init__(self, name: str, plan: ClusterPlan, section: AwsCluster, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:EksCluster", name, opts)
        self._plan, self._section = plan, section
        subnets: Mapping[str, pulumi.Input[str]] = section.subnets
        plane: ControlPlane | None = None
        if section.create and section.makes_network:
            subnets = Network(f"{name}-network", plan, section, section.create, self.own).subnets
        if section.create:
            plane = ControlPlane(f"{name}-control-plane", plan, section, subnets, self.own)
        cluster = plane.cluster if plane else aws.eks.Cluster.get(f"{name}-cluster", section.name, self.own)
        # Together with the endpoint, which is known only after the cluster is created.
        late_network = pulumi.Output.all(cluster.endpoint, cluster.vpc_config)
        security_group = late_network.apply(own_security_group)
        self._context = ClusterContext(section, subnets, security_group, plan.tags, plan.protect)
        access = pulumi.Output.all(
            cluster.endpoint, cluster.certificate_authority.apply(identity.certificate), section.name, section.region
        )
        readers = SecretReaders(f"{name}-secrets", plan, section, cluster, self.own).arns if plan.readers else {}
        files, targets = self._files(name, late_network.apply(own_network))
        identifier, late = f"{section.region}/{section.name}", {**readers, **files}
        self.api = Api(f"{name}-kubernetes", identifier, access.apply(identity.kubeconfig), opts=self.own, users=late)
        self.kubernetes = self.api.provider()
        after_cluster = self.after(cluster)
        identity.people_entries(f"{name}-people", plan, section, after_cluster)
        identity.ci_entries(f"{name}-robot", plan, section, after_cluster)
        identity.data_access(f"{name}-data", self._context, plan, after_cluster)
        system = self._created(name, plane) if plane else []
        self._pools(name, system)
        self.system: Sequence[pulumi.Resource] = [*system, *targets]

    def _created(self, name: str, plane: ControlPlane) -> list[pulumi.Resource]:
        """The dependencies of a created cluster's pools: access, add-ons, system nodes, and a default StorageClass."""
        # An upgrade has the same order: control plane, add-ons, nodes. Only system nodes are updated before the add-ons
        # on them, which need nodes.
        after_plane = self.after(plane.cluster)
        first = "first-addons"
        before = Addons(f"{name}-{first}", self._context, first, plane.version, after_plane).resources
        system = [*plane.access, *self._system_nodes(name, plane, before)]
        inside = ResourceOptions(parent=self, provider=self.kubernetes, depends_on=system)
        if efa := efa_plugin(self._plan.pools):
            release(f"{name}-efa", "aws-efa-k8s-device-plugin", efa, inside)
        is_default = {"storageclass.kubernetes.io/is-default-class": "true"}
        storage = StorageClass(
            f"{name}-storage",
            metadata={"name": STORAGE_CLASS, "annotations": is_default},
            provisioner="ebs.csi.aws.com",
            # https://github.com/kubernetes-sigs/aws-ebs-csi-driver/blob/master/docs/parameters.md
            parameters={"type": "gp3", "encrypted": "true"},
            # In the zone of the pod.
            volume_binding_mode="WaitForFirstConsumer",
            allow_volume_expansion=True,
            opts=inside,
        )
        return [*before, *system, storage]

    def _system_nodes(self, name: str, plane: ControlPlane, before: Sequence[pulumi.Resource]) -> list[pulumi.Resource]:
        """System nodes of a created cluster, and the add-ons on them; CSI drivers and snapshots only if needed."""
        # S3 is mounted by a driver's pods, and shared file systems by nodes, so pods of teams need no access to them.
        plan, context = self._plan, self._context
        if plan.system is None:
            return []
        role = self._node_role(f"{name}-system-role", "system", NODE_POLICIES)
        pool, after = system_pool(plan.system), self.after(plane.cluster, *before, role)
        nodes = NodeGroup(f"{name}-system", pool, context, role.arn, after).group
        after_nodes = self.after(nodes)
        needed = {
            "addons": True,
            "s3": any(team.team != CACHES for team in plan.identities),
            "efs": plan.stores(identity.SHARED_KIND),
            "fsx": plan.stores(identity.LUSTRE_KIND),
            "snapshots": plan.snapshots,
        }
        on_nodes = [
            addon
            for kind in (kind for kind, is_needed in needed.items() if is_needed)
            for addon in Addons(f"{name}-{kind}", context, kind, plane.version, after_nodes).resources
        ]
        return [nodes, *on_nodes]

    def _files(
        self, name: str, network: pulumi.Output[str]
    ) -> tuple[Mapping[str, pulumi.Output[str]], Sequence[pulumi.Resource]]:
        """IDs for teams' shared storage by their placeholders, and the addresses of file systems."""
        late: dict[str, pulumi.Output[str]] = {}
        targets: Sequence[pulumi.Resource] = ()
        if self._plan.stores(identity.SHARED_KIND):
            files = identity.SharedFiles(f"{name}-shared-files", self._context, network, self.own)
            late, targets = {**files.late}, files.targets
        if self._plan.stores(identity.LUSTRE_KIND):
            late |= identity.LustreNetwork(f"{name}-lustre", self._context, network, self.own).late
            if self._section.makes_network:
                late[LUSTRE_SUBNET] = pulumi.Output.from_input(self._context.subnets_in(())[0])
        return late, targets

    def _pools(self, name: str, system: Sequence[pulumi.Resource]) -> None:
        section, pools = self._section, self._plan.pools
        role_arn, before = self._pools_role(name, system)
        in_cluster = ResourceOptions(parent=self, providers=[self.kubernetes], depends_on=before)
        if section.autoscaler == "karpenter":
            role = identity.name_of(section.node_role) if section.node_role else f"{section.name}-node"
            passed = section.node_role or f"arn:{partition(section.region)}:iam::*:role/{role}"
            Karpenter(f"{name}-karpenter", pools, self._context, (role, passed), in_cluster)
            return
        for pool in pools:
            NodeGroup(f"{name}-pool-{pool.name}", pool, self._context, role_arn, self.after(*before))
        if section.autoscaler == "cluster-autoscaler":
            queued = any(pool.supply.provisioning for pool in pools)
            ClusterAutoscaler(f"{name}-autoscaler", self._context, queued=queued, opts=in_cluster)

    def _pools_role(
        self, name: str, system: Sequence[pulumi.Resource]
    ) -> tuple[pulumi.Input[str], list[pulumi.Resource]]:
        """The IAM role of the pools' nodes, and the resources that nodes depend on."""
        # EKS creates no access entry of a role that only Karpenter uses:
        # https://docs.aws.amazon.com/eks/latest/userguide/access-entries.html. An existing cluster's role can have one,
        # so none is created.
        section, before = self._section, list(system)
        arn: pulumi.Input[str]
        if section.node_role:
            arn = section.node_role
        else:
            of_network = ADDONS["first-addons"]["vpc-cni"].policy or ""
            policies = NODE_POLICIES if section.create else (*NODE_POLICIES, of_network)
            role = self._node_role(f"{name}-node-role", "node", policies)
            arn, before = role.arn, [*before, role]
        if section.autoscaler == "karpenter" and (section.create or not section.node_role):
            entry = aws.eks.AccessEntry(
                f"{name}-nodes",
                cluster_name=section.name,
                principal_arn=arn,
                type="EC2_LINUX",
                tags=self._plan.tags,
                opts=self.after(*before),
            )
            before = [*before, entry]
        return arn, before

    def _node_role(self, name: str, purpose: str, policies: Sequence[str]) -> Role:
        region = self._section.region
        shells = (SESSION_MANAGER,) if self._section.session_manager else ()
        grant = Grant(trust("ec2", region), managed=[managed_policy(region, policy) for policy in (*policies, *shells)])
        return Role(name, f"{self._section.name}-{purpose}", grant, self._plan.tags, self.own)


def own_security_group(parts: Sequence[str | ClusterVpcConfig]) -> str:
    """The ID of the security group that EKS creates for a cluster."""
    return next((part.cluster_security_group_id or "" for part in parts if isinstance(part, ClusterVpcConfig)), "")


def own_network(parts: Sequence[str | ClusterVpcConfig]) -> str:
    """The ID of a cluster's VPC."""
    return next((part.vpc_id or "" for part in parts if isinstance(part, ClusterVpcConfig)), "")
