"""Simulations of a stack's queues, and the scenarios of the repository."""

import random
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from builders import GPU, Data, h100, play_scenario, pool, stack, team, tree_of
from jsonschema import Draft202012Validator
from repository import ROOT

from gpu_tenancy.base.problems import StackError
from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.outlook.shares import Span
from gpu_tenancy.model.plan.shares import Measure, Tree, measures
from gpu_tenancy.model.source import read_file
from gpu_tenancy.simulation.player import Event, SimulatedPlayer, StepResult
from gpu_tenancy.simulation.scenario import read_scenario, scenario_of, scenario_schema, scenario_schema_text
from gpu_tenancy.simulation.scenes import TEAMS, alone, busy, default_scenario, tried
from gpu_tenancy.simulation.stage import Job, JobStep, Moment, Running, holdings

H100 = Measure("h100", GPU)
STACKS = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))


def told_and_simulated(found: Tree) -> list[tuple[str, str, tuple[Span, int], tuple[Span, int]]]:
    """For each team and flavor: the report's ranges, and the simulation's with the team last, first, alone.

    Without memory, which jobs request in proportion to their CPUs, not up to the limit.
    """
    rows: list[tuple[str, str, tuple[Span, int], tuple[Span, int]]] = []
    for each in outlook(found.stack).teams:
        if each.queue != each.name:
            continue
        last, first, only = busy(found, last=each.name), busy(found, first=each.name), alone(found, each.name)
        for held in each.holdings:
            if held.scheduler == "Kueue" and held.resource != MEMORY:
                (measure,) = (measure for measure in measures(found) if measure.label == held.flavor)
                have = [moment.amount(each.name, measure) for moment in (last, first, only)]
                told = (held.busy, held.alone)
                rows.append((each.name, held.flavor, told, (Span(have[0], have[1]), have[2])))
    return rows


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, id=file.stem, marks=[pytest.mark.slow] if "tree" in file.stem else []) for file in STACKS],
)
def test_reports_of_all_stacks_agree_with_the_simulation(file: Path) -> None:
    rows = told_and_simulated(Tree(load(read_file(file))))
    assert rows
    for name, flavor, told, simulated in rows:
        assert told == simulated, (name, flavor)


def drawn(seed: int) -> Data:
    """Teams in two groups and beside them, on 16 H100s, with random guarantees, limits and bounds that fit."""
    dice = random.Random(seed)  # noqa: S311 - no secret
    teams: Data = {}
    for name, cohort in (("a", "left"), ("b", "left"), ("c", "right"), ("d", "org")):
        sure = dice.randint(0, 3)
        keeps = {"lends": False} if sure and dice.random() < 0.2 else {}
        teams[name] = team(cohort=cohort, gpus=h100(sure, sure + dice.randint(0, 8)), **keeps)
    cohorts: Data = {"org": {}}
    for group, members in (("left", "ab"), ("right", "c")):
        least = sum(teams[name]["gpus"]["h100"]["guaranteed"] for name in members)
        cohorts[group] = {"parent": "org"}
        if dice.random() < 0.5:
            cohorts[group]["gpus"] = h100(least, least + dice.randint(0, 6))
    return stack(teams=teams, cohorts=cohorts)


@pytest.mark.slow
def test_reports_of_random_trees_agree_with_the_simulation() -> None:
    seen = 0
    for seed in range(60):
        try:
            found = tree_of(drawn(seed))
        except StackError:
            continue
        seen += 1
        for name, flavor, told, simulated in told_and_simulated(found):
            assert told == simulated, (seed, name, flavor)
    assert seen > 30


def test_even_fairness_shares_by_weight_as_far_as_whole_gpus_go() -> None:
    found = tree_of(stack(fairness="even", teams={"a": team(gpus=h100(0, 16)), "b": team(gpus=h100(0, 16), weight=3)}))
    moment = busy(found)
    assert (moment.amount("a", H100), moment.amount("b", H100)) == (4, 12)


