"""The network between GPUs of every machine type, as it is rendered, against what its vendor says of the machine."""

from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from builders import AKS, EKS, Data, job, planned, pool
from cloud_stacks import one
from components_builders import Program
from components_builders import cluster as cluster_of
from fabric_builders import GKE, wired

from gpu_tenancy.model.catalogue import machines
from gpu_tenancy.model.catalogue.clouds import clouds

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
    """Every machine type of a cloud with a fabric, and what the vendor says of it."""
    return pytest.mark.parametrize(("machine", "facts"), VENDORS[cloud]["machines"].items())


def made(machine: str, cluster: Data, **fields: Any) -> Program:
    """A cluster with two such machines that use their fabric."""
    return cluster_of(wired(cluster, pool(machine, 2, fabric=True, **fields)))


@pytest.mark.parametrize("cloud", VENDORS)
def test_the_vendors_table_has_every_machine_with_a_fabric(cloud: str) -> None:
    assert WIRED[cloud] == set(VENDORS[cloud]["machines"])


@of("aws")
def test_each_efa_interface_is_on_a_card_that_has_efa_and_no_card_has_too_many(machine: str, facts: Data) -> None:
    capacity: Data = {}
    section, zones = EKS, ["eu-central-1a"]
    if machine.startswith("p6e"):
        zones = ["us-east-1-dfw-2a"]
        capacity = {"capacity": {"kind": "capacity-block", "reservation": "cr-0123456789abcdef0"}}
        section = {**EKS, "region": "us-east-1", "subnets": {zones[0]: "subnet-0123456789abcdef0"}}
    rendered = made(machine, section, zones=zones, **capacity).rendered.registrations
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
def test_each_interface_of_a_gke_node_has_a_network_and_each_of_its_pods_too(machine: str, facts: int) -> None:
    zones = {"a3-ultragpu-8g": ["us-central1-b"], "a4-highgpu-8g": ["us-central1-b"]}.get(machine, ["us-central1-a"])
    networks = [{"network": f"vpc-{index}", "subnetwork": f"sub-{index}"} for index in range(facts - 1)]
    capacity = {"kind": "reserved", "reservation": "gpus"}
    rendered = made(machine, {**GKE, "fabricNetworks": networks}, zones=zones, capacity=capacity)
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
