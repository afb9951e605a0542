"""GPUs of NVIDIA's DRA driver in place of a device plugin: what is refused with them."""

from typing import Any

import pytest
from builders import EKS, Data, errors, job, planned, pool, stack, team

OFF: Data = {"install": "here", "values": {"devicePlugin": {"enabled": False}}}
WITH: Data = {"operators": {"draDriver": "here", "gpuOperator": OFF}}


def driven(**sections: Any) -> Data:
    """A stack on EKS whose GPUs the DRA driver allocates."""
    return stack(cluster=sections.pop("cluster", EKS), **WITH, **sections)


def one_pool(**fields: Any) -> Data:
    return driven(pools={"cpu": pool("m7i.8xlarge", 3), "h100": pool(**fields)})


def test_pods_and_quotas_are_those_of_a_device_plugin() -> None:
    assert errors(driven()) == []
    plugin = stack(cluster=EKS)
    assert planned(driven()).queues == planned(plugin).queues
    assert planned(driven()).teams == planned(plugin).teams


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"sharing": {"mps": 4}}, "pools.h100.sharing.mps: does not work with draDriver"),
        ({"sharing": {"timeSlicing": 4}}, "pools.h100.sharing.timeSlicing: does not work with draDriver"),
        ({"topology": "node"}, "pools.h100.topology: does not work with draDriver"),
        ({"driver": "bottlerocket"}, "pools.h100.driver: bottlerocket brings a device plugin"),
    ],
)
def test_settings_of_the_device_plugin_are_refused_with_dra(fields: Data, place: str) -> None:
    (problem,) = [one for one in errors(one_pool(**fields)) if "draDriver" in one]
    assert problem.startswith(place)


def test_gkes_own_device_plugin_is_refused() -> None:
    cluster = {"cloud": "existing", "provider": "gcp"}
    pools = {"cpu": pool("n2-standard-32", 3, labels={"node-type": "cpu"}), "h100": pool("a3-highgpu-8g")}
    sections = stack(cluster=cluster, pools=pools, **WITH)
    (problem,) = [one for one in errors(sections) if "draDriver" in one]
    assert problem.startswith("pools.h100.driver: brings a device plugin (")


def test_gangs_of_volcano_are_refused() -> None:
    sections = driven(teams={"a": team(gangs={"h100": {"guaranteed": 8}})})
    (problem,) = errors(sections)
    assert problem == (
        "teams.a.gangs.h100: is scheduled by Volcano, which does not allocate GPUs of draDriver to pods that request"
        " nvidia.com/gpu; remove it, or use the device plugin"
    )
    jobs = {"fit": job(gpus=8, gang=True)}
    (problem,) = errors(driven(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, training=jobs)}))
    assert problem.startswith("teams.a.training.fit.gang: is scheduled by Volcano")


@pytest.mark.parametrize(("version", "number"), [("1.35", 1), ("1.36", 0)])
def test_the_scheduler_of_a_created_cluster_allocates_them(version: str, number: int) -> None:
    subnets = {"eu-central-1a": "subnet-0123456789abcdef0", "eu-central-1b": "subnet-0123456789abcdef1"}
    create = {
        "version": version,
        "admins": ["arn:aws:iam::111122223333:role/admins"],
        "system": {"machine": "m7i.4xlarge"},
    }
    problems = errors(driven(cluster={**EKS, "subnets": subnets, "create": create}))
    assert [one for one in problems if one.startswith("cluster.create.version: 1.35 is older than 1.36")] == problems
    assert len(problems) == number


def test_compute_domains_alone_refuse_no_setting() -> None:
    alone = {"install": "here", "values": {"resources": {"gpus": {"enabled": False}}}}
    pools = {"cpu": pool("m7i.8xlarge", 3), "h100": pool(sharing={"mps": 4})}
    assert errors(stack(cluster=EKS, pools=pools, operators={"draDriver": alone})) == []
