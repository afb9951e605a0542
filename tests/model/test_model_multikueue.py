"""MultiKueue between stacks: a manager's data of its workers, and both previews."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import EKS, EXISTING, Data, amounts, cohort_of, job, patched, pool, queue_of, team

from gpu_tenancy.base.problems import StackError
from gpu_tenancy.base.quantity import CPU
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.plan.operators.kueue import CHECK, CONTROLLER
from gpu_tenancy.model.source import read_file

CASES: Any = yaml.safe_load(Path(__file__).with_name("multikueue.yaml").read_text(encoding="utf-8"))
GPUS: Data = {"h100": {"guaranteed": 8, "limit": 16}}


def worker(**sections: Any) -> Data:
    return {
        "cluster": dict(EXISTING),
        "pools": {"cpu": pool("m7i.8xlarge", 1, labels={"node-type": "cpu"}), "h100": pool()},
        "priorities": {"high": 1000},
        "teams": {"a": team(gpus=GPUS, priority="high")},
        "multikueue": {"manager": "hub"},
        **sections,
    }


def manager(**sections: Any) -> Data:
    named = [{"name": name, "stack": name, "secret": f"{name}-kubeconfig"} for name in ("west", "east")]
    return {"cluster": dict(EXISTING), "multikueue": {"workers": named}, **sections}


class Stacks:
    def __init__(self, folder: Path, **stacks: Data) -> None:
        self.folder = folder
        for name, sections in {"hub": manager(), "west": worker(), "east": worker(), **stacks}.items():
            config = {"config": {f"gpu-tenancy:{key}": value for key, value in sections.items()}}
            (folder / f"Pulumi.{name}.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")

    def plan(self, name: str) -> Plan:
        return plan(load(read_file(self.folder / f"Pulumi.{name}.yaml", f"stacks/Pulumi.{name}.yaml")))

    def errors(self, name: str) -> list[str]:
        try:
            self.plan(name)
        except StackError as error:
            return [str(problem) for problem in error.problems]
        return []


def test_a_manager_has_the_sum_of_its_workers(tmp_path: Path) -> None:
    more = {"h100": {"guaranteed": 4, "limit": 8}}
    made = Stacks(tmp_path, east=worker(teams={"a": team(gpus=more, priority="high")})).plan("hub")
    assert amounts(queue_of(made, "a"), "h100") == (12, 12, None)
    assert amounts(cohort_of(made, "org"), "h100")[0] == 32 - 12
    west = Stacks(tmp_path).plan("west")
    # CPU of both clusters, too: each worker's share of its nodes.
    share = amounts(queue_of(west, "a"), "h100", CPU)[0]
    assert amounts(queue_of(made, "a"), "h100", CPU)[0] == share + share // 2
    assert [flavor.node_labels for flavor in made.queues.flavors] == [f.node_labels for f in west.queues.flavors]
    assert list(made.priorities) == ["high"]


def test_a_manager_has_no_nodes_and_dispatches_every_queue(tmp_path: Path) -> None:
    cluster = {**EKS, "provides": ["networkPolicies"]}
    made = Stacks(tmp_path, hub=manager(cluster=cluster)).plan("hub")
    assert made.cluster.pools == ()
    assert not {"gpu-operator", "dra-driver-nvidia-gpu"} & {release.name for release in made.operators}
    assert [(one.name, one.secret) for one in made.queues.workers] == [
        ("west", "west-kubeconfig"),
        ("east", "east-kubeconfig"),
    ]
    assert all(queue.dispatches for queue in made.queues.cluster_queues)
    assert all(not flavor.taints for flavor in made.queues.flavors)
    (kueue,) = (release for release in made.operators if release.name == "kueue")
    configuration = yaml.safe_load(kueue.values["managerConfig"]["controllerManagerConfigYaml"])
    assert configuration["multiKueue"] == {
        "gcInterval": "1m0s",
        "origin": "dev",
        "workerLostTimeout": "900s",
        "dispatcherName": "kueue.x-k8s.io/multikueue-dispatcher-all-at-once",
    }


def test_jobs_of_a_manager_are_left_to_multikueue(tmp_path: Path) -> None:
    jobs = manager(teams={"a": {"training": {"nightly": job(gpus=8)}}})
    (nightly,) = Stacks(tmp_path, hub=jobs).plan("hub").teams[0].jobs
    assert nightly.dispatched
    assert Stacks(tmp_path, hub=jobs).plan("west").teams[0].jobs == ()
    assert (CONTROLLER, CHECK) == ("kueue.x-k8s.io/multikueue", "gpu-tenancy-multikueue")


def test_train_jobs_of_a_manager_name_runtimes_of_workers(tmp_path: Path) -> None:
    installed = {"operators": {"trainer": "installed"}}
    jobs = {one: job(framework=one, priority="high") for one in ("jax", "pytorch")}
    hub, both = manager(teams={"a": {"training": jobs}}, **installed), worker(**installed)
    stacks = Stacks(tmp_path, hub=hub, west=both, east=both)
    named = {found.runtime for found in stacks.plan("hub").teams[0].jobs}
    assert named == {"jax-distributed-high", "torch-distributed-high"}
    for stack in ("hub", "west"):
        assert {runtime.name for runtime in stacks.plan(stack).teams[0].runtimes} == named


@pytest.mark.parametrize("cloud", [EXISTING, {**EKS, "provides": ["networkPolicies"]}])
def test_flavors_of_a_manager_have_the_racks_of_its_workers(cloud: Data, tmp_path: Path) -> None:
    racks = worker(pools={**worker()["pools"], "h100": pool(topology={"rack": "example.com/rack"})})
    jobs = {"a": {"training": {"near": job(gpus=8, workers=2, together="rack")}}}
    made = Stacks(tmp_path, hub=manager(cluster=dict(cloud), teams=jobs), west=racks, east=racks).plan("hub")
    levels = {flavor.name: flavor.topology for flavor in made.queues.flavors}
    assert levels == {"cpu": (), "h100": ("example.com/rack", "kubernetes.io/hostname")}
    (near,) = made.teams[0].jobs
    assert near.pod.topology == {"kueue.x-k8s.io/podset-required-topology": "example.com/rack"}


def test_managers_have_no_wildcard_rights(tmp_path: Path) -> None:
    stacks = Stacks(tmp_path)
    access = stacks.plan("west").manager
    assert access
    assert stacks.plan("hub").manager is None
    rules = [*access.reads, *access.writes]
    asked = {(group, resource) for rule in rules for group in rule.groups for resource in rule.resources}
    assert not any("*" in part for pair in asked for part in pair)
    assert ("trainer.kubeflow.org", "trainjobs") not in asked
    assert ("", "secrets") not in asked
    assert {verb for rule in access.reads for verb in rule.verbs} == {"get", "list", "watch"}
    with_trainer = worker(operators={"trainer": "installed"})
    trained = Stacks(tmp_path, west=with_trainer, east=with_trainer).plan("west").manager
    assert trained
    assert any("trainjobs" in rule.resources for rule in trained.writes)


@pytest.mark.parametrize("case", CASES)
def test_stacks_that_do_not_fit_together_are_refused(case: str, tmp_path: Path) -> None:
    both = {"hub": manager(), "other": manager(), "west": worker(), "east": worker()}
    stacks = Stacks(tmp_path, **patched(both, CASES[case]["patch"]))
    if "west" in CASES[case]:
        (problem,) = stacks.errors("west")
        assert CASES[case]["west"] in problem
    else:
        problems = stacks.errors("hub")
        assert any(CASES[case]["error"] in problem for problem in problems), problems


def test_errors_name_the_line_of_the_manager(tmp_path: Path) -> None:
    (error,) = Stacks(tmp_path, hub=manager(teams={"b": {}})).errors("hub")
    assert error.startswith("stacks/Pulumi.hub.yaml:")
    assert error.endswith("add it to the stacks of the workers, or remove it")
