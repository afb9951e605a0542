"""What pods of a team may do with data in each cloud: the folders of its datasets, and nothing beside them."""

import json
import re
from typing import Any, Final, cast

import pytest
from builders import Data, errors, planned, team
from cloud_stacks import REGION, aks_creation, aks_stack, eks_creation, eks_stack, gke_creation, gke_stack, sent
from eks_shapes import service
from iam_policies import allowed

from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.wire import UNKNOWN
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster

BUCKET: Final = "arn:aws:s3:::ml-corpus"
KEY: Final = "arn:aws:kms:eu-central-1:111122223333:key/0a1b"
POLICY: Final = "aws:iam/rolePolicy:RolePolicy"
ASSOCIATION: Final = "aws:eks/podIdentityAssociation:PodIdentityAssociation"


def with_datasets(sections: Data, **datasets: Any) -> Data:
    """A stack of two teams, of which only the first has the datasets."""
    teams = {"a": sections["teams"]["a"], "b": team(gpus={})}
    named = {name: {"teams": ["a"], **dataset} for name, dataset in datasets.items()}
    return {**sections, "teams": teams, "datasets": named}


def data(made: list[Registration], token: str) -> list[Any]:
    """Inputs of all resources of a type that are for data."""
    return [cast("Any", one.inputs) for one in made if one.type == token and "-data" in one.name]


def eks(**datasets: Any) -> list[Registration]:
    return sent(with_datasets(eks_stack(eks_creation()), **datasets))


def policy(**datasets: Any) -> str:
    (inline,) = data(eks(**datasets), POLICY)
    return inline["policy"]


def test_the_evaluator_decides_aws_own_example_as_its_documentation_does() -> None:
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


def test_on_s3_of_all_actions_that_exist_a_reader_has_two_and_a_writer_three_more() -> None:
    """The operations of S3 are those of botocore's description; some have another action, which is listed here."""
    operations = {f"s3:{name}" for name in service("s3")["operations"]}
    actions = operations | {"s3:ListBucket", "s3:PutObjectAcl", "s3:BypassGovernanceRetention", "s3:PutBucketPolicy"}
    place, context = f"{BUCKET}/v3/0.tar", {"s3:prefix": "v3/"}

    def of(rights: str) -> set[str]:
        return {one for one in actions if any(allowed(rights, one, arn, context) for arn in (place, BUCKET))}

    reading = {"s3:ListBucket", "s3:GetObject"}
    assert of(policy(corpus={"bucket": "s3://ml-corpus/v3"})) == reading
    writing = of(policy(corpus={"bucket": "s3://ml-corpus/v3", "writable": True}))
    assert writing == {*reading, "s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject"}


def test_on_s3_the_key_of_a_bucket_is_usable_through_s3_alone_and_to_encrypt_by_writers_alone() -> None:
    through = {"kms:ViaService": f"s3.{REGION}.amazonaws.com"}
    reads = policy(corpus={"bucket": "s3://ml-corpus/v3", "key": KEY})
    assert allowed(reads, "kms:Decrypt", KEY, through)
    assert not allowed(reads, "kms:Decrypt", KEY)
    assert not allowed(reads, "kms:GenerateDataKey", KEY, through)
    writes = policy(corpus={"bucket": "s3://ml-corpus/v3", "key": KEY, "writable": True})
    assert allowed(writes, "kms:GenerateDataKey", KEY, through)
    assert not allowed(writes, "kms:Decrypt", KEY.replace("0a1b", "0a1c"), through)


def test_on_eks_only_accounts_of_the_teams_pods_have_the_role_and_a_team_without_datasets_has_none() -> None:
    made = eks(corpus={"bucket": "s3://ml-corpus/v3"})
    accounts = {(one["namespace"], one["serviceAccount"]) for one in data(made, ASSOCIATION)}
    assert accounts == {("a", "default"), ("a", "workload")}
    assert [role["name"] for role in data(made, "aws:iam/role:Role")] == ["ml_a"]
    (volume,) = planned(with_datasets(eks_stack(eks_creation()), corpus={"bucket": "s3://b"})).teams[0].volumes
    assert volume.attributes["authenticationSource"] == "pod"


def test_a_long_name_of_a_team_keeps_its_identity_apart_from_that_of_another() -> None:
    sections = eks_stack(eks_creation())
    teams = {f"{'x' * 60}{end}": sections["teams"]["a"] for end in "ab"}
    made = planned({**sections, "teams": teams, "datasets": {"corpus": "s3://ml-corpus"}}).cluster.identities
    names = [identity.name for identity in made]
    assert len(set(names)) == 2
    assert all(len(name) <= 64 for name in names)


def test_on_gke_a_folder_is_a_managed_folder_and_a_bucket_gets_members_alone() -> None:
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


def test_on_gke_the_principals_are_the_service_accounts_of_the_teams_pods() -> None:
    cluster = load(Source(gke_stack())).cluster
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


def test_on_azure_the_identity_is_that_of_the_accounts_of_the_teams_pods_and_volumes_name_it() -> None:
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


def test_a_bucket_that_is_made_is_private_encrypted_and_versioned() -> None:
    made = eks(out={"bucket": "s3://ml-out", "create": True})
    (private,) = data(made, "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock")
    switches = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    assert all(private[switch] for switch in switches)
    (versions,) = data(made, "aws:s3/bucketVersioning:BucketVersioning")
    assert versions["versioningConfiguration"] == {"status": "Enabled"}
    gcs = sent(with_datasets(gke_stack(create=gke_creation()), out={"bucket": "gs://ml-out", "create": True}))
    (bucket,) = data(gcs, "gcp:storage/bucket:Bucket")
    assert (bucket["publicAccessPrevention"], bucket["uniformBucketLevelAccess"]) == ("enforced", True)
    (account,) = data(aks(out={"bucket": "az://mlout/out", "create": True}), "azure-native:storage:StorageAccount")
    assert (account["allowBlobPublicAccess"], account["allowSharedKeyAccess"]) == (False, False)


def test_an_existing_cluster_grants_nothing_and_creates_no_bucket() -> None:
    sections = with_datasets(eks_stack(), corpus={"bucket": "s3://ml-corpus/v3"})
    assert planned(sections).cluster.identities == ()
    (problem,) = errors(with_datasets(eks_stack(), out={"bucket": "s3://ml-out", "create": True}))
    assert problem == (
        "datasets.out.create: true needs cluster.cloud aws with cluster.create, whose provider creates the bucket;"
        " remove create, and create s3://ml-out where its cloud is managed"
    )


def test_a_cache_has_the_right_of_its_teams_in_a_namespace_of_its_own_and_they_have_none() -> None:
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


def test_eks_gets_the_snapshot_controller_only_for_snapshots() -> None:
    def addons(**storage: Data) -> set[str]:
        sections = eks_stack(eks_creation())
        owner = {**sections["teams"]["a"], "storage": storage}
        found = sent({**sections, "teams": {"a": owner}})
        return {str(one.inputs.get("addonName")) for one in found if one.type == "aws:eks/addon:Addon"}

    assert "snapshot-controller" in addons(ck={"size": "1Gi", "snapshots": "0 3 * * *"})
    assert "snapshot-controller" not in addons(ck={"size": "1Gi"})
