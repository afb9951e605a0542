"""Effects of proposed objects on the workloads of a cluster."""

from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from live_builders import (
    GPU,
    Data,
    came,
    cluster_queue,
    cohort,
    counted,
    job,
    local_queue,
    meta,
    node,
    only_gpus,
    pod,
    state,
    waits,
)

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cluster.reading import State
from gpu_tenancy.explain.proposal import Affected, Effect, Exceeded, Proposal, effect
from gpu_tenancy.explain.proposed import Refused, SmallerPool
from gpu_tenancy.explain.state_file import from_file, to_file
from gpu_tenancy.kueue import FAIR
from gpu_tenancy.model.kinds import kinds
from gpu_tenancy.model.names import IDLE, KUEUE, VOLCANO
from gpu_tenancy.model.plan.guards import FACTS
from gpu_tenancy.model.spec.people import Grace
from gpu_tenancy.model.spec.teams import Idle
from gpu_tenancy.review.reasons import work_lost

STACK = "prod"


def team(name: str) -> Data:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": meta(name, labels={"app.kubernetes.io/managed-by": "gpu-tenancy"}),
    }


def as_declared(manifest: Data, kind: str) -> Data:
    """An object as a stack declares it: without a status."""
    declared = deepcopy(manifest)
    declared.pop("status", None)
    core = {"Namespace", "ResourceQuota", "LimitRange"}
    return {**declared, "apiVersion": "v1" if kind in core else KUEUE, "kind": kind}


