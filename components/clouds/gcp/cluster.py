"""A GKE cluster with its node pools."""

from collections.abc import Sequence
from typing import Final

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_gcp import container, projects, serviceaccount
from pulumi_kubernetes.rbac.v1 import ClusterRoleBinding

from gpu_tenancy.model.plan.fleet import Fleet, NodePool, SystemNodes
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster, GkeCreation

from . import pools
from .access import Reached, authority, kubeconfig
from .creation import NewCluster, SecretsKey, create_cluster
from .drivers import DriverInstaller

SYSTEM_POOL: Final = "gpu-tenancy-system"
"""Pool of the cluster's own pods."""
NODE_ROLES: Final = ("roles/container.defaultNodeServiceAccount", "roles/artifactregistry.reader")
"""What a node needs: to log, to be measured, to pull images of its own project:
https://cloud.google.com/kubernetes-engine/docs/how-to/service-accounts."""

_REGIONS_ZONES: Final = 3
"""Zones of a regional cluster that does not name any:
https://cloud.google.com/kubernetes-engine/docs/concepts/regional-clusters."""
_OF_OTHERS: Final = (
    # The autoscaler's.
    "initialNodeCount",
    "nodeCount",
    # GKE fills them in for machines that have such disks, and a change would replace the pool.
    "nodeConfig.ephemeralStorageLocalSsdConfig",
    "nodeConfig.localNvmeSsdBlockConfig",
)


