"""EKS: what is sent for a cluster that is made, and for what scales its nodes."""

import json
from typing import Any, Final, cast

import pytest
from builders import Data, errors
from components_builders import program
from eks_description import DESCRIPTION
from eks_stacks import DEPLOYER, REGION, RESERVATION, SUBNETS, creation, machine_pool, one, resources, section, stack
from iam_policies import allowed
from pydantic import ValidationError

from components.clouds.aws.policies import (
    access_policy,
    autoscaler_policy,
    karpenter_policies,
    managed_policy,
    node_trust,
    partition,
    queue_policy,
    trust,
)
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.wire import UNKNOWN
from gpu_tenancy.model.catalogue.releases import Chart, cloud_charts

CLUSTER: Final = "aws:eks/cluster:Cluster"
GROUP: Final = "aws:eks/nodeGroup:NodeGroup"
ADDON: Final = "aws:eks/addon:Addon"
RELEASE: Final = "kubernetes:helm.sh/v3:Release"
ADMINS: Final = "arn:aws:iam::111122223333:role/aws-reserved/admins"
KARPENTER: Final = section(autoscaler="karpenter")


def cluster(sections: Data) -> Any:
    """The cluster, as it is sent."""
    return one(resources(sections), CLUSTER).inputs


def named(made: list[Registration], name: str) -> Any:
    """Inputs of the one resource of a name."""
    (registration,) = [resource for resource in made if resource.name == name]
    return registration.inputs


def releases(sections: Data) -> dict[str, Any]:
    """Inputs of each Helm release by its name."""
    return {
        str(resource.inputs["name"]): resource.inputs for resource in resources(sections) if resource.type == RELEASE
    }


def objects(sections: Data, kind: str) -> dict[str, Any]:
    """Specs of Karpenter's objects of a kind, by name."""
    registrations = [
        cast("Any", resource.inputs) for resource in resources(sections) if resource.inputs.get("kind") == kind
    ]
    return {resource["metadata"]["name"]: resource["spec"] for resource in registrations}


def scaled(**pool: Any) -> Data:
    """A stack whose GPU pool Karpenter scales."""
    nodes: Data | int = pool.pop("nodes", {"min": 0, "max": 4})
    return stack(KARPENTER, gpu=machine_pool(nodes=nodes, **pool))


def statements(policy: str) -> list[dict[str, Any]]:
    return json.loads(policy)["Statement"]


POLICIES: Final = {
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonEKSClusterPolicy",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonSSMManagedInstanceCore",
    "service-role/AmazonEBSCSIDriverPolicy",
}
"""Managed policies with the paths of their ARNs, without which IAM knows none:
https://docs.aws.amazon.com/aws-managed-policy/latest/reference/policy-list.html, read 2026-11-23."""


def test_policies_that_are_attached_are_those_of_aws() -> None:
    made = resources(stack(creation(section_={"sessionManager": True})))
    attached = {
        str(one.inputs["policyArn"]).removeprefix("arn:aws:iam::aws:policy/")
        for one in made
        if one.type == "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
    }
    assert attached == POLICIES


def test_a_cluster_is_private_where_the_stack_names_no_networks() -> None:
    assert cluster(stack(creation()))["vpcConfig"] == {
        "subnetIds": list(SUBNETS.values()),
        "endpointPrivateAccess": True,
        "endpointPublicAccess": False,
    }


def test_networks_that_the_stack_names_are_all_that_reach_the_api_server() -> None:
    network = cluster(stack(creation(allowFrom=["203.0.113.0/24"])))["vpcConfig"]
    assert network["endpointPublicAccess"]
    assert network["endpointPrivateAccess"]
    assert network["publicAccessCidrs"] == ["203.0.113.0/24"]


def test_a_key_is_made_for_secrets_unless_the_stack_names_one() -> None:
    key = f"arn:aws:kms:{REGION}:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    registrations = resources(stack(creation()))
    assert one(registrations, "aws:kms/key:Key").inputs["enableKeyRotation"]
    assert one(registrations, CLUSTER).inputs["encryptionConfig"] == {
        "resources": ["secrets"],
        "provider": {"keyArn": UNKNOWN},
    }
    with_key = resources(stack(creation(secretsKey=key)))
    assert cast("Any", one(with_key, CLUSTER).inputs)["encryptionConfig"]["provider"] == {"keyArn": key}
    assert not [resource for resource in with_key if resource.type == "aws:kms/key:Key"]


