"""Data of teams in each cloud: rights on datasets, and shared file systems."""

import json
import re
from typing import Any, Final, cast

import pytest
from builders import Data, planned, stack_of, team
from cloud_stacks import aks_creation, aks_stack, eks_creation, eks_stack, gke_creation, gke_stack, sent, with_team
from components_builders import Graph, platform
from eks_shapes import service
from object_cases import allowed

from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster

BUCKET: Final = "arn:aws:s3:::ml-corpus"
POLICY: Final = "aws:iam/rolePolicy:RolePolicy"


def with_datasets(sections: Data, **datasets: Any) -> Data:
    teams = {"a": sections["teams"]["a"], "b": team(gpus={})}
    named = {name: {"teams": ["a"], **dataset} for name, dataset in datasets.items()}
    return {**sections, "teams": teams, "datasets": named}


def data(made: list[Registration], token: str) -> list[Any]:
    return [cast("Any", one.inputs) for one in made if one.type == token and "-data" in one.name]


def corpus(**more: Any) -> Data:
    return with_datasets(eks_stack(eks_creation()), corpus={"bucket": "s3://ml-corpus/v3", **more})


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


READ: Final = {"s3:ListBucket", "s3:GetObject"}
WRITTEN: Final = {"s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject"}
OTHER: Final = {"s3:ListBucket", "s3:PutObjectAcl", "s3:BypassGovernanceRetention", "s3:PutBucketPolicy"}
FOLDER: Final = (BUCKET, f"{BUCKET}/v3/0.tar")
FSX: Final = ("arn:aws:fsx:eu-central-1:111122223333:file-system/fs-0a1b",)
OF_CLUSTER: Final = {"aws:ResourceTag/gpu-tenancy-cluster": "ml", "aws:RequestTag/gpu-tenancy-cluster": "ml"}
OF_DRIVER: Final = ("Create", "Delete", "Update")
LUSTRE: Final = {"fast": {"size": "4800Gi", "mode": "shared", "class": "fsx-lustre"}}
EXACT: Final[dict[str, tuple[Data, str, tuple[str, ...], dict[str, str], set[str]]]] = {
    "a reader of S3": (corpus(), "s3", FOLDER, {"s3:prefix": "v3/"}, READ),
    "a writer of S3": (corpus(writable=True), "s3", FOLDER, {"s3:prefix": "v3/"}, READ | WRITTEN),
    "the driver of Lustre": (with_team(eks_stack(eks_creation()), storage=LUSTRE), "fsx", FSX, OF_CLUSTER,
        {"fsx:DescribeFileSystems", "fsx:TagResource", *(f"fsx:{verb}FileSystem" for verb in OF_DRIVER)}),
}  # fmt: skip


@pytest.mark.parametrize("case", EXACT)
def test_an_identity_has_exactly_these_actions(case: str) -> None:
    """The operations are from botocore's description; those of S3 with another action are listed here."""
    sections, named, places, context, expected = EXACT[case]
    actions = {f"{named}:{operation}" for operation in service(named)["operations"]} | OTHER
    policies = [cast("Any", one.inputs)["policy"] for one in sent(sections) if one.type == POLICY]
    (rights,) = (text for text in policies if f'"{named}:' in text)
    assert {one for one in actions if any(allowed(rights, one, arn, context) for arn in places)} == expected


def test_long_team_names_keep_their_identities_apart() -> None:
    sections = eks_stack(eks_creation())
    teams = {f"{'x' * 60}{end}": sections["teams"]["a"] for end in "ab"}
    made = planned({**sections, "teams": teams, "datasets": {"corpus": "s3://ml-corpus"}}).cluster.identities
    names = [identity.name for identity in made]
    assert len(set(names)) == 2
    assert all(len(name) <= 64 for name in names)


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
    """Whether an ABAC condition holds, by the grammar of Azure's conditions turned into Python's."""
    # https://learn.microsoft.com/azure/role-based-access-control/conditions-format
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


def test_values_of_the_cloud_have_placeholders_in_the_plan() -> None:
    sections = with_datasets(aks_stack(aks_creation()), corpus={"bucket": "az://mlcorpus/corpus"})
    (volume,) = planned(sections).teams[0].volumes
    assert volume.attributes["clientID"] == "client-id-of-ml_a"
    assert planned(sections).cluster.late_users == ("client-id-of-ml_a",)
    (volume,) = planned(corpus()).teams[0].volumes
    assert volume.attributes["authenticationSource"] == "pod"
    files = planned(with_team(eks_stack(eks_creation()), storage={**EFS, **LUSTRE})).cluster.late_users
    assert files == ("file-system.of.storage.invalid", "lustre-group.of.storage.invalid")


def test_an_existing_cluster_grants_nothing() -> None:
    sections = with_datasets(eks_stack(), corpus={"bucket": "s3://ml-corpus/v3"})
    assert planned(sections).cluster.identities == ()


# Shared storage of teams in created clusters: the order of deletion, and networks


EFS: Final[Data] = {"files": {"size": "2Ti", "mode": "shared"}}
TARGET: Final = "aws:efs/mountTarget:MountTarget"
ADDON: Final = "aws:eks/addon:Addon"


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
        "managed-lustre": {"perUnitStorageThroughput": "1000", "network": "projects/example-ml/global/networks/ml"},
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
