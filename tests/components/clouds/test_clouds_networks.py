"""Networks that are created with a cluster, and networks between GPUs."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network
from itertools import combinations
from pathlib import Path
from typing import Any, Final, cast

import pytest
import yaml
from builders import AKS, EKS, PROVIDED, Data, job, planned, pool, team
from cloud_stacks import REGION, aks_creation, aks_stack, eks_creation, eks_stack, one
from components_builders import Program, cluster, program, tenancy
from components_builders import cluster as cluster_of
from fabric_builders import A3_MEGA, DRANET, GKE, INFINIBAND, UNWIRED, wired, with_job

from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.model.catalogue import machines
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.catalogue.pods import fabrics

ZONES: Final = [f"{REGION}{zone}" for zone in "abc"]


def eks(environment: str = "dev", **more: Any) -> Data:
    cluster = eks_creation({"subnets": {}}, **({"zones": ZONES} | more))
    return eks_stack(cluster, environment)


def gke(environment: str = "dev", **more: Any) -> Data:
    create = {"version": "1.35", "system": {"machine": "n2-standard-16"}, **more}
    cluster = {"cloud": "gcp", "name": "ml", "project": "example-ml", "location": "us-central1", "create": create}
    pools = {
        "cpu": {"machine": "n2-standard-32", "nodes": 3},
        "gpu": {"machine": "g2-standard-48", "nodes": 2, "zones": ["us-central1-a"]},
    }
    teams = {"a": team(gpus={"gpu": {"guaranteed": 0, "limit": 1}})}
    return {"environment": environment, "cluster": {**PROVIDED, **cluster}, "pools": pools, "teams": teams}


def aks(environment: str = "dev", **more: Any) -> Data:
    """A cluster on AKS with its network, and egress through NAT."""
    cluster = aks_creation(**({"egress": "nat-gateway"} | more))
    del cluster["subnet"]
    return aks_stack(cluster, environment)


@dataclass(frozen=True)
class Cloud:
    """The network of a cloud.

    Attributes:
        kept: types of resources that production keeps.
        ranges: the parts of its addresses.
        egress: type of the resource for egress.
        subnet: prefix of its subnets' names, if resources name them.
        placed: resources that name the subnet, by type.
    """

    stack: Callable[..., Data]
    kept: frozenset[str]
    ranges: Callable[[list[Registration]], Iterator[str]]
    egress: str
    subnet: str
    placed: Mapping[str, tuple[str, ...]]


def _of(made: list[Registration], kind: str) -> Iterator[Any]:
    """Inputs of the cloud's resources of a kind, without components of this program."""
    found = (one for one in made if one.type.endswith(f":{kind}") and not one.type.startswith("gpu-tenancy:"))
    return (cast("Any", resource.inputs) for resource in found)


def _subnetwork(made: list[Registration]) -> Iterator[str]:
    for subnetwork in _of(made, "Subnetwork"):
        yield subnetwork["ipCidrRange"]
        yield from (second["ipCidrRange"] for second in subnetwork["secondaryIpRanges"])


CLOUDS: Final = {
    "eks": Cloud(
        eks,
        frozenset({"aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/natGateway:NatGateway"}),
        lambda made: (subnet["cidrBlock"] for subnet in _of(made, "Subnet")),
        "NatGateway",
        "cluster-network-",
        {"Cluster": ("vpcConfig", "subnetIds"), "NodeGroup": ("subnetIds",)},
    ),
    "gke": Cloud(
        gke,
        frozenset({"gcp:compute/network:Network", "gcp:compute/subnetwork:Subnetwork"}),
        _subnetwork,
        "RouterNat",
        "ml",
        {"Cluster": ("subnetwork",)},
    ),
    "aks": Cloud(
        aks,
        frozenset({"azure-native:network:VirtualNetwork", "azure-native:network:NatGateway"}),
        lambda made: (subnet["addressPrefix"] for vnet in _of(made, "VirtualNetwork") for subnet in vnet["subnets"]),
        "NatGateway",
        "cluster-control-plane-network-vnet/subnets/nodes",
        {"AgentPool": ("vnetSubnetID",), "ManagedCluster": ("agentPoolProfiles", "0", "vnetSubnetID")},
    ),
}


