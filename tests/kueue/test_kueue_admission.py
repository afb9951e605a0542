"""Admitted, pending and preempted workloads in a tenancy (`admission.yaml`), and rejected input."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from kueue_builders import GPU, admitted, after, evictions, group, pending, queue, settle, work

from gpu_tenancy.kueue import (
    FAIR,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    FairStrategy,
    FlavorQuotas,
    Fungibility,
    Fungible,
    PodSet,
    Policy,
    Preemption,
    Preference,
    Quota,
    ResourceGroup,
    Settled,
    Step,
    Strategy,
    Tenancy,
    Workload,
    run,
)

Data = Mapping[str, Any]
TABLE: dict[str, dict[str, Data]] = yaml.safe_load(
    Path(__file__).with_name("admission.yaml").read_text(encoding="utf-8")
)


def _named(value: Any, usual: str) -> Data:
    """A value by name: a mapping, or one value under the usual name."""
    return cast("Data", value) if isinstance(value, dict) else {usual: value}


def _groups(quota: Any) -> tuple[ResourceGroup, ...]:
    flavors = _named(quota, "a100").items()
    return (ResourceGroup(tuple(FlavorQuotas(flavor, _resources(own)) for flavor, own in flavors)),)


def _resources(quota: Any) -> dict[str, Quota]:
    return {name: _quota(own) for name, own in _named(quota, GPU).items()}


def _quota(own: Any) -> Quota:
    return Quota(*cast("list[int]", own)) if isinstance(own, list) else Quota(own)


def _queue(name: str, own: Any) -> ClusterQueue:
    data = _named(own, "quota")
    data = data if "quota" in data else {"quota": own}
    borrow = data.get("borrow")
    borrowing = None if borrow is None else BorrowWithinCohort(borrow if isinstance(borrow, int) else None)
    return ClusterQueue(
        name,
        _groups(data["quota"]),
        data.get("cohort", "org"),
        Strategy(data.get("strategy", Strategy.BEST_EFFORT)),
        Preemption(Policy(data.get("within", "Never")), Policy(data.get("reclaim", "Never")), borrowing),
        _fungibility(*data.get("fungibility", ())),
        data.get("weight", 1.0),
    )


def _fungibility(borrow: str = Fungible.STOP, preempt: str = Fungible.NEXT, by: str = Preference.BORROW) -> Fungibility:
    return Fungibility(Fungible(borrow), Fungible(preempt), Preference(by))


def _cohort(name: str, data: Data) -> Cohort:
    groups = _groups(data["quota"]) if "quota" in data else ()
    return Cohort(name, data.get("parent"), groups, data.get("weight", 1.0))


def _workload(name: str, data: Data) -> Workload:
    sets: Data = data.get("podSets", {"main": data})
    return Workload(name, data["queue"], tuple(_pods(own, one) for own, one in sets.items()), data.get("priority", 0))


def _pods(name: str, data: Data) -> PodSet:
    flavors = frozenset(data["flavors"]) if "flavors" in data else None
    return PodSet(data.get("requests") or {GPU: data["gpus"]}, data.get("pods", 1), flavors, name)


def settled(case: Data) -> Settled:
    """The state after the last step of a case."""
    strategies = case.get("fairSharing")
    fair = FAIR if strategies is True else tuple(map(FairStrategy, strategies)) if strategies else None
    tenancy = Tenancy(
        tuple(_queue(*item) for item in case["queues"].items()),
        tuple(_cohort(*item) for item in case.get("cohorts", {}).items()),
        fair,
    )
    steps = [
        Step(tuple(_workload(*item) for item in step.get("submit", {}).items()), tuple(step.get("finish", ())))
        for step in case["steps"]
    ]
    return run(tenancy, steps)[-1]


@pytest.mark.parametrize(
    ("subject", "name"),
    [pytest.param(subject, name, id=f"{subject}: {name}") for subject in TABLE for name in TABLE[subject]],
)
def test_admission(subject: str, name: str) -> None:
    case = TABLE[subject][name]
    state = settled(case)
    assert admitted(state) == case["admitted"]
    assert evictions(state) == case.get("evicted", [])
    assert [list(queues) for queues in state.livelock] == case.get("livelock", [])
    if "pending" in case:
        assert pending(state) == case["pending"]
    if "flavors" in case:
        assert {workload.name: _assigned(workload.flavors) for workload in state.admitted} == case["flavors"]


def _assigned(flavors: tuple[Mapping[str, str], ...]) -> Any:
    """The flavor of the GPUs: of each pod set, or by resource if there are others."""
    shown: list[Any] = [one[GPU] if len(one) == 1 else dict(one) for one in flavors]
    return shown if len(shown) > 1 else shown[0]


def test_an_empty_tenancy_is_settled() -> None:
    assert settle(Tenancy(), ()) == Settled()
    assert run(Tenancy(), ()) == ()


def test_the_newest_reservation_is_preempted_first() -> None:
    """Not the newest workload."""
    reclaims = Preemption(reclaim=Policy.ANY)
    tenancy = Tenancy((queue("a", 5, preemption=reclaims), queue("b", 0), queue("c", 0)))
    steps = (
        Step((work("old", "b", 3), work("own", "a", 3), work("young", "c", 2))),
        # `old` is admitted again now, after `young`.
        Step(finish=("own",)),
        Step((work("last", "a", 2),)),
    )
    states = run(tenancy, steps)
    assert [admitted(state) for state in states] == [["own", "young"], ["old", "young"], ["young", "last"]]


def vector_queue(name: str, gpus: Quota) -> ClusterQueue:
    cpu = FlavorQuotas("cpu", {"cpu": Quota(), GPU: Quota(0, 0)})
    groups = (ResourceGroup((cpu, FlavorQuotas("h100", {"cpu": Quota(), GPU: gpus}))),)
    return ClusterQueue(name, groups, "org", preemption=Preemption(reclaim=Policy.ANY))


@pytest.mark.parametrize("launcher", [False, True], ids=["one pod set", "with a launcher on CPU nodes"])
@pytest.mark.parametrize(("cpus", "missing"), [(2, False), (12, True)], ids=["free CPUs", "borrowed CPUs"])
def test_the_reason_names_cpu_that_prevents_reclaiming(cpus: int, missing: bool, launcher: bool) -> None:  # noqa: FBT001
    """Kueue resumes the flavor search for the launcher at flavor h100, and then reports that flavor alone."""
    org = Cohort("org", groups=(ResourceGroup((FlavorQuotas("cpu", {"cpu": Quota(100), GPU: Quota()}),
        FlavorQuotas("h100", {"cpu": Quota(192), GPU: Quota(8)}))),))  # fmt: skip
    tenancy = Tenancy((vector_queue("a", Quota(8, 8)), vector_queue("b", Quota())), (org,))
    on_gpus = frozenset({"h100"})
    fill = [Workload(f"b{at}", "b", (PodSet({GPU: 1, "cpu": cpus}, flavors=on_gpus),)) for at in range(16)]
    first = (PodSet({"cpu": 1}, flavors=frozenset({"cpu"}), name="launcher"),) if launcher else ()
    job = Workload("job", "a", (*first, PodSet({GPU: 8, "cpu": 8}, flavors=on_gpus, name="workers")))
    state = after(tenancy, *fill, job)
    texts = [f"insufficient unused quota for {GPU} in flavor h100, 8 more needed"]
    texts += ["insufficient unused quota for cpu in flavor h100, 8 more needed"] if missing else []
    texts += ["no workload may be preempted for it: cpu in flavor h100 exceeds nominal quota by 8"]
    assert (len(state.admitted), pending(state)) == (16, {"job": "; ".join(texts)})


def test_workloads_of_one_scheduling_hash_share_the_reason() -> None:
    tenancy = Tenancy((queue("a", 2),))
    state = after(tenancy, work("now", "a", 2), work("one", "a", 1), work("two", "a", 1))
    assert pending(state)["two"] == pending(state)["one"]
    together = settle(tenancy, [work("huge", "a", 3), work("as huge", "a", 3)])
    assert pending(together) == dict.fromkeys(
        ("huge", "as huge"), f"insufficient quota for {GPU} in flavor a100, request > maximum capacity (3 > 2)"
    )


@pytest.mark.parametrize(
    ("tenancy", "message"),
    [
        (Tenancy((queue("a", 1), queue("a", 2))), "duplicate ClusterQueue 'a'"),
        (Tenancy((), (Cohort("c"), Cohort("c"))), "duplicate Cohort 'c'"),
        (
            Tenancy((queue("a", 1, cohort="c"),), (Cohort("c", "d"), Cohort("d", "c"))),
            "Cohort c: its parents form a cycle at c; Kueue admits nothing in such a tree",
        ),
        (
            Tenancy((ClusterQueue("a", group(x=Quota(1)) + group(y=Quota(1))),)),
            f"ClusterQueue a: {GPU} is covered by two resource groups",
        ),
        (
            Tenancy((ClusterQueue("a", _groups({"x": {GPU: 0, "cpu": 0}, "y": {GPU: 0}})),)),
            "ClusterQueue a: flavor y has no quota for cpu",
        ),
    ],
)
def test_an_invalid_tenancy_is_rejected(tenancy: Tenancy, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message.replace(".", r"\.") + "$"):
        settle(tenancy, ())


def test_unknown_and_duplicate_names_are_rejected() -> None:
    tenancy = Tenancy((queue("a", 1),))
    with pytest.raises(ValueError, match=r"^workload 'w': ClusterQueue 'b' does not exist$"):
        settle(tenancy, [work("w", "b", 1)])
    with pytest.raises(ValueError, match=r"^duplicate workload 'w'$"):
        settle(tenancy, [work("w", "a", 1), work("w", "a", 1)])
    with pytest.raises(ValueError, match=r"^workload 'w' does not exist and cannot finish$"):
        after(tenancy, finish=["w"])
