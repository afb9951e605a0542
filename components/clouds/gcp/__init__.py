"""GKE: a Standard cluster, created or existing, and its node pools."""

from collections.abc import Sequence
from typing import Final

import pulumi
from pulumi import ResourceOptions
from pulumi_gcp import artifactregistry, compute, container, projects, serviceaccount

from gpu_tenancy.model.plan.cluster import ClusterPlan, NodePool
from gpu_tenancy.model.plan.people import Subject
from gpu_tenancy.model.spec.clouds.gcp import VIEWER, GcpCluster, iam_member

from ...objects import Component, Options, cluster_role_binding
from .. import Api, section_of
from .access import CiIdentity, SecretRights, authority, data_access, dns_name, kubeconfig
from .creation import ClusterNetwork, Network, NewCluster, SecretsKey, create_cluster
from .daemons import DriverInstaller, GpuFabric
from .pools import OPERATOR, SYSTEM_POOL, PoolCluster, node_pool, system_pool

READER: Final = "roles/artifactregistry.reader"
NODE_ROLES: Final = ("roles/container.defaultNodeServiceAccount", READER)
"""Roles of nodes, for logs, metrics and images of the project:
https://cloud.google.com/kubernetes-engine/docs/how-to/service-accounts."""


class GkeCluster(Component):
    """A GKE Standard cluster, created or looked up by name, and its node pools; its kubeconfig has no credentials.

    Not managed here: an existing network, with its ranges, NAT and firewall; the project's APIs (container, compute,
    iam, cloudkms if the key is created, file and lustre if claims need them); an existing cluster's Workload Identity,
    which the pools require, and multi-networking, which GPUDirect requires; NVIDIA's DRA driver, through which pods use
    NVLink between machines (GB200). GKE's cluster autoscaler scales from zero without further settings. `system` has
    its system pool, the driver installer for the driver mode `operator`, and the objects of GPUDirect for pools with
    `fabric`.
    """

    def __init__(self, name: str, plan: ClusterPlan, opts: Options = None) -> None:
        cluster = section_of(plan, GcpCluster)
        super().__init__("gpu-tenancy:clouds:GkeCluster", name, opts)
        self._plan, self._section = plan, cluster
        self._rights: list[pulumi.Resource] = []
        self._account = cluster.node_service_account or self._node_account(f"{name}-node")
        self.cluster = self._cluster(f"{name}-gke", cluster)
        by_name = cluster.endpoint == "dns"
        ends = self.cluster.control_plane_endpoints_config
        access = pulumi.Output.all(
            name=cluster.name,
            endpoint=ends.apply(dns_name) if by_name else self.cluster.endpoint,
            authority=None if by_name else self.cluster.master_auth.apply(authority),
        )
        identifier = f"{cluster.project}/{cluster.location}/{cluster.name}"
        self.api = Api(f"{name}-kubernetes", identifier, access.apply(kubeconfig), opts=self.own)
        self.kubernetes = self.api.provider()
        place = PoolCluster(cluster, self._account, plan.tags, self, [self.cluster, *self._rights], plan.protect)
        for pool in plan.pools:
            node_pool(f"{name}-{pool.name}", pool, place, self._domain_policy(f"{name}-{pool.name}-domain", pool))
        system: list[pulumi.Resource] = []
        if plan.system:
            system.append(system_pool(f"{name}-{SYSTEM_POOL}", plan.system, place))
        if any(pool.driver == OPERATOR for pool in plan.pools):
            inside = ResourceOptions(parent=self, providers=[self.kubernetes])
            system.append(DriverInstaller(f"{name}-drivers", inside))
        if any(pool.fabric for pool in plan.pools):
            inside = ResourceOptions(parent=self, providers=[self.kubernetes], depends_on=[self.cluster])
            system.append(GpuFabric(f"{name}-fabric", plan.pools, cluster, inside))
        self.system: Sequence[pulumi.Resource] = system
        if cluster.create and cluster.create.admins:
            # Google Groups: https://cloud.google.com/kubernetes-engine/docs/how-to/google-groups-rbac
            admins = [Subject("Group", admin) for admin in cluster.create.admins]
            inside = ResourceOptions(parent=self, provider=self.kubernetes)
            cluster_role_binding(f"{name}-admins", {"name": "gpu-tenancy-admins"}, "cluster-admin", admins, inside)
        for who in plan.people:
            # To find the clusters of the project; what they may do there is decided by Kubernetes RBAC.
            member = iam_member(who)
            projects.IAMMember(
                f"{name}-login-{member}", project=cluster.project, role=VIEWER, member=member, opts=self.own
            )
        for account in plan.service_accounts:
            CiIdentity(f"{name}-robot-{account.team}.{account.name}", cluster, account, self.own)
        # Its workload identity pool exists with the cluster.
        after_cluster = self.after(self.cluster)
        data_access(f"{name}-data", plan, cluster, self.cluster, after_cluster)
        for registry in plan.registries:
            # Nodes also pull from a repository of another project, also as a pull-through cache:
            # https://cloud.google.com/artifact-registry/docs/integrate-gke
            _, project, _, location, _, repository = registry.split("/")
            artifactregistry.RepositoryIamMember(
                f"{name}-reads-{project}-{location}-{repository}",
                project=project,
                location=location,
                repository=repository,
                role=READER,
                member=pulumi.Output.concat("serviceAccount:", self._account),
                opts=self.own,
            )
        for reader in plan.readers:
            SecretRights(f"{name}-secrets-{reader.team}", cluster, reader, after_cluster)

    def _node_account(self, name: str) -> pulumi.Output[str]:
        """The service account of the nodes, with the minimum roles; pods have their own through Workload Identity."""
        section = self._section
        account = serviceaccount.Account(
            f"{name}-account",
            # At most 30 characters.
            account_id=f"{section.name[:24]}-nodes",
            display_name=f"Nodes of GKE cluster {section.name}",
            project=section.project,
            opts=self.own,
        )
        for role in NODE_ROLES:
            right = f"{name}-{role.rpartition('.')[2]}"
            self._rights.append(
                projects.IAMMember(right, project=section.project, role=role, member=account.member, opts=self.own)
            )
        return account.email

    def _cluster(self, name: str, cluster: GcpCluster) -> container.Cluster:
        plan, creation = self._plan, cluster.create
        if creation is None:
            place = f"projects/{cluster.project}/locations/{cluster.location}/clusters/{cluster.name}"
            return container.Cluster.get(name, place, opts=self.own)
        secrets = None if creation.secrets_key else SecretsKey(f"{name}-secrets", plan, cluster, self.own)
        key = secrets.key if secrets else creation.secrets_key or ""
        network = ClusterNetwork(creation.network, creation.subnetwork, creation.pod_range, creation.service_range)
        if cluster.makes_network:
            network = Network(f"{name}-network", plan, cluster, creation, self.own).names
        opts = ResourceOptions(
            parent=self,
            protect=plan.protect,
            depends_on=[*self._rights, *([secrets.right] if secrets else [])],
            # They belong to the default pool, which is removed.
            ignore_changes=["nodeConfig", "initialNodeCount"],
        )
        return create_cluster(name, plan, NewCluster(cluster, creation, self._account, key, network), opts)

    def _domain_policy(self, name: str, pool: NodePool) -> pulumi.Output[str] | None:
        """Name of a policy that places a pool's machines in one NVLink domain; None if the pool needs none."""
        # https://docs.cloud.google.com/compute/docs/instance-groups/create-workload-policies
        if pool.machine.topology is None or pool.spec.placement_policy:
            return None
        return compute.ResourcePolicy(
            name,
            # Names are unique in the region.
            name=f"{self._section.name[:30]}-{pool.name[:32]}",
            region=self._section.region,
            project=self._section.project,
            workload_policy={"type": "HIGH_THROUGHPUT", "accelerator_topology": pool.machine.topology},
            opts=ResourceOptions(parent=self, delete_before_replace=True),
        ).name


open_cluster = GkeCluster
