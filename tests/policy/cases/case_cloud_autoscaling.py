"""Cases for node auto-provisioning of GKE, and for AKS pools with machines of several sizes."""

from dataclasses import replace
from typing import Any, Final

from policy_builders import GONE, Break, Case

from cases.clouds import AKS_POOL, GKE, GKE_POOL
from cloud_rules import buying, gpu_pools, sizes

_PLACE: Final = "Cluster gke, node auto-provisioning: "
_LIMITS: Final = "clusterAutoscaling.resourceLimits"
_AT: Final = f"gke: {_LIMITS}"
_CPU: Final = [
    {"resourceType": "cpu", "minimum": 0, "maximum": 1000},
    {"resourceType": "memory", "minimum": 0, "maximum": 8000},
]
_OF_CPUS: Final = replace(
    GKE,
    props={
        **GKE.props,
        "clusterAutoscaling": {
            "enabled": True,
            "resourceLimits": _CPU,
        },
    },
)
_VM_SIZES: Final = replace(
    AKS_POOL,
    props={
        "type": "VirtualMachines",
        "mode": "User",
        "virtualMachinesProfile": {
            "scale": {"manual": [{"size": "Standard_D8s_v5", "count": 1}, {"size": "Standard_D4s_v5", "count": 1}]}
        },
    },
)
_MANUAL: Final = "aks: virtualMachinesProfile.scale.manual"
_TAINT: Final = (
    "AgentPool aks-pool: its GPU nodes have no taint that keeps other pods off; set nodeTaints:"
    " ['nvidia.com/gpu=present:NoSchedule']"
)


def _with_gpus(*limits: dict[str, Any]) -> list[dict[str, Any]]:
    return [*_CPU, *limits]


def _limit(gpu: str, maximum: int, minimum: int = 0) -> dict[str, Any]:
    return {"resourceType": gpu, "minimum": minimum, "maximum": maximum}


CASES: Final = (
    Case(
        name="limits of node auto-provisioning",
        rule=sizes.pool_maximum,
        given={"gke": _OF_CPUS},
        settings={"nodes": 8, "gpus": 64},
        also=[
            (_AT, _with_gpus(_limit("nvidia-h100-80gb", 32), _limit("nvidia-l4", 32))),
            (_AT, _with_gpus(_limit("tpu-v5-lite-podslice", 1000))),
            ("gke: clusterAutoscaling", {"enabled": False, "resourceLimits": _with_gpus(_limit("nvidia-l4", 1000))}),
            ("gke: clusterAutoscaling", {"autoscalingProfile": "OPTIMIZE_UTILIZATION"}),
        ],
        breaks=[
            Break(
                _AT,
                _with_gpus(_limit("nvidia-h100-80gb", 1000)),
                f"{_PLACE}maximum of 1000 GPUs exceeds the limit of 64 GPUs for a pool in this environment; lower"
                f" {_LIMITS}",
            ),
            Break(
                _AT,
                _with_gpus(_limit("nvidia-h100-80gb", 64), _limit("NVIDIA-L4", 1)),
                f"{_PLACE}maximum of 65 GPUs exceeds the limit of 64 GPUs for a pool in this environment; lower"
                f" {_LIMITS}",
            ),
            Break(_AT, GONE, f"{_PLACE}has no maximum number of nodes; set {_LIMITS}"),
        ],
        unknown={
            _AT: "Cluster gke, node auto-provisioning",
            f"{_AT}.0.resourceType": "Cluster gke, node auto-provisioning",
            "gke: clusterAutoscaling": "Cluster gke",
            "gke: clusterAutoscaling.enabled": "Cluster gke",
        },
    ),
    Case(
        name="idle GPUs of node auto-provisioning",
        rule=sizes.pool_minimum_zero,
        given={"gke": _OF_CPUS},
        settings={"required": True},
        also=[(_AT, _with_gpus(_limit("nvidia-l4", 8))), (_AT, [_limit("cpu", 8, 4), _limit("memory", 8, 4)])],
        breaks=[
            Break(
                _AT,
                _with_gpus(_limit("nvidia-l4", 8, 4)),
                f"{_PLACE}minimum GPU count is 4, so idle nodes are kept; set minimum in {_LIMITS}: 0, with an"
                " autoscaler",
            )
        ],
    ),
    Case(
        name="taints of node auto-provisioning, which GKE sets",
        rule=gpu_pools.gpu_pool_tainted,
        given={"gke": _OF_CPUS},
        also=[(_AT, _with_gpus(_limit("nvidia-l4", 8)))],
        unknown={_AT: "Cluster gke, node auto-provisioning"},
    ),
    Case(
        name="nodes without GPUs of node auto-provisioning",
        rule=gpu_pools.cluster_has_cpu_pool,
        given={"gke": _OF_CPUS, "pool": GKE_POOL},
        also=[(_AT, _with_gpus(_limit("nvidia-l4", 8)))],
        breaks=[
            Break(
                "gke: clusterAutoscaling",
                GONE,
                "Cluster gke: all node pools have GPUs; add one without GPUs for the cluster's system pods",
            )
        ],
    ),
    Case(
        name="allowed machines, and node auto-provisioning",
        rule=buying.machine_allowed,
        given={"gke": GKE},
        settings={"allowed": ["a2-*"]},
        breaks=[
            Break(
                "gke", _OF_CPUS, f"{_PLACE}a machine by resourceLimits is not an allowed machine type; use one of a2-*"
            )
        ],
    ),
    Case(
        name="monthly cost of node auto-provisioning",
        rule=buying.pool_budget,
        given={"gke": GKE},
        settings={"monthly": 1},
        unknown={"gke: clusterAutoscaling": "Cluster gke"},
    ),
    Case(
        name="AKS pools with machines of several sizes",
        rule=gpu_pools.gpu_pool_tainted,
        given={"aks": _VM_SIZES},
        breaks=[
            Break(f"{_MANUAL}.1.size", "Standard_NC24ads_A100_v4", _TAINT),
            Break(f"{_MANUAL}.1", {"sizes": ["Standard_D4s_v5", "Standard_NC24ads_A100_v4"], "count": 1}, _TAINT),
            Break(
                "aks: virtualMachinesProfile.scale",
                {"autoscale": {"size": "standard_nc24ads_a100_v4", "maxCount": 2}},
                _TAINT,
            ),
        ],
        unknown={"aks: virtualMachinesProfile": "AgentPool aks-pool", f"{_MANUAL}.0.size": "AgentPool aks-pool"},
    ),
    Case(
        name="bounds of AKS pools with machines of several sizes",
        rule=sizes.pool_maximum,
        given={"aks": _VM_SIZES},
        settings={"nodes": 4},
        also=[(f"{_MANUAL}.0.count", 3)],
        breaks=[
            Break(
                f"{_MANUAL}.0.count",
                4,
                "AgentPool aks-pool: maximum of 5 nodes exceeds the limit of 4 nodes for a pool in this environment;"
                " lower virtualMachinesProfile.scale",
            ),
            Break(
                "aks: virtualMachinesProfile.scale.autoscale",
                [{"size": "Standard_D8s_v5", "minCount": 0, "maxCount": 3}],
                "AgentPool aks-pool: maximum of 5 nodes exceeds the limit of 4 nodes for a pool in this environment;"
                " lower virtualMachinesProfile.scale",
            ),
        ],
    ),
)