class World:
    """Teams research and speech with 8 A100s each, in cohort org; `change` edits the stack's objects."""

    def __init__(self, *workloads: Data, **objects: list[Data]) -> None:
        root = cohort("org")
        root["metadata"]["annotations"] = {"gpu-tenancy.dev/stack": STACK}
        self.live: dict[str, list[Data]] = {
            "ClusterQueue": counted(list(workloads)),
            "Cohort": [root],
            "LocalQueue": [local_queue("research"), local_queue("speech")],
            "Namespace": [team("research"), team("speech")],
            "Workload": list(workloads),
            "Pod": [],
            "ResourceQuota": [],
            "AdmissionCheck": [],
            **objects,
        }
        self.declared = [
            as_declared(one, kind)
            for kind, found in self.live.items()
            if kind not in {"Workload", "Pod", "AdmissionCheck"}
            for one in found
        ]
        self.declared += [as_declared(one, "ResourceFlavor") for one in self.state().of("ResourceFlavor")]

    def state(self) -> State:
        return state(**self.live)

    def first(self, kind: str, name: str = "") -> Data:
        return next(one for one in self.declared if one["kind"] == kind and name in {"", one["metadata"]["name"]})

    def queue(self, name: str) -> Data:
        return self.first("ClusterQueue", name)

    def quota(self, name: str, nominal: int) -> None:
        self.queue(name)["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = str(nominal)

    def without(self, name: str) -> None:
        self.declared = [
            one for one in self.declared if name not in {one["metadata"]["name"], one["metadata"].get("namespace")}
        ]

    def effect(self, **options: Any) -> Effect:
        return effect(self.state(), Proposal(self.declared, STACK, **options))


def test_the_same_stack_has_no_effect() -> None:
    world = World(came("a", "research", 8, 1), came("b", "speech", 8, 2), waits("c", "speech", 8))
    assert world.effect() == Effect(running=2)


@pytest.mark.parametrize(
    ("idle", "stopped"),
    [
        ({"then": "requeue", "for": "2h"}, ["research/long"]),
        ({"then": "cancel", "for": "30m"}, ["research/long", "research/short"]),
        ({"then": "requeue", "for": "2h", "except": ["long"]}, []),
        ({"then": "requeue", "for": "30m", "except": ["Job"]}, []),
        ({"then": "notify"}, []),
    ],
)
def test_names_idle_jobs_that_the_stack_stops(idle: Data, stopped: list[str], tmp_path: Path) -> None:
    jobs = [came("long", "research", 2, 1), came("short", "research", 2, 1), came("busy", "research", 2, 1)]
    for one, since in zip(jobs, ("09:00", "11:00"), strict=False):
        one["metadata"]["annotations"] = {IDLE: f"since 2026-01-21T{since}:00Z, notify at 2026-01-21T13:00:00Z"}
    file = tmp_path / "snapshot.json"
    to_file(World(*jobs).state(), file)
    proposal = Proposal(World(*jobs).declared, STACK, idle={"research": Idle.model_validate(idle)})
    seen = effect(from_file(file), proposal, at=datetime(2026, 1, 21, 12, tzinfo=UTC))
    assert sorted(one.label for one in seen.idle) == stopped
    assert any("their GPUs are idle" in reason for reason in work_lost(seen)) == bool(stopped)


def test_moved_guarantee_preempts_a_borrower() -> None:
    world = World(came("a", "research", 8, 1), came("b", "speech", 8, 2), waits("c", "speech", 8))
    world.quota("research", 0)
    world.quota("speech", 16)
    seen = world.effect()
    assert [(one.label, one.by, one.gpus, one.again) for one in seen.preempted] == [
        ("research/a", "speech/c", {"a100": 8}, False)
    ]
    assert [one.label for one in seen.admitted] == ["speech/c"]
    assert seen.delayed == ()


def test_a_smaller_quota_ends_nothing_and_says_what_is_in_use() -> None:
    world = World(came("a", "research", 8, 1))
    world.quota("research", 4)
    world.quota("speech", 0)
    seen = world.effect()
    assert seen.preempted == ()
    assert [(one.place, one.what, one.used, one.bound) for one in seen.exceeded] == [
        ("ClusterQueue research", "nvidia.com/gpu of a100", "8", "4")
    ]


def test_smaller_quota_delays_a_workload_that_fits_now() -> None:
    world = World(came("a", "research", 4, 1), waits("c", "speech", 8))
    assert world.effect().delayed == ()
    world.quota("speech", 4)
    world.quota("research", 4)
    (one,) = world.effect().delayed
    assert (one.label, one.amount) == ("speech/c", 8)
    assert "quota" in one.why


def limited(world: World, limit: int) -> World:
    """Lowers the limit of research, which is guaranteed 8 GPUs."""
    amounts = world.queue("research")["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    amounts.update(nominalQuota=str(min(limit, 8)), borrowingLimit=str(max(0, limit - 8)))
    return world


# kueue#5176: the change's limit, the Jobs of the stack, and the workloads that it affects by outcome.
LIMITS: list[tuple[int, dict[str, int], dict[str, dict[str, int]]]] = [
    (16, {}, {}),
    (8, {}, {"later": {"research/c": 8}}),
    (4, {}, {"never": {"research/c": 8}}),
    (8, {"b": 4}, {"later": {"research/c": 8}, "delayed": {"research/b": 4}}),
    (8, {"b": 24}, {"never": {"research/b": 24}}),
    (16, {"b": 24}, {"admitted": {"research/c": 8}, "never": {"research/b": 24}}),
    (16, {"c": 24}, {"never": {"research/c": 24}}),
]


@pytest.mark.parametrize(("limit", "jobs", "expected"), LIMITS)
def test_lower_limits_are_compared_with_new_sizes(
    limit: int, jobs: dict[str, int], expected: dict[str, dict[str, int]]
) -> None:
    world = limited(World(came("a", "research", 8, 1), came("b", "research", 8, 2), waits("c", "research", 8)), 16)
    world.live["ClusterQueue"] = [
        {**live, "spec": deepcopy(world.queue(live["metadata"]["name"])["spec"])} for live in world.live["ClusterQueue"]
    ]
    limited(world, limit).declared += [
        {**only_gpus(job(name, "research", gpus=gpus)), "apiVersion": "batch/v1", "kind": "Job"}
        for name, gpus in jobs.items()
    ]
    seen = world.effect()
    found = {
        kind: {one.label: one.amount for one in getattr(seen, kind)}
        for kind in ("admitted", "delayed", "never", "later")
    }
    assert {kind: labels for kind, labels in found.items() if labels} == expected
    assert seen.preempted == ()
    assert all("can never admit it" in one.why and f"limit {limit}" in one.why for one in seen.never)


def test_counts_additional_ends_before_admission() -> None:
    running = came("a", "research", 8, 1), came("b", "research", 8, 2)
    world = World(*running, waits("c", "research", 8), waits("d", "research", 4))
    assert world.effect().later == ()
    world.queue("research")["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = "0"
    (one, other) = world.effect().later
    assert (one.label, one.why) == (
        "research/c",
        "2 running workloads must end before it is admitted, 1 without the change",
    )
    assert (other.label, other.why) == (
        "research/d",
        "3 running workloads must end before it is admitted, 2 without the change",
    )


BOUNDS: list[tuple[dict[str, Any], str]] = [
    ({"max": {"nvidia.com/gpu": "4"}}, "limit of 8 nvidia.com/gpu in a container exceeds the maximum of 4"),
    ({"min": {"cpu": "4"}}, "request of 2 cpu in a container is below the minimum of 4"),
    ({"maxLimitRequestRatio": {"cpu": "2"}}, "limit of 8 cpu in a container exceeds 2 times its request"),
]


@pytest.mark.parametrize(("bound", "why"), BOUNDS, ids=[next(iter(bound)) for bound, _ in BOUNDS])
def test_pods_that_a_stricter_limit_range_refuses_are_named(bound: dict[str, Any], why: str) -> None:
    resources = {"requests": {"cpu": "2", GPU: "8"}, "limits": {"cpu": "8", GPU: "8"}}
    large = pod("large", on="n1")
    large["spec"]["containers"] = [{"name": "main", "resources": resources}]
    mine = {"metadata": meta("containers", "research"), "spec": {"limits": [{"type": "Container"}]}}
    world = World(Pod=[large, pod("idle", gpus=1, on="n1"), pod("gone", on="n1", phase="Failed")], LimitRange=[mine])
    assert world.effect().refused == ()
    declared = world.first("LimitRange")
    declared["spec"]["limits"] = [{"type": "Container", **bound}]
    assert [one for one in world.effect().refused if one.why == why] == [Refused("research", why, ("large",))]
    world.live["LimitRange"] = [{"metadata": mine["metadata"], "spec": declared["spec"]}]
    assert world.effect().refused == (), "they are refused today as well"


GRACE: Final = "grace period of 900 s exceeds the maximum of 600 s"


def test_names_pods_that_stricter_guards_refuse() -> None:
    slow, gang, low = (pod(name, on="n1") for name in ("slow", "gang", "low"))
    for one in (slow, gang, low):
        one["spec"]["containers"] = [{"name": "main", "resources": {"limits": {GPU: "1"}}}]
    slow["spec"]["terminationGracePeriodSeconds"] = 900
    slow["metadata"]["ownerReferences"] = [{"kind": "Job", "uid": "u"}]
    gang["spec"]["schedulerName"] = "volcano"
    low["spec"]["priorityClassName"] = "ml-low"
    world = World(Pod=[slow, gang, low])
    facts = {f"{FACTS}priority-classes": "ml-low,ml-high", f"{FACTS}schedulers": "default-scheduler,volcano"}
    world.live["Namespace"][0]["metadata"]["annotations"] = facts
    for one in world.declared:
        if one["kind"] == "Namespace":
            one["metadata"]["annotations"] = {f"{FACTS}priority-classes": "ml-high"}
    assert world.effect().refused == ()
    assert world.effect(grace=Grace()).refused == (
        Refused("research", GRACE, ("slow",)),
        Refused("research", "priority class ml-low is not one of the team's", ("low",)),
        Refused("research", "scheduler volcano is not one of the team's", ("gang",)),
    )


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        (None, GRACE),
        *((f"{kind.group}/v1 {kind.kind}", GRACE) for kind in kinds().values() if kind.work == "batch"),
        *((f"{kind.group}/v1 {kind.kind}", "") for kind in kinds().values() if kind.work == "serving"),
        ("argoproj.io/v1alpha1 Workflow", GRACE),
        ("apps/v1 DaemonSet", GRACE),
        ("apps/v1 ReplicaSet", ""),
        ("ray.io/v1 RayCluster", ""),
    ],
)
def test_grace_period_of_jobs_is_bounded_for_each_kind(owner: str | None, why: str) -> None:
    slow = pod("slow", on="n1")
    slow["spec"]["containers"] = [{"name": "main", "resources": {"limits": {GPU: "1"}}}]
    slow["spec"]["terminationGracePeriodSeconds"] = 900
    version, _, kind = (owner or "").partition(" ")
    slow["metadata"]["ownerReferences"] = [{"apiVersion": version, "kind": kind, "uid": "u"}] if owner else []
    found = World(Pod=[slow]).effect(grace=Grace()).refused
    assert found == ((Refused("research", why, ("slow",)),) if why else ())


def test_names_volcano_queue_below_its_usage() -> None:
    queue = {"metadata": meta("research-l4"), "spec": {"capability": {GPU: "4"}}, "status": {"allocated": {GPU: "4"}}}
    group = {"metadata": meta("gang", "research"), "spec": {"queue": "research-l4"}, "status": {"phase": "Pending"}}
    world = World(Queue=[queue], PodGroup=[group])
    declared = world.first("Queue")
    declared["apiVersion"] = VOLCANO
    assert world.effect() == Effect()
    declared["spec"]["capability"] = {GPU: "2"}
    seen = world.effect()
    assert seen.exceeded == (Exceeded("Volcano queue research-l4", GPU, "4", "2"),)
    assert seen.not_simulated == ("1 pending gang of Volcano queue research-l4, which changes",)


def test_removed_team_loses_workloads_and_frees_quota() -> None:
    claim = {"metadata": meta("ck", "research"), "spec": {"resources": {"requests": {"storage": "1Ti"}}}}
    world = World(came("a", "research", 16, 1), waits("c", "speech", 16), PersistentVolumeClaim=[claim])
    world.without("research")
    world.quota("speech", 16)
    seen = world.effect()
    assert [(one.label, one.why) for one in seen.deleted] == [("research/a", "namespace research is deleted")]
    assert seen.claims == {"research": {"ck": 2**40}}
    assert [one.label for one in seen.admitted] == ["speech/c"]
    assert seen.not_simulated == ()


def test_a_queue_of_others_is_no_queue_of_the_stack() -> None:
    """The stack did not declare it, and it stays."""
    foreign = cluster_queue("foreign")
    world = World(came("a", "research", 8, 1), ClusterQueue=[*counted([came("a", "research", 8, 1)]), foreign])
    world.declared = [one for one in world.declared if one["metadata"]["name"] != "foreign"]
    assert world.effect() == Effect(running=1)


def test_pods_on_nodes_of_a_flavor_that_goes_are_named() -> None:
    world = World(
        came("a", "research", 8, 1), Pod=[pod("a-0", "research", on="n1"), pod("gone", on="n1", phase="Failed")]
    )
    assert world.effect() == Effect(running=1)
    world.without("a100")
    for name in ("research", "speech"):
        world.queue(name)["spec"]["resourceGroups"] = []
    seen = world.effect()
    assert seen.pods_on_removed_flavors == {"a100": ("research/a-0",)}
    assert [(one.place, one.what, one.used, one.bound) for one in seen.exceeded] == [
        ("ClusterQueue research", "nvidia.com/gpu of a100", "8", "0")
    ]


def test_a_pool_with_fewer_nodes_than_run_pods_is_named() -> None:
    """Nodes without GPU pods can be deleted; a pool that the stack no longer has has no such nodes."""
    nodes = [node(f"n{number}", 8, **{"gpu-tenancy.dev/pool": "a100"}) for number in range(3)]
    pods = [pod("a-0", on="n0"), pod("a-1", on="n1"), pod("b-0", on="n1"), pod("gone", on="n2", phase="Failed")]
    world = World(Node=nodes, Pod=pods)
    assert world.effect().smaller_pools == ()
    assert world.effect(nodes={"a100": 2}).smaller_pools == ()
    names = ("research/a-0", "research/a-1", "research/b-0")
    assert world.effect(nodes={"a100": 1}).smaller_pools == (SmallerPool("a100", 1, 2, names),)
    assert world.effect(nodes={}).smaller_pools == (SmallerPool("a100", 0, 2, names),)


def test_jobs_on_nodes_that_restart_are_named() -> None:
    """With the GPUs there, and the hours since their first pod; ended pods and pods without GPUs do not count."""
    nodes = [node(f"n{number}", 8, **{"gpu-tenancy.dev/pool": f"p{number}"}) for number in range(3)]
    owner = [{"kind": "Job", "name": "a", "uid": "uid-a", "controller": True}]
    pods = [pod("a-0", on="n0"), pod("a-1", on="n1"), pod("a-2", on="n2"), pod("gone", on="n1", phase="Failed")]
    for day, one in enumerate(pods, start=1):
        one["metadata"] |= {"ownerReferences": owner, "creationTimestamp": f"2026-01-0{day}T00:00:00Z"}
    world = World(came("a", "research", 24, 1), Node=nodes, Pod=[*pods, pod("x", "speech", 0, on="n1")])
    proposal = Proposal(world.declared, STACK, restarted=("p0", "p1", "system nodes"))
    seen = effect(world.state(), proposal, at=datetime(2026, 1, 2, tzinfo=UTC))
    why = "nodes of p0, p1"
    assert seen.restarted == (Affected("research/a", "research", {"p0": 8, "p1": 8}, 24, why=why),)
    assert world.effect().restarted == ()
    said = "1 running workload of research will restart with their nodes (16 GPUs, oldest 24 h): research/a; they lose"
    assert said in "\n".join(work_lost(seen))


def test_a_hold_of_a_person_stays() -> None:
    world = World(waits("c", "research", 8))
    assert world.effect().delayed == ()
    for one in world.live["ClusterQueue"]:
        one["spec"]["stopPolicy"] = "Hold"
    world.quota("research", 16)
    assert world.effect() == Effect()


def test_a_budget_below_what_is_used_is_named() -> None:
    quota = {
        "metadata": meta("budget", "research"),
        "spec": {"hard": {"requests.nvidia.com/gpu": "16"}},
        "status": {"used": {"requests.nvidia.com/gpu": "12"}},
    }
    world = World(came("a", "research", 8, 1), ResourceQuota=[quota])
    assert world.effect().exceeded == ()
    world.first("ResourceQuota")["spec"]["hard"] = {"requests.nvidia.com/gpu": "8"}
    (one,) = world.effect().exceeded
    assert (one.place, one.used, one.bound) == ("ResourceQuota budget in research", "12", "8")


def test_fair_sharing_that_is_turned_on_decides_who_gives_way() -> None:
    found = [came("a", "research", 8, 1), came("b", "research", 8, 2), waits("c", "speech", 8)]
    root = cohort("org", nominal=16)
    root["metadata"]["annotations"] = {"gpu-tenancy.dev/stack": STACK}
    world = World(*found, Cohort=[root], ClusterQueue=counted(found, nominalQuota=0))
    assert world.effect(strategies=()).preempted == ()
    (one,) = world.effect(strategies=FAIR).preempted
    assert (one.label, one.by) == ("research/b", "speech/c")


def test_a_file_has_what_decides_and_nothing_else(tmp_path: Path) -> None:
    running = came("a", "research", 8, 1)
    container = running["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    container |= {"env": [{"name": "TOKEN", "value": "s3cret"}], "command": ["train-on-s3cret"]}
    running["metadata"]["annotations"] = {"example.com/note": "s3cret", "kueue.x-k8s.io/job-owner-name": "a"}
    world = World(running, came("b", "speech", 8, 2), waits("c", "speech", 8))
    world.quota("research", 0)
    world.quota("speech", 16)
    to_file(replace(world.state(), kubernetes="v1.36.3"), tmp_path / "state.json")
    assert from_file(tmp_path / "state.json").kubernetes == "v1.36.3"
    assert "s3cret" not in (tmp_path / "state.json").read_text()
    assert (
        effect(from_file(tmp_path / "state.json"), Proposal(world.declared, STACK))
        == world.effect()
        != Effect(running=2)
    )


@pytest.mark.parametrize("text", ["", "[]", '{"version": 0}', '{"version": 1}'])
def test_refuses_files_that_are_no_snapshot(text: str, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(ConsoleError) as refused:
        from_file(tmp_path / "other.json")
    assert "tenancy cluster snapshot" in refused.value.fix
