"""Data of teams in each cloud: rights on datasets, and shared file systems."""

import json
import re
from typing import Any, Final, cast

import pytest
from builders import Data, planned, stack_of, team
from cloud_descriptions import allowed
from cloud_stacks import (
    REGION,
    SUBNETS,
    aks_creation,
    aks_stack,
    eks_creation,
    eks_stack,
    gke_creation,
    gke_stack,
    sent,
    with_team,
)
from components_builders import Graph, platform
from eks_description import DESCRIPTION
from eks_shapes import service

from gpu_tenancy.engine.recording import UNKNOWN, Registration
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster

BUCKET: Final = "arn:aws:s3:::ml-corpus"
KEY: Final = "arn:aws:kms:eu-central-1:111122223333:key/0a1b"
POLICY: Final = "aws:iam/rolePolicy:RolePolicy"
ASSOCIATION: Final = "aws:eks/podIdentityAssociation:PodIdentityAssociation"


def with_datasets(sections: Data, **datasets: Any) -> Data:
    teams = {"a": sections["teams"]["a"], "b": team(gpus={})}
    named = {name: {"teams": ["a"], **dataset} for name, dataset in datasets.items()}
    return {**sections, "teams": teams, "datasets": named}


def data(made: list[Registration], token: str) -> list[Any]:
    return [cast("Any", one.inputs) for one in made if one.type == token and "-data" in one.name]


def eks(**datasets: Any) -> list[Registration]:
    return sent(with_datasets(eks_stack(eks_creation()), **datasets))


def policy(**datasets: Any) -> str:
    (inline,) = data(eks(**datasets), POLICY)
    return inline["policy"]


def test_the_evaluator_decides_the_example_of_aws() -> None:
    """https://docs.aws.amazon.com/AmazonS3/latest/userguide/amazon-s3-policy-keys.html, on `s3:prefix`."""
    example = json.dumps(
        {
            "Statement": [
                {
                    "Effect": "Allow",
                    "Action": ["s3:ListBucket"],
                    "Resource": ["arn:aws:s3:::example"],
                    "Condition": {"StringEquals": {"s3:prefix": "projects"}},
                },
                {
                    "Effect": "Deny",
                    "Action": "s3:List*",
                    "Resource": "*",
                    "Condition": {"StringLike": {"s3:prefix": ["secret?"]}},
                },
            ]
        }
    )
    assert allowed(example, "s3:ListBucket", "arn:aws:s3:::example", {"s3:prefix": "projects"})
    assert not allowed(example, "s3:ListBucket", "arn:aws:s3:::example", {"s3:prefix": "projects/x"})
    assert not allowed(example, "s3:ListBucket", "arn:aws:s3:::example")
    assert not allowed(example, "s3:GetObject", "arn:aws:s3:::example", {"s3:prefix": "projects"})
    with pytest.raises(KeyError):
        allowed(json.dumps({"Statement": [{"Effect": "Allow", "NotAction": "*", "Resource": "*"}]}), "a:B", "c")


def test_on_s3_a_reader_can_only_read_its_folder() -> None:
    rights = policy(corpus={"bucket": "s3://ml-corpus/v3"})
    assert allowed(rights, "s3:ListBucket", BUCKET, {"s3:prefix": "v3/"})
    assert allowed(rights, "s3:ListBucket", BUCKET, {"s3:prefix": "v3/train/"})
    assert allowed(rights, "s3:GetObject", f"{BUCKET}/v3/train/0.tar")
    for prefix in ({}, {"s3:prefix": ""}, {"s3:prefix": "v"}, {"s3:prefix": "v30/"}, {"s3:prefix": "v2/"}):
        assert not allowed(rights, "s3:ListBucket", BUCKET, prefix)
    for name in ("v30/0.tar", "v2/0.tar", "0.tar", "v3"):
        assert not allowed(rights, "s3:GetObject", f"{BUCKET}/{name}")
    assert not allowed(rights, "s3:GetObject", "arn:aws:s3:::ml-corpus-v3/v3/0.tar")


def test_a_reader_on_s3_has_two_actions_and_a_writer_three_more() -> None:
    """The operations of S3 are from botocore's description; operations with another action are listed here."""
    operations = {f"s3:{name}" for name in service("s3")["operations"]}
    actions = operations | {"s3:ListBucket", "s3:PutObjectAcl", "s3:BypassGovernanceRetention", "s3:PutBucketPolicy"}
    place, context = f"{BUCKET}/v3/0.tar", {"s3:prefix": "v3/"}

    def of(rights: str) -> set[str]:
        return {one for one in actions if any(allowed(rights, one, arn, context) for arn in (place, BUCKET))}

    reading = {"s3:ListBucket", "s3:GetObject"}
    assert of(policy(corpus={"bucket": "s3://ml-corpus/v3"})) == reading
    writing = of(policy(corpus={"bucket": "s3://ml-corpus/v3", "writable": True}))
    assert writing == {*reading, "s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject"}


