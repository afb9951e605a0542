"""Networks that are created with a cluster, on each cloud: in which parts, with egress, and without a way in."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network
from itertools import combinations
from typing import Any, Final, cast

import pytest
from builders import PROVIDED, Data, errors, team
from cloud_stacks import REGION, aks_creation, aks_stack, eks_creation, eks_stack
from components_builders import cluster as cluster_of

from gpu_tenancy.engine.recording import Registration

ZONES: Final = [f"{REGION}{zone}" for zone in "abc"]


def eks(environment: str = "dev", **more: Any) -> Data:
    """A cluster on EKS with its network."""
    cluster = eks_creation({"subnets": {}}, **({"zones": ZONES} | more))
    return eks_stack(cluster, environment)


def gke(environment: str = "dev", **more: Any) -> Data:
    """A cluster on GKE with its network."""
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
    """How a cloud's network looks.

    Attributes:
        kept: types of resources that production keeps.
        ranges: the parts of its addresses.
        egress: type of the resource that lets out.
        subnet: how the names of its subnets begin, where resources name them.
        placed: where they name it, by their types.
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
    """All that the cluster of a stack registers."""
    return list(cluster_of(sections).rendered.registrations)


def at(inputs: Any, path: tuple[str, ...]) -> Any:
    """A value inside inputs."""
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
def test_cluster_and_nodes_are_in_the_created_network_which_only_lets_out(cloud: Cloud) -> None:
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


def test_on_eks_each_subnet_has_a_route_out_and_one_to_s3() -> None:
    registrations = made(eks())
    assert [subnet["availabilityZone"] for subnet in _of(registrations, "Subnet")] == ZONES
    assert len(list(_of(registrations, "RouteTableAssociation"))) == len(ZONES)
    (route,) = _of(registrations, "Route")
    assert route["destinationCidrBlock"] == "0.0.0.0/0"
    (endpoint,) = _of(registrations, "VpcEndpoint")
    assert endpoint["serviceName"] == f"com.amazonaws.{REGION}.s3"


def test_on_gke_a_created_network_has_jumbo_frames_and_private_access_to_google() -> None:
    registrations = made(gke())
    (vpc,) = _of(registrations, "Network")
    assert (vpc["mtu"], vpc["autoCreateSubnetworks"]) == (8896, False)
    (subnetwork,) = _of(registrations, "Subnetwork")
    assert subnetwork["privateIpGoogleAccess"] is True


def test_on_aks_without_nat_the_cluster_s_load_balancer_is_the_way_out() -> None:
    registrations = made(aks(egress="load-balancer"))
    assert not list(_of(registrations, "NatGateway"))
    (cluster,) = _of(registrations, "ManagedCluster")
    assert cluster["networkProfile"]["outboundType"] == "loadBalancer"


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        (eks(zones=[]), "has no subnets; set subnets"),
        (eks(zones=ZONES[:1]), "add a subnet of a second zone under cluster.create.zones"),
        (eks(zones=[ZONES[0], ZONES[0]]), "more than once"),
        (eks(zones=["us-east-1a", "us-east-1b"]), "is not a zone of eu-central-1"),
        (eks(addresses="10.0.0.0/8"), "needs /16 to /20"),
        (eks(addresses="8.8.0.0/16"), "is not a private IPv4 network"),
        (eks_stack(eks_creation(zones=ZONES)), "sets subnets and also create.zones"),
        (eks_stack(eks_creation(addresses="10.0.0.0/16")), "names an existing network"),
        (gke(network="ml"), "sets network without subnetwork, podRange, serviceRange"),
        (aks(egress="routes"), "a created network has no routes"),
        (aks(addresses="10.244.0.0/15"), "overlaps with 10.244.0.0/16"),
    ],
)
def test_a_network_that_cannot_be_created_is_refused(sections: Data, problem: str) -> None:
    assert problem in "\n".join(errors(sections))
