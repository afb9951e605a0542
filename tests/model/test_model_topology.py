"""Topologies: the levels of each cloud, what jobs ask of them, and what Kueue could never place."""

from typing import Any

import pytest
from builders import EKS, Data, job, planned, pool, server, stack, team

OWN: Data = {"block": "example.com/block", "rack": "example.com/rack"}
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"
NODE = "kubernetes.io/hostname"


def sections(topology: object = OWN, of_pool: Data | None = None, **training: object) -> Data:
    """H100 nodes with a topology, and a team with a job of two pods and a server there."""
    own = team(
        gpus={"h100": {"guaranteed": 16}},
        training={"fit": job(**{"workers": 2, "gpus": 4, **training})},
        serving={"serve": server()},
    )
    pools = {"h100": pool(topology=topology, **(of_pool or {}))}
    return stack(pools=pools, teams={"a": own})


def annotations(of_job: Data) -> Data:
    (plan,) = planned(of_job).teams[0].jobs
    return dict(plan.pod.topology)


@pytest.mark.parametrize(
    ("cloud", "machine", "levels"),
    [
        (EKS, "p5.48xlarge", [f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3)]),
        (EKS, "p6-b200.48xlarge", [f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3, 4)]),
    ],
)
def test_the_levels_are_the_labels_that_the_cloud_sets_and_the_node(
    cloud: Data, machine: str, levels: list[str]
) -> None:
    pools = {"big": pool(machine, topology="cloud"), "cpu": pool("m7i.8xlarge", 3)}
    flavors = planned(stack(cluster=cloud, pools=pools, teams={})).queues.flavors
    assert {flavor.name: list(flavor.topology) for flavor in flavors} == {"cpu": [], "big": [*levels, NODE]}


@pytest.mark.parametrize(
    ("together", "expected"),
    [
        ("rack", {REQUIRED: "example.com/rack"}),
        ("block", {REQUIRED: "example.com/block"}),
        ({"required": "rack"}, {REQUIRED: "example.com/rack"}),
        ({"preferred": "rack"}, {PREFERRED: "example.com/rack"}),
        ({"preferred": "node"}, {PREFERRED: NODE}),
        ("anywhere", {UNCONSTRAINED: "true"}),
    ],
)
def test_a_job_requests_one_topology_domain(together: object, expected: Data) -> None:
    assert annotations(sections(together=together)) == expected


def test_the_rack_of_a_four_layer_machine_is_its_lowest_layer() -> None:
    own = team(gpus={"big": {"guaranteed": 16}}, training={"fit": job(workers=2, gpus=8, together="rack")})
    pools = {"big": pool("p6-b200.48xlarge", topology="cloud")}
    (plan,) = planned(stack(cluster=EKS, pools=pools, teams={"a": own})).teams[0].jobs
    assert plan.pod.topology == {REQUIRED: "topology.k8s.aws/network-node-layer-4"}


def test_workloads_without_a_topology_request_are_unconstrained() -> None:
    plan = planned(sections()).teams[0]
    assert [pods.topology for pods in (plan.jobs[0].pod, plan.servers[0].pod)] == [{UNCONSTRAINED: "true"}] * 2


def test_workloads_on_a_flavor_without_topology_have_no_annotation() -> None:
    assert annotations(sections(topology=None)) == {}


def test_gangs_of_volcano_have_no_annotation() -> None:
    gang = job(scheduler="volcano", tasks={"w": 2})
    own = team(gangs={"h100": {"guaranteed": 4}}, training={"g": gang})
    (plan,) = planned(stack(pools={"h100": pool(topology=OWN)}, teams={"a": own})).teams[0].gangs
    assert plan.pod.topology == {}


def roles_of(**training: Any) -> dict[str, Data]:
    (plan,) = planned(sections(together="rack", **training)).teams[0].jobs
    return {role.name: dict(role.pod.topology) for role in plan.roles}


def test_a_launcher_with_gpus_is_in_the_rack_of_its_workers() -> None:
    together = {REQUIRED: "example.com/rack", "kueue.x-k8s.io/podset-group-name": "job"}
    assert roles_of(framework="mpi", roles={"launcher": {"gpus": 4}}) == {"launcher": together, "worker": together}


def test_a_role_without_gpus_runs_on_any_nodes() -> None:
    roles: Data = {"driver": {"gpus": 0}, "worker": {}}
    expected = {"driver": {UNCONSTRAINED: "true"}, "worker": {REQUIRED: "example.com/rack"}}
    assert roles_of(framework="jobset", roles=roles) == expected