def bounded(**quota: Data) -> Tree:
    """Team a has 8 to 16 A100s and some of their CPU and memory, team b up to 16."""
    red = team(gpus={"a100": {"guaranteed": 8, "limit": 16}}, quota={"a100": quota})
    blue = team(gpus={"a100": {"guaranteed": 0, "limit": 16}})
    return tree_of(stack(pools={"a100": pool("p4de.24xlarge", 2)}, teams={"a": red, "b": blue}))


def test_default_jobs_may_exceed_the_guarantee() -> None:
    found, a100 = bounded(cpu={"guaranteed": 10, "limit": 96}), Measure("a100", GPU)
    last = busy(found, last="a")
    assert [last.amount(name, a100) for name in "ab"] == [1, 15]
    tells, pends = tried(found, "a", last)
    assert tells == (
        "jobs of a on a100: 1 GPU, 6 CPUs and 134.2Gi each; covered are 8 GPUs with up to 10 CPUs and 1074Gi: 1 of"
        " these jobs"
    )
    assert pends.startswith("the next is pending: ")
    assert pends.endswith("no workload may be preempted for it: cpu in flavor a100 exceeds nominal quota by 2")
    assert list(tried(found, "b", last)) == [
        "jobs of b on a100: 1 GPU, 11.87 CPUs and 134.2Gi each; none are guaranteed"
    ]


def test_default_jobs_within_the_guarantee_reclaim() -> None:
    found = bounded(cpu={"guaranteed": 48, "limit": 96})
    last = busy(found, last="a")
    assert last.amount("a", Measure("a100", GPU)) == 8
    (tells,) = tried(found, "a", last)
    assert tells.endswith("covered are 8 GPUs with up to 48 CPUs and 1074Gi: 8 of these jobs")


