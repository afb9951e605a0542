"""EKS: what is sent for a cluster that exists and its pools, from the smallest stack with one thing changed."""

import base64
import email
import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import pytest
import yaml
from builders import Data, errors, planned
from eks_calls import CALLS
from eks_description import DESCRIPTION, DOCUMENTED
from eks_shapes import service
from eks_stacks import REGION, RESERVATION, SUBNETS, machine_pool, one, resources, section, stack
from pulumi_aws.eks.outputs import (
    ClusterCertificateAuthority,
    ClusterVpcConfig,
    NodeGroupResource,
    NodeGroupResourceAutoscalingGroup,
)

from components.clouds.aws import own_security_group
from components.clouds.aws.identity import certificate, kubeconfig, name_of
from components.clouds.aws.pools import auto_scaling_group_name
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.wire import UNKNOWN

GROUP: Final = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"
TAG: Final = "aws:autoscaling/tag:Tag"
CLUSTER: Final = "aws:eks/cluster:Cluster"
RESERVATIONS: Final = f"arn:aws:resource-groups:{REGION}:111122223333:group/h100"


def group(sections: Data, name: str = "gpu") -> Any:
    """The node group of a pool, as it is sent."""
    return one(resources(sections), GROUP, f"cluster-pool-{name}-group").inputs


def template(sections: Data, name: str = "gpu") -> Any:
    """Its launch template."""
    return one(resources(sections), TEMPLATE, f"cluster-pool-{name}-template").inputs


def hints(sections: Data) -> dict[str, str]:
    """Tags that the GPU pool's Auto Scaling group gets."""
    tags = [
        cast("Any", resource.inputs)["tag"]
        for resource in resources(sections)
        if "pool-gpu" in resource.name and resource.type == TAG
    ]
    return {tag["key"].removeprefix("k8s.io/cluster-autoscaler/node-template/"): tag["value"] for tag in tags}


def test_each_pool_is_a_node_group_of_the_cluster_with_its_machine_in_the_subnets_of_all_zones() -> None:
    node_group = group(stack())
    assert node_group["clusterName"] == "ml"
    assert node_group["nodeGroupName"] == "gpu"
    assert node_group["instanceTypes"] == ["p5.48xlarge"]
    assert node_group["subnetIds"] == list(SUBNETS.values())


def test_a_pool_with_zones_has_only_their_subnets() -> None:
    assert group(stack(gpu=machine_pool(zones=[f"{REGION}b"])))["subnetIds"] == [SUBNETS[f"{REGION}b"]]


def test_a_zone_without_a_subnet_is_refused() -> None:
    (problem,) = errors(stack(gpu=machine_pool(zones=["eu-central-1f"])))
    assert "pools.gpu.zones[0]" in problem or "pools.gpu.zones.0" in problem
    assert "cluster.subnets" in problem


def test_a_subnet_of_another_region_is_refused() -> None:
    (problem,) = errors(stack(section(region="us-east-1")))
    assert "not a zone of us-east-1" in problem


@pytest.mark.parametrize(
    ("capacity", "word"),
    [("on-demand", "ON_DEMAND"), ("spot", "SPOT"), ({"kind": "reserved", "reservation": RESERVATION}, "ON_DEMAND")],
)
def test_capacity_type_follows_the_stack(capacity: str | Data, word: str) -> None:
    sections = stack(gpu=machine_pool(capacity=capacity, zones=[f"{REGION}a"]))
    assert group(sections)["capacityType"] == word
    assert "instanceMarketOptions" not in template(sections)
    assert "instanceType" not in template(sections)


def test_only_reserved_machines_name_their_reservation() -> None:
    target = {"capacityReservationTarget": {"capacityReservationId": RESERVATION}}
    reserved = {"kind": "reserved", "reservation": RESERVATION}
    launch_template = template(stack(gpu=machine_pool(capacity=reserved, zones=[f"{REGION}a"])))
    assert launch_template["capacityReservationSpecification"] == target
    assert "capacityReservationSpecification" not in template(stack())


