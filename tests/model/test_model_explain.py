"""Origin of a team's numbers, as `tenancy stack explain` prints it."""

import pytest
from builders import Data, job, pool, server, stack, team

from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook.explain import Reason, explain
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source


def reasons(sections: Data, name: str = "a") -> dict[tuple[str, str], Reason]:
    explanations = explain(Tree(load(Source(sections))), name)
    assert len({(reason.object, reason.field) for reason in explanations}) == len(explanations)
    return {(reason.object, reason.field): reason for reason in explanations}


def test_a_guarantee_and_what_may_be_borrowed_come_from_the_teams_share() -> None:
    explanations = reasons(stack(teams={"a": team(gpus={"h100": {"guaranteed": 8, "limit": 12}})}))
    nominal = explanations["ClusterQueue a", "h100 nvidia.com/gpu nominalQuota"]
    assert (nominal.value, nominal.because) == ("8", "set in the stack")
    assert nominal.paths == (("teams", "a", "gpus", "h100"),)
    borrowed = explanations["ClusterQueue a", "h100 nvidia.com/gpu borrowingLimit"]
    assert (borrowed.value, borrowed.because) == ("4", "limit 12 minus guaranteed 8; set in the stack")


def test_what_can_be_preempted_names_the_queues_that_do_and_when_the_pods_stop() -> None:
    teams = {
        "a": team(gpus={"h100": {"guaranteed": 8, "limit": 12}}),
        "b": team(gpus={"h100": {"guaranteed": 4}}),
        "c": team(gpus={"h100": {"guaranteed": 2}}, preemption={"reclaimWithinCohort": "LowerPriority"}),
        "d": team(gpus={"h100": {"guaranteed": 2}}, lends=False),
    }
    explanations = reasons(stack(teams=teams, guards={"action": "deny", "grace": {"jobs": "90s"}}))
    mine = {field: reason for (of, field), reason in explanations.items() if of == "Workloads of a"}
    stop = "its pods stop within 90s, servers within 1h"
    higher = "for workloads of higher priority"
    assert {field: (reason.value, reason.because, reason.paths) for field, reason in mine.items()} == {
        "h100 preempted by its own": ("12", f"{higher}; {stop}", (("teams", "a", "preemption"),)),
        "h100 preempted by b": ("4", f"at any time, while it borrows; {stop}", (("teams", "b", "preemption"),)),
        "h100 preempted by c": ("4", f"{higher}, while it borrows; {stop}", (("teams", "c", "preemption"),)),
    }


def test_cpu_that_follows_gpus_names_the_machines_part_and_the_pool() -> None:
    explanations = reasons(stack(teams={"a": team(gpus={"h100": {"guaranteed": 8, "limit": 12}})}))
    cpu = explanations["ClusterQueue a", "h100 cpu nominalQuota"]
    assert cpu.because.startswith("8 GPUs, ")
    assert ("pools", "h100") in cpu.paths


def test_a_quota_of_gpus_is_the_sum_of_what_its_queues_admit() -> None:
    own = team(
        gpus={"h100": {"guaranteed": 8, "limit": 12}, "a100": {"guaranteed": 4}}, gangs={"a100": {"guaranteed": 2}}
    )
    quota = reasons(stack(teams={"a": own}))["ResourceQuota a/budget", "requests.nvidia.com/gpu"]
    assert quota.value == "18"
    assert quota.because == "sum of its queue limits: 4 of a100 + 12 of h100 + 2 of a100 for gangs"


def test_the_room_for_pods_that_wait_is_explained_where_it_counts() -> None:
    own = team(gpus={"h100": {"guaranteed": 8}}, compute={"waiting": 2}, objects={"pods": 9})
    explanations = reasons(stack(teams={"a": own}))
    gpus, pods = (explanations["ResourceQuota a/budget", key] for key in ("requests.nvidia.com/gpu", "pods"))
    assert (gpus.value, pods.value) == ("24", "9")
    assert gpus.because == "sum of its queue limits: 8 of h100, times 3, because pods that are pending count too"
    assert ("teams", "a", "compute", "waiting") in gpus.paths
    assert "pending" not in pods.because


@pytest.mark.parametrize(("guards", "total"), [("deny", "10"), ("warn", "8")])
def test_the_room_for_a_rollout_is_explained_and_only_where_nothing_else_decides_what_runs(
    guards: str, total: str
) -> None:
    own = team(gpus={"h100": {"guaranteed": 8}}, serving={"s": server(gpus=2, replicas={"min": 2, "max": 4})})
    quota = reasons(stack(teams={"a": own}, guards=guards))["ResourceQuota a/budget", "requests.nvidia.com/gpu"]
    room = ", and 2 of pods that wait in rollouts of servers" if guards == "deny" else ""
    assert (quota.value, quota.because) == (total, f"sum of its queue limits: 8 of h100{room}")
    assert (("teams", "a", "serving") in quota.paths) == bool(room)


def test_a_budget_set_by_the_stack_is_explained() -> None:
    own = team(
        gpus={"h100": {"guaranteed": 8}},
        quota={"h100": {"cpu": {"guaranteed": 8}, "memory": {"guaranteed": "64Gi"}}},
        compute={"requests": {"cpu": 16, "memory": "128Gi"}, "limits": {"cpu": 32}},
        objects={"pods": 9},
    )
    explanations = reasons(stack(teams={"a": own}))
    cpu = explanations["ResourceQuota a/budget", "requests.cpu"]
    assert (cpu.value, cpu.because) == ("16", "set in the stack")
    assert cpu.paths == (("teams", "a", "compute", "requests", "cpu"),)
    assert explanations["ResourceQuota a/budget", "limits.cpu"].value == "32"
    assert explanations["ResourceQuota a/budget", "pods"].paths == (("teams", "a", "objects", "pods"),)


def test_a_team_that_never_lends_has_the_reason() -> None:
    serving = team(gpus={"h100": {"guaranteed": 8}}, serving={"api": server()})
    explanations = reasons(stack(teams={"a": serving}))["ClusterQueue a", "h100 nvidia.com/gpu lendingLimit"]
    assert (explanations.value, explanations.because) == (
        "0",
        "set for teams with inference servers, which keep their guaranteed GPUs",
    )
    own = team(gpus={"h100": {"guaranteed": 8}}, lends=False)
    explanations = reasons(stack(teams={"a": own}))["ClusterQueue a", "h100 nvidia.com/gpu lendingLimit"]
    assert (explanations.because, explanations.paths) == ("lends: false", (("teams", "a", "lends"),))


def test_a_shared_queue_names_its_owner() -> None:
    sections = stack(teams={"a": team(queue="b", training={"t": job()}), "b": team(gpus={"h100": {"guaranteed": 8}})})
    explanations = reasons(sections)
    assert explanations["LocalQueue a", "clusterQueue"].value == "b"
    assert explanations["ResourceQuota a/budget", "requests.nvidia.com/gpu"].value == "8"
    assert ("ClusterQueue b", "h100 nvidia.com/gpu nominalQuota") in explanations


def test_container_defaults_have_their_origin() -> None:
    own = team(gpus={"h100": {"guaranteed": 8}}, containers={"default": {"cpu": 4, "memory": "16Gi"}})
    explanations = reasons(stack(pools={"h100": pool()}, teams={"a": own}))
    assert explanations["LimitRange a/containers", "cpu default"].because == "set in the stack"
    unsaid = explanations["LimitRange a/containers", "cpu defaultRequest"]
    assert unsaid.because == "default, within the limit-to-request ratio of the budget"
