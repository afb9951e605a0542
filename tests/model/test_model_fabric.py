"""The network between GPUs in pods: users, requests, and quotas that allow it."""

import json
from typing import Final

import pytest
import yaml
from builders import AKS, GPU, Data, environment_of, job, planned, pool, server
from fabric_builders import A3_MEGA, DRANET, GKE, INFINIBAND, UNWIRED, wired, with_job

from gpu_tenancy.base.quantity import format_amounts
from gpu_tenancy.model.catalogue import Machine, machines
from gpu_tenancy.model.catalogue.pods import fabrics
from gpu_tenancy.model.plan.fabric import HUGEPAGES, PodFabric, node_pages
from gpu_tenancy.model.plan.needs import there

EFA: Final = "vpc.amazonaws.com/efa"
GIB: Final = 2**30
MIB: Final = 2**20
FIT: Final = {"fit": job(workers=2, gpus=8)}


def fabric_of(sections: Data) -> PodFabric | None:
    (of_team,) = planned(sections).teams
    (workload,) = (*of_team.servers, *of_team.jobs, *of_team.gangs)
    return workload.pod.fabric


def the_fabric(sections: Data) -> PodFabric:
    fabric = fabric_of(sections)
    assert fabric
    return fabric


@pytest.mark.parametrize(("gpus", "interfaces"), [(8, 32), (4, 16), (2, 8), (1, 4)])
def test_pods_request_interfaces_by_their_share_of_gpus(gpus: int, interfaces: int) -> None:
    assert the_fabric(with_job(gpus=gpus)).devices == {EFA: interfaces, HUGEPAGES: 5 * GIB * gpus // 8}


def test_a_share_is_whole_and_a_pod_without_one_requests_none() -> None:
    # Four GPUs and one interface.
    assert fabric_of(wired(h100=pool("g6.12xlarge", 2, fabric=True), training={"fit": job(workers=2, gpus=2)})) is None
    all_four = wired(h100=pool("g6.12xlarge", 2, fabric=True), training={"fit": job(workers=2, gpus=4)})
    assert the_fabric(all_four).devices == {EFA: 1, HUGEPAGES: 5 * GIB}


@pytest.mark.parametrize(
    ("section", "workload", "used"),
    [
        ("training", job(workers=2, gpus=8), True),
        ("training", job(workers=1, gpus=8), False),
        ("training", job(workers=1, gpus=8, fabric=True), True),
        ("training", job(workers=2, gpus=8, fabric=False), False),
        ("training", job(workers=2, gpus=8, framework="pytorch"), True),
        ("serving", server(replicas=2, gpus=8), False),
        ("serving", server(replicas=2, gpus=8, fabric=True), True),
    ],
)
def test_jobs_of_several_pods_use_the_fabric_by_default(section: str, workload: Data, *, used: bool) -> None:
    assert (fabric_of(wired(**{section: {"w": workload}})) is not None) is used


def test_a_gang_uses_it_too() -> None:
    gangs = {"h100": {"guaranteed": 16}}
    training = {"g": job(scheduler="volcano", tasks={"master": 1, "worker": 1}, gpus=8)}
    assert the_fabric(wired(gpus={}, gangs=gangs, training=training)).devices[EFA] == 32


def test_no_pod_requests_fabric_that_a_pool_lacks() -> None:
    more = {"slow": pool(flavor="h100")}
    assert fabric_of(wired(pools=more, training=FIT)) is None
    assert fabric_of(wired(h100=pool(), training=FIT)) is None


def test_pools_of_one_flavor_give_the_smallest_share() -> None:
    network = {"gbps": 1600, "fabric": "efa", "interfaces": 16}
    half: Data = {"cpu": 192, "memory": "2Ti", "gpu": "h100-80gb", "gpus": 8, "network": network}
    sections = wired(pools={"half": pool("p5.half", fabric=True, flavor="h100")}, training=FIT)
    assert the_fabric({**sections, "machines": {"p5.half": half}}).devices[EFA] == 16


def test_gke_attaches_the_networks_and_gives_the_daemon_the_gpus() -> None:
    fabric = the_fabric(wired(GKE, A3_MEGA, podSecurity="privileged", training=FIT))
    assert fabric.devices == {}
    interfaces = json.loads(fabric.annotations["networking.gke.io/interfaces"])
    assert interfaces[0] == {"interfaceName": "eth0", "network": "default"}
    assert interfaces[1:] == [{"interfaceName": f"eth{i + 1}", "network": f"sub-{i}"} for i in range(8)]
    files = yaml.safe_load(fabric.annotations["devices.gke.io/container.tcpxo-daemon"])
    assert {"path": "/dev/nvidia7"} in files
    assert fabric.row.env["NCCL_FASTRAK_IFNAME"] == ",".join(item["interfaceName"] for item in interfaces[1:])
    assert fabric.row.daemon
    assert {mount.host for mount in fabric.host_mounts} >= {"/home/kubernetes/bin/nvidia/lib64", "/sys", "/proc/sys"}


def test_rdma_skips_the_network_of_the_second_card() -> None:
    networks = [{"network": f"vpc-{index}", "subnetwork": f"sub-{index}"} for index in range(9)]
    pools = pool("a3-ultragpu-8g", fabric=True, zones=["us-central1-b"], capacity="spot")
    fabric = the_fabric(wired({**GKE, "fabricNetworks": networks}, pools, podSecurity="privileged", training=FIT))
    interfaces = json.loads(fabric.annotations["networking.gke.io/interfaces"])[1:]
    assert [item["network"] for item in interfaces] == [f"sub-{index}" for index in range(1, 9)]
    assert interfaces[0]["interfaceName"] == "eth2"


def test_dranet_pods_claim_interfaces_without_networks() -> None:
    fabric = the_fabric(wired(UNWIRED, DRANET, podSecurity="privileged", training=FIT))
    assert (fabric.claim, fabric.annotations, fabric.devices) == ("rdma-8", {}, {})
    assert fabric.row.env["NCCL_NET"] == "gIB"
    assert "/home/kubernetes/bin/gib" in {mount.host for mount in fabric.host_mounts}


@pytest.mark.parametrize(
    ("fields", "claims"),
    [({}, True), ({"workers": 1}, False), ({"gpus": 4}, False), ({"fabric": False}, False), ({"gang": True}, False)],
    ids=str,
)
def test_only_pods_with_all_gpus_of_nodes_claim_interfaces(fields: Data, *, claims: bool) -> None:
    training = {"fit": job(**{"workers": 2, "gpus": 8, **fields})}
    fabric = fabric_of(wired(UNWIRED, DRANET, podSecurity="privileged", training=training))
    assert (fabric is not None) == claims


@pytest.mark.parametrize("of_pool", [DRANET, {**DRANET, "fabric": False}], ids=["dranet", "without"])
def test_kueue_counts_interfaces_that_pods_can_claim(of_pool: Data) -> None:
    made = planned(wired(UNWIRED, of_pool))
    (kueue,) = (release for release in made.operators if release.name == "kueue")
    resources = yaml.safe_load(kueue.values["managerConfig"]["controllerManagerConfigYaml"])["resources"]
    claims = of_pool is DRANET
    mapping = {"name": "mrdma.google.com/interface", "deviceClassNames": ["mrdma.google.com"]}
    assert resources.get("deviceClassMappings") == ([mapping] if claims else None)
    assert not any("mrdma.google.com/".startswith(prefix) for prefix in resources["excludeResourcePrefixes"])
    assert made.queues.cluster_queues[0].claimed == ({"mrdma.google.com/interface": ("h100",)} if claims else {})
    assert made.guards.claims == claims
    assert not made.guards.channels
    assert made.teams[0].namespace.interfaces == ((8,) if claims else ())
    viewer = made.access.roles["viewer"] if made.access else None
    assert viewer is None or claims == any("resourceclaims" in rule.resources for rule in viewer)


def test_infiniband_installs_the_network_operator() -> None:
    made = planned(wired(AKS, INFINIBAND, training={"fit": job(workers=2, gpus=4)}))
    fabric = made.teams[0].jobs[0].pod.fabric
    assert fabric
    assert fabric.devices == {"rdma/ib": 4}
    assert "network-operator" in [release.name for release in made.operators]
    assert made.infiniband
    assert made.infiniband.pools == ("h100",)
    (plugin,) = json.loads(made.infiniband.config)["resourceList"]
    assert {f"{plugin['resourcePrefix']}/{plugin['resourceName']}"} == set(fabric.devices)


def test_infiniband_policies_need_infiniband_and_our_operator() -> None:
    assert planned(wired()).infiniband is None
    assert not there(environment_of(wired()), "network_operator")
    assert there(environment_of(wired(AKS, INFINIBAND)), "network_operator")
    sections = {**wired(AKS, INFINIBAND), "operators": {"networkOperator": "installed"}}
    assert planned(sections).infiniband is None


@pytest.mark.parametrize("name", fabrics())
def test_kueue_counts_no_resource_of_a_fabric(name: str) -> None:
    # Kueue never admits a workload that requests a resource that is neither covered by its queue nor excluded.
    row = fabrics()[name]
    requested = [*([row.resource] if row.resource else []), *([HUGEPAGES] if row.hugepages else [])]
    requested += ["networking.gke.io.networks/sub-0.IP"] if row.networks else []
    (kueue,) = (release for release in planned(with_job()).operators if release.name == "kueue")
    configuration = yaml.safe_load(kueue.values["managerConfig"]["controllerManagerConfigYaml"])
    prefixes = tuple(configuration["resources"]["excludeResourcePrefixes"])
    assert requested
    assert [resource for resource in requested if not resource.startswith(prefixes)] == []


def test_quotas_and_guards_count_no_fabric_devices() -> None:
    made = planned(with_job())
    (of_team,) = made.teams
    limited = {resource for quota in of_team.namespace.quotas for resource in quota.hard}
    assert not {resource for resource in limited if EFA in resource or HUGEPAGES in resource}
    assert set(made.guards.max_per_node) == {GPU}
    (queue,) = made.queues.cluster_queues
    covered = {resource for _, resource in queue.spec.quotas}
    assert covered == {"cpu", "memory", GPU}
    assert of_team.jobs[0].pod.amounts.keys() == covered


MACHINES: Final = [row for row in machines().values() if row.network and row.network.fabric]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_pods_request_at_most_the_reserved_pages(machine: Machine) -> None:
    # Bottlerocket reserves 110 pages of 2 MiB for each CPU; AL2023 at least 5128 on large machines.
    assert machine.network
    pages = node_pages(machine, machine.network.fabric or "")
    assert pages <= min(5128 * 2 * MIB, machine.cpu // 1000 * 110 * 2 * MIB)
    assert pages % (2 * MIB) == 0


def test_huge_pages_are_written_as_bytes() -> None:
    assert format_amounts({HUGEPAGES: 2560 * MIB, EFA: 2}) == {HUGEPAGES: "2560Mi", EFA: "2"}


def test_every_fabric_of_a_machine_has_its_row() -> None:
    assert {row.network.fabric for row in MACHINES if row.network} == set(fabrics())
