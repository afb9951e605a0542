"""IAM policies of Karpenter's controller, as in its CloudFormation template.

https://github.com/aws/karpenter-provider-aws/blob/main/website/content/en/preview/getting-started/getting-started-with-karpenter/cloudformation.yaml
"""

from collections.abc import Sequence

from .policies import Statement, allow, document, partition

_POOL = "karpenter.sh/nodepool"
_CLASS = "karpenter.k8s.aws/ec2nodeclass"
_REGION = "topology.kubernetes.io/region"


def karpenter_policies(cluster: str, region: str, node_role: str, queue: str, *, spot: bool) -> dict[str, str]:
    """The policy documents by name: launch and terminate this cluster's instances, and read account data.

    Args:
        cluster: name of the cluster.
        region: region of the cluster.
        node_role: ARN of the nodes' role, or a pattern that matches it; instances can get no other role.
        queue: name of the SQS queue for interruptions.
        spot: whether a pool has spot instances.
    """
    return {
        "instances": document(*_instances(cluster, region)),
        "profiles": document(*_profiles(cluster, region, node_role)),
        "discovery": document(*_discovery(cluster, region, queue)),
        **({"spot": document(_spot(region))} if spot else {}),
    }


def _spot(region: str) -> Statement:
    """EC2 creates its service-linked role with the first spot instance of an account, if the caller may create it.

    Auto Scaling may, for node groups. The role is not created by the stack, because an account has it once.
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html,
    https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AutoScalingServiceRolePolicy.html
    """
    service = "spot.amazonaws.com"
    return allow(
        Resource=f"arn:{partition(region)}:iam::*:role/aws-service-role/{service}/AWSServiceRoleForEC2Spot",
        Action="iam:CreateServiceLinkedRole",
        Condition={"StringEquals": {"iam:AWSServiceName": service}},
    )


def _ec2(region: str, *kinds: str, account: str = "*") -> list[str]:
    return [f"arn:{partition(region)}:ec2:{region}:{account}:{kind}/*" for kind in kinds]


def _instances(cluster: str, region: str) -> Sequence[Statement]:
    owned = f"kubernetes.io/cluster/{cluster}"
    launched = ("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")
    requested = {f"aws:RequestTag/{owned}": "owned", "aws:RequestTag/eks:eks-cluster-name": cluster}
    own = {"StringEquals": {f"aws:ResourceTag/{owned}": "owned"}, "StringLike": {f"aws:ResourceTag/{_POOL}": "*"}}
    return [
        allow(
            Resource=[
                *_ec2(region, "image", "snapshot", account=""),
                *_ec2(region, "security-group", "subnet", "capacity-reservation", "placement-group"),
            ],
            Action=["ec2:RunInstances", "ec2:CreateFleet"],
        ),
        allow(Resource=_ec2(region, "launch-template"), Action=["ec2:RunInstances", "ec2:CreateFleet"], Condition=own),
        allow(
            Resource=_ec2(region, *launched),
            Action=["ec2:RunInstances", "ec2:CreateFleet", "ec2:CreateLaunchTemplate"],
            Condition={"StringEquals": requested, "StringLike": {f"aws:RequestTag/{_POOL}": "*"}},
        ),
        allow(
            Resource=_ec2(region, *launched),
            Action="ec2:CreateTags",
            Condition={
                "StringEquals": {
                    **requested,
                    "ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"],
                },
                "StringLike": {f"aws:RequestTag/{_POOL}": "*"},
            },
        ),
        allow(
            Resource=_ec2(region, "instance"),
            Action="ec2:CreateTags",
            Condition={
                **own,
                "StringEqualsIfExists": {"aws:RequestTag/eks:eks-cluster-name": cluster},
                "ForAllValues:StringEquals": {
                    "aws:TagKeys": ["eks:eks-cluster-name", "karpenter.sh/nodeclaim", "Name"]
                },
            },
        ),
        allow(
            Resource=_ec2(region, "instance", "launch-template"),
            Action=["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
            Condition=own,
        ),
    ]


def _profiles(cluster: str, region: str, node_role: str) -> Sequence[Statement]:
    owned = f"kubernetes.io/cluster/{cluster}"
    requested = {
        f"aws:RequestTag/{owned}": "owned",
        "aws:RequestTag/eks:eks-cluster-name": cluster,
        f"aws:RequestTag/{_REGION}": region,
    }
    own = {f"aws:ResourceTag/{owned}": "owned", f"aws:ResourceTag/{_REGION}": region}
    profiles = f"arn:{partition(region)}:iam::*:instance-profile/*"
    return [
        allow(
            Resource=node_role,
            Action="iam:PassRole",
            Condition={"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}},
        ),
        allow(
            Resource=profiles,
            Action=["iam:CreateInstanceProfile"],
            Condition={"StringEquals": requested, "StringLike": {f"aws:RequestTag/{_CLASS}": "*"}},
        ),
        allow(
            Resource=profiles,
            Action=["iam:TagInstanceProfile"],
            Condition={
                "StringEquals": {**own, **requested},
                "StringLike": {f"aws:ResourceTag/{_CLASS}": "*", f"aws:RequestTag/{_CLASS}": "*"},
            },
        ),
        allow(
            Resource=profiles,
            Action=["iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"],
            Condition={"StringEquals": own, "StringLike": {f"aws:ResourceTag/{_CLASS}": "*"}},
        ),
        allow(Resource=profiles, Action="iam:GetInstanceProfile"),
        allow(Resource="*", Action="iam:ListInstanceProfiles"),
    ]


def _discovery(cluster: str, region: str, queue: str) -> Sequence[Statement]:
    arn = f"arn:{partition(region)}"
    kinds = (
        "CapacityReservations",
        "Images",
        "Instances",
        "InstanceStatus",
        "InstanceTypeOfferings",
        "InstanceTypes",
        "LaunchTemplates",
        "PlacementGroups",
        "SecurityGroups",
        "SpotPriceHistory",
        "Subnets",
    )
    return [
        allow(
            Resource="*",
            Action=[f"ec2:Describe{kind}" for kind in kinds],
            Condition={"StringEquals": {"aws:RequestedRegion": region}},
        ),
        allow(Resource=f"{arn}:ssm:{region}::parameter/aws/service/*", Action="ssm:GetParameter"),
        allow(Resource="*", Action="pricing:GetProducts"),
        allow(Resource=f"{arn}:eks:{region}:*:cluster/{cluster}", Action="eks:DescribeCluster"),
        allow(
            Resource=f"{arn}:sqs:{region}:*:{queue}",
            Action=["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"],
        ),
    ]