class GkeCluster(pulumi.ComponentResource):
    """A GKE cluster of the Standard kind, made or found by its name, and its node pools.

    Not managed here: the network with its ranges, NAT and firewall; APIs of the project that must be on (container,
    compute, iam, and cloudkms where the key is made); the Workload Identity of a cluster that exists, which the pools
    rely on. For GPUDirect the pools get their interfaces, and the rest is the user's: the objects `Network` and
    `GKENetworkParamSet` for each network, the NCCL plugin's installer, and for TCPX and TCPXO the NRI device injector
    (https://cloud.google.com/kubernetes-engine/docs/how-to/gpu-bandwidth-gpudirect-tcpx).

    The autoscaler is GKE's own, which scales from zero without being told more. The kubeconfig holds no credential.

    Attributes:
        kubernetes: provider of its Kubernetes API.
        nodes: its pools, and the driver's installer where a pool leaves the driver to the GPU Operator's mode.

    Example:
        >>> GkeCluster("cluster", plan(stack).fleet, stack.cluster)
    """

    def __init__(
        self, name: str, fleet: Fleet, cluster: GcpCluster, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:GkeCluster", name, {}, opts)
        self._fleet, self._section = fleet, cluster
        self._child = pulumi.ResourceOptions(parent=self)
        self._rights: list[pulumi.Resource] = []
        self._account = cluster.node_service_account or self._node_account(f"{name}-node")
        self.cluster = self._cluster(f"{name}-gke", cluster)
        self.kubernetes = self._kubernetes(f"{name}-kubernetes")
        made = [self._pool(f"{name}-{pool.name}", pool) for pool in fleet.pools]
        if fleet.system:
            made.insert(0, self._system_pool(f"{name}-{SYSTEM_POOL}", fleet.system))
        self.nodes: Sequence[pulumi.Resource] = [*made, *self._drivers(f"{name}-drivers")]
        if cluster.create:
            self._admit(f"{name}-admins", cluster.create)
        self.register_outputs({"cluster": cluster.name})

    def _node_account(self, name: str) -> pulumi.Output[str]:
        """An identity of the nodes, with what a node needs and no more; pods have their own by Workload Identity."""
        account = serviceaccount.Account(
            f"{name}-account",
            # At most 30 letters.
            account_id=f"{self._section.name[:24]}-nodes",
            display_name=f"Nodes of GKE cluster {self._section.name}",
            project=self._section.project,
            opts=self._child,
        )
        self._rights = [
            projects.IAMMember(
                f"{name}-{role.rpartition('.')[2]}",
                project=self._section.project,
                role=role,
                member=account.member,
                opts=self._child,
            )
            for role in NODE_ROLES
        ]
        return account.email

    def _cluster(self, name: str, cluster: GcpCluster) -> container.Cluster:
        if cluster.create is None:
            place = f"projects/{cluster.project}/locations/{cluster.location}/clusters/{cluster.name}"
            return container.Cluster.get(name, place, opts=self._child)
        secrets = (
            None if cluster.create.secrets_key else SecretsKey(f"{name}-secrets", self._fleet, cluster, self._child)
        )
        key = secrets.key if secrets else cluster.create.secrets_key or ""
        return create_cluster(
            name,
            self._fleet,
            NewCluster(cluster, cluster.create, self._account, key),
            pulumi.ResourceOptions(
                parent=self,
                protect=self._fleet.protect,
                depends_on=[*self._rights, *([secrets.right] if secrets else [])],
                # Of the default pool, which is gone.
                ignore_changes=["nodeConfig", "initialNodeCount"],
            ),
        )

    def _kubernetes(self, name: str) -> kubernetes.Provider:
        known = pulumi.Output.all(
            name=self._section.name,
            endpoint=self.cluster.endpoint,
            authority=self.cluster.master_auth.apply(authority),
        )
        section = self._section
        return kubernetes.Provider(
            name,
            kubeconfig=known.apply(_kubeconfig),
            # A new certificate or endpoint is still the same cluster; else every resource would be replaced.
            cluster_identifier=f"{section.project}/{section.location}/{section.name}",
            enable_config_map_mutable=True,  # else a changed dashboard would be gone for a moment
            opts=self._child,
        )

    def _pool(self, name: str, pool: NodePool) -> container.NodePool:
        zones = len(pool.zones) or self._zones
        return container.NodePool(
            name,
            name=pool.name,
            cluster=self._section.name,
            location=self._section.location,
            project=self._section.project,
            node_locations=list(pool.zones) or None,
            initial_node_count=pools.first_nodes(pool.supply.least, pool.supply.most, zones),
            autoscaling=pools.autoscaling(pool),
            management=pools.management(pool),
            upgrade_settings=pools.upgrades(pool),
            placement_policy={"type": "COMPACT"} if pool.compact else None,
            queued_provisioning={"enabled": True} if pool.capacity.kind == "queued" else None,
            network_config=pools.network(pool, self._section),
            node_config=pools.node_config(pool, self._account, self._fleet.tags),
            opts=self._pool_options(),
        )

    def _system_pool(self, name: str, system: SystemNodes) -> container.NodePool:
        return container.NodePool(
            name,
            name=SYSTEM_POOL,
            cluster=self._section.name,
            location=self._section.location,
            project=self._section.project,
            initial_node_count=pools.first_nodes(system.least, system.most, self._zones),
            autoscaling={
                "total_min_node_count": system.least,
                "total_max_node_count": system.most,
                "location_policy": "BALANCED",
            },
            management={"auto_upgrade": True, "auto_repair": True},
            upgrade_settings={"strategy": "SURGE", "max_surge": 1, "max_unavailable": 0},
            network_config={"enable_private_nodes": True},
            node_config=pools.system_config(system, self._account, self._fleet.tags),
            opts=self._pool_options(),
        )

    @property
    def _zones(self) -> int:
        return _REGIONS_ZONES if self._section.location == self._section.region else 1

    def _pool_options(self) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(
            parent=self,
            depends_on=[self.cluster, *self._rights],
            protect=self._fleet.protect,
            ignore_changes=list(_OF_OTHERS),
            # A pool keeps its name, which two cannot have at once.
            delete_before_replace=True,
        )

    def _drivers(self, name: str) -> list[pulumi.Resource]:
        if not any(pool.driver == pools.OPERATOR for pool in self._fleet.pools):
            return []
        return [DriverInstaller(name, pulumi.ResourceOptions(parent=self, providers=[self.kubernetes]))]

    def _admit(self, name: str, creation: GkeCreation) -> None:
        """Google Groups as administrators: https://cloud.google.com/kubernetes-engine/docs/how-to/google-groups-rbac."""
        if not creation.admins:
            return
        group = "rbac.authorization.k8s.io"
        ClusterRoleBinding(
            name,
            metadata={"name": "gpu-tenancy-admins"},
            role_ref={"api_group": group, "kind": "ClusterRole", "name": "cluster-admin"},
            subjects=[{"api_group": group, "kind": "Group", "name": admin} for admin in creation.admins],
            opts=pulumi.ResourceOptions(parent=self, provider=self.kubernetes),
        )


def _kubeconfig(known: dict[str, str]) -> str:
    return kubeconfig(Reached(name=known["name"], endpoint=known["endpoint"], authority=known["authority"]))
