"""The network between GPUs, as it is rendered: pods of each kind, and what the clusters have for them."""

from typing import Any, Final, cast

import pytest
from builders import AKS, EKS, Data, job
from components_builders import Program, cluster, program, tenancy
from fabric_builders import A3_MEGA, DRANET, GKE, INFINIBAND, UNWIRED, wired, with_job

from gpu_tenancy.model.catalogue.fabrics import fabrics

EFA: Final = "vpc.amazonaws.com/efa"
WHOLE: Final = job(workers=2, gpus=8)
PRIVILEGED: Final[Data] = {"podSecurity": "privileged"}


def template(made: Program, kind: str, name: str) -> Any:
    spec = made.spec(kind, name)
    return spec["tasks"][0]["template"] if "tasks" in spec else spec["template"]


def variables(container: Any) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container.get("env", [])}


@pytest.mark.parametrize(
    ("kind", "sections"),
    [
        ("Job", with_job()),
        (
            "Job",
            wired(
                gpus={},
                gangs={"h100": {"guaranteed": 16}},
                training={"fit": job(scheduler="volcano", tasks={"worker": 2}, gpus=8)},
            ),
        ),
    ],
    ids=["job", "gang"],
)
def test_pods_on_eks_request_efa_and_huge_pages_as_request_and_limit(kind: str, sections: Data) -> None:
    pod = template(tenancy(sections), kind, "fit")
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["resources"]["limits"][EFA] == "32"
    assert container["resources"]["limits"]["hugepages-2Mi"] == "5Gi"
    assert variables(container)["FI_PROVIDER"] == "efa"
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert [volume["emptyDir"]["medium"] for volume in pod["spec"]["volumes"]] == ["Memory"]
    assert not [key for key in pod["metadata"]["annotations"] if "gke.io/" in key]


def test_the_stacks_variables_win() -> None:
    pod = template(tenancy(with_job(env={"FI_PROVIDER": "tcp"})), "Job", "fit")
    assert variables(pod["spec"]["containers"][0]) == {"FI_PROVIDER": "tcp"}


def test_a_train_job_has_them_in_its_trainer() -> None:
    spec = tenancy(with_job(framework="pytorch")).spec("TrainJob", "fit")
    assert spec["trainer"]["resourcesPerNode"]["limits"][EFA] == "32"
    assert {"name": "FI_PROVIDER", "value": "efa"} in spec["trainer"]["env"]
    assert spec["runtimeRef"] == {"kind": "TrainingRuntime", "name": "job-fit"}, "the TrainJob has its own"


def test_pods_on_gke_have_networks_libraries_and_the_daemon_as_a_sidecar() -> None:
    pod = template(tenancy(wired(GKE, A3_MEGA, **PRIVILEGED, training={"fit": WHOLE})), "Job", "fit")
    assert {key for key in pod["metadata"]["annotations"] if "gke.io/" in key} == {
        "networking.gke.io/default-interface",
        "networking.gke.io/interfaces",
        "devices.gke.io/container.tcpxo-daemon",
    }
    (daemon,) = pod["spec"]["initContainers"]
    assert (daemon["name"], daemon["restartPolicy"]) == ("tcpxo-daemon", "Always")
    assert daemon["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_BIND_SERVICE"]}
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    for container in (daemon, *pod["spec"]["containers"]):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    (container,) = pod["spec"]["containers"]
    assert "/usr/local/nvidia/lib64" in {mount["mountPath"] for mount in container["volumeMounts"]}
    assert variables(container)["NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY"] == "/dev/aperture_devices"
    assert not any("/" in name and "nvidia.com" not in name for name in container["resources"]["limits"])


