"""Admitted, pending and preempted workloads in a tenancy (`admission.yaml`), placed workloads, and rejected input."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import pytest
import yaml
from kueue_builders import GPU, admitted, after, evicted, evictions, group, pending, queue, settle, work

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
    Preemptor,
    Preference,
    Quota,
    Quotas,
    ResourceGroup,
    Settled,
    Simulation,
    Step,
    Strategy,
    Tenancy,
    Workload,
    preemptors,
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
    tenancy = Tenancy((queue("a", 5, preemption=Preemption(reclaim=Policy.ANY)), queue("b", 0), queue("c", 0)))
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
        (Tenancy((queue("a", 1, cohort="c"),), (Cohort("c", "d"), Cohort("d", "c"))),
         "Cohort c: its parents form a cycle at c; Kueue admits nothing in such a tree"),
        (Tenancy((ClusterQueue("a", group(x=Quota(1)) + group(y=Quota(1))),)),
         f"ClusterQueue a: {GPU} is covered by two resource groups"),
        (Tenancy((ClusterQueue("a", _groups({"x": {GPU: 0, "cpu": 0}, "y": {GPU: 0}})),)),
         "ClusterQueue a: flavor y has no quota for cpu"),
    ],
)  # fmt: skip
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


RECLAIMS = Preemption(Policy.LOWER, Policy.ANY)
A100 = ({GPU: "a100"},)


def two_queues(nominal_b: int = 4) -> Tenancy:
    """Two queues that reclaim their nominal quota from each other."""
    return Tenancy((queue("a", 4, preemption=RECLAIMS), queue("b", nominal_b, preemption=RECLAIMS)))


def started(tenancy: Tenancy, placed: Workload, new: Workload, flavor: str = "a100", **how: bool) -> Simulation:
    """A simulation at rest, which began with one workload admitted and another one pending."""
    simulation = Simulation(tenancy)
    simulation.place(placed, ({GPU: flavor},), -1, **how)
    simulation.submit(new)
    simulation.rest()
    return simulation


def test_a_placed_workload_is_admitted_and_uses_its_flavor() -> None:
    tenancy = Tenancy((ClusterQueue("a", group(f1=Quota(4), f2=Quota(4))),))
    simulation = started(tenancy, work("old", "a", 4), work("new", "a", 4), "f2")
    assert {workload.name: dict(workload.flavors[0]) for workload in simulation.settled().admitted} == {
        "old": {GPU: "f2"},
        "new": {GPU: "f1"},
    }


def test_a_placed_workload_may_use_more_than_the_quota() -> None:
    simulation = started(two_queues(nominal_b=0), work("old", "a", 6), work("new", "a", 1))
    assert pending(simulation.settled())["new"].startswith(
        "insufficient unused quota for nvidia.com/gpu in flavor a100, 1 more needed"
    )
    simulation.finish("old")
    simulation.rest()
    assert admitted(simulation.settled()) == ["new"]


def test_a_flavor_that_the_queue_no_longer_has_is_not_counted() -> None:
    simulation = started(two_queues(), work("old", "a", 8), work("new", "a", 8), "unknown")
    assert admitted(simulation.settled()) == ["old", "new"]


@pytest.mark.parametrize(("first", "second", "target"), [(-9, -1, "y"), (-1, -9, "x")])
def test_the_newest_placed_workload_is_preempted_first(first: int, second: int, target: str) -> None:
    simulation = Simulation(two_queues())
    simulation.place(work("x", "b", 4), A100, first)
    simulation.place(work("y", "b", 4), A100, second)
    simulation.submit(work("preemptor", "a", 4))
    simulation.rest()
    assert evicted(simulation.settled()) == [(target, "preemptor", "InCohortReclamation")]


def test_the_order_of_place_and_submit_is_the_order_of_creation() -> None:
    rules = Preemption(Policy.LOWER_OR_NEWER)
    for order, expected in (("old new", ["old"]), ("new old", ["new"])):
        simulation = Simulation(Tenancy((queue("a", 4, preemption=rules),)))
        for name in order.split():
            if name == "new":
                simulation.place(work("new", "a", 4), A100, -1)
            else:
                simulation.submit(work("old", "a", 4))
        simulation.rest()
        assert admitted(simulation.settled()) == expected


def test_a_leaving_workload_releases_its_quota_and_is_pending() -> None:
    new = work("new", "a", 4, priority=1)
    state = started(two_queues(nominal_b=0), work("old", "a", 4), new, leaving=True).settled()
    assert (admitted(state), list(pending(state))) == (["new"], ["old"])
    assert evicted(state) == []


def test_a_fixed_workload_is_not_preempted_but_may_finish() -> None:
    simulation = started(two_queues(), work("lent", "b", 8), work("preemptor", "a", 4), fixed=True)
    assert admitted(simulation.settled()) == ["lent"]
    simulation.finish("lent")
    simulation.rest()
    assert admitted(simulation.settled()) == ["preemptor"]


def test_forks_are_independent() -> None:
    simulation = Simulation(two_queues(nominal_b=0))
    simulation.place(work("one", "a", 2), A100, -2)
    simulation.place(work("two", "a", 2), A100, -1)
    simulation.submit(work("next", "a", 2))
    simulation.rest()
    fork = simulation.fork()
    for finished, expected in (("one", ["two", "next"]), ("two", ["one", "next"])):
        copy = fork()
        copy.finish(finished)
        copy.rest()
        assert admitted(copy.settled()) == expected
    assert admitted(simulation.settled()) == ["one", "two"]


def test_a_duplicate_name_and_an_unknown_queue_are_rejected() -> None:
    simulation = Simulation(two_queues())
    simulation.place(work("one", "a", 2), A100, -1)
    with pytest.raises(ValueError, match=r"^duplicate workload 'one'$"):
        simulation.place(work("one", "a", 2), A100, -1)
    with pytest.raises(ValueError, match=r"^workload 'two': ClusterQueue 'c' does not exist$"):
        simulation.place(work("two", "c", 2), A100, -1)


def test_placement_is_possible_only_at_the_start() -> None:
    simulation = Simulation(two_queues())
    simulation.rest()
    with pytest.raises(ValueError, match=r"^workload 'late' cannot be placed after the simulation has started$"):
        simulation.place(work("late", "a", 2), A100, -1)


# Queues that can preempt workloads of a borrower.

LINE: Final = ("a100", GPU)
ANY: Final = Preemption(reclaim=Policy.ANY)
LOWER: Final = Preemption(reclaim=Policy.LOWER)
ABOVE: Final = Preemption(reclaim=Policy.ANY, borrow=BorrowWithinCohort(5))


def tree(own: int, *takers: ClusterQueue, fair: bool = False, **cohort: int | None) -> Tenancy:
    """A borrower without quota of its own in the root, whose own quota is `own`; the cohort `side` beside it."""
    side = Cohort("side", "org", group(a100=Quota(cohort.get("nominal") or 0, cohort.get("limit"))))
    root = Cohort("org", None, group(a100=Quota(own)))
    return Tenancy((queue("borrower", 0, 4), *takers), (root, side), FAIR if fair else None)


CASES: Final[dict[str, tuple[Tenancy, list[Preemptor]]]] = {
    "a guarantee that is lent": (tree(2, queue("t", 2, preemption=ANY)), [Preemptor("t", lower=False)]),
    "the same from lower priorities": (tree(2, queue("t", 2, preemption=LOWER)), [Preemptor("t", lower=True)]),
    "one that is never reclaimed": (tree(2, queue("t", 2)), []),
    "one that is not lent": (tree(4, queue("t", 2, 0, 0, preemption=ANY)), []),
    "quota of the cohort of both": (tree(4, queue("t", 0, preemption=ANY)), []),
    "quota of the other's cohort": (
        tree(2, queue("t", 0, cohort="side", preemption=ANY), nominal=2),
        [Preemptor("t", lower=False)],
    ),
    "the same without borrowing": (tree(2, queue("t", 0, 0, cohort="side", preemption=ANY), nominal=2), []),
    "borrowing by priority": (tree(4, queue("t", 0, preemption=ABOVE)), [Preemptor("t", lower=True, at_most=5)]),
    "a smaller share": (tree(4, queue("t", 0, preemption=ANY), fair=True), [Preemptor("t", lower=False, fair=True)]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_who_can_preempt_is_who_does(case: str) -> None:
    tenancy, expected = CASES[case]
    quotas = Quotas(tenancy, {"borrower": {LINE: 4}})
    assert list(preemptors(quotas, "borrower", LINE)) == expected
    done = {
        (priority, own)
        for priority in (0, 5, 6)
        for own in (priority, priority + 1)
        for amount in range(1, 5)
        if preempts(tenancy, {"borrower": 4}, priority, work("new", "t", amount, own))
    }
    named = {
        (priority, own)
        for one in expected
        for priority in (0, 5, 6)
        for own in (priority, priority + 1)
        if own > priority or not one.lower
        if one.at_most is None or priority <= one.at_most
    }
    assert done == named


def test_a_queue_that_borrows_nothing_loses_nothing_to_others() -> None:
    tenancy, _ = CASES["a guarantee that is lent"]
    assert not list(preemptors(Quotas(tenancy), "borrower", LINE))
    assert list(preemptors(Quotas(tenancy), "borrower", LINE, ever=True))
    assert not list(preemptors(Quotas(tenancy), "t", LINE)), "t has no preemptor: the borrower never reclaims"


def test_a_cohort_within_its_quota_loses_nothing_to_others() -> None:
    inside = (queue("borrower", 0, cohort="side"), queue("owner", 4, cohort="side", preemption=ANY))
    tenancy = Tenancy((*inside, queue("t", 2, preemption=ANY)), (Cohort("org"), Cohort("side", "org")))
    for used, names in ((4, ["owner"]), (5, ["owner", "t"])):
        quotas = Quotas(tenancy, {"borrower": {LINE: used}})
        assert [one.queue for one in preemptors(quotas, "borrower", LINE)] == names


@pytest.mark.parametrize("seed", range(60))
def test_nobody_else_preempts_in_any_tree(seed: int) -> None:
    chance = Random(seed)  # noqa: S311 - the same trees every time, no secret
    tenancy = drawn(chance)
    quotas = Quotas(tenancy)
    named = {
        one.name: {each.queue: each for each in preemptors(quotas, one.name, LINE, ever=True)} for one in tenancy.queues
    }
    potential = {one.name: quotas.potential_available(one.name, LINE) for one in tenancy.queues}
    for _ in range(40):
        usage = {name: chance.randint(0, most) for name, most in potential.items()}
        if any(
            Quotas(tenancy, {name: {LINE: used} for name, used in usage.items()}).available(name, LINE) < 0
            for name in usage
        ):
            continue
        taker, priority, more = chance.choice(list(usage)), chance.choice((0, 6)), chance.choice((0, 1))
        if not potential[taker]:
            continue
        new = work("new", taker, chance.randint(1, potential[taker]), priority + more)
        for victim in preempts(tenancy, usage, priority, new) - {taker}:
            one = named[victim][taker]
            assert more or not one.lower
            assert one.at_most is None or priority <= one.at_most


def preempts(tenancy: Tenancy, usage: dict[str, int], priority: int, new: Any) -> set[str]:
    """The queues whose workloads a new workload preempts; each of them has one GPU."""
    simulation = Simulation(tenancy)
    second = -sum(usage.values())
    for name, used in usage.items():
        for number in range(used):
            simulation.place(work(f"{name}/{number}", name, 1, priority), ({GPU: "a100"},), second)
            second += 1
    simulation.submit(new)
    return set() if simulation.rest() else {one.name.partition("/")[0] for one in simulation.settled().evicted}


def drawn(chance: Random) -> Tenancy:
    """Three queues in a tree of two levels."""
    bounds = (None, None, 0, 1)
    sides = (
        Cohort(name, "org", group(a100=Quota(chance.choice((0, 0, 1)), chance.choice(bounds))))
        for name in ("left", "right")
    )
    queues: list[ClusterQueue] = []
    for name in "abc":
        nominal, reclaim = chance.randint(0, 2), chance.choice((Policy.NEVER, Policy.LOWER, Policy.ANY, Policy.ANY))
        borrow = chance.choice((None, BorrowWithinCohort(), BorrowWithinCohort(0)))
        policies = Preemption(Policy.LOWER, reclaim, None if reclaim is Policy.NEVER else borrow)
        cohort = chance.choice(("org", "left", "left", "right"))
        lends = chance.choice((None, 0, nominal))
        queues.append(queue(name, nominal, chance.choice(bounds), lends, cohort=cohort, preemption=policies))
    root = Cohort("org", None, group(a100=Quota(chance.randint(0, 2))))
    return Tenancy(tuple(queues), (root, *sides), chance.choice((None, FAIR)))