def test_a_capacity_block_names_market_reservation_and_machine_in_the_launch_template_and_lies_in_one_zone() -> None:
    block = {"kind": "capacity-block", "reservation": RESERVATION}
    sections = stack(gpu=machine_pool(capacity=block, zones=[f"{REGION}a"]))
    assert group(sections)["capacityType"] == "CAPACITY_BLOCK"
    assert "instanceTypes" not in group(sections)
    assert template(sections)["instanceType"] == "p5.48xlarge"
    assert template(sections)["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert template(sections)["capacityReservationSpecification"]["capacityReservationTarget"] == {
        "capacityReservationId": RESERVATION
    }


@pytest.mark.parametrize(
    "said",
    [
        {"capacity": {"kind": "reserved", "reservation": RESERVATION}},
        {"capacity": {"kind": "capacity-block", "reservation": RESERVATION}},
        {"compact": True},
    ],
)
def test_what_lies_in_one_zone_must_name_it(said: Data) -> None:
    (problem,) = errors(stack(gpu=machine_pool(**said)))
    assert "pools.gpu.zones" in problem


def test_unsupported_machine_types_of_eks_are_refused() -> None:
    problems = errors(stack(gpu=machine_pool(capacity={"kind": "flex-start", "maxRun": "7d"})))
    assert any("EKS has no flex-start" in problem for problem in problems)


@pytest.mark.parametrize(
    ("driver", "image"),
    [(None, "AL2023_x86_64_NVIDIA"), ("image", "AL2023_x86_64_NVIDIA"), ("bottlerocket", "BOTTLEROCKET_x86_64_NVIDIA")],
)
def test_the_driver_mode_is_an_image(driver: str | None, image: str) -> None:
    said: Data = {"driver": driver} if driver else {}
    assert group(stack(gpu=machine_pool(**said)))["amiType"] == image


def test_nodes_without_nvidias_gpus_have_the_standard_image() -> None:
    assert group(stack(), "cpu")["amiType"] == "AL2023_x86_64_STANDARD"
    assert group(stack(cpu=machine_pool("m7g.8xlarge", 1)), "cpu")["amiType"] == "AL2023_ARM_64_STANDARD"


def test_bottlerocket_nodes_have_labels_of_included_components() -> None:
    labels = group(stack(gpu=machine_pool(driver="bottlerocket")))["labels"]
    assert labels["nvidia.com/gpu.deploy.device-plugin"] == "false"


