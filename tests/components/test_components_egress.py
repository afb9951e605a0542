"""Egress of teams' pods to link-local addresses of nodes, on each cloud's stack."""

from functools import cache
from ipaddress import ip_network
from typing import Any, Final, TypeAlias

import pytest
from builders import EXISTING, Data, stack, team
from components_builders import Program, tenancy
from repository import ROOT

from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.source import read_file

Peer: TypeAlias = tuple[str, int, str]
POD_IDENTITY: Final = {("169.254.170.23/32", 80, "TCP"), ("fd00:ec2::23/128", 80, "TCP")}
METADATA: Final = {
    ("169.254.169.254/32", 80, "TCP"),
    ("169.254.169.254/32", 8080, "TCP"),
    ("169.254.169.252/32", 987, "TCP"),
    ("169.254.169.252/32", 988, "TCP"),
}


def dns(*cidrs: str) -> set[Peer]:
    return {(cidr, 53, protocol) for cidr in cidrs for protocol in ("UDP", "TCP")}


@cache
def of_stack(name: str) -> Program:
    return tenancy(read_file(ROOT / "stacks" / f"Pulumi.{name}.yaml").sections)


def link_local(program: Program, policy: str, namespace: str) -> set[Peer]:
    """Addresses, ports and protocols that a policy of a namespace allows; none if the namespace has no such policy."""
    return {
        (peer["ipBlock"]["cidr"], port["port"], port["protocol"])
        for resource in program.every("NetworkPolicy", policy, namespace)
        for rule in spec_of(resource)["egress"]
        for peer in rule["to"]
        if "ipBlock" in peer
        for port in rule["ports"]
    }


def spec_of(resource: Any) -> Any:
    return resource.manifest["spec"]


@pytest.mark.parametrize(
    ("name", "identity", "names"),
    [
        ("prod-aws", POD_IDENTITY, dns("169.254.20.10/32")),
        ("prod-gcp", METADATA, dns("169.254.169.254/32", "169.254.20.10/32")),
        ("prod-azure", set[Peer](), dns("169.254.10.0/24")),
        ("local", set[Peer](), set[Peer]()),
    ],
)
def test_pods_of_each_team_reach_credentials_and_dns_of_their_node_and_nothing_else_of_it(
    name: str, identity: set[Peer], names: set[Peer]
) -> None:
    namespaces = [resource.name for resource in of_stack(name).every("Namespace")]
    assert namespaces
    for namespace in namespaces:
        assert link_local(of_stack(name), "allow-identity", namespace) == identity
        assert link_local(of_stack(name), "allow-dns", namespace) == names


@pytest.mark.parametrize(("provider", "identity"), [("gcp", set[Peer]()), ("aws", POD_IDENTITY)])
def test_nodes_of_others_do_not_give_their_own_credentials_to_teams(provider: str, identity: set[Peer]) -> None:
    cluster: Data = {**EXISTING, "provider": provider}
    cluster["provides"] = [need for need in cluster["provides"] if need != "resourceMetrics" or provider == "aws"]
    sections = stack(cluster=cluster, pools={"cpu": {"cpu": 8, "memory": "32Gi", "nodes": 1}}, teams={"a": team()})
    assert link_local(tenancy(sections), "allow-identity", "a") == identity


@pytest.mark.parametrize("cloud", clouds())
def test_addresses_of_nodes_are_link_local_so_that_no_other_host_is_open(cloud: str) -> None:
    for endpoint in clouds()[cloud].node_endpoints:
        for cidr in endpoint.cidrs:
            # fd00:ec2::/32 is EC2's own range for such addresses.
            assert ip_network(cidr).is_link_local or cidr.startswith("fd00:ec2::"), cidr
