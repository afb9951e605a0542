"""A guarantee of GPUs, CPU and memory: its default, the largest job that it covers, errors and warnings."""

from typing import Any

import pytest
from builders import GPU, Data, amounts, cohort_of, errors, job, planned, queue_of, server, stack, team

from gpu_tenancy.base.guarantee import Guarantee
from gpu_tenancy.base.quantity import add
from gpu_tenancy.local.checks.queueing import ANYONE, contended
from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.outlook.shares import reclaimed
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source

GI = 2**30


def tree(sections: Data) -> Tree:
    return Tree(load(Source(sections)))


def research(quota: Data | None = None, **rest: Any) -> Data:
    """A team with 8 of 16 H100s guaranteed, its quota of CPU and memory beside them, and a team that borrows."""
    own = {"quota": {"h100": quota}} if quota else {}
    borrower = team(gpus={"h100": {"guaranteed": 0, "limit": 16}})
    return stack(teams={"a": team(gpus={"h100": {"guaranteed": 8, "limit": 16}}, **own, **rest), "b": borrower})


@pytest.mark.parametrize(
    ("amounts_", "text"),
    [
        ({GPU: 8, "cpu": 10_000, "memory": 40 * GI},
         "8 a100 GPUs, up to 10 CPUs and 40Gi: 1.25 CPUs and 5Gi for each GPU"),
        ({GPU: 1, "cpu": 1000, "memory": GI}, "1 a100 GPU, up to 1 CPU and 1Gi"),
        ({GPU: 3, "cpu": 10_000, "memory": 512 * 2**20},
         "3 a100 GPUs, up to 10 CPUs and 512Mi: 3.33 CPUs and 170.6Mi for each GPU"),
        ({GPU: 8}, "8 a100 GPUs"),
        ({GPU: 0, "cpu": 1000}, ""),
    ],
)  # fmt: skip
def test_text_names_the_largest_covered_job(amounts_: dict[str, int], text: str) -> None:
    assert str(Guarantee("a100", GPU, amounts_)) == text


def test_text_of_cpus_names_their_memory() -> None:
    found = Guarantee("cpu", "cpu", {"cpu": 10_000, "memory": 40 * GI})
    assert (str(found), found.bound) == ("10 CPUs, up to 40Gi: 4Gi for each CPU", "40Gi")
    half = Guarantee("cpu", "cpu", {"cpu": 2500, "memory": 10 * GI})
    assert str(half) == "2.5 CPUs, up to 10Gi: 4Gi for each CPU"


def test_request_beyond_any_resource_is_not_covered() -> None:
    found = Guarantee("a100", GPU, {GPU: 8, "cpu": 10_000})
    assert found.missing({GPU: 8, "cpu": 32_000, "memory": GI}) == {"cpu": 22_000}
    assert found.missing({GPU: 1, "cpu": 4000}, used={"cpu": 8000}) == {"cpu": 2000}
    assert found.missing({GPU: 8, "cpu": 10_000}) == {}


def test_guaranteed_gpus_have_their_share_by_default() -> None:
    found = tree(research())
    assert found.guarantee("a", "h100").amounts == {
        GPU: 8,
        **{name: 8 * part for name, part in found.flavors["h100"].per_gpu.items()},
    }


def test_share_holds_if_only_the_limit_is_written() -> None:
    found = tree(research({"cpu": {"limit": "400"}, "memory": {"limit": "100Gi"}})).team_shares["a"]["h100"]
    assert (found["cpu"].guaranteed, found["cpu"].limit) == (191_000, 400_000)
    assert (found["memory"].guaranteed, found["memory"].limit) == (100 * GI, 100 * GI)


NODES: Data = {"cpu": {"cpu": 10, "memory": "40Gi", "nodes": 4, "labels": {"node-type": "cpu"}}}


