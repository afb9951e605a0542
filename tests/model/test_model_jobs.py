"""Kinds of jobs and their roles, topologies, and jobs that share memory over NVLink."""

from typing import Any, Final

import pytest
import yaml
from builders import (
    CREATED,
    EKS,
    GPU,
    PROVIDED,
    Data,
    base,
    environment_of,
    errors,
    job,
    patched,
    planned,
    pool,
    queue_of,
    stack,
    team,
)

from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.model.plan.operators import ReleasePlan, releases
from gpu_tenancy.model.plan.operators.kueue import kueue_values, usage_weights
from gpu_tenancy.model.plan.people import rules
from gpu_tenancy.model.plan.workloads import JobPlan, RolePlan
from gpu_tenancy.model.spec.roles import SSHD
from gpu_tenancy.model.spec.tenancy import Usage


def with_job(**fields: object) -> Data:
    return patched(base("kinds"), {"teams": {"a": {"training": {"j": fields}}}})


def planned_job(**fields: object) -> JobPlan:
    (found,) = planned(with_job(**fields)).teams[0].jobs
    return found


def job_roles(**fields: object) -> dict[str, RolePlan]:
    return {role.name: role for role in planned_job(**fields).roles}


def test_a_launcher_has_no_gpus_and_the_nodes_of_its_workers() -> None:
    roles = job_roles(framework="mpi", workers=3, gpus=4, command=["mpirun", "/train"])
    assert [(name, role.pods, role.pod.gpus) for name, role in roles.items()] == [("launcher", 1, 0), ("worker", 3, 4)]
    launcher, worker = (role.pod for role in roles.values())
    assert launcher.node_labels == worker.node_labels
    assert (launcher.command, worker.command) == (("mpirun", "/train"), SSHD)


def test_a_role_inherits_from_its_job() -> None:
    role = {"gpus": 0, "cpu": "500m", "memory": "1Gi", "image": "registry.example.com/driver:2", "env": {"B": "2"}}
    roles = job_roles(framework="jobset", gpus=2, env={"A": "1"}, args=["--all"], roles={"driver": role, "worker": {}})
    driver, worker = (role.pod for role in roles.values())
    assert driver.amounts == {CPU: 500, MEMORY: 2**30}
    assert (driver.image, driver.args, driver.env) == (role["image"], ("--all",), {"A": "1", "B": "2"})
    assert (worker.env, worker.amounts[GPU]) == ({"A": "1"}, 2)


def test_roles_that_differ_inherit_no_arguments_and_no_cpus() -> None:
    roles = job_roles(framework="jobset", args=["--all"], roles={"driver": {"command": ["/driver"]}})
    assert roles["driver"].pod.args == ()
    roles = job_roles(framework="jobset", gpus=8, cpu=100, memory="512Gi", roles={"small": {"gpus": 1}, "worker": {}})
    assert roles["worker"].pod.amounts[CPU] == 100_000
    assert roles["small"].pod.amounts[CPU] < 100_000


def test_one_worker_beside_a_launcher_has_no_fabric() -> None:
    """One worker exchanges no data, so it needs no network between GPUs."""
    assert job_roles(framework="mpi", gpus=8)["worker"].pod.fabric is None


def test_heads_have_no_gpus_and_ray_jobs_the_command() -> None:
    made = planned_job(framework="ray", gpus=4, workers=2, command=["python", "/tune.py"], args=["--all"])
    assert [(role.name, role.pods, role.pod.gpus) for role in made.roles] == [("head", 1, 0), ("worker", 2, 4)]
    assert made.entrypoint == ("python", "/tune.py", "--all")
    assert [(role.pod.command, role.pod.args) for role in made.roles] == [((), ()), ((), ())]