def test_amds_gpus_have_their_own_taint_and_no_image_of_nvidias() -> None:
    own = {"amd": {"cpu": 64, "memory": "256Gi", "gpu": "AMD-Radeon-Pro-V520", "gpus": 4}}
    sections = stack(gpu=machine_pool("amd", resource="amd.com/gpu")) | {"machines": own}
    assert group(sections)["amiType"] == "AL2023_x86_64_STANDARD"
    assert group(sections)["taints"] == [{"key": "amd.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}]


def test_a_pool_can_scale_from_0() -> None:
    assert group(stack(gpu=machine_pool(nodes={"min": 0, "max": 4})))["scalingConfig"] == {
        "minSize": 0,
        "maxSize": 4,
        "desiredSize": 0,
    }


def test_without_an_autoscaler_the_size_is_fixed_without_hints() -> None:
    sections = stack(section(autoscaler="none"), gpu=machine_pool(nodes={"min": 1, "max": 4}))
    (registration,) = [resource for resource in resources(sections) if resource.name == "cluster-pool-gpu-group"]
    assert registration.ignore_changes == ()
    assert cast("Any", registration.inputs)["scalingConfig"] == {"minSize": 1, "maxSize": 1, "desiredSize": 1}
    assert hints(sections) == {}


def test_a_group_that_may_have_no_node_at_all_still_has_the_most_that_eks_takes() -> None:
    sections = stack(section(autoscaler="none"), cpu=machine_pool("m7i.8xlarge", {"min": 0, "max": 4}))
    assert group(sections, "cpu")["scalingConfig"]["maxSize"] == 1


def test_gpu_nodes_have_the_gpus_taint_and_the_stacks_own_and_others_only_the_latter() -> None:
    taints = [{"key": "example.com/team", "value": "a", "effect": "NoExecute"}]
    assert group(stack(gpu=machine_pool(taints=taints)))["taints"] == [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"},
        {"key": "example.com/team", "value": "a", "effect": "NO_EXECUTE"},
    ]
    assert group(stack(), "cpu")["taints"] == []


def test_nodes_have_labels_of_model_pool_capacity_and_stack() -> None:
    assert group(stack(gpu=machine_pool(labels={"example.com/row": "7"}, capacity="spot")))["labels"] == {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "gpu-tenancy.dev/pool": "gpu",
        "gpu-tenancy.dev/capacity": "spot",
        "k8s.amazonaws.com/accelerator": "h100-80gb",
        "example.com/row": "7",
    }


def test_node_template_tags_describe_nodes_of_an_empty_group() -> None:
    assert hints(stack(gpu=machine_pool(nodes={"min": 0, "max": 4}, fabric=True, disk={"size": "300Gi"}))) == {
        "label/nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "label/gpu-tenancy.dev/pool": "gpu",
        "label/gpu-tenancy.dev/capacity": "on-demand",
        "label/k8s.amazonaws.com/accelerator": "h100-80gb",
        "taint/nvidia.com/gpu": "present:NoSchedule",
        "resources/nvidia.com/gpu": "8",
        "resources/vpc.amazonaws.com/efa": "32",
        "resources/hugepages-2Mi": "5Gi",
        "resources/ephemeral-storage": "29687500000Ki",  # the local disks
    }


def test_hints_are_the_groups_alone_and_not_its_instances() -> None:
    tags = [cast("Any", resource.inputs) for resource in resources(stack()) if resource.type == TAG]
    assert tags
    assert all(tag["tag"]["propagateAtLaunch"] is False for tag in tags)
    assert {tag["autoscalingGroupName"] for tag in tags} == {UNKNOWN}


def test_mig_partitions_have_the_operators_label_and_template_tags() -> None:
    sections = stack(gpu=machine_pool(sharing={"mig": {"profile": "1g.10gb"}}))
    assert group(sections)["labels"]["nvidia.com/mig.config"] == "all-1g.10gb"
    assert hints(sections)["resources/nvidia.com/mig-1g.10gb"] == "56"


def test_cluster_autoscaler_does_not_wait_for_whole_gpus_on_nodes_with_partitions() -> None:
    sections = stack(gpu=machine_pool(sharing={"mig": {"profile": "1g.10gb"}}))
    assert "k8s.amazonaws.com/accelerator" not in group(sections)["labels"]
    assert "label/k8s.amazonaws.com/accelerator" not in hints(sections)
    assert hints(sections)["resources/nvidia.com/gpu"] == "0"


def test_time_slices_are_whole_gpus_to_cluster_autoscaler() -> None:
    sections = stack(gpu=machine_pool(sharing={"timeSlicing": {"turns": 4, "trusting": ["a"]}}))
    assert group(sections)["labels"]["k8s.amazonaws.com/accelerator"] == "h100-80gb"


def test_local_disks_hold_images_and_ephemeral_storage() -> None:
    config = base64.b64decode(template(stack())["userData"]).decode()
    message = email.message_from_string(config)
    (part,) = [part for part in message.walk() if part.get_content_type() == "application/node.eks.aws"]
    node_config = yaml.safe_load(str(part.get_payload()))
    assert node_config["spec"] == {"instance": {"localStorage": {"strategy": "RAID0"}}}


def test_a_machine_of_the_stack_keeps_the_local_disks_of_its_row_in_the_catalogue() -> None:
    def storage(**row: Any) -> str:
        own = {"cpu": 192, "memory": "2Ti", "gpu": "h100-80gb", "gpus": 8, **row}
        return hints(stack(gpu=machine_pool()) | {"machines": {"p5.48xlarge": own}})["resources/ephemeral-storage"]

    assert storage() == "29687500000Ki"
    assert storage(localDisk="900G") == "878906250Ki"


def test_bottlerocket_binds_its_directories_to_local_disks() -> None:
    config = base64.b64decode(template(stack(gpu=machine_pool(driver="bottlerocket")))["userData"]).decode()
    (command,) = tomllib.loads(config)["settings"]["bootstrap-commands"].values()
    assert command["commands"][0] == ["apiclient", "ephemeral-storage", "init"]
    assert {"/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"} <= set(command["commands"][1])
    assert command["essential"]


@pytest.mark.parametrize("numa", [None, "restricted"])
@pytest.mark.parametrize("disks", [False, True])
@pytest.mark.parametrize("driver", ["image", "bottlerocket"])
def test_kubelets_align_with_numa_nodes_beside_local_disks(driver: str, *, disks: bool, numa: str | None) -> None:
    pool = machine_pool(driver=driver, numa=numa)
    text = template(stack(section(localDisks=disks), gpu=pool)).get("userData")
    if not disks and not numa:
        assert text is None
        return
    config, parsed = base64.b64decode(text).decode(), dict[str, Any]()
    if driver == "image":
        parts = email.message_from_string(config).walk()
        (part,) = [part for part in parts if part.get_content_type() == "application/node.eks.aws"]
        parsed = yaml.safe_load(str(part.get_payload()))["spec"]
        kubelet = parsed.get("kubelet", {}).get("config")
        wanted = {"cpuManagerPolicy": "static", "topologyManagerPolicy": numa}
    else:
        parsed = tomllib.loads(config)["settings"]
        kubelet = parsed.get("kubernetes")
        wanted = {"cpu-manager-policy": "static", "topology-manager-policy": numa}
    assert kubelet == (wanted if numa else None)
    assert ("instance" in parsed or "bootstrap-commands" in parsed) is disks


def test_karpenter_s_nodes_align_with_numa_nodes_and_set_up_their_disks_themselves() -> None:
    sections = stack(section(autoscaler="karpenter"), gpu=machine_pool(numa="best-effort"))
    objects = [cast("Any", one.inputs) for one in resources(sections) if one.inputs.get("kind") == "EC2NodeClass"]
    (gpu,) = [one["spec"] for one in objects if one["metadata"]["name"] == "gpu"]
    assert "topologyManagerPolicy: best-effort" in gpu["userData"]
    assert "localStorage" not in gpu["userData"]


@pytest.mark.parametrize("autoscaler", ["karpenter", "cluster-autoscaler"])
def test_bottlerocket_starts_with_the_images_of_a_snapshot_on_its_second_disk(autoscaler: str) -> None:
    pool = machine_pool(driver="bottlerocket", imageDisk="snap-0123456789abcdef0")
    made = resources(stack(section(autoscaler=autoscaler, localDisks=False), gpu=pool))
    if autoscaler == "karpenter":
        classes = [cast("Any", one.inputs) for one in made if one.inputs.get("kind") == "EC2NodeClass"]
        (mappings,) = [one["spec"]["blockDeviceMappings"] for one in classes if one["metadata"]["name"] == "gpu"]
        snapshots = {mapping["deviceName"]: mapping["ebs"].get("snapshotID") for mapping in mappings}
    else:
        mappings = cast("Any", one(made, TEMPLATE, "cluster-pool-gpu-template").inputs)["blockDeviceMappings"]
        snapshots = {mapping["deviceName"]: mapping["ebs"].get("snapshotId") for mapping in mappings}
    assert snapshots == {"/dev/xvda": None, "/dev/xvdb": "snap-0123456789abcdef0"}


@pytest.mark.parametrize(
    ("image_disk", "driver", "local", "problem"),
    [
        ("ami-1", "bottlerocket", False, "is not an EBS snapshot"),
        ("snap-0123456789abcdef0", "image", False, "set driver: bottlerocket"),
        ("snap-0123456789abcdef0", "bottlerocket", True, "set cluster.localDisks: false"),
    ],
)
def test_a_snapshot_that_nodes_would_not_use_is_refused(
    image_disk: str, driver: str, *, local: bool, problem: str
) -> None:
    pool = machine_pool(driver=driver, imageDisk=image_disk)
    (found,) = errors(stack(section(localDisks=local), gpu=pool))
    assert found.startswith(f"pools.gpu.imageDisk: {image_disk}")
    assert problem in found


def test_numa_of_a_pool_without_gpus_is_refused() -> None:
    (problem,) = errors(stack(cpu=machine_pool("m7i.8xlarge", 3, numa="restricted")))
    assert problem.startswith("pools.cpu.numa: restricted is for GPUs")


def test_machines_without_local_disks_or_stacks_without_them_keep_the_boot_disk() -> None:
    assert "userData" not in template(stack(), "cpu")
    off = stack(section(localDisks=False), gpu=machine_pool(disk={"size": "300Gi"}))
    assert "userData" not in template(off)
    assert hints(off)["resources/ephemeral-storage"] == "300Gi"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, (125, 3000)), ({"localDisks": False}, (1000, 4000)), ({"diskThroughput": 500}, (500, 3000))],
)
def test_boot_disks_of_gpu_nodes_read_images_fast(settings: Data, expected: tuple[int, int]) -> None:
    ((_, ebs),) = disks(stack(section(**settings)))
    assert (ebs["throughput"], ebs["iops"]) == expected


