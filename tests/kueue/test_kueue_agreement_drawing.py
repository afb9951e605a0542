"""The random scenarios of `make agree`."""

from collections import Counter
from typing import Any

from benchmarks.agree.changing import changed_objects, nominal, with_change
from benchmarks.agree.drawing import classes, draw
from benchmarks.agree.objects import Objects
from gpu_tenancy.cluster.pods import name_of
from gpu_tenancy.kueue import run
from gpu_tenancy.kueue.scenarios import read_steps, read_tenancy

Data = dict[str, Any]


def test_seed_gives_the_same_scenarios_for_any_count() -> None:
    assert draw(7, 50)[:30] == draw(7, 30)
    assert draw(7, 21) != draw(8, 21)


def test_every_class_is_drawn_equally_often() -> None:
    drawn = Counter((one["class"], one["fairSharing"]) for one in draw(1, 3 * 21))
    assert drawn == dict.fromkeys(classes(), 3)
    assert len(drawn) == 21
    assert len({one["id"] for one in draw(1, 210)}) == 210


def test_queues_contend_in_what_is_drawn() -> None:
    """A change of the shapes does not leave the comparison with scenarios in which everything fits."""
    played = [run(read_tenancy(one), read_steps(one)) for one in draw(1, 210)]
    assert sum(any(state.pending for state in states) for states in played) > 190
    assert sum(any(state.evicted for state in states) for states in played) > 80


def test_a_scenario_has_at_most_the_requested_workloads() -> None:
    for one in draw(3, 42, workloads=6):
        assert 1 <= sum(len(step.get("submit") or ()) for step in one["steps"]) <= 6
        assert one["id"].endswith("-w6")


def test_objects_have_all_that_the_scenario_has() -> None:
    """Of the class that has everything: the object of a queue says it in Kueue's terms."""
    for one in draw(1, 420):
        if one["class"] == "mixed":
            written = {str(item["metadata"]["name"]): item for item in _objects(one) if item["kind"] == "ClusterQueue"}
            for queue in one["clusterQueues"]:
                spec = written[f"s1-{queue['name']}"]["spec"]
                assert spec["preemption"] == queue["preemption"]
                assert spec["queueingStrategy"] == queue["strategy"]
                assert spec.get("flavorFungibility") == queue.get("flavorFungibility")
                assert float(spec.get("fairSharing", {}).get("weight", -1)) == queue.get("weight", -1)
                assert _lines(spec) == queue["resources"]


def _objects(one: Data) -> list[Data]:
    return [dict[str, Any](item) for item in Objects(one, "s1").queues()]


def _lines(spec: Data) -> list[Data]:
    """The lines of a scenario, from the resource groups of an object."""
    keys = {"nominalQuota": "nominal", "borrowingLimit": "borrowingLimit", "lendingLimit": "lendingLimit"}
    return [
        {
            "flavor": flavor["name"],
            "resource": quota["name"],
            **{ours: int(quota[theirs]) for theirs, ours in keys.items() if theirs in quota},
        }
        for group in spec["resourceGroups"]
        for flavor in group["flavors"]
        for quota in flavor["resources"]
    ]


def test_a_change_gives_up_quota_before_another_queue_gets_it() -> None:
    """Else Kueue admits, between two writes, what both queues have for a moment: a preview cannot foresee it."""
    moved = 0
    for scenario in map(with_change, draw(1, 210)):
        before = {(one["kind"], name_of(one)): nominal(one) for one in Objects(scenario, "p").queues()}
        steps = [nominal(one) - before[one["kind"], name_of(one)] for one in changed_objects(scenario, "p")]
        assert steps == sorted(steps)
        moved += len(steps) > 1
    assert moved > 40
