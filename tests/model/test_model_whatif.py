"""What a simulation of Kueue says of a stack's own queues, and that the report's arithmetic says the same."""

import random
from pathlib import Path
from typing import Any

import pytest
from builders import Data, server, stack, team

from model.admission import Step
from model.load import load
from model.outlook import outlook
from model.outlook.shares import Span
from model.plan.shares import Tree
from model.problems import StackError
from model.source import Source, read_file
from model.whatif import alone, busy, play, read_story

STACKS = sorted((Path(__file__).parents[2] / "stacks").glob("Pulumi.*.yaml"))


def tree(sections: Data) -> Tree:
    return Tree(load(Source(sections)))


def h100(guaranteed: int, limit: int) -> Data:
    return {"h100": {"guaranteed": guaranteed, "limit": limit}}


def told_and_simulated(found: Tree) -> list[tuple[str, str, tuple[Span, int], tuple[Span, int]]]:
    """Of each team and flavor: what the report says, and what the simulation does when it comes last, first, alone."""
    rows: list[tuple[str, str, tuple[Span, int], tuple[Span, int]]] = []
    for each in outlook(found.stack).teams:
        if each.queue != each.name:
            continue
        last, first, only = busy(found, last=each.name), busy(found, first=each.name), alone(found, each.name)
        for held in each.holdings:
            if held.scheduler == "Kueue":
                have = [scene.moment.gpus(each.name, held.flavor) for scene in (last, first, only)]
                told = (held.busy, held.alone)
                rows.append((each.name, held.flavor, told, (Span(have[0], have[1]), have[2])))
    return rows


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.stem)
def test_the_report_says_of_every_stack_what_the_simulation_does(file: Path) -> None:
    rows = told_and_simulated(Tree(load(read_file(file))))
    assert rows
    for name, flavor, told, simulated in rows:
        assert told == simulated, (name, flavor)


def drawn(seed: int) -> Data:
    """Teams in two groups and beside them, on 16 H100s, with whatever guarantees, limits and bounds fit."""
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


def test_on_trees_drawn_by_chance_the_report_says_what_the_simulation_does() -> None:
    seen = 0
    for seed in range(60):
        try:
            found = tree(drawn(seed))
        except StackError:
            continue
        seen += 1
        for name, flavor, told, simulated in told_and_simulated(found):
            assert told == simulated, (seed, name, flavor)
    assert seen > 30


def test_even_fairness_shares_by_weight_as_far_as_whole_gpus_go() -> None:
    found = tree(stack(fairness="even", teams={"a": team(gpus=h100(0, 16)), "b": team(gpus=h100(0, 16), weight=3)}))
    moment = busy(found).moment
    assert (moment.gpus("a", "h100"), moment.gpus("b", "h100")) == (4, 12)


def test_a_guarantee_is_taken_back_from_who_borrowed_it_and_the_scene_says_from_whom() -> None:
    found = tree(stack(teams={"a": team(gpus=h100(8, 16)), "b": team(gpus=h100(8, 16))}))
    first = busy(found, first="a").moment
    assert (first.gpus("a", "h100"), first.gpus("b", "h100")) == (8, 8)
    assert len(first.evicted) == 8
    assert {gone[:2] for gone, _ in first.evicted} == {"a-"}
    assert {by[:2] for _, by in first.evicted} == {"b-"}


# Jobs of one's own, over time.


def told(tmp_path: Path, found: Tree, text: str) -> list[tuple[str, Step]]:
    file = tmp_path / "story.yaml"
    file.write_text(text, encoding="utf-8")
    return read_story(file, found)


def sections() -> Data:
    return stack(
        priorities={"high": 100, "low": 1},
        teams={
            "a": team(gpus=h100(8, 16), priority="low"),
            "b": team(gpus=h100(8, 8), priority="low", serving={"api": server()}),
            "c": team(gpus={**h100(0, 8), "a100": {"guaranteed": 8}}),
        },
    )


def test_jobs_come_wait_and_run_when_others_end(tmp_path: Path) -> None:
    found = tree(sections())
    steps = told(
        tmp_path,
        found,
        """
steps:
- submit: [{name: one, team: a, gpus: 8}]
- submit: [{name: two, team: a, gpus: 4, pods: 2}, {name: soon, team: a, gpus: 8, priority: high}]
- finish: [soon]
""",
    )
    came, more, ended = play(found, steps)
    assert [(each.workload, each.flavor, each.gpus) for each in came.running] == [("one", "h100", 8)]
    assert [each.workload for each in more.running] == ["soon"]
    assert more.evicted == (("one", "soon"),)
    assert {each.workload: each.gpus for each in more.waiting} == {"one": 8, "two": 8}
    assert all("nvidia.com/gpu" in each.why for each in more.waiting)
    assert [each.workload for each in ended.running] == ["one"]
    assert ended.label == "3. soon ends"


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"finish": ["never"]}, "steps.0.finish: there is no job never"),
        ({"submit": [{"name": "j", "team": "x"}]}, "steps.0.submit.0.team: there is no team x; known: a, b, c"),
        ({"submit": [{"name": "j", "team": "c"}]}, "steps.0.submit.0.flavor: team c has several, or none; write which"),
        ({"submit": [{"name": "j", "team": "a", "flavor": "h10"}]}, "there is no flavor h10; did you mean 'h100'?"),
        ({"submit": [{"name": "j", "team": "a", "priority": "hi"}]}, "steps.0.submit.0.priority: there is no class hi"),
        ({"submit": [{"name": "j", "team": "a"}] * 2}, "steps.0.submit.1.name: a job j is there already"),
        ({"submit": [{"team": "a"}]}, "steps.0.submit.0.name: field required"),
        ({"submits": []}, "steps.0.submits: extra inputs are not permitted"),
    ],
)
def test_what_is_wrong_in_a_story_is_named_by_place(tmp_path: Path, step: dict[str, Any], words: str) -> None:
    found = tree(sections())
    with pytest.raises(ValueError, match=r"story\.yaml") as error:
        told(tmp_path, found, str({"steps": [step]}).replace("'", '"'))
    assert words in str(error.value)