def test_audit_logs_are_kept_for_a_year() -> None:
    registrations = resources(stack(creation()))
    assert set(cast("Any", one(registrations, CLUSTER).inputs)["enabledClusterLogTypes"]) == {
        "api",
        "audit",
        "authenticator",
    }
    log = one(registrations, "aws:cloudwatch/logGroup:LogGroup")
    assert (log.inputs["name"], log.inputs["retentionInDays"]) == ("/aws/eks/ml/cluster", 365)
    assert log.urn in one(registrations, CLUSTER).dependencies


def test_named_roles_administer_only_by_access_entries() -> None:
    registrations = resources(stack(creation(admins=[ADMINS])))
    assert cast("Any", one(registrations, CLUSTER).inputs)["accessConfig"]["authenticationMode"] == "API"
    entry = one(registrations, "aws:eks/accessEntry:AccessEntry").inputs
    assert (entry["principalArn"], entry["type"]) == (ADMINS, "STANDARD")
    policy = one(registrations, "aws:eks/accessPolicyAssociation:AccessPolicyAssociation").inputs
    assert policy["principalArn"] == ADMINS
    assert policy["policyArn"] == "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    assert policy["accessScope"] == {"type": "cluster"}


def test_a_deployer_who_is_an_administrator_has_one_access_entry() -> None:
    registrations = resources(stack(creation(admins=[DEPLOYER, ADMINS])))
    access = cast("Any", one(registrations, CLUSTER).inputs)["accessConfig"]
    assert access["bootstrapClusterCreatorAdminPermissions"] is False
    entries = [resource for resource in registrations if resource.type == "aws:eks/accessEntry:AccessEntry"]
    assert {str(entry.inputs["principalArn"]) for entry in entries} == {DEPLOYER, ADMINS}
    assert len(entries) == 2


def test_a_cluster_without_administrators_is_refused() -> None:
    sections = stack(creation())
    del sections["cluster"]["create"]["admins"]
    (problem,) = errors(sections)
    assert "has no admins" in problem


def test_a_cluster_that_was_created_with_the_creators_access_is_not_replaced() -> None:
    cluster_ = one(resources(stack(creation())), CLUSTER)
    assert cluster_.ignore_changes == ("accessConfig.bootstrapClusterCreatorAdminPermissions",)


def test_objects_in_the_cluster_wait_for_the_deployers_access() -> None:
    registrations = resources(stack(creation({"autoscaler": "karpenter"}), gpu=machine_pool(fabric=True)))
    access = one(registrations, "aws:eks/accessPolicyAssociation:AccessPolicyAssociation").urn
    first = ["kubernetes:storage.k8s.io/v1:StorageClass", "gpu-tenancy:clouds:Karpenter"]
    waiting = [resource for resource in registrations if resource.type in first or resource.name == "cluster-efa"]
    assert len(waiting) == 3
    assert all(access in resource.dependencies for resource in waiting)


@pytest.mark.parametrize(("environment", "held"), [("prod", True), ("dev", False)])
def test_a_cluster_is_protected_in_production_by_pulumi_and_by_eks(environment: str, held: bool) -> None:  # noqa: FBT001
    registrations = resources(stack(creation(), environment=environment))
    assert one(registrations, CLUSTER).protect is held
    assert one(registrations, CLUSTER).inputs["deletionProtection"] is held
    assert {resource.protect for resource in registrations if resource.type in {GROUP, "aws:kms/key:Key"}} == {held}


def test_a_cluster_of_one_zone_is_refused() -> None:
    (problem,) = errors(stack(creation({"subnets": dict([*SUBNETS.items()][:1])})))
    assert "add a subnet of a second zone" in problem


def test_the_clusters_own_pods_have_nodes_without_gpus_that_take_any_pod() -> None:
    system = named(resources(stack(creation())), "cluster-system-group")
    assert system["instanceTypes"] == ["m7i.4xlarge"]
    assert system["amiType"] == "AL2023_x86_64_STANDARD"
    assert system["scalingConfig"] == {"minSize": 2, "maxSize": 3, "desiredSize": 2}
    assert system["taints"] == []
    assert system["labels"] == {"gpu-tenancy.dev/pool": "gpu-tenancy-system"}


def test_all_nodes_have_the_version_of_the_control_plane_and_those_of_a_found_cluster_what_it_has() -> None:
    groups = [resource.inputs["version"] for resource in resources(stack(creation())) if resource.type == GROUP]
    assert groups == ["1.35"] * 3
    assert not [resource for resource in resources(stack()) if resource.type == GROUP and "version" in resource.inputs]