def test_boot_disks_use_the_included_throughput() -> None:
    (mapping,) = template(stack(section(localDisks=False, diskThroughput=2000)), "cpu")["blockDeviceMappings"]
    assert (mapping["ebs"]["throughput"], mapping["ebs"]["iops"]) == (125, 3000)


def test_a_release_of_the_image_is_the_stacks() -> None:
    sections = stack(section(images={"AL2023_x86_64_NVIDIA": "1.35.2-20261109"}))
    assert group(sections)["releaseVersion"] == "1.35.2-20261109"
    assert "releaseVersion" not in group(sections, "cpu")


def test_a_resource_group_of_reservations_is_named_by_its_arn() -> None:
    reserved = {"kind": "reserved", "reservation": RESERVATIONS}
    launch_template = template(stack(gpu=machine_pool(capacity=reserved, zones=[f"{REGION}a"])))
    assert launch_template["capacityReservationSpecification"] == {
        "capacityReservationTarget": {"capacityReservationResourceGroupArn": RESERVATIONS}
    }


def test_karpenter_takes_no_resource_group_of_reservations() -> None:
    reserved = {"kind": "reserved", "reservation": RESERVATIONS}
    sections = stack(section(autoscaler="karpenter"), gpu=machine_pool(capacity=reserved, zones=[f"{REGION}a"]))
    (problem,) = errors(sections)
    assert "pools.gpu.capacity.reservation" in problem
    assert "Karpenter does not support" in problem