def test_the_sidecar_of_a_train_job_is_in_its_runtime_because_no_patch_adds_a_container() -> None:
    made = tenancy(wired(GKE, A3_MEGA, **PRIVILEGED, training={"fit": {**WHOLE, "framework": "pytorch"}}))
    spec = made.spec("TrainJob", "fit")
    assert spec["runtimeRef"] == {"kind": "TrainingRuntime", "name": "job-fit"}
    (replicated,) = made.spec("TrainingRuntime")["template"]["spec"]["replicatedJobs"]
    assert [item["name"] for item in replicated["template"]["spec"]["template"]["spec"]["initContainers"]] == [
        "tcpxo-daemon"
    ]
    (patch,) = spec["runtimePatches"]
    (patched,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert "networking.gke.io/interfaces" in patched["template"]["spec"]["template"]["metadata"]["annotations"]


def test_pods_on_aks_request_infiniband_and_no_capability() -> None:
    pod = template(tenancy(wired(AKS, INFINIBAND, training={"fit": WHOLE})), "Job", "fit")
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"]["rdma/ib"] == "8"
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert variables(container)["NCCL_IB_DISABLE"] == "0"


def test_gke_has_an_object_for_each_network_that_pods_name_and_installs_the_plugin_on_its_pools() -> None:
    made = cluster(wired(GKE, A3_MEGA))
    for index in range(8):
        parameters, network = (made.only(kind, f"sub-{index}") for kind in ("GKENetworkParamSet", "Network"))
        assert cast("Any", parameters.manifest)["spec"] == {
            "vpc": f"vpc-{index}",
            "vpcSubnet": f"sub-{index}",
            "deviceMode": "NetDevice",
        }
        assert cast("Any", network.manifest)["spec"]["parametersRef"]["name"] == f"sub-{index}"
    for name in ("nccl-tcpxo-installer", "device-injector"):
        spec = template(made, "DaemonSet", name)["spec"]
        (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        assert term["matchExpressions"] == [{"key": "gpu-tenancy.dev/pool", "operator": "In", "values": ["h100"]}]
        mounts = {volume["name"] for volume in spec["volumes"]}
        containers = (*spec.get("initContainers", []), *spec["containers"])
        assert {mount["name"] for item in containers for mount in item.get("volumeMounts", [])} == mounts


def test_networks_with_rdma_have_its_mode_and_those_of_the_nodes_second_card_no_object() -> None:
    networks = [{"network": "rdma", "subnetwork": f"sub-{index}"} for index in range(9)]
    pools = {"machine": "a3-ultragpu-8g", "nodes": 1, "fabric": True, "zones": ["us-central1-b"], "capacity": "spot"}
    made = cluster(wired({**GKE, "fabricNetworks": networks}, pools))
    sets = made.every("GKENetworkParamSet")
    assert {item.name for item in sets} == {f"sub-{index}" for index in range(1, 9)}
    assert {cast("Any", item.manifest)["spec"]["deviceMode"] for item in sets} == {"RDMA"}
    assert [item.name for item in made.every("DaemonSet")] == ["nccl-rdma-installer"]


@pytest.mark.parametrize("framework", ["job", "pytorch"])
def test_with_dranet_pods_and_their_container_claim_all_interfaces_of_their_node(framework: str) -> None:
    training = {"fit": {**WHOLE, "framework": framework}}
    made = tenancy(wired(UNWIRED, DRANET, **PRIVILEGED, training=training))
    (request,) = made.spec("ResourceClaimTemplate", "rdma-8")["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": "mrdma.google.com", "allocationMode": "ExactCount", "count": 8}
    if framework == "job":
        pod = template(made, "Job", "fit")["spec"]
    else:
        (replicated,) = made.spec("TrainingRuntime")["template"]["spec"]["replicatedJobs"]
        pod = replicated["template"]["spec"]["template"]["spec"]
        assert "resourcesPerNode" not in made.spec("TrainJob", "fit")["trainer"]
    assert pod["resourceClaims"] == [{"name": "interfaces", "resourceClaimTemplateName": "rdma-8"}]
    (container,) = pod["containers"]
    assert container["resources"]["claims"] == [{"name": "interfaces"}]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert "gke.io/interfaces" not in repr(made.every("Job") or made.every("TrainJob"))
    group = made.spec("ClusterQueue", "a")["resourceGroups"][0]
    counted = {
        flavor["name"]: resource["nominalQuota"]
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        if resource["name"] == "mrdma.google.com/interface"
    }
    assert (counted["h100"], set(counted.values()) - {counted["h100"]}) == ("1M", {"0"})


def test_with_dranet_the_cluster_has_the_plugin_but_no_objects_of_networks() -> None:
    made = cluster(wired(UNWIRED, DRANET))
    assert made.every("Network") == made.every("GKENetworkParamSet") == []
    assert [item.name for item in made.every("DaemonSet")] == ["nccl-rdma-installer"]


def test_nodes_with_arm_cpus_have_an_installer_of_their_own() -> None:
    networks = [{"network": "rdma", "subnetwork": f"sub-{index}"} for index in range(9)]
    reserved = {"fabric": True, "capacity": {"kind": "reserved", "reservation": "gpus"}}
    b200 = {"machine": "a4-highgpu-8g", "nodes": 1, "zones": ["us-central1-b"], **reserved}
    gb200 = {"machine": "a4x-highgpu-4g", "nodes": 2, "zones": ["us-central1-a"], **reserved}
    made = cluster(wired({**GKE, "fabricNetworks": networks}, b200, {"gb200": gb200}))
    images = {
        daemons.name: template(made, "DaemonSet", str(daemons.name))["spec"] for daemons in made.every("DaemonSet")
    }
    assert set(images) == {"nccl-rdma-installer", "nccl-rdma-installer-arm64"}
    for name, spec in images.items():
        assert ("nccl-plugin-gib-arm64" in repr(spec)) == name.endswith("arm64")
        assert f"'values': ['{'gb200' if name.endswith('arm64') else 'h100'}']" in repr(spec)


def test_without_fabric_gke_has_none_of_it() -> None:
    made = cluster(wired({**GKE, "fabricNetworks": []}, {**A3_MEGA, "fabric": False}))
    assert made.every("Network") == made.every("DaemonSet") == []


def test_aks_lets_containers_lock_memory_on_the_pools_with_infiniband_alone() -> None:
    (daemons,) = cluster(wired(AKS, INFINIBAND)).every("DaemonSet")
    assert "'values': ['h100']" in repr(daemons.manifest)
    assert "prlimit" in repr(daemons.manifest)
    assert "modprobe nvidia-peermem" in repr(daemons.manifest), "AKS does not load it with its managed driver"
    assert cluster(wired(AKS, {**INFINIBAND, "fabric": False})).every("DaemonSet") == []


def test_the_network_operator_gets_its_policy_with_the_resource_that_pods_request() -> None:
    body = 'from components.operators import Infiniband\nInfiniband("infiniband", made.infiniband)'
    spec = program(wired(AKS, INFINIBAND), body).spec("NicClusterPolicy")
    assert spec["ofedDriver"]["upgradePolicy"] == {"autoUpgrade": False}, "a new driver never drains a node"
    prefix, _, name = str(fabrics()["infiniband"].resource).partition("/")
    assert f'"resourcePrefix": "{prefix}"' in spec["sriovDevicePlugin"]["config"]
    assert f'"resourceName": "{name}"' in spec["sriovDevicePlugin"]["config"]
    assert spec["tolerations"] == [{"effect": "NoSchedule", "key": "nvidia.com/gpu", "operator": "Exists"}]


def test_karpenter_is_told_of_the_huge_pages() -> None:
    eks = {**EKS, "autoscaler": "karpenter"}
    (overlay,) = cluster(wired(eks)).every("NodeOverlay")
    assert cast("Any", overlay.manifest)["spec"]["capacity"] == {"hugepages-2Mi": "5Gi"}