def test_a_created_cluster_has_its_add_ons_and_those_that_call_aws_have_a_role_of_their_own() -> None:
    addons = [
        cast("Any", resource.inputs)
        for resource in resources(stack(creation()))
        if resource.type == "aws:eks/addon:Addon"
    ]
    accounts = {
        addon["addonName"]: [association["serviceAccount"] for association in addon.get("podIdentityAssociations", [])]
        for addon in addons
    }
    assert accounts == {
        "eks-pod-identity-agent": [],
        "kube-proxy": [],
        "vpc-cni": ["aws-node"],
        "coredns": [],
        "eks-node-monitoring-agent": [],
        "metrics-server": [],
        "aws-ebs-csi-driver": ["ebs-csi-controller-sa"],
    }
    assert cluster(stack(creation()))["bootstrapSelfManagedAddons"] is False


@pytest.mark.parametrize(("settings", "support"), [({}, "STANDARD"), ({"support": "extended"}, "EXTENDED")])
def test_support_that_costs_more_is_not_bought_by_forgetting_an_upgrade(settings: Data, support: str) -> None:
    assert cluster(stack(creation(**settings)))["upgradePolicy"] == {"supportType": support}


def test_nodes_of_a_created_cluster_may_not_touch_its_network() -> None:
    attached = [
        resource for resource in resources(stack(creation())) if resource.type.endswith(":RolePolicyAttachment")
    ]
    holders = {
        attachment.name
        for attachment in attached
        if str(attachment.inputs["policyArn"]).endswith("AmazonEKS_CNI_Policy")
    }
    assert holders == {"cluster-first-addons-vpc-cni-role-AmazonEKS_CNI_Policy"}


def test_the_network_add_on_is_there_before_any_node() -> None:
    registrations = resources(stack(creation()))
    network = next(resource.urn for resource in registrations if resource.name == "cluster-first-addons-vpc-cni")
    groups = [resource for resource in registrations if resource.type == "gpu-tenancy:clouds:NodeGroup"]
    assert len(groups) == 3
    assert all(network in group.dependencies for group in groups)


def test_pools_are_updated_after_the_add_ons_and_these_after_the_control_plane() -> None:
    registrations = resources(stack(creation()))
    (plane,) = [resource for resource in registrations if resource.type == CLUSTER]
    addons = [resource for resource in registrations if resource.type == ADDON]
    pools = [resource for resource in registrations if resource.name in {"cluster-pool-gpu", "cluster-pool-cpu"}]
    assert len(addons) == 7
    assert len(pools) == 2
    assert all(addon.urn in pool.dependencies for addon in addons for pool in pools)
    (first,) = [resource for resource in registrations if resource.name == "cluster-first-addons"]
    assert plane.urn in first.dependencies


ADDONS_ALONE: Final = """
from components.clouds.aws.addons import BEFORE_NODES, Addons
from components.clouds.aws.nodes import ClusterContext

section = made.cluster.section
context = ClusterContext(section, section.subnets, pulumi.Output.from_input("sg-1"), {}, protect=False)
Addons("alone", context, BEFORE_NODES, pulumi.Output.from_input("1.36"))
"""
"""A program with add-ons of a control plane that exists."""


def test_the_version_of_an_add_on_is_the_one_that_eks_answers() -> None:
    answers = {"aws:eks/getAddonVersion:getAddonVersion": {"version": "v1.2.3-eksbuild.4"}}
    registrations = program(stack(creation()), ADDONS_ALONE, answers).rendered.registrations
    versions = {str(resource.inputs["addonVersion"]) for resource in registrations if resource.type == ADDON}
    assert versions == {"v1.2.3-eksbuild.4"}


def test_add_ons_have_the_version_that_eks_has_for_the_clusters_or_the_stacks() -> None:
    registrations = resources(stack(creation(addons={"vpc-cni": "v1.21.1-eksbuild.1"})))
    versions = {
        resource.inputs["addonName"]: resource.inputs["addonVersion"]
        for resource in registrations
        if resource.type == ADDON
    }
    assert versions.pop("vpc-cni") == "v1.21.1-eksbuild.1"
    assert set(versions.values()) == {UNKNOWN}  # what EKS answers for the version of the control plane


def test_network_policies_are_enforced() -> None:
    assert values_of(stack(creation()), "vpc-cni") == {"enableNetworkPolicy": "true"}


def values_of(sections: Data, addon: str) -> Any:
    """Configuration of an add-on."""
    (registration,) = [
        resource for resource in resources(sections) if resource.type == ADDON and resource.inputs["addonName"] == addon
    ]
    return json.loads(str(registration.inputs["configurationValues"]))


def test_claims_without_a_class_get_an_encrypted_disk_and_the_add_on_sets_no_other_default() -> None:
    registrations = resources(stack(creation()))
    storage = cast("Any", one(registrations, "kubernetes:storage.k8s.io/v1:StorageClass").inputs)
    assert storage["metadata"]["annotations"] == {"storageclass.kubernetes.io/is-default-class": "true"}
    assert storage["provisioner"] == "ebs.csi.aws.com"
    assert storage["parameters"] == {"type": "gp3", "encrypted": "true"}
    assert storage["volumeBindingMode"] == "WaitForFirstConsumer"
    assert values_of(stack(creation()), "aws-ebs-csi-driver") == {"defaultStorageClass": {"enabled": False}}


