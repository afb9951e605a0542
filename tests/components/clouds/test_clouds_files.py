"""Shared storage of teams in created clusters: who reaches a file system, what its driver may do, and what stays."""

import json
from typing import Any, Final, cast

import pytest
from builders import Data, errors, planned
from cloud_stacks import SUBNETS, aks_creation, aks_stack, eks_creation, eks_stack, gke_creation, gke_stack, sent
from components_builders import platform
from dependency_graph import Graph
from eks_description import DESCRIPTION
from eks_shapes import service
from gke_description import DESCRIPTION as GKE
from iam_policies import allowed

from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.wire import UNKNOWN
from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.source import Source

EFS: Final[Data] = {"files": {"size": "2Ti", "mode": "shared"}}
FSX: Final[Data] = {"fast": {"size": "4800Gi", "mode": "shared", "class": "fsx-lustre"}}
FILE_SYSTEM: Final = "aws:efs/fileSystem:FileSystem"
POLICY: Final = "aws:efs/fileSystemPolicy:FileSystemPolicy"
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


def with_storage(sections: Data, storage: Data) -> Data:
    return {**sections, "teams": {"a": {**sections["teams"]["a"], "storage": storage}}}


def eks(storage: Data, environment: str = "dev") -> list[Registration]:
    return sent(with_storage(eks_stack(eks_creation(), environment), storage))


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
    made = [one for one in eks(storage) if one.type in DESCRIPTION.types]
    assert {one.name: found for one in made if (found := DESCRIPTION.problems(one.type, cast("Any", one.inputs)))} == {}


def test_without_shared_storage_there_is_no_file_system_and_no_driver_of_one() -> None:
    made = eks({"ck": {"size": "1Gi"}})
    tokens = {FILE_SYSTEM, POLICY, TARGET, GROUP, INGRESS, EGRESS}
    assert not [one.name for one in made if one.type in tokens]
    assert not {one["addonName"] for one in inputs(made, ADDON)} & {"aws-efs-csi-driver", "aws-fsx-csi-driver"}


def test_on_eks_a_file_system_is_encrypted_with_an_address_in_each_subnet_of_the_cluster() -> None:
    made = eks(EFS)
    assert only(made, FILE_SYSTEM).inputs["encrypted"] is True
    assert [one["subnetId"] for one in inputs(made, TARGET)] == list(SUBNETS.values())


def test_on_eks_a_file_system_admits_only_nfs_from_nodes() -> None:
    made = eks(EFS)
    (rule,) = inputs(made, INGRESS)
    assert {key: rule[key] for key in rule if key not in {"securityGroupId", "referencedSecurityGroupId"}} == {
        "ipProtocol": "tcp",
        "fromPort": 2049,
        "toPort": 2049,
    }
    assert rule["referencedSecurityGroupId"] == UNKNOWN  # the cluster's own group, which EKS creates
    assert inputs(made, EGRESS) == []
    group = only(made, GROUP)
    assert not {"ingress", "egress"} & group.inputs.keys()


def test_on_eks_clients_mount_access_points_over_tls_and_never_the_root_of_all_teams() -> None:
    policy = str(only(eks(EFS), POLICY).inputs["policy"])
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


def test_on_eks_a_file_system_stays_and_is_protected_in_production_but_its_addresses_go() -> None:
    made = eks(EFS, "prod")
    for token in (FILE_SYSTEM, POLICY):
        assert only(made, token).retain_on_delete
        assert only(made, token).protect
    # The subnets and the network could not be deleted otherwise.
    assert not [one for one in made if one.type in {TARGET, GROUP, INGRESS} and one.retain_on_delete]
    assert not only(eks(EFS), FILE_SYSTEM).protect


def test_on_eks_drivers_run_with_a_role_of_their_own() -> None:
    roles: dict[str, str] = {}
    for one in inputs(eks({**EFS, **FSX}), ADDON):
        for association in one.get("podIdentityAssociations", []):
            roles[one["addonName"]] = association["serviceAccount"]
    assert roles["aws-efs-csi-driver"] == "efs-csi-controller-sa"
    assert roles["aws-fsx-csi-driver"] == "fsx-csi-controller-sa"
    attached = {one["policyArn"] for one in inputs(eks(EFS), "aws:iam/rolePolicyAttachment:RolePolicyAttachment")}
    assert "arn:aws:iam::aws:policy/service-role/AmazonEFSCSIDriverPolicy" in attached


