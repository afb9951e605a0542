"""Cases for `cloud_rules.sizes`."""

from dataclasses import replace
from typing import Final

from policy_builders import GONE, UNKNOWN, Break, Case, Sample

from cases.clouds import AKS, AKS_POOL, CPU_GROUP, GKE, GKE_POOL, GROUP, POOLS, SELF_MANAGED, SELF_TEMPLATE
from cloud_rules import sizes

_EKS: Final = "NodeGroup group: "
_KARPENTER: Final = "NodePool l4: "
_GKE: Final = "NodePool gke-pool: "
_AKS: Final = "AgentPool aks-pool: "
_LIMITS: Final = "spec.limits.nodes (or a limit of nvidia.com/gpu)"
_NODES: Final = "maximum of {} nodes exceeds the limit of 8 nodes for a pool in this environment; lower {}"
_GPUS: Final = "maximum of {} GPUs exceeds the limit of 64 GPUs for a pool in this environment; lower {}"
_KEEPS: Final = "minimum node count is {}, so idle nodes are kept; set {}: 0, with an autoscaler"
_SETS: Final = "{} resets the number of nodes at each deployment; remove it, or add it to ignoreChanges"
_ZONED: Final = replace(
    GKE_POOL, props={"location": "us-central1", "nodeCount": 2, "nodeConfig": {"machineType": "e2-medium"}}
)
_INLINE: Final = Sample(
    GKE.type,
    {
        "location": "us-central1-a",
        "nodePools": [{"name": "gpus", "nodeConfig": {"machineType": "g2-standard-4"}, "nodeCount": 0}],
    },
    "gke",
)
_REGION: Final = {"location": "us-central1"}
_ZONE: Final = {"location": "us-central1-a"}
_ZONES: Final = ["us-central1-a", "us-central1-b"]
_ATTACHED: Final = {"machineType": "n1-standard-8", "guestAccelerators": [{"type": "nvidia-tesla-t4"}]}
_BY_COUNT: Final = replace(AKS_POOL, props={"count": 2, "vmSize": "Standard_NV6ads_A10_v5"})

