"""The preflight on AWS, with recorded answers that have the shapes of botocore's models."""

from typing import Any

import pytest
from builders import pool, team
from doctor_builders import READS, AwsAccount, Data, row, rows_of

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.model.catalogue.preflight import preflight

pytestmark = pytest.mark.slow  # botocore reads the models of services for each client

ROLE = "arn:aws:iam::111122223333:role/platform/deploy"


def stack(**cluster: Any) -> Data:
    """Four H100 nodes on demand, two spot L4 nodes, and a capacity block."""
    return {
        "cluster": {
            "cloud": "aws",
            "name": "ml",
            "region": "us-west-2",
            "subnets": {"us-west-2a": "subnet-0f1e2d3c4b5a60001", "us-west-2b": "subnet-0f1e2d3c4b5a60002"},
            "provides": ["networkPolicies"],
            **cluster,
        },
        "pools": {
            "h100": pool("p5.48xlarge", {"min": 0, "max": 4}, zones=["us-west-2a"]),
            "l4": pool("g6.12xlarge", {"min": 0, "max": 2}, capacity="spot"),
        },
        "teams": {"a": team(gpus={"h100": {"guaranteed": 8}})},
    }


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


def account(**changes: Data | str) -> AwsAccount:
    rights = preflight().aws.needed({"create"})
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
            "SimulatePrincipalPolicy": {
                "EvaluationResults": [{"EvalActionName": right, "EvalDecision": "allowed"} for right in rights]
            },
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
ROWS: dict[str, tuple[Data, Data, str, tuple[str, str, str | None]]] = {
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
def test_the_row_of(sections: Data, answers: Data, about: str, expected: tuple[str, str, str | None]) -> None:
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


def test_rights_are_those_of_the_role_behind_the_session() -> None:
    lacking = account(
        SimulatePrincipalPolicy={
            "EvaluationResults": [{"EvalActionName": "iam:PassRole", "EvalDecision": "implicitDeny"}]
        }
    )
    found = row(rows_of(stack(), lacking), "rights", "iam:PassRole")
    assert (found.verdict, found.available) == ("missing", "implicitDeny")
    (given,) = [given for name, given in lacking.asked if name == "SimulatePrincipalPolicy"]
    assert given["PolicySourceArn"] == ROLE
    assert "eks:CreateCluster" not in given["ActionNames"]


def test_access_in_an_existing_cluster_needs_more_rights() -> None:
    sections = stack(identityProvider="arn:aws:iam::111122223333:oidc-provider/token.actions.githubusercontent.com")
    people, accounts = account(), account()
    rows_of({**sections, "people": {"auditors": ["arn:aws:iam::111122223333:role/audit"]}}, people)
    sections["teams"]["a"]["serviceAccounts"] = {
        "ci": {"role": "viewer", "subject": "repo:example/a:ref:refs/heads/main"}
    }
    rows_of(sections, accounts)
    assert more_rights(people) == {"eks:CreateAccessEntry"}
    assert more_rights(accounts) == {"eks:CreateAccessEntry", "iam:PutRolePolicy"}


DATA: Data = {
    "own": {"bucket": "s3://ml-own/v1", "create": True},
    "corpus": {"bucket": "s3://ml-corpus/v3"},
}


def test_data_needs_rights_only_for_created_resources() -> None:
    sections = {**stack(create=CREATE), "datasets": DATA}
    created = account()
    rows_of(sections, created)
    buckets = {right for right in more_rights(created) if right.startswith("s3:")}
    assert {"s3:CreateBucket", "s3:PutBucketPolicy", "s3:PutBucketPublicAccessBlock"} <= buckets
    assert {"eks:CreatePodIdentityAssociation", "iam:PutRolePolicy"} <= more_rights(created)
    given = account()
    existing = stack(provides=["networkPolicies", "s3Volumes"])
    rows_of({**existing, "datasets": {"corpus": DATA["corpus"]}}, given)
    assert more_rights(given) == set()  # the report lists who grants what


def test_secrets_need_roles_and_a_token_issuer() -> None:
    secrets = {"wandb": {"from": "aws://us-west-2/a/wandb"}}
    rights: list[set[str]] = []
    for sections in (stack(), stack(create=CREATE)):
        sections["teams"]["a"]["secrets"] = secrets
        asked = account()
        rows_of(sections, asked)
        rights.append(more_rights(asked))
    assert rights[0] == {"iam:GetOpenIDConnectProvider", "iam:ListOpenIDConnectProviders", "iam:PutRolePolicy"}
    assert "iam:CreateOpenIDConnectProvider" in rights[1]


@pytest.mark.parametrize(
    ("storage", "right", "other"),
    [
        ({"mode": "shared"}, "elasticfilesystem:CreateFileSystem", "ec2:AuthorizeSecurityGroupEgress"),
        (
            {"mode": "shared", "class": "fsx-lustre"},
            "ec2:AuthorizeSecurityGroupEgress",
            "elasticfilesystem:CreateFileSystem",
        ),
    ],
)
def test_shared_storage_needs_the_rights_of_its_class(storage: Data, right: str, other: str) -> None:
    sections, shared = stack(create=CREATE), account()
    sections["teams"]["a"]["storage"] = {"files": {"size": "1200Gi", **storage}}
    rows_of(sections, shared)
    assert right in more_rights(shared)
    assert other not in more_rights(shared)


def more_rights(asked: AwsAccount) -> set[str]:
    """Checked rights beyond those for node pools."""
    (given,) = [given for name, given in asked.asked if name == "SimulatePrincipalPolicy"]
    return {*given["ActionNames"]} - {*preflight().aws.needed()}


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
