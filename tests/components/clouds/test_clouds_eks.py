"""EKS: tags, user data and policies of nodes, edits of running node groups, and the order of a created cluster."""

import base64
import email
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import pytest
import yaml
from builders import Data, planned
from cloud_stacks import LIST, READ, REGION, eks_creation, eks_pool, eks_section, eks_stack, one, sent, typed
from components_builders import program
from eks_description import DESCRIPTION, DOCUMENTED
from eks_shapes import CALLS, service
from object_cases import allowed
from pulumi.runtime.proto.resource_pb2 import ResourceInvokeRequest, ResourceInvokeResponse
from pulumi_aws.eks.outputs import (
    ClusterCertificateAuthority,
    ClusterVpcConfig,
    NodeGroupResource,
    NodeGroupResourceAutoscalingGroup,
)
from pydantic import ValidationError

from components.clouds.aws import own_security_group
from components.clouds.aws.identity import certificate, kubeconfig, name_of
from components.clouds.aws.policies import (
    access_policy,
    karpenter_policies,
    managed_policy,
    partition,
    trust,
    written_policy,
)
from components.clouds.aws.pools import auto_scaling_group_name
from gpu_tenancy.engine.recording import NO_ANSWERS, RecordingMonitor, Registration
from gpu_tenancy.model.catalogue.releases import Chart, cloud_charts

GROUP: Final = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"
CLUSTER: Final = "aws:eks/cluster:Cluster"
ADDON: Final = "aws:eks/addon:Addon"
RELEASE: Final = "kubernetes:helm.sh/v3:Release"
KARPENTER: Final = eks_section(autoscaler="karpenter")


def group(sections: Data) -> Any:
    return one(sent(sections), GROUP, "cluster-pool-gpu-group").inputs


def template(sections: Data) -> Any:
    return one(sent(sections), TEMPLATE, "cluster-pool-gpu-template").inputs


# Tags and user data of nodes


def user_data(sections: Data) -> Any:
    """The configuration of a node: Bottlerocket's settings, else the spec for nodeadm."""
    config = base64.b64decode(template(sections)["userData"]).decode()
    if config.startswith("["):
        return tomllib.loads(config)["settings"]
    parts = email.message_from_string(config).walk()
    (part,) = [part for part in parts if part.get_content_type() == "application/node.eks.aws"]
    return yaml.safe_load(str(part.get_payload()))["spec"]


def test_local_disks_hold_images_and_ephemeral_storage() -> None:
    assert user_data(eks_stack()) == {"instance": {"localStorage": {"strategy": "RAID0"}}}


def test_bottlerocket_binds_its_directories_to_local_disks() -> None:
    (command,) = user_data(eks_stack(gpu=eks_pool(driver="bottlerocket")))["bootstrap-commands"].values()
    assert command["commands"][0] == ["apiclient", "ephemeral-storage", "init"]
    assert {"/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"} <= set(command["commands"][1])
    assert command["essential"]


@pytest.mark.parametrize("numa", [None, "restricted"])
@pytest.mark.parametrize("disks", [False, True])
@pytest.mark.parametrize("driver", ["image", "bottlerocket"])
def test_kubelets_align_with_numa_beside_local_disks(driver: str, *, disks: bool, numa: str | None) -> None:
    sections = eks_stack(eks_section(localDisks=disks), gpu=eks_pool(driver=driver, numa=numa))
    if not disks and not numa:
        assert "userData" not in template(sections)
        return
    parsed = user_data(sections)
    if driver == "image":
        kubelet = parsed.get("kubelet", {}).get("config")
        wanted = {"cpuManagerPolicy": "static", "topologyManagerPolicy": numa}
    else:
        kubelet = parsed.get("kubernetes")
        wanted = {"cpu-manager-policy": "static", "topology-manager-policy": numa}
    assert kubelet == (wanted if numa else None)
    assert ("instance" in parsed or "bootstrap-commands" in parsed) is disks


def test_pods_are_planned_for_the_first_machine_type() -> None:
    spot = eks_pool("g6.12xlarge", capacity="spot")
    alone, several = (planned(eks_stack(gpu=pool)) for pool in (spot, {**spot, "alternatives": ["g6.24xlarge"]}))
    assert alone.queues == several.queues


# Answers and descriptions of AWS


