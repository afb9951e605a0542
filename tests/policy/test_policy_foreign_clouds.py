"""Programs of others, after public examples, as the engine sends them: what the pack says of each, reviewed.

After terraform-aws-modules/terraform-aws-eks (its example of EFA, as a Pulumi program), the guides of Karpenter, the
example of a cluster with its own node pool in Google's provider, and the quickstart of AKS in Azure Native's.
"""

from collections.abc import Sequence
from typing import Final

import pytest
from policy_builders import TODAY, UNKNOWN, Sample, manifest

from cloud_rules import PACK
from rule_engine.evaluator import Evaluator
from rule_engine.stacks import Stack

Verdict = tuple[str, str, str]
"""Rule, outcome, place."""

_TEMPLATE: Final = Sample(
    "aws:ec2/launchTemplate:LaunchTemplate",
    {
        "namePrefix": "gpu-",
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": 100, "encrypted": "true"}}],
        "metadataOptions": {"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 2},
        "vpcSecurityGroupIds": [UNKNOWN],
    },
    "gpu",
)
_SELF_TEMPLATE: Final = Sample(
    "aws:ec2/launchTemplate:LaunchTemplate", {"instanceType": "g5.12xlarge", "userData": UNKNOWN}, "self"
)
EKS: Final = (
    Sample(
        "aws:eks/cluster:Cluster",
        {
            "name": "ex",
            "roleArn": UNKNOWN,
            "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"},
            "vpcConfig": {
                "endpointPrivateAccess": True,
                "endpointPublicAccess": True,
                "publicAccessCidrs": ["0.0.0.0/0"],
                "subnetIds": [UNKNOWN],
            },
            "tags": {"Example": "ex", "Owner": "ml", "CostCenter": "a", "Environment": "dev"},
        },
        "ex",
    ),
    Sample("aws:iam/openIdConnectProvider:OpenIdConnectProvider", {"url": UNKNOWN}, "oidc"),
    _TEMPLATE,
    _SELF_TEMPLATE,
    Sample(
        "aws:eks/nodeGroup:NodeGroup",
        {
            "clusterName": UNKNOWN,
            "amiType": "AL2023_x86_64_NVIDIA",
            "instanceTypes": ["p5.48xlarge"],
            "scalingConfig": {"minSize": 2, "maxSize": 5, "desiredSize": 2},
            "launchTemplate": {"id": UNKNOWN, "version": UNKNOWN},
            "subnetIds": [UNKNOWN],
            "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
        },
        "gpu",
        ignored=("scalingConfig.desiredSize",),
        needs={"launchTemplate": (_TEMPLATE.urn,), "taints": (), "instanceTypes": (), "clusterName": ()},
    ),
    Sample(
        "aws:eks/nodeGroup:NodeGroup",
        {
            "clusterName": UNKNOWN,
            "instanceTypes": ["m5.large"],
            "scalingConfig": {"minSize": 2, "maxSize": 3, "desiredSize": 2},
        },
        "default",
        ignored=("scalingConfig",),
    ),
    Sample(
        "aws:autoscaling/group:Group",
        {
            "minSize": 0,
            "maxSize": 2,
            "desiredCapacity": 1,
            "launchTemplate": {"id": UNKNOWN, "version": UNKNOWN},
            # The key holds the cluster's name: kubernetes.io/cluster/<name>.
            "tags": [{"key": UNKNOWN, "value": "owned", "propagateAtLaunch": True}],
        },
        "self",
        needs={"launchTemplate": (_SELF_TEMPLATE.urn,), "tags": ()},
    ),
    Sample(
        "aws:autoscaling/group:Group",
        {"minSize": 0, "maxSize": 2, "desiredCapacity": 1, "tags": [{"key": "Name", "value": "web"}]},
        "web",
    ),
    manifest("""
    apiVersion: karpenter.sh/v1
    kind: NodePool
    metadata: {name: default}
    spec:
      limits: {cpu: 1000}
      template:
        spec:
          requirements:
          - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
          - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}
          - {key: karpenter.k8s.aws/instance-generation, operator: Gt, values: ["2"]}
    """),
    manifest("""
    apiVersion: karpenter.sh/v1
    kind: NodePool
    metadata: {name: gpu}
    spec:
      template:
        spec:
          taints: [{key: nvidia.com/gpu, value: "true", effect: NoSchedule}]
          requirements: [{key: karpenter.k8s.aws/instance-family, operator: In, values: [g5, g6]}]
    """),
    manifest("""
    apiVersion: karpenter.k8s.aws/v1
    kind: EC2NodeClass
    metadata: {name: default}
    spec:
      amiSelectorTerms: [{alias: al2023@latest}]
      subnetSelectorTerms: [{tags: {karpenter.sh/discovery: ex}}]
    """),
)
GKE: Final = (
    Sample(
        "gcp:container/cluster:Cluster",
        {"name": "my-gke-cluster", "location": "us-central1", "removeDefaultNodePool": True, "initialNodeCount": 1},
        "primary",
    ),
    Sample(
        "gcp:container/nodePool:NodePool",
        {
            "cluster": UNKNOWN,
            "location": "us-central1",
            "nodeCount": 1,
            "nodeConfig": {"preemptible": True, "machineType": "e2-medium", "serviceAccount": UNKNOWN},
        },
        "nodes",
    ),
    Sample(
        "gcp:container/nodePool:NodePool",
        {
            "cluster": UNKNOWN,
            "autoscaling": {"minNodeCount": 0, "maxNodeCount": 4},
            "nodeConfig": {
                "machineType": "n1-standard-8",
                "guestAccelerators": [{"type": "nvidia-tesla-t4", "count": 1}],
            },
        },
        "gpu",
    ),
    Sample(
        "gcp:container/cluster:Cluster",
        {
            "location": "us-central1",
            "enableAutopilot": True,
            "masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": "10.0.0.0/8"}]},
        },
        "autopilot",
    ),
)
AKS: Final = (
    Sample(
        "azure-native:containerservice:ManagedCluster",
        {
            "resourceGroupName": UNKNOWN,
            "agentPoolProfiles": [
                {"count": 3, "mode": "System", "name": "agentpool", "osType": "Linux", "vmSize": "Standard_DS2_v2"}
            ],
            "servicePrincipalProfile": {"clientId": UNKNOWN, "secret": UNKNOWN},
        },
        "quickstart",
    ),
    Sample(
        "azure-native:containerservice/v20250501:AgentPool",
        {
            "resourceName": UNKNOWN,
            "enableAutoScaling": True,
            "count": 1,
            "minCount": 1,
            "maxCount": 3,
            "mode": "User",
            "nodeTaints": ["sku=gpu:NoSchedule"],
            "vmSize": "Standard_NC6s_v3",
        },
        "gpunp",
    ),
)

