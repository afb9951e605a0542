"""Clusters and node pools of three clouds that keep every rule; cases take what they need of them."""

from typing import Any, Final

from policy_builders import Sample, manifest

TAGS: Final[dict[str, Any]] = {"owner": "ml-platform", "cost-center": "rd-001", "environment": "prod"}

EKS: Final = Sample(
    "aws:eks/cluster:Cluster",
    {
        "name": "ml",
        "accessConfig": {"authenticationMode": "API"},
        "tags": TAGS,
    },
    "eks",
    protect=True,
)
TEMPLATE: Final = Sample(
    "aws:ec2/launchTemplate:LaunchTemplate",
    {
        "name": "h100",
        "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 1},
    },
    "template",
)
GROUP: Final = Sample(
    "aws:eks/nodeGroup:NodeGroup",
    {
        "amiType": "AL2023_x86_64_NVIDIA",
        "capacityType": "ON_DEMAND",
        "clusterName": "ml",
        "instanceTypes": ["p5.48xlarge"],
        "launchTemplate": {"name": "h100", "version": "1"},
        "scalingConfig": {"minSize": 0, "maxSize": 2, "desiredSize": 0},
        "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}],
        "tags": TAGS,
    },
    "group",
    protect=True,
    ignored=("scalingConfig.desiredSize",),
)
CPU_GROUP: Final = Sample(
    "aws:eks/nodeGroup:NodeGroup",
    {
        "clusterName": "ml",
        "instanceTypes": ["m7i.large"],
        "scalingConfig": {"minSize": 2, "maxSize": 2, "desiredSize": 2},
    },
    "cpu",
)
SELF_MANAGED: Final = Sample(
    "aws:autoscaling/group:Group",
    {
        "launchTemplate": {"name": "self", "version": "1"},
        "minSize": 0,
        "maxSize": 2,
        "tags": [
            {"key": "kubernetes.io/cluster/ml", "value": "owned", "propagateAtLaunch": True},
            {
                "key": "k8s.io/cluster-autoscaler/node-template/taint/nvidia.com/gpu",
                "value": "present:NoSchedule",
                "propagateAtLaunch": False,
            },
        ],
    },
    "self",
    protect=True,
)
SELF_TEMPLATE: Final = Sample(
    "aws:ec2/launchTemplate:LaunchTemplate",
    {
        "name": "self",
        "instanceType": "g6.12xlarge",
        # --register-with-taints=nvidia.com/gpu=present:NoSchedule
        "userData": "LS1yZWdpc3Rlci13aXRoLXRhaW50cz1udmlkaWEuY29tL2dwdT1wcmVzZW50Ok5vU2NoZWR1bGU=",
    },
    "self-template",
)
NATIVE_EKS: Final = Sample(
    "aws-native:eks:Cluster",
    {
        "name": "ml",
        "accessConfig": {"authenticationMode": "API"},
        "tags": [{"key": key, "value": value} for key, value in TAGS.items()],
    },
    "native",
    protect=True,
)
NATIVE_TEMPLATE: Final = Sample(
    "aws-native:ec2:LaunchTemplate",
    {
        "launchTemplateName": "h100",
        "launchTemplateData": {
            "instanceType": "p5.48xlarge",
            **{key: value for key, value in TEMPLATE.props.items() if key != "name"},
        },
    },
    "native-template",
)
NATIVE_GROUP: Final = Sample(
    "aws-native:eks:Nodegroup",
    {
        **{key: value for key, value in GROUP.props.items() if key != "instanceTypes"},
        "amiType": "AL2023_x86_64_STANDARD",
    },
    "native-group",
    protect=True,
    ignored=("scalingConfig.desiredSize",),
)
NATIVE_SELF_MANAGED: Final = Sample(
    "aws-native:autoscaling:AutoScalingGroup",
    {
        **SELF_MANAGED.props,
        "launchTemplate": {"launchTemplateName": "h100", "version": "1"},
        "minSize": "0",
        "maxSize": "2",
    },
    "native-self",
    protect=True,
)
KARPENTER: Final = manifest("""
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: l4}
spec:
  limits: {nvidia.com/gpu: 16}
  template:
    spec:
      taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
      requirements:
      - {key: node.kubernetes.io/instance-type, operator: In, values: [g6.xlarge, g6.12xlarge]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
""")
NODE_CLASS: Final = manifest("""
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: l4}
spec:
  metadataOptions: {httpTokens: required, httpPutResponseHopLimit: 1}
  tags: {owner: ml-platform, cost-center: rd-001, environment: prod}
""")
GKE: Final = Sample(
    "gcp:container/cluster:Cluster",
    {
        "name": "ml",
        "location": "us-central1",
        "removeDefaultNodePool": True,
        "workloadIdentityConfig": {"workloadPool": "ml.svc.id.goog"},
        "resourceLabels": TAGS,
    },
    "gke",
    protect=True,
)
GKE_POOL: Final = Sample(
    "gcp:container/nodePool:NodePool",
    {
        "cluster": "ml",
        "location": "us-central1",
        "autoscaling": {"totalMinNodeCount": 0, "totalMaxNodeCount": 4},
        "nodeConfig": {
            "machineType": "a2-ultragpu-8g",
            "resourceLabels": TAGS,
            "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}],
            "workloadMetadataConfig": {"mode": "GKE_METADATA"},
        },
    },
    "gke-pool",
    protect=True,
)
AKS: Final = Sample(
    "azure-native:containerservice:ManagedCluster",
    {
        "resourceName": "ml",
        "resourceGroupName": "ml",
        "agentPoolProfiles": [
            {
                "name": "system",
                "mode": "System",
                "count": 3,
                "vmSize": "Standard_D8s_v5",
            }
        ],
        "disableLocalAccounts": True,
        "oidcIssuerProfile": {"enabled": True},
        "securityProfile": {"workloadIdentity": {"enabled": True}},
        "tags": TAGS,
    },
    "aks",
    protect=True,
)
AKS_POOL: Final = Sample(
    "azure-native:containerservice/v20250501:AgentPool",
    {
        "resourceName": "ml",
        "resourceGroupName": "ml",
        "enableAutoScaling": True,
        "maxCount": 4,
        "minCount": 0,
        "mode": "User",
        "nodeTaints": ["nvidia.com/gpu=present:NoSchedule"],
        "scaleSetPriority": "Regular",
        "tags": TAGS,
        "vmSize": "Standard_ND96isr_H100_v5",
    },
    "aks-pool",
    protect=True,
)
NATIVE: Final = {
    "native": NATIVE_EKS,
    "native-template": NATIVE_TEMPLATE,
    "native-group": NATIVE_GROUP,
    "native-self": NATIVE_SELF_MANAGED,
}
"""A cluster with its nodes in AWS Cloud Control's provider."""
POOLS: Final = {"eks": GROUP, "karpenter": KARPENTER, "gke": GKE_POOL, "aks": AKS_POOL, "cluster": AKS}
"""A pool of each cloud, and a cluster that has one inline."""