def with_datasets(cluster_: Data, **buckets: Any) -> Data:
    """A stack with datasets."""
    return stack(cluster_) | {"datasets": {name: {"bucket": url} for name, url in buckets.items()}}


def test_a_dataset_on_s3_has_its_driver_on_all_nodes_without_rights_of_its_own() -> None:
    sections = with_datasets(creation(), corpus="s3://ml-corpus/v3")
    assert values_of(sections, "aws-mountpoint-s3-csi-driver") == {"node": {"tolerateAllTaints": True}}
    accounts = {str(one.inputs.get("serviceAccount")) for one in resources(sections)}
    assert {"default", "workload"} <= accounts
    assert "s3-csi-driver-sa" not in accounts


def test_without_datasets_on_s3_there_is_no_driver_and_no_permission() -> None:
    assert not [resource for resource in resources(stack(creation())) if "s3" in resource.name]


def test_a_cluster_that_exists_gets_no_add_ons() -> None:
    assert not [resource for resource in resources(stack()) if "addon" in resource.type or "logGroup" in resource.type]


def test_the_autoscaler_is_a_release_with_an_identity_that_moves_only_its_own_clusters_groups() -> None:
    registrations = resources(stack())
    values = cast("Any", one(registrations, RELEASE).inputs)["values"]
    assert values["autoDiscovery"] == {"clusterName": "ml"}
    assert values["awsRegion"] == REGION
    association = one(registrations, "aws:eks/podIdentityAssociation:PodIdentityAssociation")
    assert association.inputs["namespace"] == "kube-system"
    assert association.inputs["serviceAccount"] == values["rbac"]["serviceAccount"]["name"]
    assert association.inputs["namespace"] == one(registrations, RELEASE).inputs["namespace"]
    assert association.urn in one(registrations, RELEASE).dependencies


def test_the_autoscaler_handles_requests_of_kueue_where_pools_are_queued() -> None:
    def flags(made: list[Registration]) -> Any:
        return cast("Any", one(made, RELEASE).inputs)["values"]["extraArgs"]

    plain, queued = resources(stack()), resources(stack(gpu=machine_pool(capacity={"kind": "queued"})))
    added = {"enable-provisioning-requests": True, "kube-api-content-type": "application/json"}
    assert flags(queued) == flags(plain) | added
    assert [made for made in plain if "ClusterRole" in made.type] == []
    role, binding = (made for made in queued if "ClusterRole" in made.type)
    granted = {(*rule["apiGroups"], *rule["resources"]): rule["verbs"] for rule in cast("Any", role.inputs)["rules"]}
    assert granted["autoscaling.x-k8s.io", "provisioningrequests", "provisioningrequests/status"] == [
        "get", "list", "watch", "update", "patch",
    ]  # fmt: skip
    account = cast("Any", one(queued, RELEASE).inputs)["values"]["rbac"]["serviceAccount"]["name"]
    assert [subject["name"] for subject in cast("Any", binding.inputs)["subjects"]] == [account]


def test_the_autoscalers_policy_requires_the_clusters_tag() -> None:
    for statement in statements(autoscaler_policy("ml", REGION)):
        actions = [action.partition(":")[2] for action in statement["Action"]]
        reads = all(action.startswith(("Describe", "Get")) for action in actions)
        assert reads or statement["Condition"] == {
            "StringEquals": {"aws:ResourceTag/k8s.io/cluster-autoscaler/ml": "owned"}
        }


@pytest.mark.parametrize("autoscaler", ["installed", "none"])
def test_an_autoscaler_that_is_there_or_not_wanted_is_not_installed(autoscaler: str) -> None:
    registrations = resources(stack(section(autoscaler=autoscaler)))
    assert not [resource for resource in registrations if resource.type == RELEASE or "podIdentity" in resource.type]


def test_the_efa_plugin_tolerates_all_taints_of_efa_nodes() -> None:
    taints = [{"key": "example.com/row", "effect": "NoExecute"}]
    values = releases(stack(creation(), gpu=machine_pool(fabric=True, taints=taints)))["aws-efa-k8s-device-plugin"][
        "values"
    ]
    assert values["supportedInstanceLabels"]["values"] == ["p5.48xlarge"]
    assert {(toleration["key"], toleration["effect"]) for toleration in values["tolerations"]} == {
        ("nvidia.com/gpu", "NoSchedule"),
        ("example.com/row", "NoExecute"),
    }
    assert "aws-efa-k8s-device-plugin" not in releases(stack(creation()))