def test_further_roles_of_a_ray_job_are_groups_of_workers() -> None:
    own = {"head": {"gpus": 1}, "actor": {"pods": 2, "command": ["/warm"]}, "env": {"gpus": 0}}
    roles = job_roles(framework="ray", gpus=2, command=["/run"], roles=own)
    assert [(name, role.pods, role.pod.gpus) for name, role in roles.items()] == [
        ("head", 1, 1),
        ("actor", 2, 2),
        ("env", 1, 0),
    ]
    assert (roles["actor"].pod.command, roles["env"].pod.command) == (("/warm",), ())


def test_a_leader_is_as_its_workers_and_each_group_has_one() -> None:
    made = planned_job(framework="leader-worker", gpus=4, workers=3, groups=2)
    assert [(role.name, role.pods, role.pod.gpus) for role in made.roles] == [("leader", 1, 4), ("worker", 3, 4)]
    assert (made.groups, made.entrypoint) == (2, ())


def test_a_gang_can_have_roles_of_different_size() -> None:
    gang = job(scheduler="volcano", gpus=4, roles={"driver": {"gpus": 0}, "worker": {"pods": 2}}, flavor="h100")
    of_team = {"gpus": {}, "gangs": {"h100": {"guaranteed": 8}}, "training": {"g": gang}}
    (made,) = planned(stack(teams={"a": team(**of_team)})).teams[0].gangs
    assert [(role.name, role.pods, role.pod.gpus) for role in made.roles] == [("driver", 1, 0), ("worker", 2, 4)]


# Topologies.

OWN: Data = {"block": "example.com/block", "rack": "example.com/rack"}
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"
NODE = "kubernetes.io/hostname"


def placed(topology: object = OWN, **training: object) -> Data:
    """H100 nodes with a topology, and a team with a job of two pods and a server there."""
    teams = {"a": {"training": {"fit": training}}}
    return patched(base("topology"), {"pools": {"h100": {"topology": topology}}, "teams": teams})


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
def test_levels_are_labels_of_the_cloud_and_the_node(cloud: Data, machine: str, levels: list[str]) -> None:
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
    assert annotations(placed(together=together)) == expected


def test_the_rack_of_a_four_layer_machine_is_its_lowest_layer() -> None:
    own = team(gpus={"big": {"guaranteed": 16}}, training={"fit": job(workers=2, gpus=8, together="rack")})
    pools = {"big": pool("p6-b200.48xlarge", topology="cloud")}
    (plan,) = planned(stack(cluster=EKS, pools=pools, teams={"a": own})).teams[0].jobs
    assert plan.pod.topology == {REQUIRED: "topology.k8s.aws/network-node-layer-4"}


def test_workloads_without_a_topology_request_are_unconstrained() -> None:
    plan = planned(placed()).teams[0]
    assert [pods.topology for pods in (plan.jobs[0].pod, plan.servers[0].pod)] == [{UNCONSTRAINED: "true"}] * 2
    assert annotations(placed(topology=None)) == {}, "the flavor has no topology"


def test_gangs_of_volcano_have_no_annotation() -> None:
    gang = job(scheduler="volcano", tasks={"w": 2})
    own = team(gangs={"h100": {"guaranteed": 4}}, training={"g": gang})
    (plan,) = planned(stack(pools={"h100": pool(topology=OWN)}, teams={"a": own})).teams[0].gangs
    assert plan.pod.topology == {}


def roles_of(**training: Any) -> dict[str, Data]:
    (plan,) = planned(placed(together="rack", **training)).teams[0].jobs
    return {role.name: dict(role.pod.topology) for role in plan.roles}


def test_a_launcher_with_gpus_is_in_the_rack_of_its_workers() -> None:
    together = {REQUIRED: "example.com/rack", "kueue.x-k8s.io/podset-group-name": "job"}
    assert roles_of(framework="mpi", roles={"launcher": {"gpus": 4}}) == {"launcher": together, "worker": together}