def made(sections: Data) -> list[Registration]:
    return list(cluster_of(sections).rendered.registrations)


def at(inputs: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        inputs = inputs[int(step)] if step.isdigit() else inputs[step]
    return inputs


@pytest.mark.parametrize("cloud", CLOUDS.values(), ids=CLOUDS)
@pytest.mark.parametrize("addresses", [None, "172.20.0.0/18"])
def test_parts_of_a_created_network_are_apart_and_inside_of_it(cloud: Cloud, addresses: str | None) -> None:
    registrations = made(cloud.stack(**({"addresses": addresses} if addresses else {})))
    ranges = [ip_network(part) for part in cloud.ranges(registrations)]
    whole = IPv4Network(addresses or "10.16.0.0/14")
    assert ranges
    assert all(isinstance(part, IPv4Network) and part.subnet_of(whole) for part in ranges)
    assert not any(one.overlaps(other) for one, other in combinations(ranges, 2))


@pytest.mark.parametrize("cloud", CLOUDS.values(), ids=CLOUDS)
def test_cluster_and_nodes_are_in_the_created_network(cloud: Cloud) -> None:
    registrations = made(cloud.stack())
    assert len(list(_of(registrations, cloud.egress))) == 1
    for kind, path in cloud.placed.items():
        for inputs in _of(registrations, kind):
            value = at(inputs, path)
            subnets = cast("list[str]", value if isinstance(value, list) else [value])
            assert all(subnet.startswith(cloud.subnet) for subnet in subnets), kind
    kinds = {resource.type.rpartition(":")[2] for resource in registrations}
    assert not kinds & {"Firewall", "SecurityGroupIngressRule", "NetworkSecurityGroup"}


@pytest.mark.parametrize("cloud", CLOUDS.values(), ids=CLOUDS)
def test_production_keeps_the_created_network(cloud: Cloud) -> None:
    for environment in ("dev", "prod"):
        registrations = [one for one in made(cloud.stack(environment)) if one.type in cloud.kept]
        assert {one.type for one in registrations} == cloud.kept
        assert {bool(one.protect) for one in registrations} == {environment == "prod"}


# The network between GPUs, as it is rendered: pods of each kind, and what the clusters have for them


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
def test_pods_on_eks_request_efa_and_huge_pages(kind: str, sections: Data) -> None:
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


def test_pods_on_gke_have_networks_libraries_and_a_daemon() -> None:
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


def test_the_sidecar_of_a_train_job_is_in_its_runtime() -> None:
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


def test_gke_has_network_objects_and_installs_the_plugin() -> None:
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


def test_networks_with_rdma_have_its_mode() -> None:
    networks = [{"network": "rdma", "subnetwork": f"sub-{index}"} for index in range(9)]
    pools = {"machine": "a3-ultragpu-8g", "nodes": 1, "fabric": True, "zones": ["us-central1-b"], "capacity": "spot"}
    made = cluster(wired({**GKE, "fabricNetworks": networks}, pools))
    sets = made.every("GKENetworkParamSet")
    assert {item.name for item in sets} == {f"sub-{index}" for index in range(1, 9)}
    assert {cast("Any", item.manifest)["spec"]["deviceMode"] for item in sets} == {"RDMA"}
    assert [item.name for item in made.every("DaemonSet")] == ["nccl-rdma-installer"]


@pytest.mark.parametrize("framework", ["job", "pytorch"])
def test_with_dranet_pods_claim_all_interfaces_of_their_node(framework: str) -> None:
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


def test_with_dranet_the_cluster_has_no_network_objects() -> None:
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


def test_containers_lock_memory_on_pools_with_infiniband() -> None:
    (daemons,) = cluster(wired(AKS, INFINIBAND)).every("DaemonSet")
    assert "'values': ['h100']" in repr(daemons.manifest)
    assert "prlimit" in repr(daemons.manifest)
    assert "modprobe nvidia-peermem" in repr(daemons.manifest), "AKS does not load it with its managed driver"
    assert cluster(wired(AKS, {**INFINIBAND, "fabric": False})).every("DaemonSet") == []


def test_the_network_operator_offers_the_requested_resource() -> None:
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


# The network between GPUs of every machine type, as it is rendered, against what its vendor says of the machine


VENDORS: Final[Any] = yaml.safe_load(Path(__file__).with_name("vendor_networks.yaml").read_text(encoding="utf-8"))
WIRED: Final = {
    cloud: {
        name
        for (of, name), machine in machines().items()
        if of == cloud and machine.network and machine.network.fabric in clouds()[cloud].fabrics
    }
    for cloud in VENDORS
}


def of(cloud: str) -> pytest.MarkDecorator:
    """Every machine type of a cloud with a fabric, and the vendor's data."""
    return pytest.mark.parametrize(("machine", "facts"), VENDORS[cloud]["machines"].items())


def made_vendor(machine: str, cluster: Data, **fields: Any) -> Program:
    """A cluster with two such machines that use their fabric."""
    return cluster_of(wired(cluster, pool(machine, 2, fabric=True, **fields)))


@pytest.mark.parametrize("cloud", VENDORS)
def test_the_vendors_table_has_every_machine_with_a_fabric(cloud: str) -> None:
    assert WIRED[cloud] == set(VENDORS[cloud]["machines"])


@of("aws")
def test_each_efa_interface_is_on_a_card_that_has_efa(machine: str, facts: Data) -> None:
    capacity: Data = {}
    section, zones = EKS, ["eu-central-1a"]
    if machine.startswith("p6e"):
        zones = ["us-east-1-dfw-2a"]
        capacity = {"capacity": {"kind": "capacity-block", "reservation": "cr-0123456789abcdef0"}}
        section = {**EKS, "region": "us-east-1", "subnets": {zones[0]: "subnet-0123456789abcdef0"}}
    rendered = made_vendor(machine, section, zones=zones, **capacity).rendered.registrations
    template: Any = one(list(rendered), "aws:ec2/launchTemplate:LaunchTemplate", "cluster-pool-h100-template").inputs
    shown = [
        (interface["networkCardIndex"], interface["deviceIndex"], interface["interfaceType"])
        for interface in template["networkInterfaces"]
    ]
    assert shown[0] == (0, 0, "interface")
    cards = [card for card, _, kind in shown if kind == "efa-only"]
    assert cards == sorted(set(range(facts["cards"])) - set(facts.get("without", [])))[: facts["efa"]]
    assert len(cards) == facts["efa"] == len(shown) - 1
    assert len({(card, device) for card, device, _ in shown}) == len(shown)
    assert max(Counter(card for card, _, _ in shown).values()) <= max(facts["each"], 1)


@of("gcp")
def test_each_interface_of_a_gke_node_has_a_network(machine: str, facts: int) -> None:
    zones = {"a3-ultragpu-8g": ["us-central1-b"], "a4-highgpu-8g": ["us-central1-b"]}.get(machine, ["us-central1-a"])
    networks = [{"network": f"vpc-{index}", "subnetwork": f"sub-{index}"} for index in range(facts - 1)]
    capacity = {"kind": "reserved", "reservation": "gpus"}
    rendered = made_vendor(machine, {**GKE, "fabricNetworks": networks}, zones=zones, capacity=capacity)
    (node_pool,) = (
        registration.inputs
        for registration in rendered.rendered.registrations
        if registration.type == "gcp:container/nodePool:NodePool" and registration.inputs["name"] == "h100"
    )
    own: Any = node_pool
    assert own["networkConfig"]["additionalNodeNetworkConfigs"] == networks
    # Those of RDMA have one for the node's second card, which pods do not use.
    assert len(rendered.every("Network")) == facts - 1 - (facts in {6, 10})


@of("azure")
def test_pods_with_all_gpus_request_every_link_of_infiniband(machine: str, facts: list[int]) -> None:
    links, gbps = facts
    row = machines()["azure", machine]
    assert row.network
    assert row.network.gbps == links * gbps
    driver = {} if row.gpu == "mi300x-vf" else {"driver": "operator"}
    sections = wired(AKS, pool(machine, 2, fabric=True, **driver), training={"fit": job(workers=2, gpus=row.gpus)})
    (team,) = planned({**sections, "operators": {"driver": "operator"}}).teams
    assert team.jobs[0].pod.fabric
    assert team.jobs[0].pod.fabric.devices == {"rdma/ib": links}
