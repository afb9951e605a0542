"""A created GKE cluster with its network and maintenance windows, and the key that encrypts its secrets."""

import datetime as dt
from typing import Final, NamedTuple

import pulumi
from pulumi import ResourceOptions
from pulumi_gcp import compute, container, kms, projects

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster, GkeCreation, GkeExclusion, GkeMaintenance

from ...objects import Component, Options
from .. import once_there

_MTU: Final = 8896  # the largest MTU of a VPC, recommended for GPUs: https://cloud.google.com/vpc/docs/mtu.
_SERVICES: Final = 20  # prefix length of the range of services, if there is room for it: 4,096 of them


class ClusterNetwork(NamedTuple):
    """Names of the network and the ranges that a cluster uses."""

    network: pulumi.Input[str] | None
    subnetwork: pulumi.Input[str] | None
    pods: pulumi.Input[str] | None
    services: pulumi.Input[str] | None


class Network(Component):
    """A VPC with jumbo frames, a subnetwork with ranges for pods and services, and Cloud NAT.

    Nodes reach Google's APIs and registries through Private Google Access, all else through Cloud NAT. The VPC has no
    firewall rule that admits traffic; GKE adds the cluster's. `names` are known once nodes have egress.
    """

    # https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips, https://cloud.google.com/nat/docs/gke-example

    def __init__(
        self, name: str, plan: ClusterPlan, section: GcpCluster, creation: GkeCreation, opts: Options = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:GkeNetwork", name, opts)
        kept = ResourceOptions(parent=self, protect=plan.protect)
        called, project, region = section.name, section.project, section.region
        vpc = compute.Network(
            f"{name}-vpc", name=called, project=project, auto_create_subnetworks=False, mtu=_MTU, opts=kept
        )
        first, pods = creation.network_addresses.subnets()
        nodes, others = first.subnets()
        services = next(iter(others.subnets(new_prefix=max(_SERVICES, others.prefixlen))))
        subnetwork = compute.Subnetwork(
            f"{name}-subnetwork",
            name=called,
            project=project,
            region=region,
            network=vpc.id,
            ip_cidr_range=str(nodes),
            secondary_ip_ranges=[
                {"range_name": "pods", "ip_cidr_range": str(pods)},
                {"range_name": "services", "ip_cidr_range": str(services)},
            ],
            private_ip_google_access=True,
            opts=kept,
        )
        router = compute.Router(
            f"{name}-router", name=called, project=project, region=region, network=vpc.id, opts=self.own
        )
        nat = compute.RouterNat(
            f"{name}-nat",
            name=called,
            project=project,
            region=region,
            router=router.name,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
            opts=self.own,
        )
        self.names = ClusterNetwork(vpc.name, once_there(subnetwork.name, nat.id), "pods", "services")


_ROTATION: Final = 90 * 86400  # seconds after which a key gets a new version
_METRICS: Final = (
    "SYSTEM_COMPONENTS", "STORAGE", "HPA", "POD", "DAEMONSET", "DEPLOYMENT", "STATEFULSET", "KUBELET", "CADVISOR",
    "JOBSET",
)  # fmt: skip
"""Google's cluster metrics without those of GPUs (DCGM), which the GPU Operator's exporter serves: two DCGM processes
on a node compete for the GPUs' profiling counters."""
_LOGS: Final = ("SYSTEM_COMPONENTS", "WORKLOADS", "APISERVER", "CONTROLLER_MANAGER", "SCHEDULER")


class SecretsKey(Component):
    """The Cloud KMS key that encrypts a cluster's secrets, and GKE's permission to use it.

    All stay when the stack is destroyed or names another key: a cluster with the key, or a backup, is unreadable
    without it. The state keeps a suffix of the ring's name, which is in use as long as the ring exists:
    https://github.com/hashicorp/terraform-provider-google/issues/1214. A key for boot disks would require the same role
    for the Compute Engine service agent. The cluster depends on `right`, GKE's role on the key.
    """

    # https://cloud.google.com/kubernetes-engine/docs/how-to/encrypting-secrets, GKE's own identity:
    # https://github.com/terraform-google-modules/terraform-google-kubernetes-engine/blob/main/examples/confidential_safer_cluster/kms.tf.

    def __init__(self, name: str, plan: ClusterPlan, cluster: GcpCluster, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:GkeSecretsKey", name, opts)
        kept = self.kept(protect=plan.protect)
        ring = kms.KeyRing(f"{name}-ring", location=cluster.region, project=cluster.project, opts=kept)
        key = kms.CryptoKey(
            f"{name}-key",
            name="secrets",
            key_ring=ring.id,
            purpose="ENCRYPT_DECRYPT",
            rotation_period=f"{_ROTATION}s",
            labels=dict(plan.tags),
            opts=kept,
        )
        agent = projects.ServiceIdentity(
            f"{name}-agent", project=cluster.project, service="container.googleapis.com", opts=self.own
        )
        self.key = key.id
        self.right = kms.CryptoKeyIAMMember(
            f"{name}-right",
            crypto_key_id=key.id,
            role="roles/cloudkms.cryptoKeyEncrypterDecrypter",
            member=agent.member,
            opts=ResourceOptions(parent=self, retain_on_delete=True),
        )


class NewCluster(NamedTuple):
    """The inputs of a new cluster: `account` is the address of the nodes' service account, `key` a resource name."""

    section: GcpCluster
    creation: GkeCreation
    account: pulumi.Input[str]
    key: pulumi.Input[str]
    network: ClusterNetwork


def create_cluster(name: str, plan: ClusterPlan, new: NewCluster, opts: ResourceOptions) -> container.Cluster:
    """A private regional or zonal Standard cluster without the default node pool.

    - Its API server has no public address, or one for the networks of `allowFrom` only. Without `allowFrom`, the
      deployment must run in the cluster's network, or use the API server's DNS name: IAM checks a permission before a
      request reaches it. Kubernetes' tokens and certificates would bypass that permission, so they are not accepted
      there.
    - Cloud Audit Logs contain every write to the API server, at no charge. The project's audit configuration enables
      reads for all clusters: https://cloud.google.com/kubernetes-engine/docs/how-to/audit-logging. Control plane logs
      are enabled.
    - The release channel upgrades patch and minor versions; `version` is the minimum.
    - GKE requires a node pool at creation: the default pool is created with the nodes' service account, then deleted.
    """
    cluster, creation = new.section, new.creation
    return container.Cluster(
        name,
        name=cluster.name,
        project=cluster.project,
        location=cluster.location,
        deletion_protection=plan.protect,
        resource_labels=dict(plan.tags),
        min_master_version=creation.version,
        release_channel={"channel": "REGULAR"},
        maintenance_policy=maintenance_policy(creation.maintenance),
        node_locations=list(creation.node_locations) or None,
        network=new.network.network,
        subnetwork=new.network.subnetwork,
        networking_mode="VPC_NATIVE",
        ip_allocation_policy={
            "cluster_secondary_range_name": new.network.pods,
            "services_secondary_range_name": new.network.services,
        },
        datapath_provider="ADVANCED_DATAPATH",
        enable_multi_networking=bool(cluster.fabric_networks),
        private_cluster_config={"enable_private_nodes": True, "enable_private_endpoint": not creation.allow_from},
        # If empty, only the cluster's network, not Google's public addresses.
        master_authorized_networks_config={
            "cidr_blocks": [{"cidr_block": cidr} for cidr in creation.allow_from],
            "gcp_public_cidrs_access_enabled": False,
        },
        control_plane_endpoints_config={
            "dns_endpoint_config": {
                "allow_external_traffic": cluster.endpoint == "dns",
                "enable_k8s_certs_via_dns": False,
                "enable_k8s_tokens_via_dns": False,
            }
        },
        database_encryption={"state": "ENCRYPTED", "key_name": new.key},
        workload_identity_config={"workload_pool": f"{cluster.project}.svc.id.goog"},
        # pyrefly: ignore[bad-argument-type]
        authenticator_groups_config={"security_group": creation.security_group} if creation.security_group else None,
        enable_shielded_nodes=True,
        enable_legacy_abac=False,
        rbac_binding_config={
            "enable_insecure_binding_system_authenticated": False,
            "enable_insecure_binding_system_unauthenticated": False,
        },
        logging_config={"enable_components": list(_LOGS)},
        monitoring_config={"enable_components": list(_METRICS), "managed_prometheus": {"enabled": True}},
        cost_management_config={"enabled": True},
        addons_config={
            "gce_persistent_disk_csi_driver_config": {"enabled": True},
            "gcs_fuse_csi_driver_config": {"enabled": True},
            "gcp_filestore_csi_driver_config": {"enabled": plan.stores("filestore")},
            "lustre_csi_driver_config": {"enabled": plan.stores("managed-lustre")},
        },
        # Node auto-provisioning would create pools without the taints and labels of the stack's pools.
        # It has no thresholds of its own for GPUs; the other profile removes more nodes, and sooner:
        # https://cloud.google.com/kubernetes-engine/docs/concepts/cluster-autoscaler#autoscaling_profiles
        cluster_autoscaling={"enabled": False, "autoscaling_profile": "BALANCED"},
        remove_default_node_pool=True,
        initial_node_count=1,
        node_config={
            "service_account": new.account,
            "shielded_instance_config": {"enable_secure_boot": True, "enable_integrity_monitoring": True},
        },
        opts=opts,
    )


_FIRST_DAY: Final = dt.date(2026, 1, 1)  # a day in the past: GKE requires the first window of a recurrence
_DAILY_HOURS: Final = 4  # length of GKE's daily window, which has no other
_SCOPES: Final = {
    "upgrades": "NO_UPGRADES",
    "minor-upgrades": "NO_MINOR_UPGRADES",
    "minor-or-node-upgrades": "NO_MINOR_OR_NODE_UPGRADES",
}


def maintenance_policy(maintenance: GkeMaintenance) -> container.ClusterMaintenancePolicyArgsDict:
    """Windows and exclusions for upgrades of the control plane and the nodes."""
    # https://cloud.google.com/kubernetes-engine/docs/concepts/maintenance-windows-and-exclusions
    policy: container.ClusterMaintenancePolicyArgsDict = {}
    if maintenance.hours == _DAILY_HOURS and not maintenance.days:
        policy["daily_maintenance_window"] = {"start_time": maintenance.start}
    else:
        start = dt.datetime.combine(_FIRST_DAY, dt.time.fromisoformat(maintenance.start))
        days = ",".join(day[:2].upper() for day in maintenance.days)
        policy["recurring_window"] = {
            "start_time": _zulu(start),
            "end_time": _zulu(start + dt.timedelta(hours=maintenance.hours)),
            "recurrence": f"FREQ=WEEKLY;BYDAY={days}" if days else "FREQ=DAILY",
        }
    if maintenance.exclusions:
        policy["maintenance_exclusions"] = [
            _exclusion(name, exclusion) for name, exclusion in maintenance.exclusions.items()
        ]
    return policy


def _exclusion(name: str, exclusion: GkeExclusion) -> container.ClusterMaintenancePolicyMaintenanceExclusionArgsDict:
    midnight, scope = dt.time(), _SCOPES[exclusion.scope]
    args: container.ClusterMaintenancePolicyMaintenanceExclusionArgsDict = {
        "exclusion_name": name,
        "start_time": _zulu(dt.datetime.combine(exclusion.start, midnight)),
        "exclusion_options": {"scope": scope},
    }
    if exclusion.end is None:
        args["exclusion_options"] = {"scope": scope, "end_time_behavior": "UNTIL_END_OF_SUPPORT"}
    else:  # The last day counts.
        args["end_time"] = _zulu(dt.datetime.combine(exclusion.end + dt.timedelta(days=1), midnight))
    return args


def _zulu(moment: dt.datetime) -> str:
    """A time in UTC as Google writes it: another format would be a difference at each deployment."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
