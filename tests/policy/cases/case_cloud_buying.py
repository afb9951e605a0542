"""Cases for `cloud_rules.buying`."""

from dataclasses import replace
from typing import Any, Final

from policy_builders import GONE, UNKNOWN, Break, Case, manifest

from cases.clouds import CPU_GROUP, GKE_POOL, GROUP, KARPENTER, POOLS, SELF_MANAGED, SELF_TEMPLATE
from cloud_rules import buying

_EKS: Final = "NodeGroup group: "
_NONE: Final = "{} is not an allowed machine type; use one of p5.48xlarge, g6.*, a2-*, Standard_*"
_SPOT: Final = "can use spot machines, which are not allowed in this environment; set {}"
_CAPACITY: Final = "{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}"
_REQUIREMENTS: Final = "karpenter: spec.template.spec.requirements"
_MIXED: Final[dict[str, Any]] = {
    "launchTemplate": {
        "launchTemplateSpecification": {"launchTemplateName": "self"},
        "overrides": [{"instanceType": "g6.12xlarge"}, {"instanceType": "g6.xlarge"}],
    },
    "instancesDistribution": {"onDemandPercentageAboveBaseCapacity": 100},
}
_OF_TWO: Final = {
    "h100": GROUP,
    "cpu": replace(CPU_GROUP, props={**CPU_GROUP.props, "tags": {"CostCenter": "rd-002"}}),
    "gke": replace(GKE_POOL, props={**GKE_POOL.props, "autoscaling": {"totalMaxNodeCount": 0}}),
}
_KARPENTER_BY_NODES: Final = manifest("""
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: l4, labels: {cost-center: rd-001}}
spec:
  limits: {nodes: 10}
  template:
    spec: {requirements: [{key: karpenter.k8s.aws/instance-family, operator: In, values: [g6]}]}
""")

