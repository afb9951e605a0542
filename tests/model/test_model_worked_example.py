"""The numbers of the quota model's worked example, read off the stack `local`."""

from functools import cache

import pytest
from builders import GPU, amounts, cohort_of, line, queue_of
from repository import ROOT

from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.plan.rollouts import Rollout
from gpu_tenancy.model.source import read_file

LOCAL = ROOT / "stacks" / "Pulumi.local.yaml"
GIB = 2**30


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
    assert (model_server.port, model_server.health, model_server.rollout) == (8080, "/health", Rollout(1, "2%"))
    nightly = next(job for job in teams["ml-research"].jobs if job.name == "nightly")
    assert (nightly.workers, nightly.pod.amounts[GPU]) == (4, 8)
    (gang,) = teams["ml-research"].gangs
    assert [(role.name, role.pods, role.pod.amounts[GPU]) for role in gang.roles] == [
        ("master", 1, 1),
        ("worker", 3, 1),
    ]
