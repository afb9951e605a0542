"""Random scenarios on the real Kueue and in the simulation: a part of what `make agree` plays.

At the end of each the queues are changed while workloads run, and what Kueue preempts and admits must be what a preview
of the change foresees from the cluster.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from queueing import Queueing

from benchmarks.agree import kueue
from benchmarks.agree.changes import Changed, agrees, play_changes
from benchmarks.agree.changing import with_change
from benchmarks.agree.comparing import Compared, compare
from benchmarks.agree.drawing import draw
from benchmarks.agree.playing import Pace, Played, Stage

SEED = 20261122
EACH = 1
"""Scenarios of each class, without fair sharing and with."""
WORKLOADS = 6
RECORDED = ("off-c04-02", "on-c11-08")
"""Recordings with preemptions, short ones."""
RECORDINGS = Path(__file__).parents[1] / "recordings" / "kueue-0.19.2.jsonl"


def recordings() -> list[dict[str, Any]]:
    lines = map(json.loads, RECORDINGS.read_text(encoding="utf-8").splitlines())
    return [scenario for scenario in lines if scenario["id"] in RECORDED]


def scenarios(*, fair: bool) -> list[dict[str, Any]]:
    drawn = [with_change(scenario) for scenario in draw(SEED, 21 * EACH, WORKLOADS)]
    return [scenario for scenario in (*recordings(), *drawn) if scenario["fairSharing"] is fair]


def play(stage: Stage, chosen: Sequence[dict[str, Any]], pace: Pace) -> list[Played]:
    return stage.play_all(chosen, pace, lambda _: None)


@dataclass(frozen=True, slots=True)
class Results:
    """The comparison in one mode.

    Attributes:
        changes: how many changes did what was foreseen.
        others: those that did something else when they were played again, carefully, or that do not count.
    """

    compared: list[Compared]
    changes: list[Played]
    others: list[Changed]


@pytest.fixture(scope="module", params=[True, False], ids=["fair sharing on", "fair sharing off"])
def played(queueing: Queueing, request: pytest.FixtureRequest) -> Iterator[Results]:
    """The comparison in one mode; fair sharing off is last, as the platform had it."""
    fair: bool = request.param
    chosen = scenarios(fair=fair)
    with kueue.stage(queueing.platform, chosen, queueing.report, fair=fair) as stage:
        found = compare(chosen, partial(play, stage))
        changed = [one for one in found if "change" in one.scenario]
        foreseen = [one.plays[-1] for one in changed if agrees(one.plays[-1])]
        again = [one.scenario for one in changed if not agrees(one.plays[-1])]
        yield Results(found, foreseen, play_changes(stage, again) if again else [])
        kueue.clear(queueing.cluster)


@pytest.fixture(scope="module")
def results(played: Results) -> list[Compared]:
    return played.compared


def test_a_preview_foresees_whom_a_change_of_queues_preempts_and_admits(played: Results) -> None:
    assert [one for one in played.others if one.agrees is False] == []
    assert len(played.changes) > len(played.others)


def test_the_simulation_agrees_with_kueue_in_every_step(results: list[Compared]) -> None:
    assert [one.recording for one in results if one.verdict == "differs"] == []
    assert len([one for one in results if one.counted]) >= len(results) - 1


def test_kueue_reproduces_its_recordings(results: list[Compared]) -> None:
    """So the player plays as the recorder did."""
    played = [one for one in results if "observed" in one.scenario]
    assert len(played) == 1
    for one in played:
        assert one.recording["observed"] == one.scenario["observed"]
        assert [events(step) for step in one.recording["trace"]] == [events(step) for step in one.scenario["trace"]]


def events(step: list[list[Any]]) -> list[str]:
    """The events of a step without their seconds; the order of simultaneous ones means nothing."""
    return sorted(text for _, text in step)
