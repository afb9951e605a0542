"""Which calls of AWS' APIs a resource of Pulumi's becomes, and which input goes where in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Steps: TypeAlias = tuple[str, ...]

WHOLE: Final = ""
"""The input goes nowhere in this call."""


@dataclass(frozen=True)
class Call:
    """One API call of a resource.

    Attributes:
        inputs: where each input goes: a path of member names. An input that is not here goes nowhere.
        fixed: members that the provider fills in by itself.
    """

    service: str
    operation: str
    inputs: Mapping[str, Steps]
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])


def _same(*names: str) -> dict[str, Steps]:
    return {name: (name,) for name in names}


_DATA: Final = "LaunchTemplateData"
_TEMPLATE_DATA: Final = (
    "blockDeviceMappings",
    "capacityReservationSpecification",
    "instanceMarketOptions",
    "instanceType",
    "metadataOptions",
    "networkInterfaces",
    "placement",
    "tagSpecifications",
    "userData",
)


def big(name: str) -> str:
    """A name with a capital, as EC2 and the older APIs write it."""
    return name[0].upper() + name[1:]


def tags_of(kind: str) -> Mapping[str, Any]:
    """What the provider adds to the tags of a request to EC2: the type of what gets them."""
    return {"TagSpecifications": {"ResourceType": kind}}


_RULE: Final[Mapping[str, Steps]] = {
    "securityGroupId": ("GroupId",),
    "referencedSecurityGroupId": ("IpPermissions", "UserIdGroupPairs", "GroupId"),
    "ipProtocol": ("IpPermissions", "IpProtocol"),
    "fromPort": ("IpPermissions", "FromPort"),
    "toPort": ("IpPermissions", "ToPort"),
}
"""A rule of a security group."""

_TAGGED: Final[Mapping[str, Steps]] = {"tags": ("TagSpecifications", "Tags")}

CALLS: Final[Mapping[str, Sequence[Call]]] = {
    "aws:eks/cluster:Cluster": [
        Call(
            "eks",
            "CreateCluster",
            {
                **_same(
                    "name",
                    "version",
                    "roleArn",
                    "accessConfig",
                    "upgradePolicy",
                    "bootstrapSelfManagedAddons",
                    "deletionProtection",
                    "tags",
                ),
                "vpcConfig": ("resourcesVpcConfig",),
                "encryptionConfig": ("encryptionConfig",),
                "enabledClusterLogTypes": ("logging", "clusterLogging", "types"),
            },
        )
    ],
    "aws:eks/nodeGroup:NodeGroup": [
        Call(
            "eks",
            "CreateNodegroup",
            {
                **_same(
                    "clusterName",
                    "amiType",
                    "capacityType",
                    "instanceTypes",
                    "launchTemplate",
                    "scalingConfig",
                    "labels",
                    "taints",
                    "updateConfig",
                    "nodeRepairConfig",
                    "tags",
                    "version",
                    "releaseVersion",
                ),
                "nodeGroupName": ("nodegroupName",),
                "nodeRoleArn": ("nodeRole",),
                "subnetIds": ("subnets",),
            },
        )
    ],
    "aws:eks/addon:Addon": [
        Call(
            "eks",
            "CreateAddon",
            {
                **_same(
                    "clusterName",
                    "addonName",
                    "addonVersion",
                    "configurationValues",
                    "podIdentityAssociations",
                    "tags",
                ),
                "resolveConflictsOnCreate": ("resolveConflicts",),
            },
        ),
        Call(
            "eks",
            "UpdateAddon",
            {**_same("clusterName", "addonName"), "resolveConflictsOnUpdate": ("resolveConflicts",)},
        ),
    ],
    "aws:eks/accessEntry:AccessEntry": [
        Call("eks", "CreateAccessEntry", _same("clusterName", "principalArn", "type", "kubernetesGroups", "tags")),
    ],
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": [
        Call("eks", "AssociateAccessPolicy", _same("clusterName", "principalArn", "policyArn", "accessScope")),
    ],
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": [
        Call(
            "eks",
            "CreatePodIdentityAssociation",
            _same("clusterName", "namespace", "serviceAccount", "roleArn", "tags"),
        ),
    ],
    "aws:ec2/launchTemplate:LaunchTemplate": [
        Call(
            "ec2",
            "CreateLaunchTemplate",
            {
                "name": ("LaunchTemplateName",),
                "tags": ("TagSpecifications", "Tags"),
                **{name: (_DATA, big(name)) for name in _TEMPLATE_DATA},
            },
            tags_of("launch-template"),
        ),
        # The newest version becomes the default by a call of its own, and its number is the provider's to know.
        Call("ec2", "ModifyLaunchTemplate", {"name": ("LaunchTemplateName",), "updateDefaultVersion": (WHOLE,)}),
    ],
    "aws:ec2/placementGroup:PlacementGroup": [
        Call(
            "ec2",
            "CreatePlacementGroup",
            {"name": ("GroupName",), "strategy": ("Strategy",), "tags": ("TagSpecifications", "Tags")},
            tags_of("placement-group"),
        ),
    ],
    "aws:autoscaling/tag:Tag": [
        Call(
            "autoscaling",
            "CreateOrUpdateTags",
            {"autoscalingGroupName": ("Tags", "ResourceId"), "tag": ("Tags",)},
            {"Tags": {"ResourceType": "auto-scaling-group"}},
        ),
    ],
    "aws:iam/role:Role": [
        Call(
            "iam",
            "CreateRole",
            {"name": ("RoleName",), "assumeRolePolicy": ("AssumeRolePolicyDocument",), "tags": ("Tags",)},
        ),
    ],
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": [
        Call("iam", "AttachRolePolicy", {"role": ("RoleName",), "policyArn": ("PolicyArn",)}),
    ],
    "aws:iam/rolePolicy:RolePolicy": [
        Call("iam", "PutRolePolicy", {"role": ("RoleName",), "name": ("PolicyName",), "policy": ("PolicyDocument",)}),
    ],
    "aws:kms/key:Key": [
        Call("kms", "CreateKey", {"description": ("Description",), "tags": ("Tags",)}),
        Call("kms", "EnableKeyRotation", {"enableKeyRotation": (WHOLE,)}, {"KeyId": "made"}),
        Call("kms", "ScheduleKeyDeletion", {"deletionWindowInDays": ("PendingWindowInDays",)}, {"KeyId": "made"}),
    ],
    "aws:cloudwatch/logGroup:LogGroup": [
        Call("logs", "CreateLogGroup", {"name": ("logGroupName",), "tags": ("tags",)}),
        Call("logs", "PutRetentionPolicy", {"name": ("logGroupName",), "retentionInDays": ("retentionInDays",)}),
    ],
    "aws:sqs/queue:Queue": [
        Call(
            "sqs",
            "CreateQueue",
            {
                "name": ("QueueName",),
                "messageRetentionSeconds": ("Attributes", "MessageRetentionPeriod"),
                "sqsManagedSseEnabled": ("Attributes", "SqsManagedSseEnabled"),
                "tags": ("tags",),
            },
        ),
    ],
    "aws:sqs/queuePolicy:QueuePolicy": [
        Call("sqs", "SetQueueAttributes", {"queueUrl": ("QueueUrl",), "policy": ("Attributes", "Policy")}),
    ],
    "aws:cloudwatch/eventRule:EventRule": [
        Call("events", "PutRule", {"name": ("Name",), "eventPattern": ("EventPattern",), "tags": ("Tags",)}),
    ],
    "aws:s3/bucket:Bucket": [
        Call(
            "s3",
            "CreateBucket",
            {"bucket": ("Bucket",)},
            {"CreateBucketConfiguration": {"LocationConstraint": "eu-central-1"}},
        ),
        Call("s3", "PutBucketTagging", {"bucket": ("Bucket",), "tags": ("Tagging", "TagSet")}),
    ],
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": [
        Call(
            "s3",
            "PutPublicAccessBlock",
            {
                "bucket": ("Bucket",),
                **{
                    name: ("PublicAccessBlockConfiguration", big(name))
                    for name in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
                },
            },
        ),
    ],
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": [
        Call(
            "s3",
            "PutBucketEncryption",
            {"bucket": ("Bucket",), "rules": ("ServerSideEncryptionConfiguration", "Rules")},
        ),
    ],
    "aws:s3/bucketVersioning:BucketVersioning": [
        Call(
            "s3",
            "PutBucketVersioning",
            {"bucket": ("Bucket",), "versioningConfiguration": ("VersioningConfiguration",)},
        ),
    ],
    "aws:s3/bucketPolicy:BucketPolicy": [
        Call("s3", "PutBucketPolicy", {"bucket": ("Bucket",), "policy": ("Policy",)}),
    ],
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": [
        Call(
            "iam",
            "CreateOpenIDConnectProvider",
            {"url": ("Url",), "clientIdLists": ("ClientIDList",), "tags": ("Tags",)},
        ),
    ],
    "aws:efs/fileSystem:FileSystem": [
        Call(
            "efs",
            "CreateFileSystem",
            {"encrypted": ("Encrypted",), "throughputMode": ("ThroughputMode",), "tags": ("Tags",)},
            {"CreationToken": "made"},
        ),
    ],
    "aws:efs/fileSystemPolicy:FileSystemPolicy": [
        Call("efs", "PutFileSystemPolicy", {"fileSystemId": ("FileSystemId",), "policy": ("Policy",)}),
    ],
    "aws:efs/mountTarget:MountTarget": [
        Call(
            "efs",
            "CreateMountTarget",
            {"fileSystemId": ("FileSystemId",), "subnetId": ("SubnetId",), "securityGroups": ("SecurityGroups",)},
        ),
    ],
    "aws:ec2/vpc:Vpc": [
        Call("ec2", "CreateVpc", {"cidrBlock": ("CidrBlock",), **_TAGGED}, tags_of("vpc")),
        # One attribute a call: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ModifyVpcAttribute.html
        *(
            Call("ec2", "ModifyVpcAttribute", {name: (big(name), "Value")}, {"VpcId": "vpc-1"})
            for name in ("enableDnsHostnames", "enableDnsSupport")
        ),
    ],
    "aws:ec2/internetGateway:InternetGateway": [
        Call("ec2", "CreateInternetGateway", _TAGGED, tags_of("internet-gateway")),
        Call("ec2", "AttachInternetGateway", {"vpcId": ("VpcId",)}, {"InternetGatewayId": "igw-1"}),
    ],
    "aws:ec2/natGateway:NatGateway": [
        Call(
            "ec2",
            "CreateNatGateway",
            {"availabilityMode": ("AvailabilityMode",), "vpcId": ("VpcId",), **_TAGGED},
            tags_of("natgateway"),
        ),
    ],
    "aws:ec2/subnet:Subnet": [
        Call(
            "ec2",
            "CreateSubnet",
            {"vpcId": ("VpcId",), "availabilityZone": ("AvailabilityZone",), "cidrBlock": ("CidrBlock",), **_TAGGED},
            tags_of("subnet"),
        ),
    ],
    "aws:ec2/routeTable:RouteTable": [
        Call("ec2", "CreateRouteTable", {"vpcId": ("VpcId",), **_TAGGED}, tags_of("route-table"))
    ],
    "aws:ec2/route:Route": [
        Call(
            "ec2",
            "CreateRoute",
            {
                "routeTableId": ("RouteTableId",),
                "destinationCidrBlock": ("DestinationCidrBlock",),
                "natGatewayId": ("NatGatewayId",),
            },
        ),
    ],
    "aws:ec2/routeTableAssociation:RouteTableAssociation": [
        Call("ec2", "AssociateRouteTable", {"subnetId": ("SubnetId",), "routeTableId": ("RouteTableId",)}),
    ],
    "aws:ec2/vpcEndpoint:VpcEndpoint": [
        Call(
            "ec2",
            "CreateVpcEndpoint",
            {
                "vpcId": ("VpcId",),
                "serviceName": ("ServiceName",),
                "vpcEndpointType": ("VpcEndpointType",),
                "routeTableIds": ("RouteTableIds",),
                **_TAGGED,
            },
            tags_of("vpc-endpoint"),
        ),
    ],
    "aws:ec2/securityGroup:SecurityGroup": [
        Call(
            "ec2",
            "CreateSecurityGroup",
            {
                "name": ("GroupName",),
                "namePrefix": ("GroupName",),
                "description": ("Description",),
                "vpcId": ("VpcId",),
                "tags": ("TagSpecifications", "Tags"),
            },
            tags_of("security-group"),
        ),
    ],
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": [
        Call("ec2", "AuthorizeSecurityGroupIngress", _RULE),
    ],
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": [
        Call("ec2", "AuthorizeSecurityGroupEgress", _RULE),
    ],
    "aws:cloudwatch/eventTarget:EventTarget": [
        Call(
            "events",
            "PutTargets",
            {"rule": ("Rule",), "targetId": ("Targets", "Id"), "arn": ("Targets", "Arn")},
        ),
    ],
}
"""The calls by Pulumi's type token: https://www.pulumi.com/registry/packages/aws/api-docs/."""