@pytest.mark.parametrize(("enabled", "shells"), [(True, True), (False, False)])
def test_nodes_have_shells_only_if_enabled(enabled: bool, shells: bool) -> None:  # noqa: FBT001
    sections = stack(section(sessionManager=enabled))
    assert ("AmazonSSMManagedInstanceCore" in attached(sections, "cluster-node-role")) is shells


def test_time_slicing_has_the_operators_label_and_template_tags() -> None:
    sections = stack(gpu=machine_pool(sharing={"timeSlicing": {"turns": 4, "trusting": ["a"]}}))
    assert group(sections)["labels"]["nvidia.com/device-plugin.config"] == "gpu"
    assert hints(sections)["resources/nvidia.com/gpu"] == "32"


def test_only_a_pool_with_fabric_has_an_efa_on_each_card_that_has_no_address() -> None:
    wired = template(stack(gpu=machine_pool(fabric=True)))["networkInterfaces"]
    first, *others = [
        (interface["networkCardIndex"], interface["deviceIndex"], interface["interfaceType"]) for interface in wired
    ]
    assert first == (0, 0, "interface")
    assert others == [(0, 1, "efa-only"), *((card, 0, "efa-only") for card in range(1, 32))]
    assert len(template(stack())["networkInterfaces"]) == 1