VERDICTS: Final[dict[str, tuple[Sequence[Sample], set[Verdict]]]] = {
    "EKS": (
        EKS,
        {
            ("private-endpoint", "broken", "Cluster ex"),
            ("no-shared-credentials", "broken", "Cluster ex"),
            ("imds-v2", "broken", "LaunchTemplate gpu"),
            ("imds-v2", "broken", "LaunchTemplate self"),
            ("imds-v2", "broken", "NodeGroup default"),
            ("disks-encrypted", "broken", "LaunchTemplate self"),
            ("disks-encrypted", "broken", "NodeGroup default"),
            ("size-left-to-autoscaler", "broken", "Group self"),
            ("pool-maximum", "broken", "NodePool gpu"),
            # Its taints are in user data that no preview knows.
            ("gpu-pool-tainted", "unknown", "Group self"),
            ("owner-tags", "broken", "NodeGroup gpu"),
            ("owner-tags", "broken", "NodeGroup default"),
            ("owner-tags", "broken", "EC2NodeClass default"),
        },
    ),
    "GKE": (
        GKE,
        {
            ("private-endpoint", "broken", "Cluster primary"),
            ("no-public-addresses", "broken", "Cluster primary"),
            ("workload-identity", "broken", "Cluster primary"),
            ("gpu-pool-tainted", "broken", "NodePool gpu"),
            ("owner-tags", "broken", "Cluster primary"),
            ("owner-tags", "broken", "NodePool nodes"),
            ("owner-tags", "broken", "NodePool gpu"),
            ("owner-tags", "broken", "Cluster autopilot"),
            ("gpu-machines-evaluated", "broken", "Cluster autopilot"),
        },
    ),
    "AKS": (
        AKS,
        {
            ("private-endpoint", "broken", "ManagedCluster quickstart"),
            ("workload-identity", "broken", "ManagedCluster quickstart"),
            ("no-shared-credentials", "broken", "ManagedCluster quickstart"),
            ("size-left-to-autoscaler", "broken", "AgentPool gpunp"),
            ("owner-tags", "broken", "ManagedCluster quickstart"),
            ("owner-tags", "broken", "AgentPool gpunp"),
        },
    ),
}


@pytest.mark.parametrize("cloud", VERDICTS)
def test_findings_about_the_programs_of_others(cloud: str) -> None:
    program, expected = VERDICTS[cloud]
    evaluator = Evaluator(PACK, TODAY)
    resources = [resource.resource() for resource in program]
    diagnostics = [
        *(finding for resource in resources for finding in evaluator.evaluate(resource)),
        *evaluator.evaluate_stack(Stack(resources)),
    ]
    assert {(finding.rule.name, finding.outcome, _place(finding.message)) for finding in diagnostics} == expected
    assert "error" not in {finding.outcome for finding in diagnostics}


def _place(message: str) -> str:
    return message.split(": ", 1)[0]