def test_a_role_without_gpus_runs_on_any_nodes() -> None:
    roles: Data = {"driver": {"gpus": 0}, "worker": {}}
    expected = {"driver": {UNCONSTRAINED: "true"}, "worker": {REQUIRED: "example.com/rack"}}
    assert roles_of(framework="jobset", roles=roles) == expected


# Compute domains.

CHANNEL = "compute-domain.nvidia.com/channel"
OFF: Data = {"install": "here", "values": {"devicePlugin": {"enabled": False}}}
DALLAS: Final[Data] = {
    **EKS,
    "region": "us-east-1",
    "subnets": {f"us-east-1{zone}": f"subnet-0123456789abcdef{n}" for n, zone in enumerate(("a", "b", "-dfw-2a"))},
}


def connected(of_pool: Data | None = None, cluster: Data | None = None, **of_job: Any) -> Data:
    """Four machines with GB200s, and a job that shares memory between two of them; and machines with H100s."""
    block = {"kind": "capacity-block", "reservation": "cr-0123456789abcdef0"}
    bought = {"zones": ["us-east-1-dfw-2a"], "capacity": block} if cluster else {}
    teams = {"a": {"training": {"fit": of_job}}}
    made = patched(base("nvlink"), {"pools": {"gb200": {**bought, **(of_pool or {})}}, "teams": teams})
    return made | ({"cluster": {**PROVIDED, **cluster}} if cluster else {})


def created(version: str) -> Data:
    return {**DALLAS, "create": {**CREATED["create"], "version": version}}


def driver(declared: Data) -> ReleasePlan | None:
    return next((one for one in releases(environment_of(declared)) if one.name == "dra-driver-nvidia-gpu"), None)


def mappings(declared: Data) -> Any:
    values: Any = kueue_values(environment_of(declared))
    configuration = yaml.safe_load(values["managerConfig"]["controllerManagerConfigYaml"])
    return configuration["resources"].get("deviceClassMappings")


@pytest.mark.parametrize(
    ("fields", "claiming"),
    [
        ({}, ["worker"]),
        ({"workers": {"min": 2, "max": 4}}, ["worker"]),
        ({"framework": "pytorch"}, ["worker"]),
        ({"framework": "jax"}, ["worker"]),
        ({"framework": "mpi"}, ["worker"]),
        ({"framework": "deepspeed"}, ["worker"]),
        ({"framework": "jobset", "roles": {"eval": {"gpus": 0}, "worker": {}}}, ["worker"]),
        ({"framework": "ray", "command": ["/train"]}, ["worker"]),
        ({"framework": "leader-worker", "workers": 1}, ["leader", "worker"]),
    ],
    ids=str,
)
def test_the_pods_with_gpus_of_every_kind_claim_a_channel(fields: Data, claiming: list[str]) -> None:
    declared = connected(**fields)
    assert errors(declared) == []
    (plan,) = planned(declared).teams[0].jobs
    assert plan.channels == "fit-channel"
    assert {role.name: role.pod.channel for role in plan.roles} == {
        role.name: "fit-channel" if role.name in claiming else None for role in plan.roles
    }


def test_created_clusters_get_the_compute_domain_driver() -> None:
    made = driver(connected(cluster=DALLAS))
    assert made is not None
    assert made.values["resources"] == {"gpus": {"enabled": False}}
    assert "gpuResourcesEnabledOverride" not in made.values
    assert driver(stack(cluster=DALLAS)) is None, "no machine has NVLink to others"
    assert driver(connected(cluster=created("1.33"), computeDomain=False)) is None, "as before, Kubernetes is too old"
    assert driver(connected()) is None, "in a cluster that exists, the driver is installed already"


def test_driver_allocates_gpus_without_a_device_plugin() -> None:
    plugin = {**connected(cluster=DALLAS), "operators": {"draDriver": "here"}}
    assert errors(plugin) == []
    made, alone = driver(plugin), driver({**plugin, "operators": {"draDriver": "here", "gpuOperator": OFF}})
    assert made is not None
    assert alone is not None
    assert made.values["resources"] == {"gpus": {"enabled": False}}
    assert alone.values["gpuResourcesEnabledOverride"] is True
    assert "resources" not in alone.values