def test_a_kubeconfig_has_the_helper_of_aws_and_no_secret() -> None:
    config = json.loads(kubeconfig(["https://example.com", "Q0E=", "ml", REGION]))
    (cluster,), (user,) = config["clusters"], config["users"]
    assert cluster["cluster"] == {"server": "https://example.com", "certificate-authority-data": "Q0E="}
    assert list(user["user"]) == ["exec"]
    assert user["user"]["exec"]["command"] == "aws"
    arguments = ["--region", REGION, "eks", "get-token", "--cluster-name", "ml", "--output", "json"]
    assert user["user"]["exec"]["args"] == arguments
    assert config["current-context"] == config["contexts"][0]["name"]


def test_answers_of_eks_are_parsed() -> None:
    network = ClusterVpcConfig(subnet_ids=["subnet-1"], cluster_security_group_id="sg-1")
    behind = NodeGroupResource(autoscaling_groups=[NodeGroupResourceAutoscalingGroup(name="eks-gpu-1")])
    assert own_security_group(["https://example.com", network]) == "sg-1"
    assert auto_scaling_group_name([behind]) == "eks-gpu-1"
    assert certificate(ClusterCertificateAuthority(data="Q0E=")) == "Q0E="
    assert name_of("arn:aws:iam::111122223333:role/path/nodes") == "nodes"


def test_words_of_the_documentation_are_in_it() -> None:
    for (shape, member), words in DOCUMENTED.items():
        documents = [
            str(service(name)["shapes"][shape]["members"][member]["documentation"])
            for name in {call.service for calls in CALLS.values() for call in calls}
            if member in service(name)["shapes"].get(shape, {}).get("members", {})
        ]
        assert any(all(word in text for word in words) for text in documents), (shape, member)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"amiType": "AL2023_x86_64_NVIDEA"}, "is 'AL2023_x86_64_NVIDEA' and none of"),
        ({"instanceTypes": ["p5.49xlarge"]}, "is 'p5.49xlarge' and none of"),
        ({"scalingConfig": {"minSize": -1, "maxSize": 0, "desiredSize": 0}}, "scalingConfig"),
        ({"labels": {"key": ""}}, "0 characters"),
        ({"desiredSize": 1}, "maps to nothing"),
        ({"nodeRoleArn": None}, "Missing required parameter"),
    ],
)
def test_invalid_inputs_fail_the_comparison(change: Mapping[str, Any], problem: str) -> None:
    inputs = {**group(eks_stack()), **change}
    assert any(problem in text for text in DESCRIPTION.problems(GROUP, inputs))


# A created cluster


def test_the_network_add_on_is_there_before_any_node() -> None:
    registrations = sent(eks_stack(eks_creation()))
    network = one(registrations, ADDON, "cluster-first-addons-vpc-cni").urn
    groups = typed(registrations, "gpu-tenancy:clouds:NodeGroup")
    assert len(groups) == 3
    assert all(network in node_group.dependencies for node_group in groups)


def test_pools_follow_the_add_ons_and_these_the_control_plane() -> None:
    registrations = sent(eks_stack(eks_creation()))
    addons = typed(registrations, ADDON)
    pools = [resource for resource in registrations if resource.name in {"cluster-pool-gpu", "cluster-pool-cpu"}]
    assert (len(addons), len(pools)) == (7, 2)
    assert all(addon.urn in pool.dependencies for addon in addons for pool in pools)
    (first,) = [resource for resource in registrations if resource.name == "cluster-first-addons"]
    assert one(registrations, CLUSTER).urn in first.dependencies


# A program with add-ons of an existing control plane.
ADDONS_ALONE: Final = """
from components.clouds.aws.control_plane import Addons
from components.clouds.aws.nodes import ClusterContext

section = made.cluster.section
context = ClusterContext(section, section.subnets, pulumi.Output.from_input("sg-1"), {}, protect=False)
Addons("alone", context, "first-addons", pulumi.Output.from_input("1.36"))
"""


def test_the_version_of_an_add_on_is_the_answer_of_eks() -> None:
    answers = {"aws:eks/getAddonVersion:getAddonVersion": {"version": "v1.2.3-eksbuild.4"}}
    registrations = program(eks_stack(eks_creation()), ADDONS_ALONE, answers).rendered.registrations
    versions = {addon.inputs["addonVersion"] for addon in typed(list(registrations), ADDON)}
    assert versions == {"v1.2.3-eksbuild.4"}


