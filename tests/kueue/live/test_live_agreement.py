"""Random scenarios on the real Kueue and in the simulation: a part of `make agree`.

At the end of each, the queues are changed while workloads run: Kueue must preempt and admit the workloads that a
preview of the change forecasts. Other scenarios are written by hand: a queue that borrows, and a possible preemptor.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from queue_changes import Changed, agrees, change, play_changes, with_change
from queueing import Queueing

from benchmarks.agree import kueue
from benchmarks.agree.comparing import Compared, compare
from benchmarks.agree.drawing import classes, draw
from benchmarks.agree.playing import Pace, Played, Stage, stage
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.pruning import empty
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kueue import Quotas, preemptors
from gpu_tenancy.kueue.scenarios import read_tenancy

SEED = 20261122
EACH = 1  # scenarios of each class, without fair sharing and with
WORKLOADS = 6
RECORDED = ("off-c04-02", "on-c11-08")  # short recordings with preemptions
RECORDINGS = Path(__file__).parents[1] / "recordings" / "kueue-0.19.2.jsonl"

LINE = ("main", "nvidia.com/gpu")
PRIORITIES = {"low": 0, "mid": 60, "high": 100}
ANY = {"reclaimWithinCohort": "Any"}
LOWER = {"reclaimWithinCohort": "LowerPriority"}
ABOVE = {**ANY, "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 50}}
# The root's own quota, the quota of the queue that could preempt, and its policies.
TAKERS: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "lent": (2, {"nominal": 2}, ANY),
    "lower": (2, {"nominal": 2}, LOWER),
    "kept": (4, {"nominal": 2, "lendingLimit": 0}, ANY),
    "shared": (4, {"nominal": 0}, ANY),
    "cohort": (2, {"nominal": 0, "cohort": "side"}, ANY),
    "above": (4, {"nominal": 0}, ABOVE),
}


def borrowing(name: str, priorities: tuple[str, str], *, fair: bool) -> dict[str, Any]:
    """All four GPUs are borrowed, and another queue requests two of them; four if it could borrow two others."""
    own, quota, policies = TAKERS[name]

    def line(**quota: int) -> list[dict[str, Any]]:
        return [{"flavor": LINE[0], "resource": LINE[1], **quota}]

    usual: dict[str, Any] = {"cohort": "root", "strategy": "BestEffortFIFO", "preemption": {}}
    nominal = {key: value for key, value in quota.items() if key != "cohort"}
    taker = {**usual, "name": "taker", "cohort": quota.get("cohort", "root"), "preemption": policies}
    held = [{"name": f"w{at}", "queue": "borrower", "priority": priorities[0]} for at in range(2)]
    amount = 4 if name == "kept" else 2
    return {
        "id": f"taker-{name}-{'on' if fair else 'off'}-{'-'.join(priorities)}",
        "class": "borrowed",
        "fairSharing": fair,
        "cohorts": [
            {"name": "root", "parent": None, "quota": line(nominal=own)},
            {"name": "side", "parent": "root", "quota": line(nominal=2 if name == "cohort" else 0)},
        ],
        "clusterQueues": [
            {**usual, "name": "borrower", "resources": line(nominal=0)},
            {**taker, "resources": line(**nominal)},
        ],
        "priorities": PRIORITIES,
        "steps": [
            {"submit": [{**one, "requests": {LINE[1]: 2}} for one in held]},
            {"submit": [{"name": "new", "queue": "taker", "priority": priorities[1], "requests": {LINE[1]: amount}}]},
        ],
    }


def taken(*, fair: bool) -> list[dict[str, Any]]:
    pairs = (("low", "low"), ("low", "high"), ("mid", "high"))
    return [borrowing(name, pair, fair=fair) for name in TAKERS for pair in pairs]


def recordings() -> list[dict[str, Any]]:
    lines = map(json.loads, RECORDINGS.read_text(encoding="utf-8").splitlines())
    return [scenario for scenario in lines if scenario["id"] in RECORDED]


def scenarios(*, fair: bool) -> list[dict[str, Any]]:
    drawn = [with_change(scenario) for scenario in draw(SEED, len(classes()) * EACH, WORKLOADS)]
    played = [scenario for scenario in (*recordings(), *drawn) if scenario["fairSharing"] is fair]
    return [*played, *taken(fair=fair)]


def play(on: Stage, chosen: Sequence[dict[str, Any]], pace: Pace) -> list[Played]:
    return on.play_all(chosen, pace, lambda _: None)


@dataclass(frozen=True, slots=True)
class Results:
    """The comparison in one mode."""

    compared: list[Compared]
    changes: list[Played]  # with the forecast result
    others: list[Changed]  # with another result when they were repeated carefully, or that do not count


def clear(cluster: Cluster) -> None:
    """Deletes all leftovers of scenarios, for a shared platform."""
    namespace = Reference("v1", "Namespace", kueue.NAMESPACE)
    cluster.delete(namespace, wait=0)
    empty(cluster, kueue.NAMESPACE)
    for kind in kueue.KINDS:
        for item in cluster.list(kueue.KUEUE, kind, labels=kueue.SCENARIO, metadata_only=True):
            cluster.delete(Reference.of(item), wait=0)
    for kind in kueue.KINDS:
        cluster.wait_for(
            lambda kind=kind: not cluster.list(kueue.KUEUE, kind, labels=kueue.SCENARIO, metadata_only=True),
            what=f"the {kind}s of scenarios to be deleted",
        )
    cluster.wait_gone(namespace, timeout=300)


@pytest.fixture(scope="module", params=[True, False], ids=["fair sharing on", "fair sharing off"])
def played(queueing: Queueing, request: pytest.FixtureRequest) -> Iterator[Results]:
    """The comparison in one mode; fair sharing off is last, to restore the platform's mode."""
    fair: bool = request.param
    chosen = scenarios(fair=fair)
    with stage(queueing.platform, chosen, queueing.report, fair=fair, then=change) as on:
        found = compare(chosen, partial(play, on))
        changed = [one for one in found if "change" in one.scenario]
        foreseen = [one.plays[-1] for one in changed if agrees(one.plays[-1])]
        again = [one.scenario for one in changed if not agrees(one.plays[-1])]
        yield Results(found, foreseen, play_changes(on, again) if again else [])
        clear(queueing.cluster)