def test_the_key_of_a_bucket_is_usable_through_s3_alone() -> None:
    through = {"kms:ViaService": f"s3.{REGION}.amazonaws.com"}
    reads = policy(corpus={"bucket": "s3://ml-corpus/v3", "key": KEY})
    assert allowed(reads, "kms:Decrypt", KEY, through)
    assert not allowed(reads, "kms:Decrypt", KEY)
    assert not allowed(reads, "kms:GenerateDataKey", KEY, through)
    writes = policy(corpus={"bucket": "s3://ml-corpus/v3", "key": KEY, "writable": True})
    assert allowed(writes, "kms:GenerateDataKey", KEY, through)
    assert not allowed(writes, "kms:Decrypt", KEY.replace("0a1b", "0a1c"), through)


def test_only_accounts_of_the_teams_pods_have_the_role() -> None:
    made = eks(corpus={"bucket": "s3://ml-corpus/v3"})
    accounts = {(one["namespace"], one["serviceAccount"]) for one in data(made, ASSOCIATION)}
    assert accounts == {("a", "default"), ("a", "workload")}
    assert [role["name"] for role in data(made, "aws:iam/role:Role")] == ["ml_a"]
    (volume,) = planned(with_datasets(eks_stack(eks_creation()), corpus={"bucket": "s3://b"})).teams[0].volumes
    assert volume.attributes["authenticationSource"] == "pod"


def test_long_team_names_keep_their_identities_apart() -> None:
    sections = eks_stack(eks_creation())
    teams = {f"{'x' * 60}{end}": sections["teams"]["a"] for end in "ab"}
    made = planned({**sections, "teams": teams, "datasets": {"corpus": "s3://ml-corpus"}}).cluster.identities
    names = [identity.name for identity in made]
    assert len(set(names)) == 2
    assert all(len(name) <= 64 for name in names)


def test_on_gke_a_folder_is_managed_and_a_bucket_has_members() -> None:
    sections = with_datasets(
        gke_stack(create=gke_creation()),
        corpus={"bucket": "gs://ml-corpus/v3"},
        out={"bucket": "gs://ml-out", "writers": ["a"]},
    )
    made = sent(sections)
    folders = data(made, "gcp:storage/managedFolderIamMember:ManagedFolderIamMember")
    assert {(one["bucket"], one["managedFolder"], one["role"]) for one in folders} == {
        ("ml-corpus", "v3/", "roles/storage.objectViewer")
    }
    whole = data(made, "gcp:storage/bucketIAMMember:BucketIAMMember")
    assert {(one["bucket"], one["role"]) for one in whole} == {("ml-out", "roles/storage.objectUser")}
    assert {one["member"] for one in (*folders, *whole)} == {UNKNOWN}  # The project's number is asked at deployment.
    assert not [one for one in made if re.search(r"iAM(Binding|Policy)|IamBinding|IamPolicy", one.type)]


def test_on_gke_principals_are_service_accounts_of_pods() -> None:
    cluster = stack_of(gke_stack()).cluster
    assert isinstance(cluster, GcpCluster)
    assert cluster.principal("123", "a", "workload") == (
        "principal://iam.googleapis.com/projects/123/locations/global/workloadIdentityPools/example-ml.svc.id.goog"
        "/subject/ns/a/sa/workload"
    )


def aks(**datasets: Any) -> list[Registration]:
    return sent(with_datasets(aks_stack(aks_creation()), **datasets))


def blob_request(condition: str, action: str, *, listing: str | None = None, path: str = "") -> bool:
    """Whether an ABAC condition holds, by the grammar of Azure's conditions turned into Python's.

    https://learn.microsoft.com/azure/role-based-access-control/conditions-format
    """
    blobs = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
    text = re.sub(r"ActionMatches\{'([^']*)'\}", lambda m: str(m[1] == f"{blobs}/{action}"), condition)
    text = text.replace("SubOperationMatches{'Blob.List'}", str(listing is not None))
    for place, value in ((f"@Request[{blobs}:prefix]", listing), (f"@Resource[{blobs}:path]", path)):
        text = re.sub(re.escape(place) + r" StringEquals '([^']*)'", lambda m, v=value: str(v == m[1]), text)
        text = re.sub(
            re.escape(place) + r" StringStartsWith '([^']*)'", lambda m, v=value: str((v or "").startswith(m[1])), text
        )
    for azure, python in (("AND", "and"), ("OR", "or"), ("NOT", "not"), ("!", "not ")):
        text = text.replace(azure, python)
    assert re.fullmatch(r"(True|False|and|or|not|[() ])*", text), text
    return bool(eval(text))  # noqa: S307 - only the words that are asserted above