def test_gpus_of_the_driver_are_not_placed_by_topology() -> None:
    declared = connected({"topology": "node"}, cluster=created("1.36"))
    assert errors(declared) == []
    (problem,) = errors({**declared, "operators": {"draDriver": "here", "gpuOperator": OFF}})
    assert problem.startswith("pools.gb200.topology: does not work with draDriver: Kueue 0.19 cannot place pods")


def test_queues_count_channels_of_nodes_that_have_them() -> None:
    made = queue_of(planned(connected()), "a")
    assert made.claimed == {CHANNEL: ("gb200",)}
    assert {resource for _, resource in made.spec.quotas} == {"cpu", "memory", "nvidia.com/gpu"}
    assert mappings(connected()) == [
        {"name": CHANNEL, "deviceClassNames": ["compute-domain-default-channel.nvidia.com"]}
    ]


@pytest.mark.parametrize(
    "declared",
    [
        stack(),
        {**connected(computeDomain=False), "operators": {"draDriver": "off"}},
        connected({"sharing": {"mps": 2}}, computeDomain=False, gpus=1),
    ],
    ids=["no NVLink", "no driver", "parts of GPUs"],
)
def test_without_channels_nothing_counts_them(declared: Data) -> None:
    assert queue_of(planned(declared), "a").claimed == {}
    assert mappings(declared) is None
    assert not [rule for rule in rules(environment_of(declared), "researcher") if rule.domains]


def test_teams_can_create_their_own_compute_domains() -> None:
    declared = connected(computeDomain=False)
    assert queue_of(planned(declared), "a").claimed == {CHANNEL: ("gb200",)}
    verbs = {
        resource: rule.verbs for rule in rules(environment_of(declared), "researcher") for resource in rule.resources
    }
    assert "create" in verbs["computedomains"]
    assert verbs["resourceclaimtemplates"] == ("get", "list", "watch")


def test_past_usage_does_not_count_channels() -> None:
    assert usage_weights(environment_of(connected()), Usage.model_validate({"halfLife": "1h"}))[CHANNEL] == 0.0


@pytest.mark.parametrize(
    ("own", "nodes"),
    [
        ({"machine": "a4x-highgpu-4g"}, 18),
        ({"machine": "Standard_ND128isr_NDR_GB200_v6"}, 18),
        ({"machine": "Standard_ND128isr_GB300_v6"}, 18),
        ({"gpu": "gb300", "gpusPerNode": 2, "cpu": 64, "memory": "512Gi", "machine": None}, 36),
    ],
    ids=["GCP", "Azure", "Azure GB300", "own machines"],
)
def test_nvlink_domains_are_those_of_the_catalogue(own: Data, nodes: int) -> None:
    gpus = own.get("gpusPerNode", 4)
    declared = connected({**own, "nodes": nodes}, workers=nodes + 1, gpus=gpus)
    most = {"guaranteed": nodes * gpus}
    declared["teams"]["a"]["gpus"] = {"gb200": most, "h100": {"guaranteed": 8}}
    declared["cluster"]["provider"] = {"a": "gcp", "S": "azure"}.get(str(own["machine"])[0], "aws")
    (problem,) = [one for one in errors(declared) if "at most" in one]
    assert f"connects at most {nodes} nodes of flavor gb200" in problem


# GPUs of the DRA driver.


def test_pods_and_quotas_are_those_of_a_device_plugin() -> None:
    driven = stack(cluster=EKS, operators={"draDriver": "here", "gpuOperator": OFF})
    plugin = stack(cluster=EKS)
    assert errors(driven) == []
    assert planned(driven).queues == planned(plugin).queues
    assert planned(driven).teams == planned(plugin).teams