def test_cpu_jobs_request_memory_in_proportion_to_the_node() -> None:
    pools = {"cpu": {"cpu": 10, "memory": "40Gi", "nodes": 4, "labels": {"node-type": "cpu"}}}
    quota = {"cpu": {"cpu": {"guaranteed": 10, "limit": 20}}}
    found = tree_of(stack(pools=pools, teams={"a": team(quota=quota), "b": team(quota=quota)}))
    only = alone(found, "a")
    memory = {job.amounts["memory"] // 2**20 for job in only.running}
    assert (len(only.running), memory) == (20, {found.flavors["cpu"].follows(CPU, 1000)["memory"] // 2**20})


def test_reclaim_names_the_borrowers() -> None:
    found = tree_of(stack(teams={"a": team(gpus=h100(8, 16)), "b": team(gpus=h100(8, 16))}))
    first = busy(found, first="a")
    assert (first.amount("a", H100), first.amount("b", H100)) == (8, 8)
    assert len(first.evicted) == 8
    assert {(each.team, each.flavor, each.gpus, each.by_team, each.reason) for each in first.evicted} == {
        ("a", "h100", 1, "b", "InCohortReclamation")
    }


def test_each_teams_usage_is_the_sum_of_its_jobs() -> None:
    found = tree_of(stack(teams={"a": team(gpus=h100(8, 16)), "b": team(gpus=h100(4, 16))}))
    a, b = holdings(found, busy(found, first="a"))
    assert (a.guaranteed, a.limit, a.runs, a.waits, a.own, a.borrowed, a.unused) == (8, 16, 12, 4, 8, 4, 0)
    assert (b.guaranteed, b.limit, b.runs, b.waits, b.own, b.borrowed, b.unused) == (4, 16, 4, 12, 4, 0, 0)
    a, b = holdings(found, alone(found, "a"))
    assert (a.runs, a.waits, b.runs, b.waits, b.unused) == (16, 0, 0, 0, 4)


# Scenarios.

SCENARIOS = sorted((ROOT / "stacks" / "scenarios").glob("*.yaml"))


def stack_of(name: str) -> Tree:
    return Tree(load(read_file(ROOT / "stacks" / f"Pulumi.{name}.yaml")))


def running(moments: tuple[Moment, ...], teams: tuple[str, ...]) -> list[list[int]]:
    return [[sum(job.team == name for job in moment.running) for name in teams] for moment in moments]


NAMESPACES = ("namespace1", "namespace2", "namespace3", "namespace4")


def test_the_elastic_table() -> None:
    tree = stack_of("example-elastic")
    moments = play_scenario(tree, read_scenario(ROOT / "stacks" / "scenarios" / "example-elastic.yaml", tree))
    assert running(moments, NAMESPACES) == [[4, 0, 0, 0], [4, 4, 0, 0], [3, 3, 2, 0], [2, 2, 2, 2]]
    assert [[(job.team, job.by_team, job.reason) for job in moment.evicted] for moment in moments] == [
        [],
        [],
        [(name, "namespace3", "InCohortReclamation") for name in ("namespace2", "namespace1")],
        [(name, "namespace4", "InCohortReclamation") for name in ("namespace2", "namespace1")],
    ]


@pytest.mark.parametrize("change", ["hierarchical", "weights"])
def test_groups_that_are_cohorts_reclaim_idle_quota(change: str) -> None:
    data = yaml.safe_load((ROOT / "stacks" / "Pulumi.example-elastic.yaml").read_text(encoding="utf-8"))["config"]
    sections: Data = {key.removeprefix("gpu-tenancy:"): value for key, value in data.items()}
    if change == "hierarchical":
        sections["fairness"] = change
    else:
        for name in "ab":
            sections["cohorts"][name]["weight"] = 1
    tree = tree_of(sections)
    moments = play_scenario(tree, read_scenario(ROOT / "stacks" / "scenarios" / "example-elastic.yaml", tree))
    assert running(moments, NAMESPACES) == [[4, 0, 0, 0], [4, 4, 0, 0], [2, 2, 4, 0], [2, 2, 2, 2]]


def test_three_teams_share_the_fleet() -> None:
    tree = stack_of("example-three-teams")
    moments = play_scenario(tree, read_scenario(ROOT / "stacks" / "scenarios" / "example-three-teams.yaml", tree))
    assert running(moments, ("team-a", "team-b", "team-c")) == [[6, 0, 0], [4, 4, 0], [2, 2, 4], [4, 4, 0]]


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_the_schema_accepts_the_scenarios_of_the_repository(file: Path) -> None:
    validator = cast("Any", Draft202012Validator(scenario_schema()))
    assert list(validator.iter_errors(yaml.safe_load(file.read_text(encoding="utf-8")))) == []
    assert file.read_text(encoding="utf-8").startswith("# yaml-language-server: $schema=schema.json\n")


def test_the_schema_of_scenarios_is_up_to_date() -> None:
    cast("Any", Draft202012Validator).check_schema(scenario_schema())
    file = ROOT / "stacks" / "scenarios" / "schema.json"
    assert file.read_text(encoding="utf-8") == scenario_schema_text(), "run `make schema`"
    validator = cast("Any", Draft202012Validator(scenario_schema()))
    for job in ({"name": "a"}, {"name": "a", "team": "t", "jobs": 0}, {"name": "a", "team": "t", "gpu": 1}):
        assert list(validator.iter_errors({"steps": [{"submit": [job]}]}))


# A scenario made from a stack's teams.


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.stem)
def test_default_scenarios_stay_within_limits_of_teams(file: Path) -> None:
    tree = Tree(load(read_file(file)))
    scenario = scenario_of(default_scenario(tree), tree)
    assert scenario
    for job in [job for step in scenario for job in step.submit]:
        node = tree.flavors[job.flavor].node
        assert all(amount <= node[resource] for resource, amount in job.requests.items()), job
    for step in scenario:
        asked: dict[tuple[str, str, str], int] = {}
        for job in step.submit:
            for resource, amount in job.requests.items():
                key = job.queue, job.flavor, resource
                asked[key] = asked.get(key, 0) + amount * job.pods
        for (queue, flavor, resource), amount in asked.items():
            assert amount <= tree.team_shares[queue][flavor][resource].effective_limit


def test_of_many_teams_those_that_borrow_most_have_a_step() -> None:
    teams = {f"t{n}": team(gpus={"h100": {"guaranteed": n % 2, "limit": 2}}) for n in range(TEAMS + 4)}
    tree = tree_of(stack(teams=teams))
    scenario = scenario_of(default_scenario(tree), tree)
    assert [step.submit[0].team for step in scenario] == ["t0", "t10", "t2", "t4", "t6", "t8", "t1", "t11"]


def test_a_team_named_with_a_digit_has_jobs() -> None:
    teams = {"3d": team(gpus={"h100": {"guaranteed": 1, "limit": 2}})}
    tree = tree_of(stack(teams=teams))
    ((step,),) = [scenario_of(default_scenario(tree), tree)]
    assert [job.name for job in step.submit] == ["job-1-3-1", "job-1-3-2"]


def test_a_cpu_team_requests_cpus_that_fit_on_a_node() -> None:
    quota = {"cpu": {"cpu": {"guaranteed": 40, "limit": 80}, "memory": {"guaranteed": "8Gi", "limit": "16Gi"}}}
    tree = tree_of(stack(pools={"cpu": pool("m7i.8xlarge", 4)}, teams={"a": team(quota=quota)}))
    ((step,),) = [scenario_of(default_scenario(tree), tree)]
    assert {(job.pods, job.requests[CPU], job.requests["memory"]) for job in step.submit} == {(1, 20_000, 4 * 2**30)}
    (moment,) = play_scenario(tree, [step])
    assert len(moment.running) == 4


# What a player tells.


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.stem)
def test_events_lead_from_each_state_to_the_next(file: Path) -> None:
    tree = Tree(load(read_file(file)))
    own = ROOT / "stacks" / "scenarios" / f"{file.stem.removeprefix('Pulumi.')}.yaml"
    scenario = read_scenario(own, tree) if own.is_file() else scenario_of(default_scenario(tree), tree)
    ended = [JobStep("end", tuple(job.name for job in scenario[0].submit[:2]))]
    player, now = SimulatedPlayer(tree), set[str]()
    for step, expected in zip([*scenario, *ended], play_scenario(tree, [*scenario, *ended]), strict=True):
        events: list[Event] = []
        moment = player.play(step, events.append)
        assert moment == expected
        for event in events:
            if event.kind == "admitted":
                assert event.job not in now
                now.add(event.job)
            elif event.kind != "pending":
                now.discard(event.job)
        assert now == {job.workload for job in moment.running}
        gone = [(event.job, event.by, event.reason) for event in events if event.kind == "preempted"]
        assert gone == [(job.workload, job.by, job.reason) for job in moment.evicted]


def test_a_preemption_has_kueue_s_words() -> None:
    tree = stack_of("example-elastic")
    scenario = read_scenario(ROOT / "stacks" / "scenarios" / "example-elastic.yaml", tree)
    player, events = SimulatedPlayer(tree), list[Event]()
    for step in scenario[:3]:
        player.play(step, events.append)
    gone = [event for event in events if event.kind == "preempted"]
    assert gone[0] == Event(
        "preempted", "n2-4", "namespace2", "n3-1", "namespace3", "InCohortReclamation", "reclamation within the cohort"
    )
    waiting = [event for event in events if event.kind == "pending"]
    assert waiting[0].message.startswith("insufficient unused quota for cpu in flavor cpu, 5 more needed")


# Beside a cluster.


def moment(*jobs: Running) -> Moment:
    return Moment("1. a step", jobs, (), (), ())


def ran(name: str, of: str, gpus: int = 8) -> Running:
    return Running(name, of, "h100", gpus)


STEP = JobStep("1. a step", (), (Job("j", "a", "a", "h100", {"nvidia.com/gpu": 8}),))


def test_without_a_cluster_there_is_no_comparison() -> None:
    result = StepResult(STEP, moment(ran("j", "a")))
    assert (result.agrees, result.differences, result.shown) == (None, {}, result.foreseen)


def test_which_of_equal_jobs_runs_does_not_matter() -> None:
    result = StepResult(STEP, moment(ran("one", "a"), ran("x", "b")), moment(ran("two", "a"), ran("x", "b")))
    assert (result.agrees, result.differences, result.shown) == (True, {}, result.live)


def test_differences_from_the_forecast_name_teams() -> None:
    foreseen = moment(ran("one", "a"), ran("two", "a"), ran("x", "b"), ran("y", "c", gpus=4))
    result = StepResult(STEP, foreseen, moment(ran("one", "a"), ran("x", "b"), ran("y", "c", gpus=2)))
    assert result.agrees is False
    assert result.differences == {"a": 2, "c": 1}