def test_on_eks_the_lustre_driver_changes_file_systems_with_the_tag_of_the_cluster_alone() -> None:
    made = eks(FSX)
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


def test_on_eks_lustre_is_admitted_in_both_directions_and_the_group_of_kept_file_systems_stays() -> None:
    made, lustre = eks(FSX), {(988, 988), (1018, 1023)}
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
    sections = with_storage(eks_stack(eks_creation()), {**EFS, **FSX})
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


def test_on_eks_the_driver_and_the_addresses_of_a_file_system_outlive_claims() -> None:
    graph = Graph(platform(with_storage(eks_stack(eks_creation()), EFS)).rendered)
    (claim,) = graph.find("kubernetes:core/v1:PersistentVolumeClaim", "files")
    before = [graph.known[urn] for urn in graph.all_needs(claim)]
    assert "aws-efs-csi-driver" in [one.inputs.get("addonName") for one in before if one.type == ADDON]
    assert len([one for one in before if one.type == TARGET]) == 2


FILES: Final[Data] = {
    "files": {"size": "1Ti", "mode": "shared"},
    "fast": {"size": "9000Gi", "mode": "shared", "class": "managed-lustre"},
}


def test_on_gke_drivers_are_enabled_for_the_claims_that_need_them() -> None:
    for storage, filestore, lustre in (
        ({}, False, False),
        (FILES, True, True),
        ({"files": FILES["files"]}, True, False),
    ):
        made = list(sent(with_storage(gke_stack(create=gke_creation()), storage)))
        cluster = only(made, "gcp:container/cluster:Cluster")
        addons = cast("Any", cluster.inputs)["addonsConfig"]
        assert addons["gcpFilestoreCsiDriverConfig"] == {"enabled": filestore}
        assert addons["lustreCsiDriverConfig"] == {"enabled": lustre}
        assert GKE.problems(cluster.type, cast("Any", cluster.inputs)) == []


def test_on_gke_file_systems_are_in_the_network_of_the_cluster() -> None:
    own = planned(with_storage(gke_stack(create=gke_creation()), FILES)).storage_classes
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
        (filestore,) = planned(with_storage(gke_stack(create=named), {"files": FILES["files"]})).storage_classes
        assert filestore.parameters["connect-mode"] == mode
        assert filestore.parameters["network"] == network


REFUSED: Final = {
    "a size between those of Filestore": (
        gke_stack(create=gke_creation()),
        {"size": "1100Gi"},
        "size: 1100Gi is not a size of Filestore (zonal); set 1280Gi",
    ),
    "more than the largest Filestore": (
        gke_stack(create=gke_creation()),
        {"size": "101Ti"},
        "size: 101Ti is more than 100Ti, the maximum of Filestore (zonal); lower it, or use several claims",
    ),
    "a driver that the version of the cluster does not have": (
        gke_stack(create={**gke_creation(), "version": "1.32"}),
        {"size": "9000Gi", "class": "managed-lustre"},
        (
            "class: managed-lustre needs Kubernetes 1.33 or later, but the cluster has 1.32; set"
            " cluster.create.version to 1.33 or later, or another class"
        ),
    ),
    "a class that needs more than a StorageClass": (
        aks_stack(aks_creation()),
        {"size": "1Ti", "class": "netapp-files"},
        (
            "class: netapp-files needs Trident, a NetApp account and a capacity pool, which are not made here; set"
            " storageClass to a StorageClass that you create for it"
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unsupported_settings_of_a_service_are_refused(case: str) -> None:
    sections, storage, message = REFUSED[case]
    assert errors(with_storage(sections, {"ck": {"mode": "shared", **storage}})) == [f"teams.a.storage.ck.{message}"]


def test_needs_of_the_network_are_in_the_report() -> None:
    shared = {**gke_creation(), "network": "projects/network-host/global/networks/ml"}
    made = outlook(load(Source(with_storage(gke_stack(create=shared), FILES))))
    network = "the network projects/network-host/global/networks/ml needs private services access"
    assert made.network_needs == (
        f"Filestore (zonal): {network}",
        f"Managed Lustre: {network}, and a firewall rule that admits TCP port 988 from its range",
    )
    own = outlook(load(Source(with_storage(gke_stack(create=gke_creation()), {"files": FILES["files"]}))))
    assert own.network_needs == ()