# Policies and autoscalers


def statements(policy: str) -> list[dict[str, Any]]:
    return json.loads(policy)["Statement"]


def test_the_autoscaler_handles_requests_of_kueue() -> None:
    plain, queued = sent(eks_stack()), sent(eks_stack(gpu=eks_pool(capacity={"kind": "queued"})))
    flags, of_queued = (cast("Any", one(made, RELEASE).inputs)["values"]["extraArgs"] for made in (plain, queued))
    added = {"enable-provisioning-requests": True, "kube-api-content-type": "application/json"}
    assert of_queued == flags | added
    role, binding = (cast("Any", made.inputs) for made in queued if "ClusterRole" in made.type)
    granted = {(*rule["apiGroups"], *rule["resources"]): rule["verbs"] for rule in role["rules"]}
    verbs = ["get", "list", "watch", "update", "patch"]
    assert granted["autoscaling.x-k8s.io", "provisioningrequests", "provisioningrequests/status"] == verbs
    assert [subject["name"] for subject in binding["subjects"]] == ["cluster-autoscaler"]


def test_the_autoscalers_policy_requires_the_clusters_tag() -> None:
    for statement in statements(written_policy("cluster-autoscaler", REGION, cluster="ml")):
        actions = [action.partition(":")[2] for action in statement["Action"]]
        reads = all(action.startswith(("Describe", "Get")) for action in actions)
        owned = {"StringEquals": {"aws:ResourceTag/k8s.io/cluster-autoscaler/ml": "owned"}}
        assert reads or statement["Condition"] == owned


def test_karpenters_charts_have_one_version() -> None:
    charts = typed(sent(eks_stack(KARPENTER)), RELEASE)
    assert len({chart.inputs["version"] for chart in charts}) == 1


def test_karpenters_static_nodes_have_the_template_of_the_pool() -> None:
    made = sent(eks_stack(KARPENTER, gpu=eks_pool(nodes={"min": 1, "max": 4})))
    pools = [cast("Any", each.inputs) for each in made if each.inputs.get("kind") == "NodePool"]
    templates = {pool["metadata"]["name"]: pool["spec"]["template"] for pool in pools}
    assert templates["gpu-base"] == templates["gpu"]