def test_on_azure_a_folders_condition_admits_only_the_folder() -> None:
    made = aks(corpus={"bucket": "az://mlcorpus/corpus/v3", "writable": True})
    (assignment,) = data(made, "azure-native:authorization:RoleAssignment")
    assert assignment["scope"].endswith("/storageAccounts/mlcorpus/blobServices/default/containers/corpus")
    assert assignment["conditionVersion"] == "2.0"
    condition = assignment["condition"]
    for listing in ("v3/", "v3", "v3/train"):
        assert blob_request(condition, "read", listing=listing)
    for listing in ("", "v30/", "v2/"):
        assert not blob_request(condition, "read", listing=listing)
    for path, holds in (("v3/0.tar", True), ("v3", True), ("v30/0.tar", False), ("0.tar", False)):
        for action in ("read", "write", "delete", "add/action", "move/action"):
            assert blob_request(condition, action, path=path) is holds


def test_on_azure_the_identity_is_that_of_the_teams_accounts() -> None:
    made = aks(corpus={"bucket": "az://mlcorpus/corpus"})
    subjects = {one["subject"] for one in data(made, "azure-native:managedidentity:FederatedIdentityCredential")}
    assert subjects == {"system:serviceaccount:a:default", "system:serviceaccount:a:workload"}
    (assignment,) = data(made, "azure-native:authorization:RoleAssignment")
    assert assignment["roleDefinitionId"].endswith("/2a2b9908-6ea1-4ae2-8e65-a410df84e7d1")
    assert "condition" not in assignment
    sections = with_datasets(aks_stack(aks_creation()), corpus={"bucket": "az://mlcorpus/corpus"})
    (volume,) = planned(sections).teams[0].volumes
    assert volume.attributes["clientID"] == "client-id-of-ml_a"
    assert planned(sections).cluster.late_users == ("client-id-of-ml_a",)


CREATED: Final = {
    "aws": (eks_stack(eks_creation(), "prod"), "s3://ml-out", sent),
    "gcp": ({**gke_stack(create=gke_creation()), "environment": "prod"}, "gs://ml-out/x", sent),
    "azure": (aks_stack(aks_creation(), "prod"), "az://mlout/out", sent),
}


@pytest.mark.parametrize("cloud", CREATED)
def test_a_bucket_is_created_only_on_request_and_never_deleted(cloud: str) -> None:
    sections, bucket, resources = CREATED[cloud]
    kinds = ("bucket:Bucket", "StorageAccount", "BlobContainer", "managedFolder:ManagedFolder")
    given = resources(with_datasets(sections, out={"bucket": bucket}))
    assert not [one for one in given if one.type.endswith(kinds)]
    asked = resources(with_datasets(sections, out={"bucket": bucket, "create": True}))
    made = [one for one in asked if one.type.endswith(kinds)]
    assert made
    assert all(one.retain_on_delete and one.protect for one in made)


def test_an_existing_cluster_grants_nothing() -> None:
    sections = with_datasets(eks_stack(), corpus={"bucket": "s3://ml-corpus/v3"})
    assert planned(sections).cluster.identities == ()


def test_a_cache_has_the_rights_of_its_teams_in_its_namespace() -> None:
    sections = with_datasets(eks_stack(eks_creation()), corpus={"bucket": "s3://ml-corpus/v3"})
    name, pool = "gpu", sections["pools"]["gpu"]
    sections["pools"][name] = {**pool, "nodes": {"min": 2, "max": 2}}
    cache = {"runtime": "juicefs", "cache": "10Gi", "flavor": name, "medium": "ssd", "secret": "metadata"}
    sections["datasets"]["corpus"]["accelerate"] = cache
    made = sent(sections)
    (association,) = data(made, ASSOCIATION)
    assert (association["namespace"], association["serviceAccount"]) == ("dataset-caches", "default")
    (inline,) = data(made, POLICY)
    assert allowed(inline["policy"], "s3:GetObject", f"{BUCKET}/v3/0.tar")
    assert not allowed(inline["policy"], "s3:GetObject", f"{BUCKET}/v2/0.tar")
    # Fluid mounts the cache, so the nodes need no CSI driver for S3.
    addons = [cast("Any", one.inputs)["addonName"] for one in made if one.type == "aws:eks/addon:Addon"]
    assert "aws-mountpoint-s3-csi-driver" not in addons


