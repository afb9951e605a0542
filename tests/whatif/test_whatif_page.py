"""The page of `tenancy whatif`: what it says is what the simulation says, in words, tables and lengths."""

from dataclasses import replace
from pathlib import Path

import pytest
from page_reader import Html, Page, well_formed, without_style
from repository import ROOT
from syrupy.assertion import SnapshotAssertion
from whatif_played import NASTY, STACKS, everyone, only, sixty, small, small_scenario, told, tree, tree_of

from gpu_tenancy.base.amounts import amount
from gpu_tenancy.base.quantity import MEMORY
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.plan.shares import Measure, Tree, measures_of, supply_of
from gpu_tenancy.review.charts import tanks
from gpu_tenancy.simulation.scenarios import Moment, Waiting, every_measure
from gpu_tenancy.whatif.bars import OTHERS, Branch, TeamBar, flavor_hues, pictures, shades
from gpu_tenancy.whatif.narrative import Played, headline, sentences, turns
from gpu_tenancy.whatif.page import page
from gpu_tenancy.whatif.timeline import ABOVE, AREA, timeline


def test_jobs_over_time_are_the_golden_page(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    assert without_style(page(small_scenario(tmp_path))) == snapshot(extension_class=Html)


def test_a_page_has_the_style_sheet_of_all_pages_and_its_own() -> None:
    text = page(everyone(tree(small())))
    for file in ("pages/templates/style.css", "whatif/templates/whatif.css"):
        assert (ROOT / "gpu_tenancy" / file).read_text(encoding="utf-8").strip() in text


def nobody() -> Tree:
    sections = small()
    for each in sections["teams"].values():
        del each["gpus"]
    sections["teams"]["search"].pop("gangs")
    return tree(sections)


@pytest.mark.parametrize("name", ["busy", "alone", "scenario", "sixty", "empty scenario", "nobody"])
def test_a_page_is_well_formed_and_names_its_pictures(name: str, tmp_path: Path) -> None:
    found = tree(small())
    played = {
        "busy": lambda: everyone(found),
        "alone": lambda: only(found, "vision"),
        "scenario": lambda: small_scenario(tmp_path),
        "sixty": lambda: sixty(tmp_path),
        "empty scenario": lambda: told(found, "steps: []", tmp_path),
        "nobody": lambda: everyone(nobody()),
    }[name]()
    text = page(played)
    well_formed(text)
    assert "<script" not in text
    assert page(played) == text


def test_user_text_is_shown_verbatim(tmp_path: Path) -> None:
    text = page(small_scenario(tmp_path))
    assert NASTY not in text
    assert f"the day begins, {NASTY}" in Page(text).texts


# Every number, against the simulation's own moments.


def same(measure: Measure, one: int, other: int) -> bool:
    """Whether amounts of a page are equal; memory is shown in tenths of a GiB, of which up to three are added."""
    return abs(one - other) <= (2**30 // 5 if measure.resource == MEMORY else 0)


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.stem)
def test_tables_agree_with_the_simulation(file: Path) -> None:
    found = tree_of(file)
    played = everyone(found)
    moment, seen = played.last, Page(page(played)).tables
    measures = {measure.label: measure for measure in every_measure(found)}
    rows = {
        (row[0], row[1]): [amount(measures[row[1]].resource, cell) for cell in row[3:]]
        for row in seen["Usage by team"][1:]
    }
    for (team, flavor), (sure, limit, runs, own, borrowed, unused, waits) in rows.items():
        measure = measures[flavor]
        share = found.team_shares[team][measure.flavor][measure.resource]
        assert (sure, limit) == (share.guaranteed, share.effective_limit)
        assert same(measure, runs, moment.amount(team, measure))
        assert same(measure, runs + waits, limit), "everyone requests the limit"
        assert same(measure, own + borrowed, runs)
        assert same(measure, own + unused, sure)
        assert same(measure, borrowed, max(0, runs - sure))
    assert {(team, measure.label) for team in found.queue_owners for measure in measures_of(found, team)} <= rows.keys()
    (by_flavor,) = (table for title, table in seen.items() if title.endswith(" by flavor"))
    for name, *cells in by_flavor[1:]:
        measure = measures[name]
        most, used, free, gangs = (amount(measure.resource, cell) for cell in cells)
        assert most + gangs == found.flavors[measure.flavor].capacity[measure.resource]
        assert same(measure, used, sum(row[2] for (_, label), row in rows.items() if label == name))
        assert same(measure, used + free, most)


def bars(branch: Branch) -> list[TeamBar]:
    return [*branch.teams, *(bar for group in branch.groups for bar in bars(group))]


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.stem)
def test_bars_are_as_long_as_the_simulation_s_numbers(file: Path) -> None:
    played = everyone(tree_of(file))
    for picture in pictures(played):
        held = {each.team: each for each in played.held if each.flavor == picture.flavor}
        drawn = {bar.team: bar for bar in bars(picture.tree)}
        assert drawn.keys() == held.keys()
        one = max(bar.tick / held[team].limit for team, bar in drawn.items() if held[team].limit)
        for team, bar in drawn.items():
            each = held[team]
            lengths = (bar.own[1], bar.borrowed[1], bar.unused[1], bar.waits[1], bar.tick)
            numbers = (each.own, each.borrowed, each.unused, each.waits, each.limit)
            assert lengths == pytest.approx([number * one for number in numbers], abs=0.05)
            assert bar.borrowed[0] == pytest.approx(bar.own[1], abs=0.05)
        gpus = [(part.who, part.gpus) for part in picture.parts if part.kind in {"own", "borrowed"}]
        assert {team: sum(n for who, n in gpus if who == team) for team, _ in gpus} == {
            team: each.runs for team, each in held.items() if each.runs
        }
        assert sum(part.length[1] for part in picture.parts) == pytest.approx(100, abs=0.1)


