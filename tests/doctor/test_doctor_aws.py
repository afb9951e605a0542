"""The preflight on AWS, with recorded answers that have the shapes of botocore's models."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from builders import pool, team
from doctor_builders import READS, AwsAccount, Data, row, rows_of

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.doctor.checks import cloud_rows
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.model.catalogue.preflight import preflight
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import Source

pytestmark = pytest.mark.slow  # botocore reads the models of services for each client

ROLE = "arn:aws:iam::111122223333:role/platform/deploy"


def stack(**cluster: Any) -> Data:
    """Four H100 nodes on demand, two spot L4 nodes, and a capacity block."""
    return {
        "cluster": {
            "cloud": "aws", "name": "ml", "region": "us-west-2",
            "subnets": {"us-west-2a": "subnet-0f1e2d3c4b5a60001", "us-west-2b": "subnet-0f1e2d3c4b5a60002"},
            "provides": ["networkPolicies"], **cluster,
        },
        "pools": {
            "h100": pool("p5.48xlarge", {"min": 0, "max": 4}, zones=["us-west-2a"]),
            "l4": pool("g6.12xlarge", {"min": 0, "max": 2}, capacity="spot"),
        },
        "teams": {"a": team(gpus={"h100": {"guaranteed": 8}})},
    }  # fmt: skip


CREATE: Data = {
    "version": "1.35",
    "admins": [ROLE],
    "system": {"machine": "m7i.4xlarge", "nodes": {"min": 3, "max": 6}},
}


def auto_scaling_group(pool: str, *suspended: str) -> Data:
    return {
        "AutoScalingGroupName": f"eks-{pool}-0a1b",
        "SuspendedProcesses": [{"ProcessName": name, "SuspensionReason": "by a user"} for name in suspended],
        "Tags": [{"Key": "eks:nodegroup-name", "Value": pool}, {"Key": "eks:cluster-name", "Value": "ml"}],
    }


def simulated(given: Data, denied: str = "") -> Data:
    decisions = {action: "implicitDeny" if action == denied else "allowed" for action in given["ActionNames"]}
    return {"EvaluationResults": [{"EvalActionName": name, "EvalDecision": one} for name, one in decisions.items()]}


def zone_ids(given: Data, region: str = "usw2") -> Data:
    names = given["ZoneNames"]
    return {"AvailabilityZones": [{"ZoneName": n, "ZoneId": f"{region}-az{i}"} for i, n in enumerate(names, 2)]}


def account(**changes: Data | str | Callable[[Data], Data]) -> AwsAccount:
    return AwsAccount(
        {
            "GetCallerIdentity": {
                "UserId": "AROA:me",
                "Account": "111122223333",
                "Arn": "arn:aws:sts::111122223333:assumed-role/deploy/me",
            },
            "GetRole": {"Role": {"Path": "/platform/", "RoleName": "deploy", "RoleId": "AROA1", "Arn": ROLE}},
            "GetServiceQuota": {"Quota": {"ServiceCode": "ec2", "Value": 768.0, "Unit": "None"}},
            "DescribeInstanceTypeOfferings": {
                "InstanceTypeOfferings": [
                    {"InstanceType": kind, "LocationType": "availability-zone", "Location": zone}
                    for kind in ("p5.48xlarge", "g6.12xlarge", "m7i.4xlarge")
                    for zone in ("us-west-2a", "us-west-2c")
                ]
            },
            "DescribeSubnets": {
                "Subnets": [
                    {
                        "SubnetId": f"subnet-0f1e2d3c4b5a6000{n}",
                        "AvailabilityZone": zone,
                        "AvailableIpAddressCount": 250,
                    }
                    for n, zone in ((1, "us-west-2a"), (2, "us-west-2b"))
                ]
            },
            "SimulatePrincipalPolicy": simulated,
            "DescribeAvailabilityZones": zone_ids,
            "DescribeClusterVersions": {"clusterVersions": [{"clusterVersion": "1.35"}, {"clusterVersion": "1.34"}]},
            "DescribeAutoScalingGroups": {"AutoScalingGroups": [auto_scaling_group("l4", "AZRebalance")]},
            "DescribeCluster": {"cluster": {"name": "ml", "status": "ACTIVE"}},
            **changes,
        }
    )


def test_a_ready_account_has_all_and_each_question_only_reads() -> None:
    for cluster in ({}, {"create": CREATE}):
        ready = account()
        rows = rows_of(stack(**cluster), ready)
        assert {row.verdict for row in rows} == {"OK"}, [row for row in rows if row.verdict != "OK"]
        assert {row.check for row in rows} >= {"quota", "zones", "subnets", "rights"}
        assert len(ready.asked) > 5
        assert [name for name, _ in ready.asked if not READS.fullmatch(name)] == []


def test_compares_quotas_by_machine_family() -> None:
    ready = account()
    rows = rows_of(stack(create=CREATE), ready)
    codes = [given["QuotaCode"] for name, given in ready.asked if name == "GetServiceQuota"]
    assert sorted(codes) == ["L-1216C47A", "L-3819A6DF", "L-417A185B"]
    assert row(rows, "quota", "On-Demand P").needed == "768 vCPUs"
    assert row(rows, "quota", "G and VT Spot").needed == "96 vCPUs"
    assert row(rows, "quota", "On-Demand Standard").needed == "96 vCPUs"


def failure(name: str, operation: str, message: str = "none") -> str:
    return f"An error occurred ({name}) when calling the {operation} operation: {message}"


def in_zone(zone: str) -> Data:
    sections = stack()
    sections["pools"]["h100"]["zones"] = [zone]
    return sections


def subnet(zone: str, free: int) -> Data:
    found = {"SubnetId": "subnet-0f1e2d3c4b5a60001", "AvailabilityZone": zone, "AvailableIpAddressCount": free}
    return {"DescribeSubnets": {"Subnets": [found]}}


DENIED = failure("AccessDeniedException", "GetServiceQuota",
                 "User: x is not authorized to perform: servicequotas:GetServiceQuota on resource: y")  # fmt: skip
NEVER_CHANGED = {
    "GetServiceQuota": failure("NoSuchResourceException", "GetServiceQuota"),
    "GetAWSDefaultServiceQuota": {"Quota": {"Value": 0.0}},
}
GONE = failure("ResourceNotFoundException", "DescribeCluster", "No cluster")
RAISE = "request an increase of L-417A185B in Service Quotas, region us-west-2"
OTHER_ZONES = "set cluster.create.subnets, or cluster.create.zones, to other zones: EKS has no control plane there"
ROWS: dict[str, tuple[Data, Mapping[str, Any], str, tuple[str, str, str | None]]] = {
    "a zone without EKS": (stack(create=CREATE), {"DescribeAvailabilityZones": partial(zone_ids, region="usw1")},
                           "zones control plane", ("missing", "not in us-west-2a", OTHER_ZONES)),
    "a small quota": (stack(), {"GetServiceQuota": {"Quota": {"Value": 192.0}}}, "quota On-Demand P",
                      ("missing", "192 vCPUs", RAISE)),
    "a quota that was never changed": (stack(), NEVER_CHANGED, "quota On-Demand P", ("missing", "0 vCPUs", RAISE)),
    "a forbidden query": (stack(), {"GetServiceQuota": DENIED}, "quota On-Demand P",
                          ("unknown", "no permission to ask", "grant servicequotas:GetServiceQuota")),
    "a zone without the machine type": (in_zone("us-west-2b"), {}, "zones h100",
        ("missing", "us-west-2a, us-west-2c", "set pools.h100.zones: [us-west-2a]")),
    "a full subnet": (stack(), subnet("us-west-2a", 3), "subnets us-west-2a", ("missing", "3 free", None)),
    "a subnet of another zone": (stack(), subnet("us-west-2c", 99), "subnets us-west-2a",
                                 ("missing", "us-west-2c", None)),
    "no such subnet": (stack(), subnet("us-west-2a", 99), "subnets us-west-2b", ("missing", "no such subnet", None)),
    "an unknown version": (stack(create={**CREATE, "version": "1.30"}), {}, "Kubernetes 1.30",
                           ("missing", "1.34, 1.35", "set cluster.create.version to one of 1.34, 1.35")),
    "no such cluster": (stack(), {"DescribeCluster": GONE}, "cluster ml", ("missing", "no such cluster", None)),
}  # fmt: skip


@pytest.mark.parametrize(("sections", "answers", "about", "expected"), ROWS.values(), ids=ROWS)
def test_the_row_of(
    sections: Data, answers: Mapping[str, Any], about: str, expected: tuple[str, str, str | None]
) -> None:
    check, _, subject = about.partition(" ")
    found = row(rows_of(sections, account(**answers)), check, subject)
    verdict, available, fix = expected
    assert (found.verdict, found.available, found.fix if fix else None) == (verdict, available, fix)


def test_warns_of_zone_rebalancing_of_node_groups() -> None:
    groups = [auto_scaling_group(pool, "Launch") for pool in ("h100", "l4")]
    (found,) = [
        row
        for row in rows_of(stack(), account(DescribeAutoScalingGroups={"AutoScalingGroups": groups}))
        if row.check == "rebalancing"
    ]
    assert (found.subject, found.verdict, found.available) == ("l4", "missing", "ends running nodes")
    assert found.fix == (
        "set one zone in pools.l4.zones, or run `aws autoscaling suspend-processes --region us-west-2"
        " --auto-scaling-group-name eks-l4-0a1b --scaling-processes AZRebalance`"
    )
    for without in (stack(autoscaler="karpenter"), {**stack(), "pools": {"h100": stack()["pools"]["h100"]}}):
        assert "DescribeAutoScalingGroups" not in [name for name, _ in asked(without)]


def asked(sections: Data) -> list[tuple[str, Any]]:
    ready = account()
    rows_of(sections, ready)
    return ready.asked


def rights(sections: Data) -> set[str]:
    """Rights that are asked for."""
    (given,) = [given for name, given in asked(sections) if name == "SimulatePrincipalPolicy"]
    return {*given["ActionNames"]}


def test_rights_are_those_of_the_role_behind_the_session() -> None:
    lacking = account(SimulatePrincipalPolicy=partial(simulated, denied="iam:PassRole"))
    found = row(rows_of(stack(), lacking), "rights", "iam:PassRole on ")
    assert (found.verdict, found.available) == ("missing", "implicitDeny")
    assert found.fix == "allow it for arn:aws:sts::111122223333:assumed-role/deploy/me"
    (given,) = [given for name, given in lacking.asked if name == "SimulatePrincipalPolicy"]
    assert given["PolicySourceArn"] == ROLE


ISSUER = "arn:aws:iam::111122223333:oidc-provider/token.actions.githubusercontent.com"
DATA: Data = {"own": {"bucket": "s3://ml-own/v1", "create": True}, "corpus": {"bucket": "s3://ml-corpus/v3"}}
SECRETS: Data = {"secrets": {"wandb": {"from": "aws://us-west-2/a/wandb"}}}
ROBOT: Data = {"serviceAccounts": {"ci": {"role": "viewer", "subject": "repo:example/a:ref:refs/heads/main"}}}
NEW, OLD = stack(create=CREATE), stack()
TAGGED = {"ec2:CreateTags", "eks:TagResource", "iam:TagRole"}
EXISTING = {"eks:CreateCluster", "eks:CreateAccessEntry", "iam:CreateOpenIDConnectProvider", "kms:CreateKey"}


def of_team(sections: Data, **more: Any) -> Data:
    return {**sections, "teams": {"a": {**sections["teams"]["a"], **more}}}


def stored(**storage: Any) -> Data:
    return of_team(NEW, storage={"files": {"size": "1200Gi", "mode": "shared", **storage}})


# Rights that a stack needs, and rights that it does not.
RIGHTS: dict[str, tuple[Data, set[str], set[str]]] = {
    "an existing cluster": (OLD, {"eks:CreateNodegroup", "eks:DescribeCluster", "iam:AttachRolePolicy", "iam:PassRole",
                                  "autoscaling:CreateOrUpdateTags", "autoscaling:DescribeAutoScalingGroups"} | TAGGED,
                            EXISTING),
    "a new cluster": (NEW, {"eks:AssociateAccessPolicy", "eks:CreateCluster", "kms:CreateKey"},
                      {"ec2:CreateVpc", "ec2:CreatePlacementGroup", "sqs:CreateQueue"}),
    "a compact pool": ({**OLD, "pools": {"h100": {**OLD["pools"]["h100"], "compact": True}}},
                       {"ec2:CreatePlacementGroup"}, EXISTING),
    "Karpenter": (stack(create=CREATE, autoscaler="karpenter"), {"sqs:CreateQueue", "sqs:SetQueueAttributes",
                  "events:PutRule", "events:PutTargets"}, {"ec2:CreatePlacementGroup"}),
    "a network": (stack(create={**CREATE, "zones": ["us-west-2a", "us-west-2b"]}, subnets={}),
                  {"ec2:CreateVpc", "ec2:CreateNatGateway", "ec2:ModifyVpcAttribute"}, {"ec2:CreateSecurityGroup"}),
    "people": ({**OLD, "people": {"auditors": ["arn:aws:iam::111122223333:role/audit"]}},
               {"eks:CreateAccessEntry"}, EXISTING - {"eks:CreateAccessEntry"}),
    "service accounts": (of_team(stack(identityProvider=ISSUER), **ROBOT),
                         {"eks:CreateAccessEntry", "iam:PutRolePolicy"}, EXISTING - {"eks:CreateAccessEntry"}),
    "data": ({**NEW, "datasets": DATA},
             {"s3:CreateBucket", "s3:PutBucketPolicy", "s3:PutBucketPublicAccessBlock", "s3:PutBucketTagging",
              "eks:CreatePodIdentityAssociation", "iam:PutRolePolicy"}, set()),
    # The report lists who grants what.
    "data in an existing cluster": ({**stack(provides=["networkPolicies", "s3Volumes"]),
                                     "datasets": {"corpus": DATA["corpus"]}}, set(), {"s3:CreateBucket"}),
    "secrets in an existing cluster": (of_team(OLD, **SECRETS), {"iam:GetOpenIDConnectProvider", "iam:PutRolePolicy",
                                       "iam:ListOpenIDConnectProviders"}, EXISTING),
    "secrets": (of_team(NEW, **SECRETS), {"iam:CreateOpenIDConnectProvider"}, set()),
    "EFS": (stored(), {"elasticfilesystem:CreateFileSystem", "ec2:CreateSecurityGroup"},
            {"ec2:AuthorizeSecurityGroupEgress"}),
    "Lustre": (stored(**{"class": "fsx-lustre"}), {"ec2:AuthorizeSecurityGroupEgress", "iam:PutRolePolicy"},
               {"elasticfilesystem:CreateFileSystem"}),
}  # fmt: skip


@pytest.mark.parametrize(("sections", "needed", "other"), RIGHTS.values(), ids=RIGHTS)
def test_rights_follow_from_the_resources_of(sections: Data, needed: set[str], other: set[str]) -> None:
    found = rights(sections)
    assert needed <= found
    assert found.isdisjoint(other)


def test_reports_types_without_a_row_of_rights() -> None:
    other = Registration("urn:pulumi:x::x::aws:sns/topic:Topic::x", "aws:sns/topic:Topic", "x", custom=True, inputs={})
    found = row([*cloud_rows(load(Source(OLD)), [other], account())], "rights", "aws:sns/topic:Topic")
    assert (found.verdict, found.available) == ("unknown", "not in the catalogue")


def test_no_query_is_sent_without_a_login() -> None:
    with pytest.raises(ConsoleError, match="aws is not logged in: Unable to locate credentials"):
        rows_of(stack(), account(GetCallerIdentity="Unable to locate credentials. Run aws configure"))


@pytest.mark.parametrize(
    ("kind", "spot", "code"),
    [
        ("p5en.48xlarge", True, "L-C4BD4855"),
        ("p4de.24xlarge", True, "L-7212CCBC"),
        ("p5.48xlarge", False, "L-417A185B"),
        ("gr6.4xlarge", False, "L-DB2E81BA"),
        ("m7i.large", False, "L-1216C47A"),
        ("p6-b200.48xlarge", True, None),
    ],
)
def test_an_instance_type_counts_against_the_quota_of_its_family(kind: str, spot: bool, code: str | None) -> None:  # noqa: FBT001
    quota = preflight().aws.quota_of(kind, spot=spot)
    assert (quota.code if quota else None) == code