CASES: Final = (
    Case(
        name="limits of this environment",
        rule=sizes.pool_maximum,
        given={**POOLS, "self": SELF_MANAGED, "template": SELF_TEMPLATE},
        settings={"nodes": 8, "gpus": 64},
        also=[
            ("eks: scalingConfig.maxSize", 8),
            ("eks: taints", UNKNOWN),
            ("karpenter: spec.limits", {"nodes": 8}),
            ("gke: autoscaling", {"minNodeCount": 0, "maxNodeCount": 2}),
            ("aks", replace(AKS_POOL, props={**AKS_POOL.props, "enableAutoScaling": False, "count": 8})),
        ],
        breaks=[
            Break(
                "eks: scalingConfig.maxSize",
                9,
                (
                    f"{_EKS}{_NODES.format(9, 'scalingConfig.maxSize')}",
                    f"{_EKS}{_GPUS.format(72, 'scalingConfig.maxSize')}",
                ),
            ),
            Break(
                "self: maxSize",
                17,
                (f"Group self: {_NODES.format(17, 'maxSize')}", f"Group self: {_GPUS.format(68, 'maxSize')}"),
            ),
            Break("karpenter: spec.limits.'nvidia.com/gpu'", "65", f"{_KARPENTER}{_GPUS.format(65, _LIMITS)}"),
            Break("karpenter: spec.limits", GONE, f"{_KARPENTER}has no maximum number of nodes; set {_LIMITS}"),
            Break("karpenter: spec.limits", {"cpu": "1k"}, f"{_KARPENTER}has no maximum number of GPUs; set {_LIMITS}"),
            Break(
                "karpenter: spec.limits",
                {"nodes": 17},
                (f"{_KARPENTER}{_NODES.format(17, _LIMITS)}", f"{_KARPENTER}{_GPUS.format(68, _LIMITS)}"),
            ),
            Break(
                "gke: autoscaling",
                {"minNodeCount": 0, "maxNodeCount": 3},
                (
                    f"{_GKE}{_NODES.format(9, 'autoscaling.totalMaxNodeCount')}",
                    f"{_GKE}{_GPUS.format(72, 'autoscaling.totalMaxNodeCount')}",
                ),
            ),
            Break("gke: autoscaling", {}, f"{_GKE}has no maximum number of nodes; set autoscaling.totalMaxNodeCount"),
            Break("aks: maxCount", GONE, f"{_AKS}has no maximum number of nodes; set maxCount"),
            Break(
                "cluster: agentPoolProfiles.0.count",
                9,
                f"ManagedCluster aks, node pool system: {_NODES.format(9, 'maxCount')}",
            ),
            Break(
                "cluster: agentPoolProfiles.0",
                {"count": 9},
                f"ManagedCluster aks, node pool 0: {_NODES.format(9, 'maxCount')}",
            ),
        ],
        unknown={
            "eks: scalingConfig.maxSize": "NodeGroup group",
            "karpenter: spec.limits.'nvidia.com/gpu'": "NodePool l4",
            "gke: autoscaling": "NodePool gke-pool",
            "aks: enableAutoScaling": "AgentPool aks-pool",
            "cluster: agentPoolProfiles": "ManagedCluster aks",
        },
    ),
    Case(
        name="zones, and machines with an unknown number of GPUs",
        rule=sizes.pool_maximum,
        given={"gke": _ZONED, "cluster": _INLINE, "aks": _BY_COUNT},
        settings={"nodes": 6, "gpus": 8, "machines": {"Standard_NV6ads_A10_v5": 1}},
        also=[
            ("gke: nodeLocations", ["us-central1-a", "us-central1-b", "us-central1-c"]),
            ("cluster: nodePools.0.nodeCount", 6),
            ("cluster: nodePools", []),
            ("cluster: initialNodeCount", 9),  # It is that of the default pool, which a cluster with pools has not.
            ("cluster", replace(_INLINE, props={**_REGION, "enableAutopilot": True, "initialNodeCount": 9})),
            ("cluster", replace(_INLINE, props={**_REGION, "nodeLocations": _ZONES, "initialNodeCount": 3})),
            ("gke", replace(GKE_POOL, props={"location": "us-central1-a", "nodeLocations": _ZONES, "nodeCount": 3})),
            ("gke: nodeConfig", _ATTACHED),
            ("aks: count", GONE),
        ],
        breaks=[
            Break(
                "gke: nodeCount",
                3,
                f"{_GKE}maximum of 9 nodes exceeds the limit of 6 nodes for a pool in this environment; lower"
                " autoscaling.totalMaxNodeCount",
            ),
            Break(
                "gke: nodeLocations",
                [f"us-central1-{zone}" for zone in "abcf"],
                f"{_GKE}maximum of 8 nodes exceeds the limit of 6 nodes for a pool in this environment; lower"
                " autoscaling.totalMaxNodeCount",
            ),
            Break(
                "cluster: nodePools.0",
                {"name": "big", "nodeCount": 4, "nodeLocations": ["us-central1-a", "us-central1-b"]},
                "Cluster gke, node pool big: maximum of 8 nodes exceeds the limit of 6 nodes for a pool in this"
                " environment; lower autoscaling.totalMaxNodeCount",
            ),
            *(
                Break(
                    "cluster",
                    replace(_INLINE, props=props),
                    f"Cluster gke, {pool}: maximum of {nodes} nodes exceeds the limit of 6 nodes for a pool in this"
                    " environment; lower autoscaling.totalMaxNodeCount",
                )
                for props, pool, nodes in (
                    ({**_REGION, "initialNodeCount": 3}, "default node pool", 9),
                    ({**_ZONE, "initialNodeCount": 4, "nodeLocations": ["us-central1-b"]}, "default node pool", 8),
                    ({**_ZONE, "nodePools": [{"nodeCount": 7}]}, "node pool 0", 7),
                )
            ),
        ],
        unknown={
            "gke: location": "NodePool gke-pool",
            "aks: vmSize": "AgentPool aks-pool",
            "cluster: nodePools.0.nodeCount": "Cluster gke, node pool gpus",
        },
    ),
    Case(
        name="GPU pools outside production",
        rule=sizes.pool_minimum_zero,
        given=POOLS,
        settings={"required": True},
        also=[("eks", CPU_GROUP), ("karpenter: spec.replicas", 0), ("gke: autoscaling.totalMinNodeCount", GONE)],
        breaks=[
            Break("eks: scalingConfig.minSize", 1, f"{_EKS}{_KEEPS.format(1, 'scalingConfig.minSize')}"),
            Break("karpenter: spec.replicas", 2, f"{_KARPENTER}{_KEEPS.format(2, 'spec.replicas')}"),
            Break("gke: autoscaling", GONE, f"{_GKE}{_KEEPS.format(3, 'autoscaling.totalMinNodeCount')}"),
            Break("aks: minCount", 2, f"{_AKS}{_KEEPS.format(2, 'minCount')}"),
        ],
        unknown={"eks: scalingConfig.minSize": "NodeGroup group", "aks: minCount": "AgentPool aks-pool"},
    ),
    Case(
        name="GPU pools in production",
        rule=sizes.pool_minimum_zero,
        given={"eks": replace(GROUP, props={**GROUP.props, "scalingConfig": {"minSize": 2, "maxSize": 2}})},
        also=[("eks: scalingConfig", UNKNOWN)],
    ),
    Case(
        name="numbers of nodes that a deployment sets",
        rule=sizes.size_left_to_autoscaler,
        given={**POOLS, "self": SELF_MANAGED},
        also=[
            ("eks! ignored", ("scalingConfig",)),
            (
                "eks",
                replace(
                    POOLS["eks"],
                    props={**POOLS["eks"].props, "tags": {"gpu-tenancy.dev/desired-size": "live"}},
                    ignored=(),
                ),
            ),
            ("eks", CPU_GROUP),
            ("gke", replace(GKE_POOL, props={**GKE_POOL.props, "nodeCount": 1}, ignored=("nodeCount",))),
            ("gke: nodeConfig", UNKNOWN),
            ("aks", replace(AKS_POOL, props={**AKS_POOL.props, "enableAutoScaling": False, "count": 8})),
        ],
        breaks=[
            Break("eks! ignored", ("tags",), f"{_EKS}{_SETS.format('scalingConfig.desiredSize')}"),
            Break(
                "eks",
                replace(
                    POOLS["eks"],
                    props={**POOLS["eks"].props, "tags": {"gpu-tenancy.dev/desired-size": "2"}},
                    ignored=(),
                ),
                f"{_EKS}{_SETS.format('scalingConfig.desiredSize')}",
            ),
            Break("self: desiredCapacity", 1, f"Group self: {_SETS.format('desiredCapacity')}"),
            Break("gke: nodeCount", 1, f"{_GKE}{_SETS.format('nodeCount')}"),
            Break("aks: count", 1, f"{_AKS}{_SETS.format('count')}"),
            Break(
                "cluster: agentPoolProfiles.0.enableAutoScaling",
                to=True,
                says=f"ManagedCluster aks, node pool system: {_SETS.format('count')}",
            ),
        ],
        unknown={"eks: scalingConfig": "NodeGroup group", "aks: enableAutoScaling": "AgentPool aks-pool"},
    ),
    Case(
        name="numbers of inline pools whose changes are ignored",
        rule=sizes.size_left_to_autoscaler,
        given={
            "cluster": replace(
                AKS,
                props={"agentPoolProfiles": [{"name": "a", "count": 3, "enableAutoScaling": True}]},
                ignored=("agentPoolProfiles[0].count",),
            )
        },
        also=[("cluster! ignored", ("agentPoolProfiles",)), ("cluster! ignored", ("*",))],
        breaks=[Break("cluster! ignored", (), f"ManagedCluster aks, node pool a: {_SETS.format('count')}")],
    ),
)