# Shared storage of teams in created clusters: who reaches a file system, what its driver may do, and what stays


EFS: Final[Data] = {"files": {"size": "2Ti", "mode": "shared"}}
FSX: Final[Data] = {"fast": {"size": "4800Gi", "mode": "shared", "class": "fsx-lustre"}}
POLICY_FILES: Final = "aws:efs/fileSystemPolicy:FileSystemPolicy"
TARGET: Final = "aws:efs/mountTarget:MountTarget"
GROUP: Final = "aws:ec2/securityGroup:SecurityGroup"
INGRESS: Final = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS: Final = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
ADDON: Final = "aws:eks/addon:Addon"
ARN: Final = "arn:aws:elasticfilesystem:eu-central-1:111122223333:"
POINT: Final = {
    "elasticfilesystem:AccessPointArn": f"{ARN}access-point/fsap-0a1b",
    "elasticfilesystem:AccessedViaMountTarget": "true",
    "aws:SecureTransport": "true",
}


def eks_files(storage: Data, environment: str = "dev") -> list[Registration]:
    return sent(with_team(eks_stack(eks_creation(), environment), storage=storage))


def inputs(made: list[Registration], token: str) -> list[Any]:
    return [cast("Any", one.inputs) for one in made if one.type == token]


def only(made: list[Registration], token: str) -> Registration:
    (found,) = (one for one in made if one.type == token)
    return found


def ports(made: list[Registration], token: str, name: str) -> set[tuple[int, int]]:
    return {
        (rule.inputs["fromPort"], rule.inputs["toPort"])
        for rule in cast("list[Any]", made)
        if rule.type == token and name in rule.name and rule.inputs["ipProtocol"] == "tcp"
    }


@pytest.mark.parametrize("storage", [EFS, FSX, {**EFS, **FSX}], ids=["efs", "fsx", "both"])
def test_inputs_match_awss_model(storage: Data) -> None:
    made = [one for one in eks_files(storage) if one.type in DESCRIPTION.types]
    assert {one.name: found for one in made if (found := DESCRIPTION.problems(one.type, cast("Any", one.inputs)))} == {}


def test_on_eks_clients_mount_access_points_over_tls() -> None:
    policy = str(only(eks_files(EFS), POLICY_FILES).inputs["policy"])
    place = f"{ARN}file-system/fs-0a1b"
    for action in ("ClientMount", "ClientWrite"):
        name = f"elasticfilesystem:{action}"
        assert allowed(policy, name, place, POINT)
        assert not allowed(policy, name, place, {**POINT, "aws:SecureTransport": "false"})
        assert not allowed(policy, name, place, {**POINT, "elasticfilesystem:AccessedViaMountTarget": "false"})
        assert not allowed(policy, name, place, {key: POINT[key] for key in POINT if "AccessPoint" not in key})
    operations = {f"elasticfilesystem:{name}" for name in service("efs")["operations"]}
    for action in {*operations, "elasticfilesystem:ClientRootAccess"}:
        assert not allowed(policy, action, place, POINT)


def test_the_lustre_driver_changes_file_systems_of_the_cluster() -> None:
    made = eks_files(FSX)
    (inline,) = (one for one in inputs(made, "aws:iam/rolePolicy:RolePolicy") if "fsx:" in json.dumps(one["policy"]))
    policy, place = inline["policy"], "arn:aws:fsx:eu-central-1:111122223333:file-system/fs-0a1b"
    own, other = {"aws:ResourceTag/gpu-tenancy-cluster": "ml"}, {"aws:ResourceTag/gpu-tenancy-cluster": "ml2"}
    for action in ("fsx:DeleteFileSystem", "fsx:UpdateFileSystem"):
        assert allowed(policy, action, place, own)
        assert not allowed(policy, action, place, other)
        assert not allowed(policy, action, place)
    assert allowed(policy, "fsx:CreateFileSystem", place, {"aws:RequestTag/gpu-tenancy-cluster": "ml"})
    assert not allowed(policy, "fsx:CreateFileSystem", place)
    context = {**own, "aws:RequestTag/gpu-tenancy-cluster": "ml"}
    operations = {f"fsx:{name}" for name in service("fsx")["operations"]}
    assert {action for action in operations if allowed(policy, action, place, context)} == {
        "fsx:CreateFileSystem",
        "fsx:DeleteFileSystem",
        "fsx:DescribeFileSystems",
        "fsx:TagResource",
        "fsx:UpdateFileSystem",
    }
    linked = {"iam:AWSServiceName": "fsx.amazonaws.com"}
    assert allowed(policy, "iam:CreateServiceLinkedRole", "*", linked)
    assert not allowed(policy, "iam:CreateServiceLinkedRole", "*", {"iam:AWSServiceName": "ec2.amazonaws.com"})


