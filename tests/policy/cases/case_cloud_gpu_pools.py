"""Cases for `cloud_rules.gpu_pools`."""

from dataclasses import replace
from typing import Final

from policy_builders import GONE, UNKNOWN, Break, Case, Sample

from cases.clouds import AKS, CPU_GROUP, EKS, GKE, GKE_POOL, GROUP, POOLS, SELF_MANAGED, SELF_TEMPLATE
from cloud_rules import gpu_pools

_NONE: Final = "its GPU nodes have no taint that keeps other pods off; set "
_EKS: Final = f"NodeGroup group: {_NONE}taints: [{{key: nvidia.com/gpu, value: present, effect: NO_SCHEDULE}}]"
_KARPENTER: Final = (
    f"NodePool l4: {_NONE}spec.template.spec.taints: [{{key: nvidia.com/gpu, value: present, effect: NoSchedule}}]"
)
_GKE: Final = (
    f"NodePool gke-pool: {_NONE}nodeConfig.taints: [{{key: nvidia.com/gpu, value: present, effect: NO_SCHEDULE}}]; GKE"
    " adds it itself only where the cluster has a pool without GPUs when this one is made"
)
_AKS: Final = f"AgentPool aks-pool: {_NONE}nodeTaints: ['nvidia.com/gpu=present:NoSchedule']"
_SELF: Final = (
    f"Group self: {_NONE}--register-with-taints=nvidia.com/gpu=present:NoSchedule for the kubelet in the template's"
    " user data, and the tag k8s.io/cluster-autoscaler/node-template/taint/nvidia.com/gpu: present:NoSchedule"
)
_REQUIREMENTS: Final = "karpenter: spec.template.spec.requirements"
_SYSTEM: Final = "has GPUs and runs AKS system pods (mode System); set mode: User, and add a system pool without GPUs"
_UNTAGGED: Final = replace(SELF_MANAGED, props={**SELF_MANAGED.props, "tags": SELF_MANAGED.props["tags"][:1]})
_BY_TEMPLATE: Final = replace(
    GROUP,
    props={key: value for key, value in GROUP.props.items() if key != "instanceTypes"},
    needs={**dict.fromkeys(GROUP.props, ()), "launchTemplate": (SELF_TEMPLATE.urn,)},
)
_N1: Final = replace(
    GKE_POOL,
    props={
        "nodeConfig": {
            "machineType": "n1-standard-8",
            "guestAccelerators": [{"type": "nvidia-tesla-t4", "count": 1}],
            "taints": [{"key": "nvidia.com/gpu", "effect": "NO_SCHEDULE"}],
        }
    },
)
_GKE_CPU: Final = Sample("gcp:container/nodePool:NodePool", {"nodeConfig": {"machineType": "e2-medium"}}, "cpu")
_ONLY_GPUS: Final = "Cluster {}: all node pools have GPUs; add one without GPUs for the cluster's system pods"

