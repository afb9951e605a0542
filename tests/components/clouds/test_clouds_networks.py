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
from builders import AKS, EKS, PROVIDED, Data, job, planned, pool, stack, team
from cloud_stacks import REGION, aks_creation, aks_stack, eks_creation, eks_stack, one
from components_builders import Program, program
from components_builders import cluster as cluster_of
from fabric_builders import GKE, INFINIBAND, wired

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
    """The network of a cloud."""

    stack: Callable[..., Data]
    kept: frozenset[str]  # types of resources that production keeps
    ranges: Callable[[list[Registration]], Iterator[str]]  # the parts of its addresses
    egress: str  # type of the resource for egress
    subnet: str  # prefix of its subnets' names, if resources name them
    placed: Mapping[str, tuple[str, ...]]  # resources that name the subnet, by type


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


def test_the_network_operator_offers_the_requested_resource() -> None:
    body = 'from components.operators import Infiniband\nInfiniband("infiniband", made.infiniband)'
    spec = program(wired(AKS, INFINIBAND), body).spec("NicClusterPolicy")
    assert spec["ofedDriver"]["upgradePolicy"] == {"autoUpgrade": False}, "a new driver never drains a node"
    prefix, _, name = str(fabrics()["infiniband"].resource).partition("/")
    assert f'"resourcePrefix": "{prefix}"' in spec["sriovDevicePlugin"]["config"]
    assert f'"resourceName": "{name}"' in spec["sriovDevicePlugin"]["config"]
    assert spec["tolerations"] == [{"effect": "NoSchedule", "key": "nvidia.com/gpu", "operator": "Exists"}]


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


def efa_pools(*, dallas: bool) -> Data:
    """A stack with a pool of each machine type with EFA: those of Dallas, or all others."""
    found: Data = {}
    for machine in VENDORS["aws"]["machines"]:
        if machine.startswith("p6e") is dallas:
            bought = {"capacity": {"kind": "capacity-block", "reservation": "cr-0123456789abcdef0"}} if dallas else {}
            zones = ["us-east-1-dfw-2a" if dallas else "eu-central-1a"]
            name = machine.replace(".", "-")
            found[name] = pool(machine, 2, fabric=True, zones=zones, labels={"example.com/row": name}, **bought)
    section = {**EKS, "region": "us-east-1", "subnets": {"us-east-1-dfw-2a": "subnet-0123456789abcdef0"}}
    return stack(cluster=section if dallas else EKS, pools=found, teams={})


@of("aws")
def test_each_efa_interface_is_on_a_card_that_has_efa(machine: str, facts: Data) -> None:
    rendered = cluster_of(efa_pools(dallas=machine.startswith("p6e"))).rendered.registrations
    name = f"cluster-pool-{machine.replace('.', '-')}-template"
    template: Any = one(list(rendered), "aws:ec2/launchTemplate:LaunchTemplate", name).inputs
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
    sections = wired(
        AKS, pool(machine, 2, fabric=True, zones=["1"], **driver), training={"fit": job(workers=2, gpus=row.gpus)}
    )
    (team,) = planned({**sections, "operators": {"driver": "operator"}}).teams
    assert team.jobs[0].pod.fabric
    assert team.jobs[0].pod.fabric.devices == {"rdma/ib": links}