def test_on_eks_lustre_is_admitted_in_both_directions() -> None:
    made, lustre = eks_files(FSX), {(988, 988), (1018, 1023)}
    for token, name in (
        (INGRESS, "from-servers"),
        (INGRESS, "from-nodes"),
        (INGRESS, "to-nodes"),
        (EGRESS, "out-to-servers"),
        (EGRESS, "out-to-nodes"),
    ):
        assert ports(made, token, name) == lustre
    assert len(inputs(made, INGRESS)) == 6
    assert len(inputs(made, EGRESS)) == 4
    assert only(made, GROUP).retain_on_delete
    # A rule that names the nodes' group would keep EKS from deleting it.
    kept = {
        one.name.rpartition("-lustre-")[2] for one in made if one.type in {INGRESS, EGRESS} and one.retain_on_delete
    }
    assert kept == {"from-servers-988", "from-servers-1018", "out-to-servers-988", "out-to-servers-1018"}


def test_on_eks_storage_classes_use_ids_of_the_cloud() -> None:
    sections = with_team(eks_stack(eks_creation()), storage={**EFS, **FSX})
    rendered = platform(sections).rendered
    classes = {
        one.inputs["metadata"]["name"]: one.inputs
        for one in cast("list[Any]", rendered.registrations)
        if one.type.endswith(":StorageClass")
    }
    assert classes["gpu-tenancy-efs"]["parameters"] == {
        "provisioningMode": "efs-ap",
        "fileSystemId": UNKNOWN,
        "directoryPerms": "700",
    }
    lustre = classes["gpu-tenancy-fsx-lustre"]["parameters"]
    assert lustre["securityGroupIds"] == UNKNOWN
    assert lustre["subnetId"] == SUBNETS["eu-central-1a"]
    assert lustre["extraTags"] == "gpu-tenancy-cluster=ml"
    assert planned(sections).cluster.late_users == ("file-system.of.storage.invalid", "lustre-group.of.storage.invalid")


def test_on_eks_driver_and_addresses_outlive_claims() -> None:
    graph = Graph(platform(with_team(eks_stack(eks_creation()), storage=EFS)).rendered)
    (claim,) = graph.find("kubernetes:core/v1:PersistentVolumeClaim", "files")
    before = [graph.known[urn] for urn in graph.all_needs(claim)]
    assert "aws-efs-csi-driver" in [one.inputs.get("addonName") for one in before if one.type == ADDON]
    assert len([one for one in before if one.type == TARGET]) == 2


FILES: Final[Data] = {
    "files": {"size": "1Ti", "mode": "shared"},
    "fast": {"size": "9000Gi", "mode": "shared", "class": "managed-lustre"},
}


def test_on_gke_file_systems_are_in_the_network_of_the_cluster() -> None:
    own = planned(with_team(gke_stack(create=gke_creation()), storage=FILES)).storage_classes
    assert {made.kind: dict(made.parameters) for made in own} == {
        "filestore": {"tier": "zonal", "network": "ml", "connect-mode": "DIRECT_PEERING"},
        "managed-lustre": {
            "perUnitStorageThroughput": "1000",
            "network": "projects/example-ml/global/networks/ml",
        },
    }
    for project, mode, network in (
        ("network-host", "PRIVATE_SERVICE_ACCESS", "projects/network-host/global/networks/ml"),
        ("example-ml", "DIRECT_PEERING", "ml"),
    ):
        named = {**gke_creation(), "network": f"projects/{project}/global/networks/ml"}
        (filestore,) = planned(with_team(gke_stack(create=named), storage={"files": FILES["files"]})).storage_classes
        assert filestore.parameters["connect-mode"] == mode
        assert filestore.parameters["network"] == network


def test_needs_of_the_network_are_in_the_report() -> None:
    shared = {**gke_creation(), "network": "projects/network-host/global/networks/ml"}
    made = outlook(stack_of(with_team(gke_stack(create=shared), storage=FILES)))
    network = "the network projects/network-host/global/networks/ml needs private services access"
    assert made.network_needs == (
        f"Filestore (zonal): {network}",
        f"Managed Lustre: {network}, and a firewall rule that admits TCP port 988 from its range",
    )
    own = outlook(stack_of(with_team(gke_stack(create=gke_creation()), storage={"files": FILES["files"]})))
    assert own.network_needs == ()