CASES: Final = (
    Case(
        name="pools of three clouds",
        rule=gpu_pools.gpu_pool_tainted,
        given=POOLS,
        also=[
            ("eks: taints.0.effect", "NO_EXECUTE"),
            ("aks: nodeTaints", ["sku=gpu:NoSchedule"]),
            ("eks", CPU_GROUP),
            ("gke: nodeConfig", {"machineType": "n2-standard-8"}),
            (f"{_REQUIREMENTS}.0.values", ["g6.xlarge"]),
        ],
        breaks=[
            Break("eks: taints", GONE, _EKS),
            Break("eks: taints.0.effect", "PREFER_NO_SCHEDULE", _EKS),
            Break("eks: taints.0.key", "team", _EKS),
            Break("karpenter: spec.template.spec.taints", GONE, _KARPENTER),
            Break("gke: nodeConfig.taints.0.effect", "PREFER_NO_SCHEDULE", _GKE),
            Break("aks: nodeTaints.0", "team=a:NoSchedule", _AKS),
            Break("aks", replace(POOLS["aks"], props={"vmSize": "standard_nc24ads_a100_v4"}), _AKS),
        ],
        unknown={
            "eks: taints": "NodeGroup group",
            "eks: instanceTypes": "NodeGroup group",
            "gke: nodeConfig": "NodePool gke-pool",
            "aks: vmSize": "AgentPool aks-pool",
        },
    ),
    Case(
        name="a group with machine and taints in its launch template",
        rule=gpu_pools.gpu_pool_tainted,
        given={"self": SELF_MANAGED, "template": SELF_TEMPLATE},
        also=[("self: tags.1", GONE), ("self: tags", [{"key": "team", "value": "a"}]), ("template: userData", UNKNOWN)],
        breaks=[
            Break("self: tags.1.value", "present:PreferNoSchedule", _SELF),
            Break("self: tags.1.key", "k8s.io/cluster-autoscaler/node-template/taint/team", _SELF),
        ],
        unknown={
            "template: instanceType": "Group self",
            "self: tags.1.value": "Group self",
            "self: launchTemplate.name": "Group self",
        },
    ),
    Case(
        name="taints in the kubelet arguments of user data",
        rule=gpu_pools.gpu_pool_tainted,
        given={"self": _UNTAGGED, "template": SELF_TEMPLATE},
        also=[
            ("template: userData", "kubelet --register-with-taints 'nvidia.com/gpu=present:NoSchedule,a=b:NoExecute'"),
            ("template: userData", "# für den Kubelet: --register-with-taints=nvidia.com/gpu=present:NoSchedule"),
            ("template: instanceType", "m7i.large"),
            ("self: tags.0.key", UNKNOWN),
        ],
        breaks=[
            Break("template: userData", GONE, _SELF),
            Break("template: userData", "# ein Skript für alle Knoten", _SELF),
            Break("template: userData", "kubelet --register-with-taints=team=a:NoSchedule", _SELF),
        ],
        unknown={"template: userData": "Group self", "template: instanceType": "Group self"},
    ),
    Case(
        name="a node group with the machine in its launch template",
        rule=gpu_pools.gpu_pool_tainted,
        given={"eks": _BY_TEMPLATE, "template": SELF_TEMPLATE},
        also=[("eks: amiType", "AL2023_x86_64_STANDARD"), ("eks: launchTemplate.version", UNKNOWN)],
        breaks=[Break("eks: taints", [], _EKS)],
        unknown={"eks: amiType": "NodeGroup group", "template: instanceType": "NodeGroup group"},
    ),
    Case(
        name="attached GPUs, and machines in settings",
        rule=gpu_pools.gpu_pool_tainted,
        given={"gke": _N1, "aks": POOLS["aks"]},
        settings={"machines": {"Standard_X*": 2}},
        also=[("gke: nodeConfig.guestAccelerators", []), ("aks: vmSize", "Standard_D8s_v5")],
        breaks=[Break("gke: nodeConfig.taints", [], _GKE)],
        unknown={"gke: nodeConfig.guestAccelerators": "NodePool gke-pool"},
    ),
    Case(
        name="zero accelerators",
        rule=gpu_pools.gpu_pool_tainted,
        given={
            "gke": replace(
                GKE_POOL,
                props={
                    "nodeConfig": {
                        "machineType": "n1-standard-8",
                        "guestAccelerators": [{"type": "nvidia-l4", "count": 0}],
                    }
                },
            )
        },
        also=[("gke: nodeConfig.machineType", "n2-standard-8")],
        breaks=[Break("gke: nodeConfig.guestAccelerators.0.count", 1, _GKE)],
    ),
    Case(
        name="AKS system pools",
        rule=gpu_pools.system_off_gpu_pools,
        given={"aks": POOLS["aks"], "cluster": AKS, "eks": GROUP},
        breaks=[
            Break("aks: mode", "System", f"AgentPool aks-pool: {_SYSTEM}"),
            Break(
                "cluster: agentPoolProfiles.0.vmSize",
                "Standard_NC4as_T4_v3",
                f"ManagedCluster aks, node pool system: {_SYSTEM}",
            ),
        ],
        unknown={
            "aks: mode": "AgentPool aks-pool",
            "cluster: agentPoolProfiles.0.vmSize": "ManagedCluster aks, node pool system",
        },
    ),
    Case(
        name="a cluster of EKS with GPU pools",
        rule=gpu_pools.cluster_has_cpu_pool,
        given={"cluster": EKS, "eks": GROUP, "cpu": CPU_GROUP},
        also=[
            ("eks: instanceTypes", UNKNOWN),
            ("cpu", Sample("aws:eks/fargateProfile:FargateProfile", {"clusterName": "ml"}, "cpu")),
        ],
        breaks=[Break("cpu", GONE, _ONLY_GPUS.format("eks"))],
        unknown={"cpu: instanceTypes": "Cluster eks"},
    ),
    Case(
        name="a cluster of GKE with GPU pools",
        rule=gpu_pools.cluster_has_cpu_pool,
        given={"cluster": GKE, "gpus": GKE_POOL, "cpu": _GKE_CPU, "eks": CPU_GROUP},
        also=[
            ("cpu", Sample(GKE.type, {"location": "us-central1", "nodePools": [_GKE_CPU.props]}, "cpu")),
            ("cluster: enableAutopilot", True),
        ],
        breaks=[Break("cpu: nodeConfig.machineType", "g2-standard-4", _ONLY_GPUS.format("gke"))],
        unknown={"cpu: nodeConfig": "Cluster gke"},
    ),
)