CASES: Final = (
    Case(
        name="allowed machines",
        rule=buying.machine_allowed,
        given={**POOLS, "self": SELF_MANAGED, "template": SELF_TEMPLATE},
        settings={"allowed": ["p5.48xlarge", "g6.*", "a2-*", "Standard_*"]},
        also=[
            (f"{_REQUIREMENTS}.0", {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["g6"]}),
            ("aks: vmSize", "standard_nd96isr_h100_v5"),
            ("eks: taints", UNKNOWN),
            ("template: userData", UNKNOWN),
        ],
        breaks=[
            Break("eks: instanceTypes.0", "p4d.24xlarge", f"{_EKS}{_NONE.format('p4d.24xlarge')}"),
            Break("template: instanceType", "g5.xlarge", f"LaunchTemplate self-template: {_NONE.format('g5.xlarge')}"),
            Break(f"{_REQUIREMENTS}.0.values.1", "g5.xlarge", f"NodePool l4: {_NONE.format('g5.xlarge')}"),
            Break(
                "gke: nodeConfig.machineType", "g2-standard-4", f"NodePool gke-pool: {_NONE.format('g2-standard-4')}"
            ),
            Break("gke: nodeConfig.machineType", GONE, f"NodePool gke-pool: {_NONE.format('e2-medium')}"),
            Break("eks", CPU_GROUP, f"NodeGroup cpu: {_NONE.format('m7i.large')}"),
            Break("eks", replace(CPU_GROUP, props={}), f"NodeGroup cpu: {_NONE.format('t3.medium')}"),
            Break(
                "self: mixedInstancesPolicy",
                {"launchTemplate": {"overrides": [{"instanceType": "p5.4xlarge"}]}},
                f"Group self: {_NONE.format('p5.4xlarge')}",
            ),
        ],
        unknown={"eks: instanceTypes": "NodeGroup group", "aks: vmSize": "AgentPool aks-pool"},
    ),
    Case(
        name="spot machines in production",
        rule=buying.spot_outside_production,
        given={**POOLS, "self": SELF_MANAGED, "template": SELF_TEMPLATE},
        settings={"spot": "forbidden"},
        also=[
            ("eks: capacityType", "CAPACITY_BLOCK"),
            (f"{_REQUIREMENTS}.1", {"key": "karpenter.sh/capacity-type", "operator": "NotIn", "values": ["spot"]}),
            ("self: mixedInstancesPolicy", _MIXED),
        ],
        breaks=[
            Break("eks: capacityType", "SPOT", f"{_EKS}{_SPOT.format('capacityType: ON_DEMAND')}"),
            Break(
                f"{_REQUIREMENTS}.1.values.0", "spot", f"NodePool l4: {_SPOT.format(f'the requirement {_CAPACITY}')}"
            ),
            Break(_REQUIREMENTS, [], f"NodePool l4: {_SPOT.format(f'the requirement {_CAPACITY}')}"),
            *(
                Break(
                    f"gke: nodeConfig.{field}",
                    to=True,
                    says=f"NodePool gke-pool: {_SPOT.format('neither nodeConfig.spot nor nodeConfig.preemptible')}",
                )
                for field in ("spot", "preemptible")
            ),
            Break("aks: scaleSetPriority", "spot", f"AgentPool aks-pool: {_SPOT.format('scaleSetPriority: Regular')}"),
            Break("aks: scaleSetPriority", "Spot", f"AgentPool aks-pool: {_SPOT.format('scaleSetPriority: Regular')}"),
            Break(
                "self: mixedInstancesPolicy",
                {"instancesDistribution": {"onDemandPercentageAboveBaseCapacity": 20}},
                "Group self: "
                + _SPOT.format("mixedInstancesPolicy.instancesDistribution.onDemandPercentageAboveBaseCapacity: 100"),
            ),
            Break(
                "template: instanceMarketOptions",
                {"marketType": "spot"},
                f"LaunchTemplate self-template: {_SPOT.format('no instanceMarketOptions.marketType: spot')}",
            ),
        ],
        unknown={"eks: capacityType": "NodeGroup group"},
    ),
    Case(
        name="spot machines outside production",
        rule=buying.spot_outside_production,
        given={"eks": replace(GROUP, props={**GROUP.props, "capacityType": "SPOT"})},
    ),
    Case(
        name="monthly cost of a stack",
        rule=buying.pool_budget,
        given=_OF_TWO,
        # 2 p5.48xlarge of 55.04, 2 m7i.large of 0.1008: 80,505.57
        settings={"monthly": 80505.57},
        also=[
            ("h100: taints", UNKNOWN),
            ("h100: instanceTypes", ["p5.48xlarge", "p4d.24xlarge"]),
            ("gke: nodeConfig", {"machineType": "e2-medium"}),
            ("gke: nodeConfig.guestAccelerators", [{"type": "nvidia-a100-80gb", "count": 8}]),
        ],
        breaks=[
            Break(
                "h100: scalingConfig.maxSize",
                3,
                f"{_EKS}all node pools cost up to 120,685 USD a month, which exceeds the cap of 80,506 USD; lower"
                " maximums (most expensive: NodeGroup group 120,538, NodeGroup cpu 147, NodePool gke-pool 0)",
            ),
            Break(
                "gke: autoscaling",
                {"maxNodeCount": 1},
                f"{_EKS}all node pools cost up to 169,311 USD a month, which exceeds the cap of 80,506 USD; lower"
                " maximums (most expensive: NodePool gke-pool 88,805, NodeGroup group 80,358, NodeGroup cpu 147)",
            ),
        ],
        unknown={"cpu: instanceTypes": "NodeGroup cpu", "h100: scalingConfig.maxSize": "NodeGroup group"},
    ),
    Case(
        name="monthly cost of a cost center",
        rule=buying.pool_budget,
        given=_OF_TWO,
        settings={"centers": {"rd-001": 81000, "rd-002": 100}, "prices": {"m7i.*": 0.05}},
        also=[("h100: tags.cost-center", "rd-003"), ("cpu: tags", GONE), ("cpu: tags", {"cost_center": "rd-001"})],
        breaks=[
            Break(
                "cpu: scalingConfig.maxSize",
                3,
                "NodeGroup cpu: node pools of cost center rd-002 cost up to 110 USD a month, which exceeds the cap"
                " of 100 USD; lower maximums (most expensive: NodeGroup cpu 110)",
            ),
            Break(
                "cpu",
                replace(_OF_TWO["gke"], props={**GKE_POOL.props, "autoscaling": {"totalMaxNodeCount": 1}}),
                f"{_EKS}node pools of cost center rd-001 cost up to 109,960 USD a month, which exceeds the cap of"
                " 81,000 USD; lower maximums (most expensive: NodeGroup group 80,358, NodePool gke-pool 29,602,"
                " NodePool gke-pool 0)",
            ),
        ],
        unknown={"cpu: tags.CostCenter": "NodeGroup cpu"},
    ),
    Case(
        name="monthly cost of Karpenter pools",
        rule=buying.pool_budget,
        given={"karpenter": KARPENTER, "by-nodes": _KARPENTER_BY_NODES},
        # 16 g6.xlarge of 0.8048 cost less than 4 g6.12xlarge of 4.6016; 10 of the dearest g6, 13.3504
        settings={"monthly": 110895},
        also=[("by-nodes: spec.limits", {"nodes": 1, "nvidia.com/gpu": 80})],
        breaks=[
            Break(
                "karpenter: spec.limits.'nvidia.com/gpu'",
                17,
                "NodePool l4: all node pools cost up to 114,254 USD a month, which exceeds the cap of 110,895 USD;"
                " lower maximums (most expensive: NodePool l4 97,458, NodePool l4 16,796)",
            )
        ],
        unknown={"karpenter: spec.limits.'nvidia.com/gpu'": "NodePool l4", _REQUIREMENTS: "NodePool l4"},
    ),
)
