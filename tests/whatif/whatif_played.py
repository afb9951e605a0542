"""A test's scenarios for the simulation, with their results."""

import json
import random
from pathlib import Path
from typing import Final

from builders import EXISTING, Data, pool, team
from repository import ROOT

from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source, read_file
from gpu_tenancy.simulation.outcome import compare
from gpu_tenancy.simulation.player import StepResult
from gpu_tenancy.simulation.records import JobRecord, Part
from gpu_tenancy.simulation.replay import replay
from gpu_tenancy.simulation.scenario import read_scenario
from gpu_tenancy.simulation.scenes import alone, busy, unmodelled_of
from gpu_tenancy.simulation.stage import JobStep, Moment
from gpu_tenancy.whatif.replay import Replayed
from gpu_tenancy.whatif.timeline import Timeline, play

STACKS: Final = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))
NASTY: Final = "<b>&amp; *d* {{ e }}"

# Sweep borrows, train reclaims, extra borrows, urgent precedes it, huge is always pending, api ends.
SCENARIO: Final = f"""
steps:
- label: the day begins, {NASTY}
  submit:
  - {{name: sweep, team: speech, gpus: 6}}
  - {{name: api, team: search, flavor: l4, gpus: 2}}
  - {{name: etl, team: speech, gpus: 0}}
- submit: [{{name: train, team: vision, gpus: 2, pods: 2}}, {{name: extra, team: vision, gpus: 4}}]
- submit: [{{name: urgent, team: vision, gpus: 4, priority: high}}, {{name: huge, team: speech, gpus: 8}}]
- finish: [api]
"""


def small() -> Data:
    """Two teams in a group that share H100s, one that lends nothing, one with gangs beside its queue."""
    return {
        "environment": "test",
        "cluster": EXISTING,
        "pools": {"cpu": pool("m7i.8xlarge", 1), "h100": pool(nodes=1), "l4": pool("g6.12xlarge", 2)},
        "priorities": {"high": 1000, "low": 10},
        "cohorts": {"org": {}, "lab": {"parent": "org", "gpus": {"h100": {"guaranteed": 8, "limit": 8}}}},
        "teams": {
            "vision": team(cohort="lab", gpus={"h100": {"guaranteed": 4, "limit": 8}}, priority="low"),
            "speech": team(cohort="lab", gpus={"h100": {"guaranteed": 2, "limit": 8}}, priority="low"),
            "search": team(gpus={"l4": {"guaranteed": 2, "limit": 6}}, lends=False, gangs={"l4": {"guaranteed": 1}}),
        },
    }


def tree(sections: Data) -> Tree:
    return Tree(load(Source(sections)))


def tree_of(file: Path) -> Tree:
    return Tree(load(read_file(file)))


def load_timeline(found: Tree, moment: Moment) -> Timeline:
    left_out = unmodelled_of(found)
    steps = (StepResult(JobStep(moment.label), moment),)
    return Timeline("test", moment.label, found, steps, scenario=False, left_out=left_out)


def everyone(found: Tree, first: str | None = None) -> Timeline:
    return load_timeline(found, busy(found, first=first))


def only(found: Tree, team_: str) -> Timeline:
    return load_timeline(found, alone(found, team_))


def told(found: Tree, text: str, folder: Path) -> Timeline:
    file = folder / "jobs.yaml"
    file.write_text(text, encoding="utf-8")
    return Timeline("test", "jobs of jobs.yaml", found, play(found, read_scenario(file, found)), scenario=True)


def small_scenario(folder: Path) -> Timeline:
    return told(tree(small()), SCENARIO, folder)


def sixty(folder: Path) -> Timeline:
    """Sixty jobs of eight teams, some of which end and some are preempted."""
    dice = random.Random(7)  # noqa: S311 - no secret
    sections = small()
    names = [f"team-{number}" for number in range(8)]
    sections["pools"]["h100"] = pool(nodes=4)
    sections["cohorts"] = {"org": {}}
    sections["teams"] = {name: team(gpus={"h100": {"guaranteed": 3, "limit": 24}}) for name in names}
    steps: list[Data] = []
    there: list[str] = []
    for step in range(12):
        gone = dice.sample(there, 2) if step > 2 else []
        came = [f"{dice.choice(('train', 'a-sweep-with-a-very-long-name-indeed'))}-{step}-{part}" for part in range(5)]
        jobs = [{"name": name, "team": dice.choice(names), "gpus": dice.choice((1, 2, 4))} for name in came]
        there = [name for name in (*there, *came) if name not in gone]
        steps.append({"finish": gone, "submit": jobs})
    return told(tree(sections), json.dumps({"steps": steps}), folder)


def replayed_twice() -> Replayed:
    """A month of jobs on two stacks, the second with less for vision; many of a file are left out."""
    dice = random.Random(5)  # noqa: S311 - no secret
    at, records = 0.0, list[JobRecord]()
    for number in range(600):
        at += dice.expovariate(1 / 4000)
        team_ = dice.choice(["vision", "vision", "speech", "search", None, "gone"])
        part = Part(1, dice.choice([0, 1, 1, 2, 4, 8]))
        priority = dice.choice(["high", None])
        records.append(JobRecord(f"job-{number}", at, dice.expovariate(1 / 9000), team_, (part,), priority))
    taken = small()
    taken["teams"]["vision"]["gpus"]["h100"] = {"guaranteed": 0, "limit": 2}
    before, after = replay(tree(small()), records), replay(tree(taken), records)
    return Replayed(
        "test", NASTY, after, {"no end": 3}, ("gangs",), compare("main", before, after), tuple(taken["teams"])
    )