def test_only_eventbridge_writes_to_the_queue_with_tls() -> None:
    allow, deny = statements(written_policy("queue", REGION, queue="arn:aws:sqs:eu-central-1:111122223333:ml"))
    assert (allow["Action"], deny["Effect"]) == ("sqs:SendMessage", "Deny")
    assert deny["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert {allow["Resource"], deny["Resource"]} == {"arn:aws:sqs:eu-central-1:111122223333:ml"}


def test_karpenters_policies_fit_into_one_role() -> None:
    name, role = "m" * 40, f"arn:aws:iam::*:role/{'m' * 40}-node"
    policies = karpenter_policies(name, "ap-southeast-2", role, spot=True)
    assert sum(len(json.dumps(json.loads(text), separators=(",", ":"))) for text in policies.values()) < 10_240


def test_karpenters_permissions_are_limited_to_the_cluster() -> None:
    texts = karpenter_policies("ml", REGION, "arn:aws:iam::*:role/ml-node", spot=False)
    for statement in statements(texts["instances"]):
        if "ec2:TerminateInstances" in statement["Action"] or "ec2:CreateLaunchTemplate" in statement["Action"]:
            assert any("kubernetes.io/cluster/ml" in key for key in statement["Condition"]["StringEquals"])


@pytest.mark.parametrize(("capacity", "may"), [("spot", True), ("on-demand", False)])
def test_in_a_new_account_ec2_can_create_its_role_for_spot(capacity: str, *, may: bool) -> None:
    """Auto Scaling's own policy allows it, too; a stack of a second cluster cannot create the role again."""
    made = sent(eks_stack(KARPENTER, gpu=eks_pool(nodes={"min": 0, "max": 4}, capacity=capacity)))
    policies = [str(each.inputs["policy"]) for each in typed(made, "aws:iam/rolePolicy:RolePolicy")]
    role = "arn:aws:iam::111122223333:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    of_ec2, of_others = ({"iam:AWSServiceName": f"{name}.amazonaws.com"} for name in ("spot", "eks"))
    assert any(allowed(text, "iam:CreateServiceLinkedRole", role, of_ec2) for text in policies) is may
    assert not any(allowed(text, "iam:CreateServiceLinkedRole", role, of_others) for text in policies)


@pytest.mark.parametrize(
    "change", [{"version": ">=1.0.0"}, {"version": "latest"}, {"repository": "https://example.com"}, {"chart": "x"}]
)
def test_a_chart_has_one_version_and_one_place(change: Data) -> None:
    row = cloud_charts()["karpenter"].model_dump()
    assert Chart.model_validate(row) == cloud_charts()["karpenter"]
    with pytest.raises(ValidationError):
        Chart.model_validate(row | change)


@pytest.mark.parametrize(
    ("region", "expected"), [("eu-central-1", "aws"), ("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn")]
)
def test_arns_have_the_partition_of_the_region(region: str, expected: str) -> None:
    assert partition(region) == expected
    assert managed_policy(region, "X") == f"arn:{expected}:iam::aws:policy/X"
    assert access_policy(region, "X") == f"arn:{expected}:eks::aws:cluster-access-policy/X"


def test_a_role_trusts_its_service_and_tags_its_sessions() -> None:
    (pods,) = statements(trust("pods.eks"))
    assert pods["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert set(pods["Action"]) == {"sts:AssumeRole", "sts:TagSession"}
    assert statements(trust("ec2", "cn-north-1"))[0]["Principal"] == {"Service": "ec2.amazonaws.com.cn"}


# Edits of `nodes.min` and `nodes.max` on node groups that run, by the rules of engine, provider and EKS


def registered(sections: Data, live: Mapping[str, int] | None = None) -> Registration:
    """The GPU pool's node group, as the program registers it."""
    return one(sent(sections, answers(live)), GROUP, "cluster-pool-gpu-group")


def answers(live: Mapping[str, int] | None) -> Mapping[str, Mapping[str, Any]]:
    """AWS' answer about the Auto Scaling group of the pool; None before it exists."""
    return {LIST: {"names": ["eks-gpu-1"], "arns": []}, READ: live} if live else NO_ANSWERS


def after_ignoring(inputs: Mapping[str, Any], stored: Mapping[str, Any], ignored: Sequence[str]) -> dict[str, Any]:
    """Inputs with the stored values of `ignoreChanges`, as in Pulumi's engine."""
    # https://www.pulumi.com/docs/iac/concepts/options/ignorechanges/
    result = dict(inputs)
    for path in ignored:
        key, _, member = path.partition(".")
        if member:
            result[key] = {**result[key], member: stored[key][member]}
        else:
            result[key] = stored[key]
    return result


def scaling_request(inputs: Mapping[str, Any], stored: Mapping[str, Any]) -> Mapping[str, int] | None:
    """`scalingConfig` of UpdateNodegroupConfig: nothing without a change, else all three numbers."""
    # `resourceNodeGroupUpdate` and `expandNodegroupScalingConfig` in
    # https://github.com/hashicorp/terraform-provider-aws/blob/main/internal/service/eks/node_group.go
    changed = inputs["scalingConfig"] != stored["scalingConfig"]
    return cast("Mapping[str, int]", inputs["scalingConfig"]) if changed else None


@dataclass
class NodeGroup:
    """A node group in the cloud, and its inputs in Pulumi's state."""

    stored: Mapping[str, Any]
    minimum: int
    maximum: int
    running: int

    @classmethod
    def created(cls, sections: Data) -> "NodeGroup":
        inputs = cast("Mapping[str, Any]", registered(sections).inputs)
        size = inputs["scalingConfig"]
        return cls(inputs, size["minSize"], size["maxSize"], size["desiredSize"])

    def up(self, sections: Data) -> None:
        """Raises ValueError for numbers that EKS rejects."""
        # https://docs.aws.amazon.com/eks/latest/APIReference/API_NodegroupScalingConfig.html.
        live = {"minSize": self.minimum, "maxSize": self.maximum, "desiredCapacity": self.running}
        registration = registered(sections, live)
        inputs = after_ignoring(registration.inputs, self.stored, registration.ignore_changes)
        request = scaling_request(inputs, self.stored)
        self.stored = inputs
        if request is None:
            return
        if not request["minSize"] <= request["desiredSize"] <= request["maxSize"]:
            raise ValueError(request)
        self.minimum, self.maximum, self.running = request["minSize"], request["maxSize"], request["desiredSize"]


def gpus(minimum: int, maximum: int, **more: Any) -> Data:
    """A stack with these bounds of its GPU pool."""
    return eks_stack(gpu=eks_pool(nodes={"min": minimum, "max": maximum}, **more))


@pytest.mark.parametrize(
    ("before", "edits", "expected"),
    [
        pytest.param((0, 4), [(4, (0, 8))], (0, 8, 4), id="a higher maximum ends no busy node"),
        pytest.param((0, 4), [(1, (2, 4))], (2, 4, 2), id="a minimum above what runs adds nodes"),
        pytest.param((0, 4), [(3, (1, 4))], (1, 4, 3), id="a minimum below what runs changes nothing else"),
        pytest.param((2, 4), [(4, (0, 4))], (0, 4, 4), id="a lower minimum leaves removal to the autoscaler"),
        pytest.param((0, 8), [(6, (0, 4))], (0, 6, 6), id="a maximum below what runs waits for the nodes"),
        pytest.param((0, 8), [(6, (0, 4)), (2, (0, 4))], (0, 4, 2), id="a lower maximum applies once they are gone"),
        pytest.param((0, 4), [(0, (0, 8))], (0, 8, 0), id="an empty group stays empty"),
        pytest.param((0, 4), [(4, (0, 8)), (7, (0, 8)), (7, (1, 10))], (1, 10, 7), id="one edit after the other"),
    ],
)
def test_an_edit_of_the_bounds_ends_no_node_and_is_accepted(
    before: tuple[int, int], edits: list[tuple[int, tuple[int, int]]], expected: tuple[int, int, int]
) -> None:
    node_group = NodeGroup.created(gpus(*before))
    for running, edited in edits:
        node_group.running = running
        node_group.up(gpus(*edited))
    assert (node_group.minimum, node_group.maximum, node_group.running) == expected


def test_a_deployment_without_an_edit_sends_no_number_of_nodes() -> None:
    node_group = NodeGroup.created(gpus(0, 4))
    node_group.running = 3
    stored = node_group.stored["scalingConfig"]
    node_group.up(gpus(0, 4, labels={"example.com/row": "7"}))
    assert node_group.running == 3
    assert node_group.stored["scalingConfig"] == stored


def test_changed_bounds_are_restored_without_ending_nodes() -> None:
    node_group = NodeGroup.created(gpus(0, 4))
    node_group.minimum, node_group.maximum, node_group.running = 0, 16, 9
    node_group.stored = {**node_group.stored, "scalingConfig": {"minSize": 0, "maxSize": 16, "desiredSize": 9}}
    node_group.up(gpus(0, 12))
    assert (node_group.maximum, node_group.running) == (12, 9)


def test_a_group_is_created_with_its_minimum() -> None:
    node_group = NodeGroup.created(gpus(2, 4))
    assert (node_group.minimum, node_group.maximum, node_group.running) == (2, 4, 2)
    assert registered(gpus(2, 4)).ignore_changes == ()


def test_live_queries_use_the_stacks_region(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    invoke = RecordingMonitor.Invoke

    def recorded(monitor: RecordingMonitor, request: ResourceInvokeRequest) -> ResourceInvokeResponse:
        asked.append((request.tok, request.provider))
        return invoke(monitor, request)

    monkeypatch.setattr(RecordingMonitor, "Invoke", recorded)
    own = one(sent(gpus(0, 8), answers({"minSize": 0, "maxSize": 4, "desiredCapacity": 2})), "pulumi:providers:aws")
    assert {token for token, _ in asked} == {LIST, READ}
    assert all(provider.startswith(own.urn) for _, provider in asked)


def test_the_desired_size_is_the_current_one() -> None:
    tags = [
        cast("Any", registered(sections).inputs)["tags"]
        for sections in (gpus(0, 4), eks_stack(eks_section(autoscaler="none")))
    ]
    assert [tag.get("gpu-tenancy.dev/desired-size") for tag in tags] == ["live", None]


def test_without_an_autoscaler_the_number_is_the_stacks() -> None:
    live = {"minSize": 1, "maxSize": 1, "desiredCapacity": 1}
    registration = registered(eks_stack(eks_section(autoscaler="none"), gpu=eks_pool(nodes=3)), live)
    assert registration.ignore_changes == ()
    assert registration.inputs["scalingConfig"] == {"minSize": 3, "maxSize": 3, "desiredSize": 3}