@pytest.mark.parametrize(
    ("quota", "cpu", "memory"),
    [
        ({"cpu": {"guaranteed": 10, "limit": 20}}, (10_000, 10_000), (40 * GI, 120 * GI)),
        ({"memory": {"guaranteed": "20Gi", "limit": "40Gi"}}, (5000, 35_000), (20 * GI, 20 * GI)),
        ({"cpu": {"limit": 20}}, (0, 20_000), (0, 160 * GI)),
        ({"cpu": {"guaranteed": 10}, "memory": {"guaranteed": "8Gi"}}, (10_000, 0), (8 * GI, 0)),
    ],
)
def test_guaranteed_cpus_bring_their_memory(quota: Data, cpu: tuple[int, int], memory: tuple[int, int]) -> None:
    found = queue_of(planned(stack(pools=NODES, teams={"a": team(quota={"cpu": quota})})), "a")
    assert [amounts(found, "cpu", name)[:2] for name in ("cpu", "memory")] == [cpu, memory]


def test_guaranteed_cpus_of_a_cohort_bring_their_memory() -> None:
    cohorts: Data = {"org": {}, "lab": {"parent": "org", "quota": {"cpu": {"cpu": {"guaranteed": 20}}}}}
    made = planned(stack(pools=NODES, cohorts=cohorts, teams={"a": team(cohort="lab")}))
    assert amounts(cohort_of(made, "lab"), "cpu", "memory")[0] == 80 * GI


LOW: Data = {"cpu": {"guaranteed": 10, "limit": 128}, "memory": {"guaranteed": "40Gi", "limit": "512Gi"}}


def warnings(sections: Data) -> tuple[str, ...]:
    return outlook(load(Source(sections))).warnings


def test_guarantee_below_the_share_is_a_warning() -> None:
    (found,) = warnings(research(LOW))
    assert found == (
        "teams.a: guaranteed are 8 h100 GPUs, up to 10 CPUs and 40Gi: 1.25 CPUs and 5Gi for each GPU; a job that"
        " requests more gets no GPUs back; the share of 8 GPUs in the machine is 191 CPUs and 1911Gi memory: raise"
        " teams.a.quota.h100.cpu.guaranteed and teams.a.quota.h100.memory.guaranteed, or keep to it"
    )
    assert warnings(research()) == ()
    own = {"cpu": {"guaranteed": 10}, "memory": {"guaranteed": "40Gi"}}
    assert warnings(research(own, lends=False)) == ()  # never lent, and no CPU to borrow


def test_job_that_uses_the_cpu_of_other_gpus_is_a_warning() -> None:
    (found,) = warnings(research(training={"trainer": job(gpus=1, cpu=150, memory="64Gi", deadline="2h")}))
    assert found == (
        "teams.a.training.trainer: uses 150 CPUs of the 191 CPUs that a is guaranteed with 8 h100 GPUs: while it"
        " runs, 1 of the 7 other GPUs are covered; lower its cpu, or raise teams.a.quota.h100.cpu.guaranteed"
    )


def test_reclaiming_is_shown_where_the_simulation_admits() -> None:
    teams: Data = {
        "a": team(gpus={"h100": {"guaranteed": 8, "limit": 16}}),
        "b": team(gpus={"h100": {"guaranteed": 4, "limit": 16}}, preemption={"reclaimWithinCohort": "Never"}),
        "c": team(gpus={"h100": {"guaranteed": 0, "limit": 16}}),
    }
    assert reclaimed(tree(stack(teams=teams))) == {("a", "h100")}


def test_shares_decide_with_even_sharing() -> None:
    sections = research(LOW, training={"one": job(gpus=8, cpu=32, memory="32Gi")}) | {"fairness": "even"}
    assert errors(sections) == []
    low, uncovered = warnings(sections)
    assert "a job that requests more borrows, so shares decide" in low
    assert uncovered == (
        "teams.a.training.one: needs 32 CPUs of flavor h100, and a is guaranteed 10 CPUs, so shares decide whether it"
        " gets its GPUs back; raise teams.a.quota.h100.cpu.guaranteed"
    )