def ran(moment: Moment, flavor: str) -> int:
    return sum(each.gpus for each in moment.running if each.flavor == flavor)


def test_lanes_blocks_and_tables_agree_after_each_step(tmp_path: Path) -> None:
    played = sixty(tmp_path)
    drawn, seen = timeline(played), Page(page(played)).tables
    count = len(played.moments)
    lanes = {lane.name: lane for lane in drawn.lanes if lane.spells}
    assert len(lanes) == 60
    rows = {row[0]: row[3:] for row in seen["Jobs by step"][1:]}
    for at, moment in enumerate(played.moments):
        middle = 100 * (at + 0.5) / count
        states = {
            name: {True: "running", False: "pending"}[spell.runs]
            for name, lane in lanes.items()
            for spell in lane.spells
            if spell.left < middle < spell.left + spell.width
        }
        expected = {each.workload: "running" for each in moment.running}
        expected |= {each.workload: "pending" for each in moment.waiting}
        assert states == expected
        assert {name: cells[at] for name, cells in rows.items() if cells[at] in {"running", "pending"}} == expected
        (area,) = drawn.areas
        capacity = supply_of(played.tree, Measure("h100", "nvidia.com/gpu"))
        tall = sum(each.height for each in area.blocks if each.left < middle < each.left + each.width)
        assert tall == pytest.approx(AREA * ran(moment, "h100") / capacity, abs=0.1)
        assert area.sums[at][2] == (str(ran(moment, "h100")) if ran(moment, "h100") else "")
        told_ = sum(int(row[2 + at]) for row in seen["GPUs in use by step"][1:])
        assert told_ == ran(moment, "h100")
    gone = [(each.workload, each.by) for _, each in played.evicted()]
    assert gone
    assert [(row[0], row[4]) for row in seen["Preempted jobs"][1:]] == gone
    assert len(drawn.arrows) == len({(label, each.workload, each.by) for label, each in played.evicted()})
    assert [row[0] for row in seen["Pending jobs"][1:]] == [each.workload for each in played.last.waiting]