def test_karpenter_takes_the_place_of_node_groups_for_all_but_the_system_nodes() -> None:
    assert [
        resource.name for resource in resources(stack(creation({"autoscaler": "karpenter"}))) if resource.type == GROUP
    ] == ["cluster-system-group"]
    assert not [resource for resource in resources(stack(KARPENTER)) if resource.type == GROUP]


def test_karpenters_definitions_are_a_release_of_their_own_and_come_first() -> None:
    registrations = resources(stack(KARPENTER))
    charts = {str(resource.inputs["name"]): resource for resource in registrations if resource.type == RELEASE}
    assert set(charts) == {"karpenter-crd", "karpenter"}
    assert charts["karpenter-crd"].urn in charts["karpenter"].dependencies
    assert charts["karpenter"].inputs["skipCrds"]
    assert charts["karpenter"].inputs["atomic"]
    assert charts["karpenter"].inputs["version"] == charts["karpenter-crd"].inputs["version"]


def test_karpenter_gets_interruptions_from_a_queue() -> None:
    registrations = resources(stack(KARPENTER))
    queue = one(registrations, "aws:sqs/queue:Queue")
    assert queue.inputs["name"] == "ml"
    assert releases(stack(KARPENTER))["karpenter"]["values"]["settings"]["interruptionQueue"] == "ml"
    rules = [
        json.loads(str(resource.inputs["eventPattern"]))
        for resource in registrations
        if resource.type.endswith(":EventRule")
    ]
    targets = [resource for resource in registrations if resource.type.endswith(":EventTarget")]
    assert ["EC2 Spot Instance Interruption Warning"] in [rule["detail-type"] for rule in rules]
    assert len(targets) == len(rules) == 5


