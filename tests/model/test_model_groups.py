"""Servers whose replicas are groups of nodes: how they are counted, and what is refused."""

from typing import Any

from builders import EKS, GPU, PROVIDED, Data, errors, planned, pool, server, stack, team

from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import installed_by
from gpu_tenancy.model.plan.workloads import ServerPlan
from gpu_tenancy.model.source import Source

RACK = "example.com/rack"
CREATED: Data = {**EKS, **PROVIDED}


def sections(*, limit: int = 64, machines: int = 8, topology: Data | None = None, **fields: Any) -> Data:
    """A server of two nodes, and nodes for four of its replicas."""
    chat = server(**{"nodes": 2, "gpus": 8, "replicas": {"min": 1, "max": 3}, **fields})
    own: Data = {"topology": topology} if topology else {}
    of_team = team(gpus={"h100": {"guaranteed": limit}}, serving={"chat": chat})
    return stack(pools={"h100": {**pool(nodes=machines), **own}}, teams={"a": of_team})


def planned_server(**fields: Any) -> ServerPlan:
    (found,) = planned(sections(**fields)).teams[0].servers
    return found


def test_a_replica_is_a_leader_and_workers_with_the_same_resources() -> None:
    made = planned_server(nodes=3, replicas=2)
    assert made.worker is not None
    assert (made.nodes, made.api[1], made.replicas) == (3, "LeaderWorkerSet", 2)
    assert made.pod.amounts == made.worker.amounts
    assert made.pod.gpus == 8
    assert planned_server(nodes=1).worker is None
    assert planned_server(nodes=1).api[1] == "Deployment"


def test_workers_inherit_from_the_leader() -> None:
    env = {"A": "1", "B": "1"}
    plain = planned_server(command=["serve"], args=["--all"], env=env).worker
    own = {"command": ["serve", "--headless"], "env": {"B": "2"}}
    other = planned_server(command=["serve"], args=["--all"], env=env, worker=own).worker
    assert plain is not None
    assert other is not None
    assert (plain.command, plain.args, plain.env) == (("serve",), ("--all",), env)
    assert (other.command, other.args, other.env) == (("serve", "--headless"), (), {"A": "1", "B": "2"})


def test_reports_count_the_gpus_of_a_whole_group() -> None:
    (found,) = outlook(load(Source(sections(surge=1)))).serving
    assert (found.gpus, found.peak, found.limit) == (16, 64, 64)


def test_pods_of_a_group_use_the_network_between_gpus_and_shared_memory() -> None:
    made = sections(gpus=8, replicas=1)
    made["cluster"], made["pools"]["h100"]["fabric"] = CREATED, True
    (found,) = planned(made).teams[0].servers
    assert found.worker is not None
    assert found.pod.fabric == found.worker.fabric
    assert found.worker.fabric is not None
    made["teams"]["a"]["serving"]["chat"]["nodes"] = 1
    assert planned(made).teams[0].servers[0].pod.fabric is None
    assert planned_server(gpus=1).pod.shared_memory
    assert not planned_server(gpus=1, nodes=1).pod.shared_memory


def test_topology_applies_to_each_group() -> None:
    made = planned_server(topology={"rack": RACK}, together="rack")
    assert made.worker is not None
    assert made.pod.topology == made.worker.topology
    assert made.pod.topology["kueue.x-k8s.io/podset-required-topology"] == RACK
    assert "kueue.x-k8s.io/podset-group-name" in made.pod.topology
    free = planned_server(topology={"rack": RACK})
    assert dict(free.pod.topology) == {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}


def test_a_stack_with_a_group_needs_leader_worker_set() -> None:
    created = {**sections(), "cluster": CREATED}
    assert installed_by(Environment(load(Source(created))), "lws") == "here"
    alone = {**sections(), "cluster": CREATED}
    alone["teams"]["a"]["serving"]["chat"].pop("nodes")
    assert installed_by(Environment(load(Source(alone))), "lws") == "off"
    (problem,) = errors({**created, "operators": {"lws": "off"}})
    assert "the stack needs the operator: server chat of team a is a LeaderWorkerSet" in problem


def test_a_credential_among_the_variables_of_workers_is_refused() -> None:
    (problem,) = errors(sections(worker={"env": {"HF_TOKEN": "hf_" + "a1B2" * 9}}))
    assert problem.startswith("teams.a.serving.chat.worker.env.HF_TOKEN: looks like a credential")


def test_the_quota_of_a_namespace_admits_all_groups() -> None:
    (budget, *_) = planned(sections()).teams[0].namespace.quotas
    assert budget.hard[f"requests.{GPU}"] == 64