def test_no_lane_lies_on_another_and_arrows_go_from_lane_to_lane(tmp_path: Path) -> None:
    drawn = timeline(sixty(tmp_path))
    tops = [lane.top for lane in drawn.lanes]
    assert tops == [sum(lane.height for lane in drawn.lanes[:at]) for at in range(len(tops))]
    assert drawn.height == sum(lane.height for lane in drawn.lanes)
    middles = {lane.top + lane.height // 2 for lane in drawn.lanes if lane.spells}
    for arrow in drawn.arrows:
        assert arrow.start in middles
        assert min(abs(arrow.end - middle) for middle in middles) == 6
    assert all(0 <= y <= ABOVE + AREA for area in drawn.areas for _, y, _ in area.sums)


# In words.


def test_a_scenario_is_described_in_sentences(tmp_path: Path) -> None:
    played = small_scenario(tmp_path)
    assert headline(played) == "At the end: 8 of 15 GPUs in use, 3 jobs pending"
    assert list(sentences(played)) == [
        ("8 of 8 h100 GPUs in use: speech uses 0 (14 pending); vision uses 8 (4 borrowed, 4 pending)."),
        "0 of 7 l4 GPUs in use.",
        "1 of 31 CPUs in use: speech uses 1 (1 borrowed).",
        "4Gi of 116Gi memory in use: speech uses 4Gi (4Gi borrowed).",
        "Step 2: sweep (speech) was preempted by train (vision).",
        "Step 3: extra (vision) was preempted by urgent (vision).",
    ]


def test_a_step_lists_only_changes(tmp_path: Path) -> None:
    first, second, third, fourth = turns(small_scenario(tmp_path).moments)
    assert [each.workload for each in first.starts] == ["sweep", "api", "etl"]
    assert ([each.workload for each in second.starts], [each.workload for each in second.waits]) == (
        ["train", "extra"],
        ["sweep"],
    )
    assert third.ended == ()
    assert (fourth.starts, fourth.waits, fourth.ended) == ((), (), ("api",))


def test_a_load_is_described_in_sentences() -> None:
    played = everyone(tree(small()), first="speech")
    assert headline(played) == "14 of 15 GPUs in use, 2 teams with pending jobs"
    assert list(sentences(played)) == [
        ("8 of 8 h100 GPUs in use: speech uses 4 (2 borrowed, 4 pending); vision uses 4 (4 pending)."),
        "6 of 7 l4 GPUs in use: search uses 6 (4 borrowed).",
        "vision preempted jobs with 4 h100 GPUs: 4 of speech.",
    ]
    assert headline(only(tree(small()), "vision")) == "8 of 8 GPUs in use, no jobs pending"


def test_livelocks_and_unmodelled_features_are_reported() -> None:
    played = everyone(tree(small()))
    found = replace(
        played, moments=(replace(played.last, restless=("speech", "vision")),), left_out=("admission checks: words",)
    )
    words = Page(page(found)).words
    assert headline(found) == "Some queues end in a livelock"
    assert "everyone busy: Jobs of speech, vision preempt one another endlessly" in words
    assert "so Kueue may decide otherwise: admission checks: words" in words
    assert "All features that this stack uses are simulated." in Page(page(played)).words


def test_a_guarantee_that_its_team_does_not_use_is_idle_kept_or_lent() -> None:
    def remark(played: Played, team: str) -> str:
        return next(bar.remark for each in pictures(played) for bar in bars(each.tree) if bar.team == team)

    found = tree(small())
    assert remark(only(found, "vision"), "speech") == "2 of the guarantee lent"
    played = only(found, "speech")
    moment = replace(played.last, running=played.last.running[:1])
    assert remark(replace(played, moments=(moment,)), "vision") == "4 of the guarantee idle"
    moment = replace(played.last, running=played.last.running[:3])
    assert remark(replace(played, moments=(moment,)), "vision") == "4 of the guarantee lent or idle"
    wants = Waiting("j", "search", "l4", 1, "words")
    assert remark(replace(played, moments=(replace(played.last, waiting=(wants,)),)), "search") == (
        "2 of the guarantee idle (not lent)"
    )


def test_a_flavor_has_the_colour_that_it_has_in_the_report() -> None:
    found = tree(small())
    report = {tank.flavor: tank.hue for tank in tanks(outlook(found.stack))}
    assert flavor_hues(everyone(found)) == report == {"h100": 0, "l4": 1}


@pytest.mark.slow
def test_more_teams_than_shades_leave_grey_for_those_with_least(tmp_path: Path) -> None:
    played = sixty(tmp_path)
    found = shades(played)
    assert sorted(found.values()) == ["s0", "s1", "s2", "s3", "s4", "s5", OTHERS, OTHERS]
    assert "other teams" in Page(page(played)).words
    few = shades(everyone(tree(small())))
    assert few == {"search": "s0", "speech": "s1", "vision": "s2"}