def test_only_eventbridge_writes_to_the_queue_and_only_with_tls() -> None:
    allow, deny = statements(queue_policy("arn:aws:sqs:eu-central-1:111122223333:ml"))
    assert (allow["Action"], deny["Effect"]) == ("sqs:SendMessage", "Deny")
    assert deny["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert {allow["Resource"], deny["Resource"]} == {"arn:aws:sqs:eu-central-1:111122223333:ml"}


@pytest.mark.parametrize(("node_role", "given"), [(None, False), ("arn:aws:iam::111122223333:role/x/nodes", True)])
def test_karpenters_nodes_may_join_and_no_other_role_is_handed_to_them(node_role: str | None, given: bool) -> None:  # noqa: FBT001
    more: Data = {"nodeRole": node_role} if node_role else {}
    sections = stack(section(autoscaler="karpenter", **more))
    registrations = resources(sections)
    entries = [
        resource.inputs["type"] for resource in registrations if resource.type == "aws:eks/accessEntry:AccessEntry"
    ]
    assert entries == ([] if given else ["EC2_LINUX"])
    assert objects(sections, "EC2NodeClass")["gpu"]["role"] == ("nodes" if given else "ml-node")
    profiles = str(named(registrations, "cluster-karpenter-role-identity-profiles")["policy"])
    (passes,) = [statement for statement in statements(profiles) if statement["Action"] == "iam:PassRole"]
    assert passes["Resource"] == (node_role or "arn:aws:iam::*:role/ml-node")


def test_karpenters_policies_fit_into_one_role() -> None:
    policies = karpenter_policies(
        "m" * 40, "ap-southeast-2", f"arn:aws:iam::*:role/{'m' * 40}-node", "m" * 40, spot=True
    )
    assert sum(len(json.dumps(json.loads(text), separators=(",", ":"))) for text in policies.values()) < 10_240


def test_karpenters_permissions_are_limited_to_the_cluster() -> None:
    texts = karpenter_policies("ml", REGION, "arn:aws:iam::*:role/ml-node", "ml", spot=False)
    for statement in statements(texts["instances"]):
        if "ec2:TerminateInstances" in statement["Action"] or "ec2:CreateLaunchTemplate" in statement["Action"]:
            assert any("kubernetes.io/cluster/ml" in key for key in statement["Condition"]["StringEquals"])


@pytest.mark.parametrize(("capacity", "may"), [("spot", True), ("on-demand", False)])
def test_in_a_new_account_ec2_can_create_its_role_for_spot(capacity: str, *, may: bool) -> None:
    """As for Auto Scaling, whose own policy allows it; a stack of a second cluster cannot create the role again."""
    policies = [
        str(one.inputs["policy"])
        for one in resources(scaled(capacity=capacity))
        if one.type == "aws:iam/rolePolicy:RolePolicy" and "karpenter" in one.name
    ]
    role = "arn:aws:iam::111122223333:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    of_ec2, of_others = ({"iam:AWSServiceName": f"{name}.amazonaws.com"} for name in ("spot", "eks"))
    assert any(allowed(text, "iam:CreateServiceLinkedRole", role, of_ec2) for text in policies) is may
    assert not any(allowed(text, "iam:CreateServiceLinkedRole", role, of_others) for text in policies)


@pytest.mark.parametrize(
    ("capacity", "word"),
    [
        ("on-demand", "on-demand"),
        ("spot", "spot"),
        ({"kind": "reserved", "reservation": RESERVATION}, "reserved"),
        ({"kind": "capacity-block", "reservation": RESERVATION}, "reserved"),
    ],
)
def test_karpenters_capacity_type_follows_the_stack(capacity: str | Data, word: str) -> None:
    sections = scaled(capacity=capacity, zones=[f"{REGION}a"])
    assert requirements(sections)["karpenter.sh/capacity-type"] == [word]
    terms = objects(sections, "EC2NodeClass")["gpu"].get("capacityReservationSelectorTerms")
    assert terms == ([{"id": RESERVATION}] if word == "reserved" else None)


def requirements(sections: Data) -> dict[str, list[str]]:
    """What the GPU pool's nodes must be."""
    node_requirements = objects(sections, "NodePool")["gpu"]["template"]["spec"]["requirements"]
    return {requirement["key"]: requirement["values"] for requirement in node_requirements}


def test_karpenter_brings_one_machine_in_the_pools_zones_up_to_its_most() -> None:
    sections = scaled(zones=[f"{REGION}b"])
    assert requirements(sections)["node.kubernetes.io/instance-type"] == ["p5.48xlarge"]
    assert requirements(sections)["topology.kubernetes.io/zone"] == [f"{REGION}b"]
    assert objects(sections, "EC2NodeClass")["gpu"]["subnetSelectorTerms"] == [{"id": SUBNETS[f"{REGION}b"]}]
    assert objects(sections, "NodePool")["gpu"]["limits"] == {"nodes": "4", "cpu": "768"}


def test_karpenter_chooses_among_several_machine_types_of_a_spot_pool() -> None:
    spot = machine_pool("g6.12xlarge", {"min": 0, "max": 4}, capacity="spot", alternatives=["g6.24xlarge"])
    sections = stack(KARPENTER, gpu=spot)
    assert requirements(sections)["node.kubernetes.io/instance-type"] == ["g6.12xlarge", "g6.24xlarge"]
    assert objects(sections, "NodePool")["gpu"]["limits"] == {"nodes": "4", "cpu": "384"}


def test_nodes_that_are_always_there_are_a_pool_of_their_own() -> None:
    sections = scaled(nodes={"min": 1, "max": 4})
    pools = objects(sections, "NodePool")
    assert pools["gpu-base"]["replicas"] == 1
    assert pools["gpu-base"]["limits"] == {"nodes": "1"}
    assert pools["gpu"]["limits"]["nodes"] == "3"
    assert pools["gpu-base"]["template"] == pools["gpu"]["template"]
    assert releases(sections)["karpenter"]["values"]["settings"]["featureGates"]["staticCapacity"] is True


def test_nodes_of_a_fixed_number_are_only_that_pool() -> None:
    assert set(objects(scaled(nodes=2), "NodePool")) == {"gpu-base", "cpu-base"}


@pytest.mark.parametrize(("environment", "held"), [("prod", True), ("dev", False)])
def test_karpenters_pools_are_protected_in_production(environment: str, held: bool) -> None:  # noqa: FBT001
    registrations = resources(scaled() | {"environment": environment})
    assert {resource.protect for resource in registrations if resource.inputs.get("kind") == "NodePool"} == {held}


def test_karpenters_nodes_have_the_labels_and_taints_of_the_pool() -> None:
    template = objects(scaled(), "NodePool")["gpu"]["template"]
    assert template["metadata"]["labels"]["gpu-tenancy.dev/pool"] == "gpu"
    assert template["spec"]["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]


def test_karpenter_uses_no_local_disks_if_the_stack_does_not() -> None:
    sections = stack(section(autoscaler="karpenter", localDisks=False))
    assert "instanceStorePolicy" not in objects(sections, "EC2NodeClass")["gpu"]


@pytest.mark.parametrize(
    ("driver", "ami", "release", "alias"),
    [
        ("image", "AL2023_x86_64_NVIDIA", "1.35.2-20261109", "al2023@v20261109"),
        ("bottlerocket", "BOTTLEROCKET_x86_64_NVIDIA", "1.55.0-1a2b3c4d", "bottlerocket@v1.55.0"),
    ],
)
def test_karpenters_images_have_the_stacks_release(driver: str, ami: str, release: str, alias: str) -> None:
    sections = stack(section(autoscaler="karpenter", images={ami: release}), gpu=machine_pool(driver=driver))
    assert objects(sections, "EC2NodeClass")["gpu"]["amiSelectorTerms"] == [{"alias": alias}]


def test_karpenter_replaces_broken_nodes() -> None:
    assert releases(scaled())["karpenter"]["values"]["settings"]["featureGates"]["nodeRepair"] is True


@pytest.mark.parametrize(
    ("drift", "pauses"),
    [
        ({"days": ["saturday"], "start": "22:30", "hours": 6}, [("30 4 * * 0", "9720m")]),
        (
            {"days": ["wednesday", "monday"], "start": "02:00", "hours": 4},
            [("0 6 * * 1", "2640m"), ("0 6 * * 3", "6960m")],
        ),
        ({"hours": 24}, []),
    ],
)
def test_gpu_nodes_with_pods_are_replaced_only_during_the_drift_window(
    drift: Data, pauses: list[tuple[str, str]]
) -> None:
    pool = objects(stack(section(autoscaler="karpenter", drift=drift)), "NodePool")["gpu-base"]
    budgets = [budget for budget in pool["disruption"]["budgets"] if "Drifted" in budget["reasons"]]
    (always,) = [budget for budget in budgets if "schedule" not in budget]
    assert always == {"nodes": "1", "reasons": ["Drifted"]}
    assert [(budget["schedule"], budget["duration"]) for budget in budgets if "schedule" in budget] == pauses
    assert {budget["nodes"] for budget in budgets if "schedule" in budget} <= {"0"}


def test_a_drift_window_without_karpenter_is_refused() -> None:
    (problem,) = errors(stack(section(drift={})))
    assert "only Karpenter" in problem


def test_karpenter_removes_only_empty_gpu_nodes() -> None:
    pool = objects(scaled(), "NodePool")["gpu"]
    assert pool["disruption"]["consolidationPolicy"] == "WhenEmpty"
    assert {"nodes": "0", "reasons": ["Drifted", "Underutilized"]} in pool["disruption"]["budgets"]
    assert pool["template"]["spec"]["expireAfter"] == "Never"


def test_karpenters_nodes_are_as_closed_as_node_groups() -> None:
    node_class = objects(scaled(disk={"size": "300Gi"}), "EC2NodeClass")["gpu"]
    assert node_class["metadataOptions"]["httpTokens"] == "required"
    assert node_class["metadataOptions"]["httpPutResponseHopLimit"] == 1
    assert node_class["associatePublicIPAddress"] is False
    (disk,) = node_class["blockDeviceMappings"]
    assert disk["ebs"] == {
        "volumeType": "gp3",
        "volumeSize": "300Gi",
        "throughput": 125,
        "iops": 3000,
        "encrypted": True,
        "deleteOnTermination": True,
    }
    assert node_class["instanceStorePolicy"] == "RAID0"
    assert node_class["securityGroupSelectorTerms"] == [{"id": UNKNOWN}]


@pytest.mark.parametrize(("driver", "alias"), [("image", "al2023@latest"), ("bottlerocket", "bottlerocket@latest")])
def test_the_driver_mode_is_a_family_of_images(driver: str, alias: str) -> None:
    assert objects(scaled(driver=driver), "EC2NodeClass")["gpu"]["amiSelectorTerms"] == [{"alias": alias}]


def test_fabric_and_compactness_are_the_node_classs() -> None:
    node_class = objects(scaled(fabric=True, compact=True, zones=[f"{REGION}a"]), "EC2NodeClass")["gpu"]
    assert [interface["interfaceType"] for interface in node_class["networkInterfaces"]] == [
        "interface",
        *["efa-only"] * 32,
    ]
    assert node_class["placementGroupSelector"] == {"name": "ml-gpu"}
    plain = objects(scaled(), "EC2NodeClass")["gpu"]
    assert "networkInterfaces" not in plain
    assert "placementGroupSelector" not in plain


def test_karpenter_gets_partitions_as_an_overlay() -> None:
    sections = scaled(sharing={"mig": {"profile": "1g.10gb"}})
    assert objects(sections, "NodeOverlay")["gpu"]["capacity"] == {"nvidia.com/mig-1g.10gb": "56"}
    assert releases(sections)["karpenter"]["values"]["settings"]["featureGates"]["nodeOverlay"] is True
    assert objects(scaled(), "NodeOverlay") == {}


def test_a_chart_has_one_version_and_one_place() -> None:
    row = cloud_charts()["karpenter"].model_dump()
    assert Chart.model_validate(row) == cloud_charts()["karpenter"]
    for change in (
        {"version": ">=1.0.0"},
        {"version": "latest"},
        {"repository": "https://example.com"},
        {"chart": "x"},
    ):
        with pytest.raises(ValidationError):
            Chart.model_validate(row | change)


@pytest.mark.parametrize(
    ("region", "found"), [("eu-central-1", "aws"), ("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn")]
)
def test_arns_are_those_of_the_regions_partition(region: str, found: str) -> None:
    assert partition(region) == found
    assert managed_policy(region, "X") == f"arn:{found}:iam::aws:policy/X"
    assert access_policy(region, "X") == f"arn:{found}:eks::aws:cluster-access-policy/X"


def test_a_role_is_its_services_and_pod_identity_tags_its_sessions() -> None:
    (pods,) = statements(trust("pods.eks"))
    assert pods["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert set(pods["Action"]) == {"sts:AssumeRole", "sts:TagSession"}
    assert statements(node_trust("cn-north-1"))[0]["Principal"] == {"Service": "ec2.amazonaws.com.cn"}


@pytest.mark.parametrize("autoscaler", ["cluster-autoscaler", "karpenter"])
def test_inputs_of_a_created_cluster_match_awss_model(autoscaler: str) -> None:
    registrations = resources(
        stack(creation({"autoscaler": autoscaler}, admins=[ADMINS], allowFrom=["203.0.113.0/24"]))
    )
    sent = [resource for resource in registrations if resource.type.startswith("aws:")]
    assert {resource.type for resource in sent} <= DESCRIPTION.types
    assert [problem for resource in sent for problem in DESCRIPTION.problems(resource.type, resource.inputs)] == []


def test_no_secret_is_in_anything_that_is_sent() -> None:
    assert not [resource.name for resource in resources(stack(creation())) if resource.secret_paths]


LOCAL_ZONE: Final = "us-east-1-dfw-2a"


def in_dallas(**create: Any) -> Data:
    """A cluster in Virginia with GB200s in the Local Zone of Dallas."""
    zonal = {"us-east-1a": "subnet-0a1b2c3d4e5f60001", "us-east-1b": "subnet-0a1b2c3d4e5f60002"}
    block = {"kind": "capacity-block", "reservation": RESERVATION}
    place = {"region": "us-east-1", "subnets": {LOCAL_ZONE: "subnet-0a1b2c3d4e5f60003", **zonal}}
    gpu = machine_pool("p6e-gb200.36xlarge", {"min": 0, "max": 9}, zones=[LOCAL_ZONE], capacity=block, fabric=True)
    return stack(creation(place, **create), gpu=gpu)


def subnets_of(sections: Data) -> dict[str, list[str]]:
    """The subnets of each node group, and of the control plane."""
    made = resources(sections)
    groups = [registration.inputs for registration in made if registration.type == GROUP]
    found: dict[str, Any] = {
        cast("Any", group)["labels"]["gpu-tenancy.dev/pool"]: group["subnetIds"] for group in groups
    }
    return {**found, "control plane": cast("Any", one(made, CLUSTER).inputs)["vpcConfig"]["subnetIds"]}


def test_a_subnet_in_a_local_zone_gets_nodes_of_pools_that_name_it_alone() -> None:
    zonal = ["subnet-0a1b2c3d4e5f60001", "subnet-0a1b2c3d4e5f60002"]
    assert subnets_of(in_dallas()) == {
        "control plane": zonal,
        "gpu-tenancy-system": zonal,
        "cpu": zonal,
        "gpu": ["subnet-0a1b2c3d4e5f60003"],
    }


def test_the_control_plane_can_have_subnets_of_its_own() -> None:
    own = {"us-east-1a": "subnet-0a1b2c3d4e5f60004", "us-east-1c": "subnet-0a1b2c3d4e5f60005"}
    subnets = subnets_of(in_dallas(subnets=own))
    assert subnets["control plane"] == list(own.values())
    assert subnets["gpu-tenancy-system"] == ["subnet-0a1b2c3d4e5f60001", "subnet-0a1b2c3d4e5f60002"]
    beyond = {"us-east-1a": "subnet-0a1b2c3d4e5f60004", LOCAL_ZONE: "subnet-0a1b2c3d4e5f60005"}
    problem, *_ = errors(in_dallas(subnets=beyond))
    assert "create.subnets: us-east-1-dfw-2a is not an Availability Zone of us-east-1" in problem
    problem, *_ = errors(stack(creation({"subnets": {f"{REGION}a": "subnet-0a1b2c3d4e5f60001"}})))
    assert "has subnets in 1 Availability Zone, but an EKS control plane needs two or more" in problem