def test_no_node_has_a_public_address_and_each_interface_is_in_the_clusters_security_group() -> None:
    wired = template(stack(gpu=machine_pool(fabric=True)))["networkInterfaces"]
    assert wired[0]["associatePublicIpAddress"] == "false"
    assert not any("associatePublicIpAddress" in interface for interface in wired[1:])
    assert {tuple(interface["securityGroups"]) for interface in wired} == {(UNKNOWN,)}


def test_compact_nodes_share_a_placement_group_and_others_have_none() -> None:
    sections = stack(gpu=machine_pool(compact=True, zones=[f"{REGION}a"]))
    assert one(resources(sections), "aws:ec2/placementGroup:PlacementGroup").inputs["strategy"] == "cluster"
    assert template(sections)["placement"] == {"groupName": "ml-gpu"}
    assert "placement" not in template(stack())


def test_disks_are_encrypted_and_sized_by_the_stack() -> None:
    ((device, ebs),) = disks(stack(gpu=machine_pool(disk={"size": "300Gi"})))
    assert device == "/dev/xvda"
    assert ebs == {
        "volumeSize": 300,
        "volumeType": "gp3",
        "throughput": 125,
        "iops": 3000,
        "encrypted": "true",
        "deleteOnTermination": "true",
    }


def test_a_part_of_a_gib_is_rounded_up() -> None:
    ((_, ebs),) = disks(stack(gpu=machine_pool(disk={"size": "300.5Gi"})))
    assert ebs["volumeSize"] == 301


def test_a_key_of_the_stacks_own_encrypts_disks() -> None:
    key = f"arn:aws:kms:{REGION}:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    ((_, ebs),) = disks(stack(gpu=machine_pool(disk={"size": "300Gi", "key": key})))
    assert ebs["kmsKeyId"] == key


def test_bottlerockets_images_are_on_its_second_disk() -> None:
    device_mappings = disks(stack(gpu=machine_pool(driver="bottlerocket", disk={"size": "300Gi"})))
    assert [(device, ebs["volumeSize"], ebs["encrypted"]) for device, ebs in device_mappings] == [
        ("/dev/xvda", 4, "true"),
        ("/dev/xvdb", 300, "true"),
    ]


def disks(sections: Data) -> Iterator[tuple[str, Data]]:
    for mapping in template(sections)["blockDeviceMappings"]:
        yield mapping["deviceName"], mapping["ebs"]


def test_pods_do_not_reach_a_nodes_credentials() -> None:
    metadata = template(stack())["metadataOptions"]
    assert metadata["httpTokens"] == "required"
    assert metadata["httpPutResponseHopLimit"] == 1


def test_an_upgrade_never_adds_gpu_nodes_and_ends_one_at_a_time() -> None:
    assert group(stack())["updateConfig"] == {"updateStrategy": "MINIMAL", "maxUnavailable": 1}
    assert group(stack(), "cpu")["updateConfig"] == {"updateStrategy": "DEFAULT", "maxUnavailable": 1}


def test_broken_nodes_are_replaced_one_at_a_time() -> None:
    assert group(stack())["nodeRepairConfig"] == {"enabled": True, "maxParallelNodesRepairedCount": 1}


def test_a_node_group_is_deleted_before_its_replacement() -> None:
    assert all(resource.delete_before_replace for resource in resources(stack()) if resource.type == GROUP)


@pytest.mark.parametrize(("environment", "held"), [("prod", True), ("dev", False)])
def test_only_production_resources_are_protected(environment: str, held: bool) -> None:  # noqa: FBT001
    registrations = resources(stack(environment=environment))
    assert {resource.protect for resource in registrations if resource.type == GROUP} == {held}


