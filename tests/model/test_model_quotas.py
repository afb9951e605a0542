"""The quota model: each row, its example, the key `fairness`, and MultiKueue between stacks."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import (
    EKS,
    EXISTING,
    GPU,
    Data,
    amounts,
    cohort_of,
    h100,
    job,
    line,
    patched,
    planned,
    pool,
    queue_of,
    server,
    stack,
    team,
    tree_of,
)
from operators_builders import kueue, made_here
from repository import ROOT

from gpu_tenancy.base.problems import StackError
from gpu_tenancy.base.quantity import CPU, parse_bytes, parse_cpu
from gpu_tenancy.kueue import FairStrategy, PodSet, Step, Unmodelled, Workload
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.plan.namespaces import ResourceQuota
from gpu_tenancy.model.plan.operators.kueue import CHECK, CONTROLLER
from gpu_tenancy.model.plan.queues import tenancy
from gpu_tenancy.model.plan.rollouts import Rollout
from gpu_tenancy.model.plan.shares import Measure
from gpu_tenancy.model.source import read_file
from gpu_tenancy.simulation.scenes import unmodelled_of
from gpu_tenancy.simulation.stage import play

CASES: Any = yaml.safe_load(Path(__file__).with_name("quotas.yaml").read_text(encoding="utf-8"))
GIB = 2**30
EIGHTH = 1911 * GIB // 8  # a GPU's share of the pods' memory of a p5.48xlarge


def quotas(made: Plan, name: str = "a") -> dict[str, ResourceQuota]:
    (namespace,) = (team.namespace for team in made.teams if team.namespace.name == name)
    return {quota.name: quota for quota in namespace.quotas}


def parsed(flavor_and_resource: str, expected: list[Any]) -> tuple[int | None, ...]:
    parse = {"cpu": parse_cpu, "memory": parse_bytes}.get(flavor_and_resource.partition(" ")[2], int)
    return tuple(amount if amount is None else parse(amount) for amount in expected)


@pytest.mark.parametrize("case", CASES)
def test_queues_and_cohorts_have_the_quota_of_the_stack(case: str) -> None:
    expected = CASES[case]
    made = planned(patched(stack(), expected["patch"]))
    for name, quotas in expected["quotas"].items():
        cohorts = {cohort.name for cohort in made.queues.cohorts}
        owner = cohort_of(made, name) if name in cohorts else queue_of(made, name)
        found = {key: amounts(owner, *key.split()) for key in quotas}
        assert found == {key: parsed(key, amount) for key, amount in quotas.items()}
        assert quotas or not getattr(owner, "groups", ())
    if "parents" in expected:
        assert {cohort.name: cohort.parent for cohort in made.queues.cohorts} == expected["parents"]
    flavors = {flavor.name: flavor for flavor in made.queues.flavors}
    for name, labels in expected.get("labels", {}).items():
        assert flavors[name].node_labels == labels
    for name, taints in expected.get("taints", {}).items():
        assert [taint.key for taint in flavors[name].taints] == taints


def test_row_namespace_quota_is_the_sum_of_limits_and_gangs() -> None:
    gpus = {"h100": {"guaranteed": 4, "limit": 8}, "a100": {"limit": 3}}
    plan = planned(stack(teams={"a": team(gpus=gpus, gangs={"a100": {"guaranteed": 2}})}))
    assert quotas(plan)["budget"].hard[f"requests.{GPU}"] == 8 + 3 + 2


def test_row_namespace_quota_has_a_line_for_each_partition() -> None:
    def cut(profile: str) -> Data:
        return pool("p4de.24xlarge", 1, sharing={"mig": {"profile": profile}}, labels={"cut": profile})

    pools = {"whole": pool(), "slices": cut("1g.10gb"), "halves": cut("3g.40gb")}
    teams = {"a": team(gpus={"whole": {"guaranteed": 2}, "halves": {"guaranteed": 3}})}
    hard = quotas(planned(stack(pools=pools, teams=teams)))["budget"].hard
    assert {key: amount for key, amount in hard.items() if "nvidia" in key} == {
        "requests.nvidia.com/gpu": 2,
        "requests.nvidia.com/mig-1g.10gb": 0,
        "requests.nvidia.com/mig-3g.40gb": 3,
    }


def test_row_waiting_pods_count_in_the_namespace_quota_only() -> None:
    compute = {"requests": {"cpu": 512, "memory": "2Ti"}, "limits": {"cpu": 1024}}
    sections = {"gpus": {"h100": {"guaranteed": 4, "limit": 8}}, "quota": {"h100": {"cpu": {"guaranteed": 16}}}}
    without, more = (
        planned(stack(teams={"a": team(**sections, compute={**compute, "waiting": waiting})})) for waiting in (0, 2)
    )
    before, after = (quotas(plan)["budget"].hard for plan in (without, more))
    counted = {key for key in before if key.startswith(("requests.", "limits."))}
    assert {key: after[key] for key in counted} == {key: 3 * before[key] for key in counted}
    assert all(after[key] == before[key] for key in before if key not in counted)
    assert queue_of(more, "a") == queue_of(without, "a")


def test_row_priority_budget_is_two_quotas() -> None:
    sections = stack(pools={"h100": pool()}, priorities={"ml-critical": 10, "ml-high": 5, "ml-low": 1})
    sections["teams"]["a"] |= {
        "compute": {"requests": {"cpu": 300, "memory": "4Ti"}, "priorities": ["ml-high", "ml-critical"]},
        "objects": {"services": 5, "pods": 9},
    }
    found, classes = quotas(planned(sections)), ("ml-critical", "ml-high")
    assert list(found) == ["budget", "budget-compute", "budget-no-other-priority"]
    assert {f"requests.{GPU}": 8, "pods": 9, "services": 5}.items() <= found["budget"].hard.items()
    assert found["budget-compute"].scope == ("In", classes)
    assert found["budget-compute"].hard == {"requests.cpu": 300_000, "requests.memory": 4096 * GIB}
    assert found["budget-no-other-priority"] == ResourceQuota(
        "budget-no-other-priority", {"pods": 0}, ("NotIn", classes)
    )


def test_row_work_without_gpus_uses_the_cpu_pool_first() -> None:
    pools = {"h100": pool(), "cpu": pool("m7i.8xlarge", 3)}
    queue = queue_of(planned(stack(pools=pools)), "a")
    assert list(dict.fromkeys(flavor for flavor, _ in queue.spec.quotas)) == ["cpu", "h100"]
    assert amounts(queue, "cpu", GPU) == (0, 0, None)
    assert amounts(queue, "cpu", "cpu") == (0, 3 * 31_000, None)


def test_row_cpu_flavor_with_only_cpu_set_can_borrow_memory() -> None:
    sections = stack()
    sections["teams"]["a"]["quota"] = {"cpu": {"cpu": {"guaranteed": 8, "limit": 16}}}
    queue = queue_of(planned(sections), "a")
    assert amounts(queue, "cpu", "cpu") == (8000, 8000, None)
    assert line(queue, "cpu", "memory").borrowing_limit


def test_row_serving_pods_carry_queue_and_priority() -> None:
    sections = stack(priorities={"hi": 5})
    sections["teams"]["a"] |= {"priority": "hi", "serving": {"s": server()}}
    (serving,) = planned(sections).teams[0].servers
    assert (serving.team, serving.pod.priority) == ("a", "hi")


def test_row_volcano_is_subtracted_before_queues() -> None:
    teams = {"a": team(gangs=h100(2, 4)), "b": team(gpus={"h100": {"guaranteed": 12}})}
    (gangs,) = planned(stack(teams=teams)).queues.gang_queues
    assert gangs.guarantee == {"cpu": 2 * 23875, "memory": 2 * EIGHTH, GPU: 2}
    assert gangs.capability == {"cpu": 4 * 23875, "memory": 4 * EIGHTH, GPU: 4}


EVEN = {"org": {}, "g": {"parent": "org"}}


def test_fairness_even_is_one_flat_cohort_with_weights() -> None:
    teams = {"a": team(cohort="g", weight=2.0, gpus={"h100": {"guaranteed": 4, "limit": 16}}), "b": team()}
    plan = planned(stack(fairness="even", cohorts=EVEN, teams=teams))
    assert [cohort.name for cohort in plan.queues.cohorts] == ["org"]
    assert {(queue.name, queue.spec.cohort, queue.spec.weight) for queue in plan.queues.cluster_queues} == {
        ("a", "org", 2),
        ("b", "org", 1),
    }
    assert amounts(cohort_of(plan, "org"), "h100") == (12, None, None)


def test_guarantees_are_reclaimed_without_weights_by_default() -> None:
    spec = queue_of(planned(stack()), "a").spec
    preemption = spec.preemption
    assert spec.weight is None
    assert preemption.reclaim == "Any"
    assert preemption.within == "LowerPriority"
    assert preemption.borrow is None


def test_a_shared_queue_admits_from_all_its_namespaces() -> None:
    shared = {"a": team(gpus={"h100": {"guaranteed": 8}}), "b": team(queue="a", training={"j": job(gpus=8)})}
    plan = planned(stack(teams=shared))
    (queue,) = plan.queues.cluster_queues
    assert queue.namespaces == ("a", "b")
    assert quotas(plan, "b")["budget"].hard[f"requests.{GPU}"] == 8
    assert plan.teams[1].namespace.queue == "a"


# The worked example.

LOCAL = ROOT / "stacks" / "Pulumi.local.yaml"


@cache
def local() -> Plan:
    return plan(load(read_file(LOCAL)))


@pytest.mark.parametrize(
    ("team", "flavor", "expected"),
    [
        ("ml-production", "h100", (16, 0, 0)),
        ("ml-research", "a100", (8, 24, None)),
        ("ml-experiments", "a100", (0, 8, None)),
        ("ml-serving", "l4", (50, 0, 0)),
    ],
)
def test_each_team_has_its_row(team: str, flavor: str, expected: tuple[int, int, int | None]) -> None:
    assert amounts(queue_of(local(), team), flavor) == expected


@pytest.mark.parametrize(("flavor", "left"), [("a100", 24), ("h100", 0), ("l4", 10)])
def test_the_root_cohort_has_the_unguaranteed_quota(flavor: str, left: int) -> None:
    assert line(cohort_of(local(), "org"), flavor).nominal == left


def test_the_gang_has_its_queue_of_volcanos() -> None:
    (gangs,) = local().queues.gang_queues
    assert (gangs.name, gangs.team, gangs.flavor) == ("ml-research-l4", "ml-research", "l4")
    assert gangs.guarantee == gangs.capability == {"cpu": 4000, "memory": 16 * GIB, GPU: 4}


@pytest.mark.parametrize(
    ("team", "gpus"), [("ml-production", 16), ("ml-serving", 50), ("ml-research", 32 + 4), ("ml-experiments", 8)]
)
def test_each_namespace_may_hold_all_that_its_queues_admit(team: str, gpus: int) -> None:
    (namespace,) = (each.namespace for each in local().teams if each.namespace.name == team)
    assert namespace.quotas[0].hard[f"requests.{GPU}"] == gpus


def test_the_references_namespace_budgets_are_there() -> None:
    research = next(team.namespace for team in local().teams if team.namespace.name == "ml-research")
    assert {name: amount for name, amount in research.quotas[0].hard.items() if not name.startswith("count/")} == {
        "requests.cpu": 64_000,
        "limits.cpu": 128_000,
        "requests.memory": 256 * GIB,
        "limits.memory": 512 * GIB,
        f"requests.{GPU}": 36,
        "pods": 50,
        "services": 10,
        "secrets": 50,
        "configmaps": 50,
        "persistentvolumeclaims": 20,
        "requests.storage": 2048 * GIB,
    }
    assert research.labels["owner"] == "research"
    assert research.labels["cost-center"] == "rd-001"
    assert research.labels["gpu-tier"] == "high-priority"


def test_the_references_container_bounds_are_there() -> None:
    limits = next(team.namespace.limits for team in local().teams if team.namespace.name == "ml-research")
    assert limits.default == {"cpu": 2000, "memory": 8 * GIB, GPU: 0}
    assert limits.default_request == {"cpu": 1000, "memory": 4 * GIB, GPU: 0}
    assert limits.min == {"cpu": 100, "memory": 128 * 2**20}
    assert limits.max == {"cpu": 32_000, "memory": 128 * GIB, GPU: 8}
    assert (limits.claim_min, limits.claim_max) == (1 * GIB, 500 * GIB)


def test_the_references_servers_and_jobs_are_there() -> None:
    teams = {team.namespace.name: team for team in local().teams}
    (model_server,) = teams["ml-serving"].servers
    assert model_server.scaling is not None
    assert (model_server.scaling.minimum, model_server.scaling.maximum, model_server.scaling.cpu) == (3, 50, 70)
    assert model_server.scaling.latency == ("inference_latency_p99_seconds", 0.1)
    assert (model_server.spec.port, model_server.spec.health) == (8080, "/health")
    assert model_server.rollout == Rollout(1, "2%")
    nightly = next(job for job in teams["ml-research"].jobs if job.name == "nightly")
    assert (nightly.workers, nightly.pod.amounts[GPU]) == (4, 8)
    (gang,) = teams["ml-research"].gangs
    assert [(role.name, role.pods, role.pod.amounts[GPU]) for role in gang.roles] == [
        ("master", 1, 1),
        ("worker", 3, 1),
    ]


H100 = Measure("h100", GPU)


def grouped(share: Data | None = None, **group: Any) -> Data:
    """16 H100s, a group `g` of teams a and b (2 to 8 each), and team c (2 to 8) beside it."""
    cohorts = {"org": {}, "g": {"parent": "org", **group, **({"gpus": {"h100": share}} if share else {})}}
    teams = {name: team(cohort="g" if name < "c" else "org", gpus=h100(2, 8)) for name in "abc"}
    return stack(fairness="even", pools={"h100": pool()}, cohorts=cohorts, teams=teams)


# Which groups are Cohorts.

ABOVE: Data = {"cohorts": {"outer": {"parent": "org", "gpus": h100(4, 10)}, "g": {"parent": "outer"}}}


@pytest.mark.parametrize(
    ("share", "patch", "cohorts"),
    [
        (None, {}, ["org"]),
        ({"guaranteed": 4}, {}, ["org"]),
        ({"guaranteed": 4, "limit": 16}, {}, ["org"]),
        ({"guaranteed": 4, "limit": 99}, {}, ["org"]),
        ({"guaranteed": 4, "limit": 16}, {"teams": {"d": team(cohort="g", gpus=h100(0, 8))}}, ["org"]),  # All GPUs.
        ({"guaranteed": 4, "limit": 10}, ABOVE, ["org", "g"]),
        ({"guaranteed": 6, "limit": 6}, {}, ["org", "g"]),  # It cannot borrow.
    ],
)
def test_only_groups_whose_bounds_are_not_derived_are_cohorts(share: Data, patch: Data, cohorts: list[str]) -> None:
    found = planned(patched(grouped(share), patch)).queues
    assert [cohort.name for cohort in found.cohorts] == cohorts
    assert {queue.spec.cohort for queue in found.cluster_queues} == set(cohorts)


def test_a_group_with_a_binding_limit_is_a_cohort() -> None:
    found = planned(grouped({"guaranteed": 4, "limit": 10}))
    group = cohort_of(found, "g")
    assert (group.parent, group.weight) == ("org", 2.0)
    assert group.quotas["h100", GPU].borrowing_limit == 6
    assert {queue.name: queue.spec.cohort for queue in found.queues.cluster_queues} == {"a": "g", "b": "g", "c": "org"}
    assert cohort_of(found, "org").quotas["h100", GPU].nominal == 16 - 6


def test_a_group_with_a_weight_is_a_cohort_with_this_weight() -> None:
    group = cohort_of(planned(grouped(weight=1)), "g")
    assert (group.parent, group.weight, group.groups) == ("org", 1.0, ())


def test_the_teams_of_a_group_inside_a_cohort_are_in_the_cohort() -> None:
    sections = grouped({"guaranteed": 4, "limit": 10})
    sections["cohorts"]["inner"] = {"parent": "g"}
    sections["teams"]["b"]["cohort"] = "inner"
    found = planned(sections)
    assert queue_of(found, "b").spec.cohort == "g"
    assert cohort_of(found, "g").weight == 2.0


# How groups share.


def test_teams_of_a_weighted_group_use_its_idle_quota_first() -> None:
    """Without a weight, all teams do: `a` requests all, then `b` in the same group is idle and `c` requests all."""

    def used(**group: Any) -> dict[str, int]:
        sections = grouped(**group)
        sections["teams"] |= {name: team(cohort="g", gpus=h100(4, 12)) for name in "ab"}
        sections["teams"]["c"] = team(cohort="org", gpus=h100(4, 12))
        found = tree_of(sections)
        gpu = PodSet({GPU: 1}, flavors=frozenset({"h100"}))
        steps = [("", Step(tuple(Workload(f"{name}{index}", name, (gpu,)) for index in range(12)))) for name in "ac"]
        return {name: play(found, steps)[-1].amount(name, H100) for name in "ac"}

    assert used() == {"a": 8, "c": 8}
    assert used(weight=2) == {"a": 11, "c": 5}


# Usage over time and strategies.

WEEK: Data = {"usage": {"halfLife": "7d"}}


def shared(fairness: Any = WEEK, **second: Any) -> Data:
    """Teams a and b share a queue, c has its own."""
    teams = {"a": team(gpus={"h100": {"guaranteed": 8}}), "b": team(queue="a", **second), "c": team()}
    return made_here(teams=teams, fairness=fairness)


def test_kueue_measures_usage_in_gpus_by_default() -> None:
    assert kueue(shared())["admissionFairSharing"] == {
        "usageHalfLifeTime": "604800s",
        "usageSamplingInterval": "300s",
        "resourceWeights": {"cpu": 0.0, "memory": 0.0, "nvidia.com/gpu": 1.0},
    }
    usage = {"halfLife": "12h", "sampling": "1m", "weights": {"cpu": 0.1}}
    assert kueue(shared({"usage": usage}))["admissionFairSharing"] == {
        "usageHalfLifeTime": "43200s",
        "usageSamplingInterval": "60s",
        "resourceWeights": {"cpu": 0.1, "memory": 0.0, "nvidia.com/gpu": 1.0},
    }
    assert "admissionFairSharing" not in kueue(shared("even"))


def test_a_partition_counts_as_its_part_of_a_gpu() -> None:
    sections = shared()
    sections["pools"]["h100"] |= {"labels": {"gpu": "whole"}}
    sections["pools"]["parts"] = pool(sharing={"mig": {"profile": "1g.10gb"}}, labels={"gpu": "parts"})
    weights = kueue(sections)["admissionFairSharing"]["resourceWeights"]
    assert weights["nvidia.com/mig-1g.10gb"] == pytest.approx(1 / 7, abs=1e-6)
    assert weights["nvidia.com/gpu"] == 1.0


def test_without_gpus_usage_is_counted_in_cpus() -> None:
    sections = shared()
    sections["pools"] = {"cpu": pool("m7i.8xlarge", 3)}
    sections["teams"]["a"] = team(quota={"cpu": {"cpu": {"guaranteed": 8}}})
    assert kueue(sections)["admissionFairSharing"]["resourceWeights"] == {"cpu": 1.0, "memory": 0.0}


def test_long_durations_are_written_as_go_reads_them() -> None:
    fairness = {"usage": {"halfLife": "365d", "sampling": "500ms"}}
    written = kueue(shared(fairness))["admissionFairSharing"]
    assert (written["usageHalfLifeTime"], written["usageSamplingInterval"]) == ("31536000s", "0.5s")


def test_only_shared_queues_compare_usage() -> None:
    found = planned(shared(usageWeight=2.5))
    assert {queue.name: queue.by_usage for queue in found.queues.cluster_queues} == {"a": True, "c": False}
    weights = {team_plan.namespace.name: team_plan.namespace.usage_weight for team_plan in found.teams}
    assert weights == {"a": 1.0, "b": 2.5, "c": None}
    without = planned(shared("even"))
    assert not any(queue.by_usage for queue in without.queues.cluster_queues)
    assert {team_plan.namespace.usage_weight for team_plan in without.teams} == {None}


def test_the_simulation_reports_that_past_usage_is_unmodelled() -> None:
    assert Unmodelled.ADMISSION_FAIR_SHARING in unmodelled_of(tree_of(shared()))
    assert Unmodelled.ADMISSION_FAIR_SHARING not in unmodelled_of(tree_of(shared("even")))


# Preemption by share.


@pytest.mark.parametrize("strategy", ["LessThanOrEqualToFinalShare", "LessThanInitialShare"])
def test_preemption_strategies_are_those_of_the_stack(strategy: str) -> None:
    sections = made_here(fairness={"kind": "even", "strategies": [strategy]})
    assert kueue(sections)["fairSharing"] == {"preemptionStrategies": [strategy]}
    assert tenancy(tree_of(sections)).fair_sharing == (FairStrategy(strategy),)


def test_the_long_form_of_a_kind_is_the_same_as_its_name() -> None:
    assert planned(made_here(fairness={"kind": "even"})) == planned(made_here(fairness="even"))
    assert queue_of(planned(made_here(fairness={"kind": "even"})), "a").spec.weight == 1.0


MANAGED: Any = yaml.safe_load(Path(__file__).with_name("multikueue.yaml").read_text(encoding="utf-8"))
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
    for name in ("hub", "west"):
        assert {runtime.name for runtime in stacks.plan(name).teams[0].runtimes} == named


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


@pytest.mark.parametrize("case", MANAGED)
def test_stacks_that_do_not_fit_together_are_refused(case: str, tmp_path: Path) -> None:
    both = {"hub": manager(), "other": manager(), "west": worker(), "east": worker()}
    stacks = Stacks(tmp_path, **patched(both, MANAGED[case]["patch"]))
    if "west" in MANAGED[case]:
        (problem,) = stacks.errors("west")
        assert MANAGED[case]["west"] in problem
    else:
        problems = stacks.errors("hub")
        assert any(MANAGED[case]["error"] in problem for problem in problems), problems


def test_errors_name_the_line_of_the_manager(tmp_path: Path) -> None:
    (error,) = Stacks(tmp_path, hub=manager(teams={"b": {}})).errors("hub")
    assert error.startswith("stacks/Pulumi.hub.yaml:")
    assert error.endswith("add it to the stacks of the workers, or remove it")