@pytest.fixture(scope="module")
def results(played: Results) -> list[Compared]:
    return played.compared


def test_a_preview_foresees_preemptions_by_a_change(played: Results) -> None:
    assert [one for one in played.others if one.agrees is False] == []
    assert len(played.changes) > len(played.others)


def test_the_simulation_agrees_with_kueue_in_every_step(results: list[Compared]) -> None:
    assert [one.recording for one in results if one.verdict == "differs"] == []
    assert len([one for one in results if one.counted]) >= len(results) - 1


def test_only_the_named_queues_preempt_a_borrower(results: list[Compared]) -> None:
    done: dict[str, bool] = {}
    named: dict[str, bool] = {}
    for one in results:
        name = one.scenario["id"]
        if one.scenario["class"] != "borrowed":
            continue
        first, last = one.plays[-1].observed
        done[name] = len([workload for workload in first["admitted"] if workload in last["admitted"]]) < len(
            first["admitted"]
        )
        quotas = Quotas(read_tenancy(one.scenario), {"borrower": {LINE: 4}})
        before, after = (PRIORITIES[priority] for priority in name.split("-")[-2:])
        named[name] = any(
            (after > before or not each.lower) and (each.at_most is None or before <= each.at_most)
            for each in preemptors(quotas, "borrower", LINE)
        )
    assert done == named
    assert set(done.values()) == {True, False}
    assert len(done) == 3 * len(TAKERS)


def test_kueue_reproduces_its_recordings(results: list[Compared]) -> None:
    """So the player has the same results as the recorder."""
    played = [one for one in results if "observed" in one.scenario]
    assert len(played) == 1
    for one in played:
        assert one.recording["observed"] == one.scenario["observed"]
        assert [events(step) for step in one.recording["trace"]] == [events(step) for step in one.scenario["trace"]]


def events(step: list[list[Any]]) -> list[str]:
    """The events of a step without their seconds; the order of simultaneous ones means nothing."""
    return sorted(text for _, text in step)