def test_tags_are_on_all_that_can_carry_them_and_on_instances_and_disks() -> None:
    tags = {"environment": "dev", "managed-by": "gpu-tenancy", "owner": "ml"}
    registrations = [resource for resource in resources(stack(section(tags={"owner": "ml"}))) if resource.type == GROUP]
    assert all(tags.items() <= cast("Any", resource.inputs)["tags"].items() for resource in registrations)
    specified = template(stack(section(tags={"owner": "ml"})))["tagSpecifications"]
    assert {specification["resourceType"] for specification in specified} == {"instance", "volume", "network-interface"}
    assert all(tags.items() <= specification["tags"].items() for specification in specified)


def test_the_role_of_nodes_has_minimum_permissions() -> None:
    assert attached(stack(), "cluster-node-role") == {
        "AmazonEKSWorkerNodePolicy",
        "AmazonEC2ContainerRegistryPullOnly",
        "AmazonEKS_CNI_Policy",
    }


def test_a_role_that_the_stack_names_is_taken_as_it_is() -> None:
    arn = "arn:aws:iam::111122223333:role/nodes"
    sections = stack(section(nodeRole=arn))
    assert group(sections)["nodeRoleArn"] == arn
    assert attached(sections, "cluster-node-role") == set()


def attached(sections: Data, role: str) -> set[str]:
    """Names of AWS' policies that a role has."""
    registrations = [
        resource
        for resource in resources(sections)
        if resource.type.endswith(":RolePolicyAttachment") and resource.name.startswith(role)
    ]
    return {str(attachment.inputs["policyArn"]).rpartition("/")[2] for attachment in registrations}


def test_a_cluster_that_exists_is_only_read() -> None:
    cluster = one(resources(stack()), CLUSTER)
    assert cluster.external_id == "ml"
    assert not cluster.protect


def test_all_calls_use_the_stacks_region() -> None:
    registrations = resources(stack())
    assert one(registrations, "pulumi:providers:aws").inputs["region"] == REGION
    assert {resource.provider.split("::")[2] for resource in registrations if resource.type.startswith("aws:")} == {
        "pulumi:providers:aws"
    }


def test_the_kubernetes_provider_has_a_stable_cluster_identifier() -> None:
    provider = one(resources(stack()), "pulumi:providers:kubernetes")
    assert provider.inputs["clusterIdentifier"] == f"{REGION}/ml"
    assert provider.inputs["kubeconfig"] == UNKNOWN


def test_a_kubeconfig_takes_its_token_from_the_clouds_own_helper_and_has_no_secret() -> None:
    config = json.loads(kubeconfig(["https://example.com", "Q0E=", "ml", REGION]))
    (cluster,), (user,) = config["clusters"], config["users"]
    assert cluster["cluster"] == {"server": "https://example.com", "certificate-authority-data": "Q0E="}
    assert list(user["user"]) == ["exec"]
    assert user["user"]["exec"]["command"] == "aws"
    assert user["user"]["exec"]["args"] == [
        "--region",
        REGION,
        "eks",
        "get-token",
        "--cluster-name",
        "ml",
        "--output",
        "json",
    ]
    assert config["current-context"] == config["contexts"][0]["name"]


def test_answers_of_eks_are_parsed() -> None:
    network = ClusterVpcConfig(subnet_ids=["subnet-1"], cluster_security_group_id="sg-1")
    behind = NodeGroupResource(autoscaling_groups=[NodeGroupResourceAutoscalingGroup(name="eks-gpu-1")])
    assert own_security_group(["https://example.com", network]) == "sg-1"
    assert auto_scaling_group_name([behind]) == "eks-gpu-1"
    assert certificate(ClusterCertificateAuthority(data="Q0E=")) == "Q0E="
    assert name_of("arn:aws:iam::111122223333:role/path/nodes") == "nodes"


