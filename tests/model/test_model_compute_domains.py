"""Jobs whose pods share memory over NVLink between machines: what they need, and what is refused."""

from typing import Any, Final

import pytest
import yaml
from builders import EKS, Data, errors, job, planned, pool, queue_of, stack, team

from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.operators import ReleasePlan, releases
from gpu_tenancy.model.plan.operators.kueue import kueue_values, usage_weights
from gpu_tenancy.model.plan.people import rules
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec.tenancy import Usage

CHANNEL = "compute-domain.nvidia.com/channel"
CPU: Data = {"cpu": pool("m7i.8xlarge", 3, labels={"node-type": "cpu"})}
DALLAS: Final[Data] = {
    **EKS,
    "region": "us-east-1",
    "subnets": {f"us-east-1{zone}": f"subnet-0123456789abcdef{n}" for n, zone in enumerate(("a", "b", "-dfw-2a"))},
}


def sections(of_pool: Data | None = None, cluster: Data | None = None, **of_job: Any) -> Data:
    """Four machines with GB200s, and a job that shares memory between two of them; and machines with H100s."""
    training = {"fit": job(**{"workers": 2, "gpus": 4, "computeDomain": True, "flavor": "gb200", **of_job})}
    gpus = {"gb200": {"guaranteed": 16}, "h100": {"guaranteed": 8}}
    block = {"kind": "capacity-block", "reservation": "cr-0123456789abcdef0"}
    bought = {"zones": ["us-east-1-dfw-2a"], "capacity": block} if cluster else {}
    gb200 = {**pool("p6e-gb200.36xlarge", 4, **bought), **(of_pool or {})}
    return stack(
        cluster=cluster or {"cloud": "existing"},
        pools={**CPU, "gb200": gb200, "h100": pool()},
        teams={"a": team(gpus=gpus, training=training)},
    )


def created(version: str) -> Data:
    return {
        **DALLAS,
        "create": {
            "version": version,
            "admins": ["arn:aws:iam::111122223333:role/admins"],
            "system": {"machine": "m7i.4xlarge"},
        },
    }


def driver(declared: Data) -> ReleasePlan | None:
    return next(
        (one for one in releases(Environment(load(Source(declared)))) if one.name == "dra-driver-nvidia-gpu"), None
    )


def mappings(declared: Data) -> Any:
    values: Any = kueue_values(Environment(load(Source(declared))))
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
    declared = sections(**fields)
    assert errors(declared) == []
    (plan,) = planned(declared).teams[0].jobs
    assert plan.channels == "fit-channel"
    assert {role.name: role.pod.channel for role in plan.roles} == {
        role.name: "fit-channel" if role.name in claiming else None for role in plan.roles
    }


def test_a_cluster_that_is_created_gets_the_driver_for_compute_domains_beside_the_device_plugin() -> None:
    made = driver(sections(cluster=DALLAS))
    assert made is not None
    assert made.values["resources"] == {"gpus": {"enabled": False}}
    assert "gpuResourcesEnabledOverride" not in made.values
    assert driver(stack(cluster=DALLAS)) is None, "no machine has NVLink to others"
    assert driver(sections(cluster=created("1.33"), computeDomain=False)) is None, "as before, Kubernetes is too old"
    assert driver(sections()) is None, "in a cluster that exists, the driver is installed already"


def test_a_driver_that_is_set_to_here_allocates_gpus_only_without_a_device_plugin() -> None:
    plugin = {**sections(cluster=DALLAS), "operators": {"draDriver": "here"}}
    assert errors(plugin) == []
    made = driver(plugin)
    assert made is not None
    assert made.values["resources"] == {"gpus": {"enabled": False}}
    off = {"install": "here", "values": {"devicePlugin": {"enabled": False}}}
    alone = driver({**plugin, "operators": {"draDriver": "here", "gpuOperator": off}})
    assert alone is not None
    assert alone.values["gpuResourcesEnabledOverride"] is True
    assert "resources" not in alone.values


def test_gpus_of_the_driver_are_not_placed_by_topology() -> None:
    off = {"install": "here", "values": {"devicePlugin": {"enabled": False}}}
    declared = sections({"topology": "node"}, cluster=created("1.36"))
    assert errors(declared) == []
    (problem,) = errors({**declared, "operators": {"draDriver": "here", "gpuOperator": off}})
    assert problem.startswith("pools.gb200.topology: does not work with draDriver: Kueue 0.19 cannot place pods")


def test_queues_count_channels_only_where_nodes_have_them_and_the_plan_does_not() -> None:
    made = queue_of(planned(sections()), "a")
    assert made.claimed == {CHANNEL: ("gb200",)}
    assert {resource for _, resource in made.spec.quotas} == {"cpu", "memory", "nvidia.com/gpu"}
    assert mappings(sections()) == [
        {"name": CHANNEL, "deviceClassNames": ["compute-domain-default-channel.nvidia.com"]}
    ]


@pytest.mark.parametrize(
    "declared",
    [
        stack(),
        {**sections(computeDomain=False), "operators": {"draDriver": "off"}},
        sections({"sharing": {"mps": 2}}, computeDomain=False, gpus=1),
    ],
    ids=["no NVLink", "no driver", "parts of GPUs"],
)
def test_without_channels_nothing_counts_them(declared: Data) -> None:
    assert queue_of(planned(declared), "a").claimed == {}
    assert mappings(declared) is None
    assert not [rule for rule in rules(Environment(load(Source(declared))), "researcher") if rule.domains]


def test_a_team_can_submit_a_compute_domain_of_its_own_without_one_in_the_stack() -> None:
    declared = sections(computeDomain=False)
    assert queue_of(planned(declared), "a").claimed == {CHANNEL: ("gb200",)}
    verbs = {
        resource: rule.verbs
        for rule in rules(Environment(load(Source(declared))), "researcher")
        for resource in rule.resources
    }
    assert "create" in verbs["computedomains"]
    assert verbs["resourceclaimtemplates"] == ("get", "list", "watch")


def test_past_usage_does_not_count_channels() -> None:
    assert (
        usage_weights(Environment(load(Source(sections()))), Usage.model_validate({"halfLife": "1h"}))[CHANNEL] == 0.0
    )


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
def test_machines_of_each_cloud_have_the_domains_of_the_catalogue(own: Data, nodes: int) -> None:
    gpus = own.get("gpusPerNode", 4)
    declared = sections({**own, "nodes": nodes}, workers=nodes + 1, gpus=gpus)
    if own["machine"] is None:
        del declared["pools"]["gb200"]["machine"]
    most = {"guaranteed": nodes * gpus}
    declared["teams"]["a"]["gpus"] = {"gb200": most, "h100": {"guaranteed": 8}}
    declared["cluster"]["provider"] = {"a": "gcp", "S": "azure"}.get(str(own["machine"])[0], "aws")
    (problem,) = [one for one in errors(declared) if "at most" in one]
    assert f"connects at most {nodes} nodes of flavor gb200" in problem