BESIDE_LIMIT: Data = {"cpu": {"guaranteed": 10, "limit": 20}}
PAIR: Data = {name: team(quota={"cpu": BESIDE_LIMIT}) for name in ("a", "b")}
LARGER: Data = {"cpu": {"guaranteed": 32, "limit": 40}, "memory": {"guaranteed": "128Gi", "limit": "160Gi"}}


@pytest.mark.parametrize(
    ("sections", "own", "untried"),
    [
        (research(LARGER), {GPU: 8, "cpu": 32_000, "memory": 128 * GI}, ""),
        (
            research({"cpu": {"guaranteed": 32, "limit": 32}, "memory": LARGER["memory"]}),
            {GPU: 8, "cpu": 32_000, "memory": 128 * GI},
            "the limit of CPU is the guarantee",
        ),
        (stack(pools=NODES, teams=PAIR), {"cpu": 10_000, "memory": 40 * GI}, ""),
        (stack(pools=NODES, teams=PAIR, fairness="even"), {"cpu": 10_000, "memory": 40 * GI}, "fairness even"),
    ],
)
def test_checked_job_is_the_guarantee_and_all_is_lent(sections: Data, own: dict[str, int], untried: str) -> None:
    found = tree(sections)
    scenario = contended(found)
    assert scenario
    assert scenario.own.pod_sets[0].requests == own
    borrowed = add(*(job.pod_sets[0].requests for job in scenario.others.submit))
    assert borrowed == found.supply(scenario.guarantee.flavor)
    assert {job.queue for job in scenario.others.submit} <= {ANYONE, "b"}
    assert scenario.used(scenario.foreseen)["a"] == own
    assert untried in scenario.untried
    assert bool(scenario.untried) is bool(untried)
    beyond = scenario.beyond and scenario.beyond.pod_sets[0].requests
    assert beyond == (None if untried else own | {"cpu": own["cpu"] + 1000})


def test_checked_team_has_gpus_and_cpus_to_borrow() -> None:
    """CPU that GPUs without a borrower leave idle is borrowed with one of the GPUs."""
    gpus: Data = {"h100": {"guaranteed": 4, "limit": 16}}
    teams: Data = {
        "c": team(quota={"cpu": {"cpu": {"guaranteed": 64, "limit": 96}}}),
        "a": team(gpus=gpus, quota={"h100": LARGER}),
        "b": team(gpus=gpus, quota={"h100": LARGER}),
    }
    found = tree(stack(teams=teams))
    scenario = contended(found)
    assert scenario
    assert (scenario.guarantee.flavor, scenario.beyond is None) == ("h100", False)
    used = add(*(job.pod_sets[0].requests for job in scenario.others.submit))
    assert used == found.supply("h100")


def test_server_whose_last_replicas_are_not_covered_is_a_warning() -> None:
    serving = {"one": server(replicas=4, gpus=2, cpu=3, memory="8Gi")}
    (found,) = [
        warning for warning in warnings(research(LOW, lends=True, serving=serving)) if "replicas are" in warning
    ]
    assert found == (
        "teams.a.serving.one: uses 12 CPUs of the 10 CPUs that a is guaranteed with 8 h100 GPUs: while it runs, 3 of 4"
        " replicas are covered; lower its cpu, or raise teams.a.quota.h100.cpu.guaranteed"
    )


def test_guaranteed_cpus_have_their_memory_within_the_budget() -> None:
    pools = {"cpu": NODES["cpu"], "zbig": {**NODES["cpu"], "labels": {"node-type": "big"}}}
    own = team(
        quota={"zbig": {"cpu": {"guaranteed": 10, "limit": 20}}}, compute={"requests": {"cpu": 40, "memory": "80Gi"}}
    )
    found = queue_of(planned(stack(pools=pools, teams={"a": own})), "a")
    assert [amounts(found, name, "memory")[:2] for name in ("cpu", "zbig")] == [(0, 40 * GI), (40 * GI, 0)]