def test_words_that_only_the_documentation_lists_stand_there() -> None:
    for (shape, member), words in DOCUMENTED.items():
        documents = [
            str(service(name)["shapes"][shape]["members"][member]["documentation"])
            for name in {call.service for calls in CALLS.values() for call in calls}
            if member in service(name)["shapes"].get(shape, {}).get("members", {})
        ]
        assert any(all(word in text for word in words) for text in documents), (shape, member)


@pytest.mark.parametrize(
    ("token", "change", "said"),
    [
        (GROUP, {"amiType": "AL2023_x86_64_NVIDEA"}, "is 'AL2023_x86_64_NVIDEA' and none of"),
        (GROUP, {"instanceTypes": ["p5.49xlarge"]}, "is 'p5.49xlarge' and none of"),
        (GROUP, {"scalingConfig": {"minSize": -1, "maxSize": 0, "desiredSize": 0}}, "scalingConfig"),
        (GROUP, {"labels": {"key": ""}}, "0 characters"),
        (GROUP, {"desiredSize": 1}, "maps to nothing"),
        (GROUP, {"nodeRoleArn": None}, "Missing required parameter"),
    ],
)
def test_invalid_inputs_fail_the_comparison(token: str, change: Mapping[str, Any], said: str) -> None:
    inputs = {**group(stack()), **change}
    assert any(said in problem for problem in DESCRIPTION.problems(token, inputs))


def test_inputs_of_every_kind_of_pool_match_awss_model() -> None:
    block = {"kind": "capacity-block", "reservation": RESERVATION}
    sections = stack(
        gpu=machine_pool(fabric=True, compact=True, zones=[f"{REGION}a"]),
        block=machine_pool("p5en.48xlarge", capacity=block, zones=[f"{REGION}b"], nodes={"min": 0, "max": 1}),
        spot=machine_pool("g6.12xlarge", capacity="spot", disk={"size": "100Gi"}),
    )
    assert described(resources(sections)) == []


def described(made: list[Registration]) -> list[str]:
    """What AWS would refuse of all that is sent."""
    sent = [resource for resource in made if resource.type.startswith("aws:") and not resource.external_id]
    assert sent
    return [
        f"{resource.name}: {problem}"
        for resource in sent
        for problem in DESCRIPTION.problems(resource.type, resource.inputs)
    ]


def test_a_spot_pool_can_have_several_machine_types() -> None:
    spot = machine_pool("g6.12xlarge", capacity="spot", alternatives=["g6.24xlarge"])
    assert group(stack(gpu=spot))["instanceTypes"] == ["g6.12xlarge", "g6.24xlarge"]
    assert hints(stack(gpu=spot))["resources/nvidia.com/gpu"] == "4"


def test_pods_are_planned_for_the_first_machine_type() -> None:
    spot = machine_pool("g6.12xlarge", capacity="spot")
    alone, several = (planned(stack(gpu=pool)) for pool in (spot, {**spot, "alternatives": ["g6.24xlarge"]}))
    assert alone.queues == several.queues


@pytest.mark.parametrize(
    ("pool", "problem"),
    [
        (machine_pool("g6.12xlarge", alternatives=["g6.24xlarge"]), "is only for spot nodes"),
        (machine_pool("g6.12xlarge", capacity="spot", alternatives=["g6.24xlage"]), "did you mean 'g6.24xlarge'"),
        (machine_pool("g6.12xlarge", capacity="spot", alternatives=["g5.12xlarge"]), "which has 4 l4 GPUs"),
        (machine_pool("g6.24xlarge", capacity="spot", alternatives=["g6.12xlarge"]), "set machine to g6.12xlarge"),
        (
            machine_pool("g6.12xlarge", capacity="spot", fabric=True, alternatives=["g6.24xlarge"]),
            "is not supported with fabric",
        ),
    ],
)
def test_machine_types_with_different_resources_are_refused(pool: Data, problem: str) -> None:
    assert any(problem in text and "pools.gpu.alternatives" in text for text in errors(stack(gpu=pool)))
